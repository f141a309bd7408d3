"""A carrier within one process: two ends with a bounded queue of frames each way."""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.base.memory import copy
from drupelet_transports.common.transport import E_CLOSED, Transport

# Frames per queue: as many as a link sends in a short epoch.
_QUEUE_FRAMES = const(8)


class Queue:
    """The frames in one direction, oldest first; the constructor allocates room for all."""

    def __init__(self, frame_size_max: int, frames_max: int) -> None:
        self.frames = [bytearray(frame_size_max) for _ in range(frames_max)]
        self.sizes = [0] * frames_max
        self.first = 0
        self.count = 0
        self.closed = False

    def put(self, frame: bytearray, size: int) -> bool:
        """Append a copy of frame[:size]; False if the queue is full."""
        if self.count == len(self.frames):
            return False
        index = (self.first + self.count) % len(self.frames)
        copy(self.frames[index], 0, frame, 0, size)
        self.sizes[index] = size
        self.count += 1
        return True

    def take_into(self, frame: bytearray) -> int:
        """Move the oldest frame to `frame`; return its size, 0 if the queue is empty."""
        if not self.count:
            return 0
        size = self.sizes[self.first]
        copy(frame, 0, self.frames[self.first], 0, size)
        self.first = (self.first + 1) % len(self.frames)
        self.count -= 1
        return size


class LoopTransport(Transport):
    """One end of a loop; `pair` creates both."""

    def __init__(self, outward: Queue, inward: Queue) -> None:
        super().__init__(len(outward.frames[0]))
        self._outward = outward
        self._inward = inward

    def send(self, frame: bytearray, size: int) -> int:
        """Queue one frame; E_CAPACITY if the queue to the other end is full."""
        assert 0 < size <= self.frame_size_max
        if self._outward.closed or self._inward.closed:
            return E_CLOSED
        if not self._outward.put(frame, size):
            return E_CAPACITY
        self.last_wire_size = size
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """Receive the oldest frame; frames sent before a close are still delivered."""
        size = self._inward.take_into(frame)
        if size:
            self.last_wire_size = size
        elif self._outward.closed or self._inward.closed:
            return E_CLOSED
        return size

    def close(self) -> None:
        """Close this end; the other end sees E_CLOSED once its queue is empty."""
        self._outward.closed = True


def pair(
    frame_size_max: int = FRAME_SIZE_MAX, frames_max: int = _QUEUE_FRAMES
) -> "tuple[LoopTransport, LoopTransport]":
    """Return the two ends of a loop that holds `frames_max` frames each way."""
    there = Queue(frame_size_max, frames_max)
    back = Queue(frame_size_max, frames_max)
    return LoopTransport(there, back), LoopTransport(back, there)
