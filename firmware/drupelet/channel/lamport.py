"""A channel's Lamport clock (specs/sds.md "Participant state", "Send Message", "Deliver Message").

Values are kept as 8 bytes, little-endian, because a 32-bit board's small ints end at 2^30. They
count ms since the Unix epoch, or another unit that the channel's participants agree on.
"""

from drupelet.base.limits import CHANNEL_AHEAD_MS_MAX
from drupelet.base.memory import copy, fill
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms, later_ms


def compare(
    a: "bytes | bytearray | memoryview", at: int, b: "bytes | bytearray | memoryview", start: int
) -> int:
    """Return -1, 0 or 1 as the value at a[at] is less than, equal to or above that at b[start]."""
    place = 8
    while place:
        place -= 1
        one = a[at + place]
        other = b[start + place]
        if one != other:
            return -1 if one < other else 1
    return 0


def add(value: bytearray, at: int, amount: int) -> None:
    """Add `amount` (0 .. 2^30 - 256) to the value at value[at]; saturate at 2^64 - 1."""
    for place in range(at, at + 8):
        amount += value[place]
        value[place] = amount & 255
        amount >>= 8
    if amount:
        fill(value, at, 8, 255)


class LamportClock:
    """A participant's Lamport timestamp and, if known, the wall clock."""

    def __init__(self, unit_ms: int = 1) -> None:
        self.value = bytearray(8)
        self.limit = bytearray(8)  # the highest value that would be adopted, set by `is_far`
        self.far = 0  # how many values were too far ahead to be adopted
        self._unit_ms = unit_ms
        self._wall = bytearray(8)
        self._wall_ms = 0
        self._has_wall = False
        self._trusted = False

    def set_wall(self, value: "bytes | bytearray", now_ms: int, trusted: bool) -> None:
        """Set the wall clock: 8 bytes, little-endian, units since the Unix epoch at `now_ms`.

        trusted: Lamport values more than a day ahead of it are wrong. The first call raises our
        Lamport value to the wall clock; the value never decreases.
        """
        is_first = not self._has_wall
        copy(self._wall, 0, value, 0, 8)
        self._wall_ms = now_ms
        self._has_wall = True
        self._trusted = trusted
        if is_first:
            self._raise_to_wall()

    def _raise_to_wall(self) -> None:
        if compare(self.value, 0, self._wall, 0) < 0:
            copy(self.value, 0, self._wall, 0, 8)

    def advance(self, now_ms: int) -> None:
        """Advance the wall clock to `now_ms`; call it at least once in six days."""
        passed_ms = elapsed_ms(now_ms, self._wall_ms)
        if passed_ms < CLOCK_BACK_MS:
            passed = passed_ms // self._unit_ms
            add(self._wall, 0, passed)
            self._wall_ms = later_ms(self._wall_ms, passed * self._unit_ms)

    def tick(self, now_ms: int) -> None:
        """Set the value to max(wall clock, value + 1), before a message of our own."""
        add(self.value, 0, 1)
        if self._has_wall:
            self.advance(now_ms)
            self._raise_to_wall()

    def adopt(self, lamport: bytearray, now_ms: int) -> None:
        """Adopt the value of a delivered message if it is greater and not too far ahead."""
        value = self.value
        if compare(lamport, 0, value, 0) <= 0:
            return
        if not self.is_far(lamport, now_ms):
            copy(value, 0, lamport, 0, 8)
            return
        self.far += 1
        if not self._trusted:
            copy(value, 0, self.limit, 0, 8)

    def is_far(self, lamport: bytearray, now_ms: int) -> bool:
        """Whether a value is too far ahead to be adopted; sets `limit` to the highest allowed."""
        limit = self.limit
        value = self.value
        # A value below 2^32 is only a count: a new board without a clock adopts the first value
        # that it receives.
        is_set = self._has_wall or value[7] | value[6] | value[5] | value[4] != 0
        if self._trusted:
            self.advance(now_ms)
            copy(limit, 0, self._wall, 0, 8)
        elif is_set:
            copy(limit, 0, value, 0, 8)
        else:
            fill(limit, 0, 8, 255)
            return False
        add(limit, 0, CHANNEL_AHEAD_MS_MAX // self._unit_ms)
        return compare(lamport, 0, limit, 0) > 0
