"""The outgoing buffer of a channel without sync messages.

The core's buffer lets go of a message that was resent often enough: whoever missed every copy is
told of it by a later message, or by a sync message, and asks for it. Without sync messages a
message that no later one names would never be heard of again, so it stays here.
"""

from drupelet.base.limits import CHANNEL_RESENDS_MAX, WAIT_MS_MAX
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.channel.channel import Channel
from drupelet.channel.log import REFERENCED, LocalLog
from drupelet.channel.outbox import Outbox

# The wait before a resend doubles each time that a message stays, up to eight times its length.
_DOUBLINGS_MAX = 3


def is_named(log: LocalLog, handle: int) -> bool:
    """Whether whoever misses a message of the log hears of it without getting a copy: a later
    message names it, or our sync messages take turns through what nothing names."""
    row = log.rows.find_handle(handle)
    return row < 0 or log.settings.send_sync or log.has(row, REFERENCED)


class LastingOutbox(Outbox):
    """Keeps what nothing names, and resends it ever more rarely, until somebody has it."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel.keeper, channel.settings)
        self._log = channel.log
        # Handle -> how often the core would have let the message go.
        self._stays: dict[int, int] = {}

    def sweep(self, now_ms: int) -> None:
        """Begin to count the resends of a message that stays again, then let the others go."""
        rows = self.rows
        here = {rows.handle(row) for row in range(rows.count)}
        self._stays = {handle: stays for handle, stays in self._stays.items() if handle in here}
        for row in range(rows.count):
            handle = rows.handle(row)
            resends_at = (row + 1) * rows.stride - 1  # the last byte of a row
            if rows.table[resends_at] >= CHANNEL_RESENDS_MAX and not is_named(self._log, handle):
                rows.table[resends_at] = 0
                self._stays[handle] = self._stays.get(handle, 0) + 1
        super().sweep(now_ms)

    def next(self, now_ms: int, heard_ms: int) -> int:
        """As the core's; a message that stayed waits for longer after this send."""
        row = super().next(now_ms, heard_ms)
        if row >= 0:
            wait_ms = elapsed_ms(self.rows.time_ms(row), now_ms)
            doublings = min(self._stays.get(self.rows.handle(row), 0), _DOUBLINGS_MAX)
            self.rows.set_time(row, later_ms(now_ms, min(wait_ms << doublings, WAIT_MS_MAX)))
        return row
