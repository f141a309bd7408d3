"""The interface of every carrier, on boards and hosts.

A carrier moves whole frames and guarantees nothing else: a frame may be lost, repeated or late.
No call waits, and none raises once the carrier is open.
"""

from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError
from drupelet.base.limits import FRAME_SIZE_MAX

# A code beside those of drupelet.base.errors: device, broker or peer is gone, open a new carrier.
E_CLOSED = const(-11)


class TransportError(DrupeletError):
    """A carrier cannot be opened or configured; the message has its name and a remedy."""


class Transport:
    """Base of every carrier.

    Properties: `frame_size_max` (longest frame, in bytes) and `duplex` (both directions at once).
    For the owner's loop: `poll_object` is the object to register with select.poll, None if there
    is nothing to wait on; `pending_size` counts accepted bytes that are not written yet.
    For statistics: after a `send` that returned OK or a `receive_into` that returned a size,
    `last_wire_size` is the size of that frame on the carrier, framing included; `damaged` counts
    received data that was no valid frame.
    """

    up = True  # whether a frame can be sent now; one sent while it is False is lost
    poll_object: "object | None" = None
    pending_size = 0

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX, duplex: bool = True) -> None:
        self.frame_size_max = frame_size_max
        self.duplex = duplex
        self.last_wire_size = 0
        self.damaged = 0

    def send(self, frame: bytearray, size: int) -> int:
        """Send frame[:size], 1..frame_size_max bytes, as one frame; OK, or a negative code.

        After E_CAPACITY (busy: try again later) and E_CLOSED nothing was sent. `frame` may be
        reused at once. Later calls write the bytes that the carrier has not written yet.
        """
        raise NotImplementedError

    def receive_into(self, frame: bytearray) -> int:
        """Copy the next received frame to `frame`; its size, 0: none now, E_CLOSED: at the end.

        `frame` has room for `frame_size_max` bytes. Damaged frames are counted and skipped.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the device or connection; calling it twice is harmless."""
        raise NotImplementedError
