"""A channel's Lamport clock (specs/sds.md "Participant state", "Send Message", "Deliver Message").

Values have 64 bits and stay 8 bytes, little-endian: a 32-bit board's ints end at 2^30. They are
milliseconds of the epoch, or another unit that the channel's participants agree on.
"""

from drupelet.base.compat import const
from drupelet.base.limits import CHANNEL_AHEAD_MS_MAX
from drupelet.base.memory import copy, fill
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms, later_ms

LAMPORT_SIZE = const(8)


def compare(
    a: "bytes | bytearray | memoryview", at: int, b: "bytes | bytearray | memoryview", start: int
) -> int:
    """Return -1, 0 or 1 as the value at a[at] is less than, equal to or more than b[start]."""
    place = 8
    while place:
        place -= 1
        one = a[at + place]
        other = b[start + place]
        if one != other:
            return -1 if one < other else 1
    return 0


def add(value: bytearray, at: int, amount: int) -> None:
    """Add `amount` (0 .. 2^30 - 256) to the value at value[at]; it stops at 2^64 - 1."""
    for place in range(at, at + 8):
        amount += value[place]
        value[place] = amount & 255
        amount >>= 8
    if amount:
        fill(value, at, 8, 255)


class LamportClock:
    """The local Lamport timestamp and what is known of the time of day."""

    def __init__(self, unit_ms: int = 1) -> None:
        self.value = bytearray(8)
        self.limit = bytearray(8)  # the highest value that would be adopted
        self.far = 0  # values that were too far ahead to be adopted as they were
        self._unit_ms = unit_ms
        self._wall = bytearray(8)
        self._wall_ms = 0
        self._has_wall = False
        self._trusted = False

    def set_wall(self, value: "bytes | bytearray", now_ms: int, trusted: bool) -> None:
        """Tell the time of day, in units since 1970, 8 bytes little-endian, at `now_ms`.

        trusted: what is a day ahead of it is wrong. The Lamport value begins there; it never
        goes back.
        """
        begins = not self._has_wall
        copy(self._wall, 0, value, 0, 8)
        self._wall_ms = now_ms
        self._has_wall = True
        self._trusted = trusted
        if begins:
            self._raise_to_wall()

    def _raise_to_wall(self) -> None:
        if compare(self.value, 0, self._wall, 0) < 0:
            copy(self.value, 0, self._wall, 0, 8)

    def advance(self, now_ms: int) -> None:
        """Let the time of day go on: at least once in six days."""
        passed_ms = elapsed_ms(now_ms, self._wall_ms)
        if passed_ms < CLOCK_BACK_MS:
            passed = passed_ms // self._unit_ms
            add(self._wall, 0, passed)
            self._wall_ms = later_ms(self._wall_ms, passed * self._unit_ms)

    def tick(self, now_ms: int) -> None:
        """Before a message of our own: max(time of day, value + 1)."""
        add(self.value, 0, 1)
        if self._has_wall:
            self.advance(now_ms)
            self._raise_to_wall()

    def adopt(self, lamport: bytearray, now_ms: int) -> None:
        """A message with this value is delivered: adopt it if it is greater, within bounds."""
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
        """Whether a value is too far ahead to be adopted; `limit` is the highest that is not."""
        limit = self.limit
        value = self.value
        # More than a count: a new board adopts what it hears first.
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
