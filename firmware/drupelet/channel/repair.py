"""SDS-R of a channel: what we miss and ask for, what others ask for (specs/sds.md "SDS Repair").

    wanted   key 8 | times asked 1 | id size 1 | id 66 | sender size 1 | sender 32 | Lamport value
             8 of what names it, or its own | refused 1; its time: T_req
    asked    key 8 | handle 4 | answered 1; its time: T_resp, or until when it is not sent again

The wanted table keeps what is named lowest, which can be delivered first, and the highest of what
was refused for want of room: by what those depend on, the rest is found again. While all rows for
waiting messages are taken, nothing is asked for that is above them.

A request that nobody answers is repeated after T_max: the text lets it stay in every message,
which no answer could be quicker than; after `_SENDS_MAX` it gives way.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import (
    CHANNEL_MESSAGE_ID_MAX,
    CHANNEL_REFUSED_MAX,
    CHANNEL_REQUESTS_SENT,
    CHANNEL_SENDER_MAX,
)
from drupelet.base.memory import copy, equal, get_u32, put_u32
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.channel.lamport import compare
from drupelet.channel.rows import KeyRows
from drupelet.wire.sds.message import REPAIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import Buffer, TimesPort
    from drupelet.channel.settings import Settings
    from drupelet.wire.sds.message import Encoder

_ASKED_AT = const(8)
_ID_SIZE_AT = const(9)
_ID_AT = const(10)
_SENDER_SIZE_AT = const(76)
_SENDER_AT = const(77)
_LAMPORT_AT = const(109)
_REFUSED_AT = const(117)
_WANTED_STRIDE = const(118)
_HANDLE_AT = const(8)
_ANSWERED_AT = const(12)
_ASKED_STRIDE = const(13)
_SENDS_MAX = const(16)
_LATE_MS = const(1 << 29)

assert _ID_AT + CHANNEL_MESSAGE_ID_MAX == _SENDER_SIZE_AT
assert _SENDER_AT + CHANNEL_SENDER_MAX == _LAMPORT_AT


def is_due(now_ms: int, due_ms: int) -> bool:
    """Whether a time has come; both modulo 2^30, less than 6 days apart."""
    return elapsed_ms(now_ms, due_ms) < _LATE_MS


class Repairs:
    """Both repair buffers of a participant."""

    def __init__(self, identity: "TimesPort", settings: "Settings") -> None:
        self._identity = identity
        self._settings = settings
        self.wanted = KeyRows(settings.wanted_max, _WANTED_STRIDE)
        self.asked = KeyRows(settings.asked_max, _ASKED_STRIDE)
        self.refused = 0  # entries for which there was no row

    # --- what we miss ---

    def _row(self, key: bytearray, id: "Buffer", id_at: int, size: int) -> int:
        """The row of a missing message, or -1: a key alone is no proof."""
        wanted = self.wanted
        row = wanted.find(key, 0)
        while 0 <= row < wanted.count:
            place = row * _WANTED_STRIDE
            same = wanted.table[place + _ID_SIZE_AT] == size
            if same and equal(wanted.table, place + _ID_AT, id, id_at, size):
                return row
            row += 1
        return -1

    def want(
        self, key: bytearray, id: "Buffer", at: int, size: int, sender: "Buffer", sender_at: int,
        sender_size: int, lamport: bytearray, lamport_at: int, refused: bool, now_ms: int,
    ) -> None:  # fmt: skip
        """Plan to ask for a missing message at its T_req.

        sender_at: -1 if its sender is unknown. lamport: the value of the message that names it,
        or its own, if it was `refused` itself.
        """
        settings = self._settings
        if not settings.repair:
            return
        if not 0 < size <= CHANNEL_MESSAGE_ID_MAX:
            self.refused += 1
            return
        wanted = self.wanted
        row = self._row(key, id, at, size)
        if row < 0 and wanted.count == wanted.rows_max:
            self.refused += 1
            victim = self._victim(lamport, lamport_at, refused)
            if victim < 0:
                return
            wanted.remove(victim)
        if row < 0:
            wait_ms = self._identity.t_req_ms(id, at, size, settings.t_min_ms, settings.t_max_ms)
            row = wanted.add(key, 0, later_ms(now_ms, wait_ms))
        elif self._compare(row, lamport, lamport_at) <= 0:
            return
        place = row * _WANTED_STRIDE
        table = wanted.table
        table[place + _ID_SIZE_AT] = size
        copy(table, place + _ID_AT, id, at, size)
        if sender_at >= 0 and sender_size <= CHANNEL_SENDER_MAX:
            table[place + _SENDER_SIZE_AT] = sender_size
            copy(table, place + _SENDER_AT, sender, sender_at, sender_size)
        copy(table, place + _LAMPORT_AT, lamport, lamport_at, 8)
        table[place + _REFUSED_AT] |= refused

    def _victim(self, lamport: bytearray, at: int, refused: bool) -> int:
        """The row that gives way to a missing message; -1: none does.

        Of what is named the lowest stay, and of what was refused the CHANNEL_REFUSED_MAX highest.
        """
        wanted = self.wanted
        count = 0
        for row in range(wanted.count):
            count += wanted.table[row * _WANTED_STRIDE + _REFUSED_AT]
        of_refused = count > CHANNEL_REFUSED_MAX or (refused and count == CHANNEL_REFUSED_MAX)
        best = -1
        for row in range(wanted.count):
            if wanted.table[row * _WANTED_STRIDE + _REFUSED_AT] != of_refused:
                continue
            order = self._compare(best, wanted.table, row * _WANTED_STRIDE + _LAMPORT_AT)
            if best < 0 or (order > 0 if of_refused else order < 0):
                best = row
        if best >= 0 and refused == of_refused:
            order = self._compare(best, lamport, at)
            if order >= 0 if of_refused else order <= 0:
                return -1
        return best

    def forget(self, key: bytearray, id: "Buffer", at: int, size: int) -> None:
        """A refused message is named by another one, with which it will be found again."""
        row = self._row(key, id, at, size)
        if row >= 0 and self.wanted.table[row * _WANTED_STRIDE + _REFUSED_AT]:
            self.wanted.remove(row)

    def _compare(self, row: int, lamport: "Buffer", at: int) -> int:
        """-1, 0 or 1 as a row's Lamport value is less than, equal to, more than that."""
        return compare(self.wanted.table, max(row, 0) * _WANTED_STRIDE + _LAMPORT_AT, lamport, at)

    def missing_into(self, row: int, out: bytearray) -> int:
        """Copy the id in a wanted row to `out`; its size. For who asks a store node."""
        place = row * _WANTED_STRIDE
        size = self.wanted.table[place + _ID_SIZE_AT]
        copy(out, 0, self.wanted.table, place + _ID_AT, size)
        return size

    def came(self, key: bytearray, id: "Buffer", at: int, size: int) -> None:
        """A message came: it need not be asked for, nor sent by us."""
        row = self._row(key, id, at, size)
        if row >= 0:
            self.wanted.remove(row)
        row = self.asked.find(key, 0)
        if row >= 0 and not self.asked.table[row * _ASKED_STRIDE + _ANSWERED_AT]:
            self.asked.remove(row)

    def requested(self, key: bytearray, id: "Buffer", at: int, size: int, now_ms: int) -> None:
        """Another participant asks for this message: we need not, or later."""
        row = self._row(key, id, at, size)
        if row < 0:
            return
        if self.wanted.table[row * _WANTED_STRIDE + _REFUSED_AT]:
            self.wanted.times_ms[row] = later_ms(now_ms, self._settings.t_max_ms)
        else:
            self.wanted.remove(row)

    def eligible(self, now_ms: int, limit: bytearray, at: int) -> bool:
        """Whether a T_req has come. at: of a Lamport value in `limit` above which nothing is asked
        for; -1: none."""
        for row in range(self.wanted.count):
            if is_due(now_ms, self.wanted.times_ms[row]) and not self._is_above(row, limit, at):
                return True
        return False

    def _is_above(self, row: int, limit: bytearray, at: int) -> bool:
        """Whether a wanted message could not be kept, if it came."""
        return at >= 0 and self._compare(row, limit, at) > 0

    def put_requests(self, encoder: "Encoder", now_ms: int, limit: bytearray, at: int) -> None:
        """Write what is eligible, lowest T_req first, three entries at most."""
        wanted = self.wanted
        table = wanted.table
        for _ in range(CHANNEL_REQUESTS_SENT):
            best = -1
            longest = -1
            for row in range(wanted.count):
                late = elapsed_ms(now_ms, wanted.times_ms[row])
                if longest < late < _LATE_MS and not self._is_above(row, limit, at):
                    best = row
                    longest = late
            if best < 0:
                return
            place = best * _WANTED_STRIDE
            sender = table[place + _SENDER_SIZE_AT]
            code = encoder.put_entry(
                REPAIR, table, place + _ID_AT, table[place + _ID_SIZE_AT], table, 0, -1, table,
                place + _SENDER_AT, sender or -1,
            )  # fmt: skip
            if code != OK:
                return
            table[place + _ASKED_AT] += 1
            if table[place + _ASKED_AT] >= _SENDS_MAX:
                wanted.remove(best)
            else:
                wanted.times_ms[best] = later_ms(now_ms, self._settings.t_max_ms)

    # --- what others miss ---

    def ask(
        self, key: bytearray, handle: int, sender: "Buffer", sender_at: int, sender_size: int,
        id: "Buffer", at: int, size: int, now_ms: int,
    ) -> None:  # fmt: skip
        """Plan to send a message that we have, at its T_resp, if we are in its response group.

        One that was sent a moment ago is not sent again before T_max is over.
        """
        asked = self.asked
        settings = self._settings
        row = asked.find(key, 0)
        if row >= 0:
            if not asked.table[row * _ASKED_STRIDE + _ANSWERED_AT]:
                return
            if not is_due(now_ms, asked.times_ms[row]):
                self.refused += 1
                return
            asked.remove(row)
        if not self._identity.in_group(
            sender, sender_at, sender_size, id, at, size, settings.response_groups
        ):
            return
        if asked.count == asked.rows_max and not self._forget(now_ms):
            self.refused += 1
            return
        wait_ms = self._identity.t_resp_ms(
            sender, sender_at, sender_size, id, at, size, settings.t_max_ms
        )
        row = asked.add(key, 0, later_ms(now_ms, wait_ms))
        put_u32(asked.table, row * _ASKED_STRIDE + _HANDLE_AT, handle)

    def purge(self, now_ms: int) -> None:
        """Forget what was sent so long ago that it may be sent again."""
        self.wanted.keep_due(now_ms)
        self.asked.keep_due(now_ms)
        row = self.asked.count
        while row:
            row -= 1
            answered = self.asked.table[row * _ASKED_STRIDE + _ANSWERED_AT]
            if answered and is_due(now_ms, self.asked.times_ms[row]):
                self.asked.remove(row)

    def _forget(self, now_ms: int) -> bool:
        """Free a row whose message was sent: one whose time is over, else any."""
        asked = self.asked
        free = -1
        for row in range(asked.count):
            if asked.table[row * _ASKED_STRIDE + _ANSWERED_AT]:
                free = row
                if is_due(now_ms, asked.times_ms[row]):
                    break
        if free >= 0:
            asked.remove(free)
        return free >= 0

    def due(self, now_ms: int) -> int:
        """The handle of a message whose T_resp has come, or 0; it counts as sent from now on."""
        asked = self.asked
        for row in range(asked.count):
            place = row * _ASKED_STRIDE
            if not asked.table[place + _ANSWERED_AT] and is_due(now_ms, asked.times_ms[row]):
                asked.table[place + _ANSWERED_AT] = 1
                asked.times_ms[row] = later_ms(now_ms, self._settings.t_max_ms)
                return get_u32(asked.table, place + _HANDLE_AT)
        return 0

    def wait_ms(self, now_ms: int, longest_ms: int) -> int:
        """Milliseconds until the next T_resp, at most `longest_ms`."""
        asked = self.asked
        for row in range(asked.count):
            if not asked.table[row * _ASKED_STRIDE + _ANSWERED_AT]:
                if is_due(now_ms, asked.times_ms[row]):
                    return 0
                longest_ms = min(longest_ms, elapsed_ms(asked.times_ms[row], now_ms))
        return longest_ms
