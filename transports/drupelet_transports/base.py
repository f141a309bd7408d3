"""What every carrier offers: three calls and two facts. Runs on boards and hosts.

A carrier moves whole frames and promises nothing else: a frame may be lost, repeated or late.
No call waits, and none raises once the carrier is open.
"""

from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError
from drupelet.base.limits import FRAME_SIZE_MAX

# Beside OK and E_CAPACITY of drupelet.base.errors: the device, broker or peer is gone, open anew.
E_CLOSED = const(-11)


class TransportError(DrupeletError):
    """A carrier cannot be opened or set up; the message names it and the remedy."""


class Transport:
    """Base of every carrier.

    Facts: `frame_size_max` (bytes in one frame) and `duplex` (both directions at any time).
    For the owner's loop: `poll_object` is what to register with select.poll, None if there is
    nothing to wait on; `pending_size` counts accepted bytes that still wait to be written.
    For the books: after a `send` that returned OK or a `receive_into` that returned a size,
    `last_wire_size` is what that frame took on the carrier, framing included; `damaged` counts
    what arrived and was no frame.
    """

    up = True  # whether a frame could leave now; one that is sent while it is not is lost
    poll_object: "object | None" = None
    pending_size = 0

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX, duplex: bool = True) -> None:
        self.frame_size_max = frame_size_max
        self.duplex = duplex
        self.last_wire_size = 0
        self.damaged = 0

    def send(self, frame: bytearray, size: int) -> int:
        """Take the first `size` bytes (1..frame_size_max) as one frame: OK, or a code below 0.

        E_CAPACITY (busy, offer it again later) and E_CLOSED mean that nothing of it left. `frame`
        may be used again at once. Bytes that the carrier did not take yet go out with later calls.
        """
        raise NotImplementedError

    def receive_into(self, frame: bytearray) -> int:
        """Put one whole frame into `frame` and return its size; 0 is none now, E_CLOSED is over.

        `frame` has room for `frame_size_max` bytes. Damaged frames are counted and skipped.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the device or connection; calling it twice is harmless."""
        raise NotImplementedError
