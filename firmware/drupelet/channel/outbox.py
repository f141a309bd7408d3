"""The outgoing buffer of a channel (specs/sds.md "Review ACK Status", "Periodic Outgoing Buffer
Sweep").

    outgoing   rows (rows.py) | resends that others were heard before 1; their time: when it is
               due to be sent
"""

from drupelet.base.compat import const
from drupelet.base.limits import CHANNEL_RESENDS_MAX
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.channel.rows import KeyRows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import BloomPort, KeeperPort
    from drupelet.channel.settings import Settings

UNSENT = const(0)
UNACKNOWLEDGED = const(1)
POSSIBLY = const(2)  # acknowledged, as a received filter has it
_RESENDS_AT = const(16)
_STRIDE = const(17)


class Outbox:
    """Messages that nobody has acknowledged yet; the keeper keeps them."""

    def __init__(self, keeper: "KeeperPort", settings: "Settings") -> None:
        self._keeper = keeper
        self._settings = settings
        self.rows = KeyRows(settings.outgoing_max, _STRIDE)
        self.resent = 0
        self.unnamed = 0  # messages that left unacknowledged after CHANNEL_RESENDS_MAX

    def add(self, key: bytearray, handle: int, now_ms: int) -> None:
        """Add a message; it leaves with the next frame."""
        self._keeper.pin(handle, True)
        self.rows.add(key, handle, now_ms)

    def release(self, row: int) -> None:
        """Remove a message. It stays in the log."""
        handle = self.rows.handle(row)
        self.rows.remove(row)
        self._keeper.pin(handle, False)

    def _wait_ms(self, state: int) -> int:
        """How long after it was sent a message in this state is sent again."""
        settings = self._settings
        return settings.period_ms * (settings.possibly_periods if state == POSSIBLY else 1)

    def review_filter(self, bloom: "BloomPort", bits: bytearray, at: int) -> None:
        """What a received filter seems to have is possibly acknowledged."""
        rows = self.rows
        for row in range(rows.count):
            place = row * _STRIDE
            if rows.state(row) == UNACKNOWLEDGED and bloom.has(bits, at, rows.table, place):
                rows.set_state(row, POSSIBLY)
                more_ms = self._wait_ms(POSSIBLY) - self._wait_ms(UNACKNOWLEDGED)
                rows.set_time(row, later_ms(rows.time_ms(row), more_ms))

    def sweep(self, now_ms: int) -> None:
        """Remove what was sent CHANNEL_RESENDS_MAX times while others were heard.

        From now on whoever misses it has to ask for it. Some peers name the newest few messages of
        their log only, once.
        """
        self.rows.keep_due(now_ms)
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
        for state in range(POSSIBLY + 1):
            row = rows.next_due(state, now_ms)
            if row >= 0:
                break
        else:
            return -1
        passed_ms = elapsed_ms(now_ms, rows.time_ms(row)) + self._wait_ms(state)
        if state == UNSENT:
            state = UNACKNOWLEDGED
            rows.set_state(row, state)
        else:
            self.resent += 1
            if heard_ms >= 0 and elapsed_ms(now_ms, heard_ms) <= passed_ms:
                at = row * _STRIDE + _RESENDS_AT
                rows.table[at] = min(rows.table[at] + 1, 255)
        rows.set_time(row, later_ms(now_ms, self._wait_ms(state)))
        return row
