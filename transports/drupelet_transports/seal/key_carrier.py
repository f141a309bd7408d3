"""A sealed carrier that also exchanges sender keys (docs/SPEC.md 12.9), on boards and hosts.

It sends and handles frames of kind 0x56; the link sees only its own frames.
"""

from drupelet.channel.key_distribution import KIND_SENDER_KEY
from drupelet.seal.record import CLOSED
from drupelet_transports.seal.sealed_carrier import Sealed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.channel.key_distribution import KeyDistribution
    from drupelet.seal.seal import Seal
    from drupelet_transports.common.transport import Transport


class KeyCarrier(Sealed):
    """As Sealed; `distributions` has the topics that the peer listens to, with its row there."""

    def __init__(
        self, carrier: "Transport", seal: "Seal", now_ms: "Callable[[], int]", buf: bytearray
    ) -> None:
        Sealed.__init__(self, carrier, seal, now_ms, buf)
        self.distributions: list[tuple[KeyDistribution, int]] = []

    def receive_into(self, frame: bytearray) -> int:
        """See Transport; it also sends the sender keys that are due."""
        now_ms = self._now_ms()
        for distribution, row in self.distributions:
            if not self.carrier.pending_size and distribution.is_due(row, now_ms):
                self.send(frame, distribution.record_into(frame, row))
        size = Sealed.receive_into(self, frame)
        while size > 0:
            for distribution, row in self.distributions:
                distribution.on_heard(row)
            if frame[0] != KIND_SENDER_KEY:
                break
            for distribution, row in self.distributions:
                answer = distribution.receive(frame, size, row)
                if answer:
                    self.send(frame, answer)
                    break
            size = Sealed.receive_into(self, frame)
        if self.seal.flags & CLOSED:
            # The peer was revoked just now: begin new chains without it.
            for distribution, row in self.distributions:
                if not distribution.is_excluded(row):
                    distribution.revoke(row)
        return size
