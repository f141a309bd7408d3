"""Wraps a carrier and injects faults when sending: loss, repeats, reordering, bit flips, delay.

All randomness comes from the callable that is passed in, so a seed replays a run. Rates are per
mille. Wrap both ends for faults in both directions.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.memory import copy
from drupelet_transports.common.transport import Transport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Most frames held back at a time; if there are more, they are sent at once.
_HELD_MAX = const(8)


class FaultyTransport(Transport):
    """The carrier `inner` with faults; `random(n)` returns an integer from 0 to n - 1.

    The rates are attributes that may be changed between calls; 0 turns a fault off. `delay_calls`
    is how long a frame may be delayed, in calls of `send` and `receive_into`. The counters `lost`,
    `repeated`, `reordered`, `flipped`, `delayed` count the faults.
    """

    def __init__(
        self,
        inner: Transport,
        random: "Callable[[int], int]",
        loss: int = 0,
        repeat: int = 0,
        reorder: int = 0,
        flip: int = 0,
        delay: int = 0,
        delay_calls: int = 16,
    ) -> None:
        super().__init__(inner.frame_size_max, inner.duplex)
        assert delay_calls > 0
        self.poll_object = inner.poll_object
        self.loss = loss
        self.repeat = repeat
        self.reorder = reorder
        self.flip = flip
        self.delay = delay
        self.delay_calls = delay_calls
        self.lost = self.repeated = self.reordered = self.flipped = self.delayed = 0
        self._inner = inner
        self._random = random
        self._scratch = bytearray(inner.frame_size_max)
        self._held = [bytearray(inner.frame_size_max) for _ in range(_HELD_MAX)]
        self._sizes = [0] * _HELD_MAX  # 0: free
        self._waits = [0] * _HELD_MAX  # calls still to wait

    def send(self, frame: bytearray, size: int) -> int:
        """Send one frame, perhaps with a fault; OK for a lost one."""
        assert 0 < size <= self.frame_size_max
        if self._drawn(self.loss):
            self.lost += 1
            self.last_wire_size = size
            self._release()
            return OK
        if self._drawn(self.flip):
            self.flipped += 1
            copy(self._scratch, 0, frame, 0, size)
            frame = self._scratch
            frame[self._random(size)] ^= 1 << self._random(8)
        # A frame held for one call is sent after the next one.
        if self._drawn(self.reorder) and self._hold(frame, size, 1):
            self.reordered += 1
            return OK
        if self._drawn(self.delay) and self._hold(frame, size, 1 + self._random(self.delay_calls)):
            self.delayed += 1
            return OK
        code = self._inner.send(frame, size)
        if code == OK:
            self.last_wire_size = self._inner.last_wire_size
            if self._drawn(self.repeat) and self._inner.send(frame, size) == OK:
                self.repeated += 1
        self._release()
        return code

    def receive_into(self, frame: bytearray) -> int:
        """Receive from the inner carrier, without faults."""
        self._release()
        size = self._inner.receive_into(frame)
        self.last_wire_size = self._inner.last_wire_size
        self.damaged = self._inner.damaged
        self.pending_size = self._inner.pending_size
        return size

    def close(self) -> None:
        """Close the inner carrier; frames held back are lost."""
        for slot in range(_HELD_MAX):
            self._sizes[slot] = 0
        self._inner.close()

    def _drawn(self, per_mille: int) -> bool:
        return per_mille > 0 and self._random(1000) < per_mille

    def _hold(self, frame: bytearray, size: int, calls: int) -> bool:
        for slot in range(_HELD_MAX):
            if not self._sizes[slot]:
                copy(self._held[slot], 0, frame, 0, size)
                self._sizes[slot] = size
                self._waits[slot] = calls
                self.last_wire_size = size
                return True
        return False

    def _release(self) -> None:
        """Count a call, and send the held frames that have waited long enough."""
        for slot in range(_HELD_MAX):
            if self._sizes[slot]:
                self._waits[slot] -= 1
                due = self._waits[slot] <= 0
                if due and self._inner.send(self._held[slot], self._sizes[slot]) == OK:
                    self._sizes[slot] = 0
