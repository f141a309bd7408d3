"""The outgoing buffer of a channel (specs/sds.md "Review ACK Status", "Periodic Outgoing Buffer
Sweep").

    outgoing   row (rows.py) | resend count 1, of resends before which other participants were
               heard; time: when it is due to be sent
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
POSSIBLY = const(2)  # possibly acknowledged: a received filter contains it
_RESENDS_AT = const(16)
_STRIDE = const(17)


class Outbox:
    """Messages that are not acknowledged yet; the keeper holds them."""

    def __init__(self, keeper: "KeeperPort", settings: "Settings") -> None:
        self._keeper = keeper
        self._settings = settings
        self.rows = KeyRows(settings.outgoing_max, _STRIDE)
        self.resent = 0
        self.unnamed = 0  # messages removed unacknowledged after CHANNEL_RESENDS_MAX resends

    def add(self, key: bytearray, handle: int, now_ms: int) -> None:
        """Add a message, due at once."""
        self._keeper.pin(handle, True)
        self.rows.add(key, handle, now_ms)

    def release(self, row: int) -> None:
        """Remove a message from the outgoing buffer; it stays in the log."""
        handle = self.rows.handle(row)
        self.rows.remove(row)
        self._keeper.pin(handle, False)

    def _wait_ms(self, state: int) -> int:
        """The time after which a message in this state is sent again, in ms."""
        settings = self._settings
        return settings.period_ms * (settings.possibly_periods if state == POSSIBLY else 1)

    def review_filter(self, bloom: "BloomPort", bits: bytearray, at: int) -> None:
        """Mark messages that a received filter seems to contain as possibly acknowledged."""
        rows = self.rows
        for row in range(rows.count):
            place = row * _STRIDE
            if rows.state(row) == UNACKNOWLEDGED and bloom.has(bits, at, rows.table, place):
                rows.set_state(row, POSSIBLY)
                more_ms = self._wait_ms(POSSIBLY) - self._wait_ms(UNACKNOWLEDGED)
                rows.set_time(row, later_ms(rows.time_ms(row), more_ms))

    def sweep(self, now_ms: int) -> None:
        """Remove messages that were resent CHANNEL_RESENDS_MAX times while others were heard.

        Participants that miss them must request them. Some implementations name only the newest
        few messages of their log, and only once, so an acknowledgement may never come.
        """
        self.rows.keep_due(now_ms)
        for row in range(self.rows.count - 1, -1, -1):
            if self.rows.table[row * _STRIDE + _RESENDS_AT] >= CHANNEL_RESENDS_MAX:
                self.release(row)
                self.unnamed += 1

    def next(self, now_ms: int, heard_ms: int) -> int:
        """Return the row of the next message to send now, and count it as sent; -1: none.

        The order: never sent, unacknowledged, possibly acknowledged. heard_ms: when another
        participant was heard last, -1: never.
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
