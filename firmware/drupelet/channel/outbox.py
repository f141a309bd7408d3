"""The outgoing buffer of a channel (specs/sds.md "Review ACK Status", "Periodic Outgoing Buffer
Sweep").

    outgoing   key 8 | handle 4 | state 1 | resends that others were heard before 1; its time: when
               it was sent last
"""

from drupelet.base.compat import const
from drupelet.base.limits import CHANNEL_RESENDS_MAX
from drupelet.base.memory import get_u32, put_u32
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.channel.rows import KeyRows, sooner_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import BloomPort, KeeperPort
    from drupelet.channel.settings import Settings

UNSENT = const(0)
UNACKNOWLEDGED = const(1)
POSSIBLY = const(2)  # acknowledged, as a received filter has it
_HANDLE_AT = const(8)
STATE_AT = const(12)
_RESENDS_AT = const(13)
_STRIDE = const(14)


class Outbox:
    """Messages that nobody has acknowledged yet; the keeper keeps them."""

    def __init__(self, keeper: "KeeperPort", settings: "Settings") -> None:
        self._keeper = keeper
        self._settings = settings
        self.rows = KeyRows(settings.outgoing_max, _STRIDE)
        self.resent = 0
        self.unnamed = 0  # messages that left unacknowledged after CHANNEL_RESENDS_MAX

    def is_full(self) -> bool:
        """Whether all rows are in use."""
        return self.rows.count == self.rows.rows_max

    def add(self, key: bytearray, handle: int, now_ms: int) -> None:
        """Add a message; it leaves with the next frame."""
        self._keeper.pin(handle, True)
        row = self.rows.add(key, 0, now_ms)
        put_u32(self.rows.table, row * _STRIDE + _HANDLE_AT, handle)

    def handle(self, row: int) -> int:
        """The keeper's handle of a row."""
        return get_u32(self.rows.table, row * _STRIDE + _HANDLE_AT)

    def release(self, row: int) -> int:
        """Remove a message; its handle. It stays in the log."""
        handle = self.handle(row)
        self.rows.remove(row)
        self._keeper.pin(handle, False)
        return handle

    def review_filter(self, bloom: "BloomPort", bits: bytearray, at: int) -> None:
        """What a received filter seems to have is possibly acknowledged."""
        rows = self.rows
        for row in range(rows.count):
            place = row * _STRIDE
            if rows.table[place + STATE_AT] == UNACKNOWLEDGED and bloom.has(
                bits, at, rows.table, place
            ):
                rows.table[place + STATE_AT] = POSSIBLY

    def release_unnamed(self) -> None:
        """Remove what was sent CHANNEL_RESENDS_MAX times while others were heard.

        From now on whoever misses it has to ask for it. Some peers name the newest few messages of
        their log only, once.
        """
        for row in range(self.rows.count - 1, -1, -1):
            if self.rows.table[row * _STRIDE + _RESENDS_AT] >= CHANNEL_RESENDS_MAX:
                self.release(row)
                self.unnamed += 1

    def next(self, now_ms: int, heard_ms: int) -> int:
        """The row of the next message to send now, which counts as sent; -1: none.

        What was never sent goes first, then what nobody acknowledged, then what somebody may have.
        heard_ms: when something of another participant came last, -1: never.
        """
        rows = self.rows
        table = rows.table
        row = self._due(UNSENT, 0, now_ms)
        if row < 0:
            row = self._due(UNACKNOWLEDGED, self._settings.period_ms, now_ms)
        if row < 0:
            wait_ms = self._settings.period_ms * self._settings.possibly_periods
            row = self._due(POSSIBLY, wait_ms, now_ms)
        if row < 0:
            return -1
        place = row * _STRIDE
        if table[place + STATE_AT] == UNSENT:
            table[place + STATE_AT] = UNACKNOWLEDGED
        else:
            self.resent += 1
            since_ms = elapsed_ms(now_ms, rows.times_ms[row])
            if heard_ms >= 0 and elapsed_ms(now_ms, heard_ms) <= since_ms:
                table[place + _RESENDS_AT] = min(table[place + _RESENDS_AT] + 1, 255)
        rows.times_ms[row] = now_ms
        return row

    def _due(self, state: int, wait_ms: int, now_ms: int) -> int:
        """The row in a state that was sent longest ago, if that is `wait_ms` or more; or -1."""
        rows = self.rows
        best = -1
        longest = wait_ms - 1
        for row in range(rows.count):
            if rows.table[row * _STRIDE + STATE_AT] == state:
                passed = elapsed_ms(now_ms, rows.times_ms[row])
                if passed > longest:
                    best = row
                    longest = passed
        return best

    def wait_ms(self, now_ms: int, wait_ms: int) -> int:
        """Milliseconds until a message is due, at most `wait_ms`."""
        rows = self.rows
        for row in range(rows.count):
            after_ms = self._settings.period_ms
            if rows.table[row * _STRIDE + STATE_AT] == POSSIBLY:
                after_ms *= self._settings.possibly_periods
            wait_ms = sooner_ms(later_ms(rows.times_ms[row], after_ms), now_ms, wait_ms)
        return wait_ms
