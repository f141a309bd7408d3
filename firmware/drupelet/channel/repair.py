"""SDS-R of a channel: requests for messages missing here, responses to requests of others
(specs/sds.md "SDS Repair").

    wanted     row (rows.py) | requests sent 1 | Lamport value 8 | id size 1 | id 66 | sender
               size 1 | sender 32; time: T_req; state: 1: the message was received, but refused for
               lack of room. The value is the refused message's own, else that of the message that
               names it
    responses  row; time: T_resp, or once sent, until when it is not sent again; state: 1: sent

If the wanted table is full, it keeps the messages named by the lowest ones, which can be delivered
first, and of the refused messages the highest, whose dependencies lead to the rest. While all rows
for waiting messages are in use, nothing above them is requested.

An unanswered request is repeated after T_max. (The specification allows to repeat it in every
message, but no answer could be that quick.) After `_REQUESTS_MAX` requests the row is freed.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import CHANNEL_MESSAGE_ID_MAX, CHANNEL_REFUSED_MAX, CHANNEL_SENDER_MAX
from drupelet.base.memory import copy, equal
from drupelet.base.time_ms import CLOCK_BACK_MS, elapsed_ms, later_ms
from drupelet.channel.keeper import NAMES_ID
from drupelet.channel.lamport import compare
from drupelet.channel.rows import KeyRows, is_due
from drupelet.wire.sds.message import REPAIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import Buffer, TimesPort
    from drupelet.channel.settings import Settings
    from drupelet.wire.sds.message import Encoder

_REQUESTS_AT = const(16)
_LAMPORT_AT = const(17)
WANTED_ID_AT = const(25)
_SENDER_SIZE_AT = const(92)
_WANTED_STRIDE = const(125)
_RESPONSE_STRIDE = const(16)
_REQUESTS_MAX = const(16)
# States of a response.
PLANNED = const(0)
_SENT = const(1)

assert WANTED_ID_AT + 1 + CHANNEL_MESSAGE_ID_MAX == _SENDER_SIZE_AT
assert _SENDER_SIZE_AT + 1 + CHANNEL_SENDER_MAX == _WANTED_STRIDE


class Repair:
    """The repair buffers of a participant, incoming and outgoing."""

    def __init__(self, identity: "TimesPort", settings: "Settings") -> None:
        self.identity = identity
        self._settings = settings
        self.wanted = KeyRows(settings.wanted_max, _WANTED_STRIDE)
        self.responses = KeyRows(settings.asked_max, _RESPONSE_STRIDE)
        self.refused = 0  # entries for which there was no row

    # --- what is missing here ---

    def _row(self, key: bytearray, id: "Buffer", id_at: int, size: int) -> int:
        """Return the row of a missing message by key and id, or -1."""
        wanted = self.wanted
        row = wanted.find(key)
        while 0 <= row < wanted.count:
            place = row * _WANTED_STRIDE
            is_match = wanted.table[place + WANTED_ID_AT] == size
            if is_match and equal(wanted.table, place + WANTED_ID_AT + 1, id, id_at, size):
                return row
            row += 1
        return -1

    def want(
        self, key: bytearray, names: bytearray, lamport: bytearray, at: int, refused: bool,
        now_ms: int,
    ) -> None:  # fmt: skip
        """Plan a request for a missing message at its T_req.

        names: its sender and id in the format of a keeper's `names_into`; size 0: unknown.
        lamport[at]: the value of the message that names it, or its own if it was `refused`.
        """
        settings = self._settings
        if not settings.repair:
            return
        size = names[NAMES_ID]
        if not size:
            self.refused += 1
            return
        id_at = NAMES_ID + 1
        wanted = self.wanted
        row = self._row(key, names, id_at, size)
        if row < 0 and wanted.is_full():
            self.refused += 1
            victim = self._victim(lamport, at, refused)
            if victim < 0:
                return
            wanted.remove(victim)
        if row < 0:
            wait_ms = self.identity.t_req_ms(
                names, id_at, size, settings.t_min_ms, settings.t_max_ms
            )
            row = wanted.add(key, 0, later_ms(now_ms, wait_ms))
        elif self._compare(row, lamport, at) <= 0:
            return
        place = row * _WANTED_STRIDE
        table = wanted.table
        copy(table, place + WANTED_ID_AT, names, NAMES_ID, 1 + size)
        if 0 < names[0] <= CHANNEL_SENDER_MAX:
            copy(table, place + _SENDER_SIZE_AT, names, 0, 1 + names[0])
        copy(table, place + _LAMPORT_AT, lamport, at, 8)
        wanted.set_state(row, wanted.state(row) | refused)

    def _victim(self, lamport: bytearray, at: int, refused: bool) -> int:
        """Return the row to evict for a missing message; -1: none.

        The CHANNEL_REFUSED_MAX highest refused messages stay, and the lowest of the others.
        """
        wanted = self.wanted
        count = 0
        for row in range(wanted.count):
            count += wanted.state(row)
        is_refused = count > CHANNEL_REFUSED_MAX or (refused and count == CHANNEL_REFUSED_MAX)
        best = -1
        for row in range(wanted.count):
            if wanted.state(row) != is_refused:
                continue
            order = self._compare(best, wanted.table, row * _WANTED_STRIDE + _LAMPORT_AT)
            if best < 0 or (order > 0 if is_refused else order < 0):
                best = row
        if best >= 0 and refused == is_refused:
            order = self._compare(best, lamport, at)
            if order >= 0 if is_refused else order <= 0:
                return -1
        return best

    def _compare(self, row: int, lamport: "Buffer", at: int) -> int:
        """Return -1, 0 or 1 as a row's Lamport value is below, equal to or above lamport[at]."""
        return compare(self.wanted.table, max(row, 0) * _WANTED_STRIDE + _LAMPORT_AT, lamport, at)

    def on_named(self, key: bytearray, id: "Buffer", at: int, size: int) -> None:
        """Drop the request for a refused message that another message names.

        The other message leads to it again.
        """
        row = self._row(key, id, at, size)
        if row >= 0 and self.wanted.state(row):
            self.wanted.remove(row)

    def on_received(self, key: bytearray, id: "Buffer", at: int, size: int) -> None:
        """Drop our request and our planned response for a message that was received."""
        row = self._row(key, id, at, size)
        if row >= 0:
            self.wanted.remove(row)
        row = self.responses.find(key)
        if row >= 0 and self.responses.state(row) == PLANNED:
            self.responses.remove(row)

    def on_requested(self, key: bytearray, id: "Buffer", at: int, size: int, now_ms: int) -> None:
        """Drop our request for a message that another participant requests; if it was refused,
        delay it by T_max."""
        row = self._row(key, id, at, size)
        if row < 0:
            return
        if self.wanted.state(row):
            self.wanted.set_time(row, later_ms(now_ms, self._settings.t_max_ms))
        else:
            self.wanted.remove(row)

    def next_request(self, now_ms: int, limit: bytearray, at: int) -> int:
        """Return the row of the request that has been due longest; -1: none is due.

        Nothing above the Lamport value at limit[at] is requested; `at` is -1 for no limit.
        """
        wanted = self.wanted
        best = -1
        longest = -1
        for row in range(wanted.count):
            late = elapsed_ms(now_ms, wanted.time_ms(row))
            if longest < late < CLOCK_BACK_MS and (at < 0 or self._compare(row, limit, at) <= 0):
                best = row
                longest = late
        return best

    def put_request(self, encoder: "Encoder", row: int, now_ms: int) -> int:
        """Write the repair request of a row and make it due again after T_max; OK or a code."""
        wanted = self.wanted
        table = wanted.table
        place = row * _WANTED_STRIDE
        id_at = place + WANTED_ID_AT
        sender_at = place + _SENDER_SIZE_AT
        code = encoder.put_entry(
            REPAIR, table, id_at + 1, table[id_at], table, 0, -1, table, sender_at + 1,
            table[sender_at] or -1,
        )  # fmt: skip
        if code == OK:
            table[place + _REQUESTS_AT] += 1
            wanted.set_time(row, later_ms(now_ms, self._settings.t_max_ms))
            if table[place + _REQUESTS_AT] >= _REQUESTS_MAX:
                wanted.remove(row)
        return code

    # --- what others miss ---

    def plan_response(self, key: bytearray, handle: int, names: bytearray, now_ms: int) -> None:
        """Plan to send a kept message at its T_resp if we are in its response group.

        A response is not repeated within T_max. names: as in `want`.
        """
        responses = self.responses
        settings = self._settings
        row = responses.find(key)
        if row >= 0:
            if responses.state(row) == PLANNED:
                return
            if not is_due(now_ms, responses.time_ms(row)):
                self.refused += 1
                return
            responses.remove(row)
        size = names[NAMES_ID]
        groups = settings.response_groups
        if not self.identity.in_group(names, 1, names[0], names, NAMES_ID + 1, size, groups):
            return
        if responses.is_full():
            # Evict the response that was sent first, even if its T_max is not over.
            row = responses.next_due(_SENT, later_ms(now_ms, settings.t_max_ms))
            if row < 0:
                self.refused += 1
                return
            responses.remove(row)
        wait_ms = self.identity.t_resp_ms(
            names, 1, names[0], names, NAMES_ID + 1, size, settings.t_max_ms
        )
        responses.add(key, handle, later_ms(now_ms, wait_ms))

    def sweep(self, now_ms: int) -> None:
        """Free the rows of responses that were sent at least T_max ago."""
        responses = self.responses
        self.wanted.keep_due(now_ms)
        responses.keep_due(now_ms)
        row = responses.next_due(_SENT, now_ms)
        while row >= 0:
            responses.remove(row)
            row = responses.next_due(_SENT, now_ms)

    def next_response(self, now_ms: int) -> int:
        """Return the handle of the response due longest and count it as sent; 0: none is due."""
        responses = self.responses
        row = responses.next_due(PLANNED, now_ms)
        if row < 0:
            return 0
        responses.set_state(row, _SENT)
        responses.set_time(row, later_ms(now_ms, self._settings.t_max_ms))
        return responses.handle(row)
