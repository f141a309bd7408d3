"""A multicast carrier whose frames are sealed with sender keys (docs/SPEC.md 12.8).

For boards and hosts. Every frame that is sent is sealed; received frames that are not by a member,
old or replayed are dropped.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.memory import copy
from drupelet.channel.sender_keys import OVERHEAD
from drupelet_transports.common.wrapper import Behind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.channel.sender_keys import SenderKeys
    from drupelet_transports.common.transport import Transport

# Refused frames that one call reads, so that a flood cannot keep a board busy.
_REFUSED_MAX = const(32)


class SealedTopic(Behind):
    """`carrier` with sender keys; `buf` has room for the carrier's longest frame.

    `send` may also return E_STORAGE: the keys could not be made durable.
    """

    def __init__(
        self, carrier: "Transport", keys: "SenderKeys", now_ms: "Callable[[], int]", buf: bytearray
    ) -> None:
        self.carrier = carrier
        self.keys = keys
        self.duplex = True
        self.last_wire_size = 0
        self._now_ms = now_ms
        self._buf = buf
        self.frame_size_max = min(carrier.frame_size_max, len(buf)) - OVERHEAD

    def send(self, frame: bytearray, size: int) -> int:
        """Seal and send one frame to all listeners; see Transport."""
        assert 0 < size <= self.frame_size_max
        sealed = self.keys.seal_into(self._buf, frame, size)
        code = self.carrier.send(self._buf, sealed) if sealed > 0 else sealed
        if code == OK:
            self.last_wire_size = self.carrier.last_wire_size
        return code

    def receive_into(self, frame: bytearray) -> int:
        """Receive the next frame of a member; see Transport."""
        buf = self._buf
        tries = _REFUSED_MAX
        while tries:
            tries -= 1
            size = self.carrier.receive_into(buf)
            if size <= 0:
                return size
            size = self.keys.open(buf, size, self._now_ms())
            if size > 0:
                self.last_wire_size = self.carrier.last_wire_size
                copy(frame, 0, buf, self.keys.at, size)
                return size
        return 0
