"""The codec of the MVDS profiles: translates between payloads and engine calls.

A stored body of this family begins with a head (docs/SPEC.md 4.3) that is not hashed: a byte with
the number of parents and the ephemeral flag, then the parents. On the wire they are the message's
metadata; `mvds-nested` has no metadata and leaves them out.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import DEPENDENCIES_MAX, FRAME_SIZE_MAX, ID_SIZE
from drupelet.base.memory import copy, equal, fill, find
from drupelet.engine import oversize
from drupelet.engine.members import HEAD_EPHEMERAL, HEAD_PARENTS
from drupelet.wire.mvds.payload import (
    ACK,
    EPHEMERAL,
    GROUP,
    MESSAGE,
    METADATA,
    MVDS_1,
    MVDS_5001,
    MVDS_NESTED,
    OFFER,
    REQUEST,
    Payload,
)
from drupelet.wire.profiles import PROFILE_MVDS_1, PROFILE_MVDS_NESTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.exchange import Exchange

# The index under which an exchange counts each entry of a payload, by ACK to GROUP_OFFER.
_COUNTED = b"\0\0\2\3\1\0\2"
_COUNT_ASK = const(4)  # the SEGMENT of `oversize`


class MvdsCodec(Payload):
    """Reads and writes payloads; it keeps no state between two calls, so links share it."""

    def __init__(self, profile: int) -> None:
        table = MVDS_5001
        if profile == PROFILE_MVDS_1:
            table = MVDS_1
        elif profile == PROFILE_MVDS_NESTED:
            table = MVDS_NESTED
        Payload.__init__(self, table)
        self._parents = bytearray(DEPENDENCIES_MAX * ID_SIZE)  # of the current message
        # The previous ACK's id: the same id twice in a row says that the message is gone.
        self._last_ack = bytearray(ID_SIZE)

    # --- in ---

    def parse(self, exchange: "Exchange", frame: bytearray, at: int, end: int) -> int:
        """Hand each record of the payload frame[at:end] to the engine; E_PEER if malformed."""
        self.open(frame, at, end)
        fill(self._last_ack, 0, ID_SIZE, 0)
        is_visible = False  # the peer may see the group of the current group offer
        entry = self.next()
        while entry > 0:
            if entry == ACK:
                exchange.on_ack(frame, self.at)
                if equal(self._last_ack, 0, frame, self.at, ID_SIZE):
                    exchange.on_gone(frame, self.at)
                copy(self._last_ack, 0, frame, self.at, ID_SIZE)
            elif entry == REQUEST:
                exchange.on_request(frame, self.at)
            elif entry == MESSAGE:
                self._take(exchange, frame)
            elif entry == GROUP:
                is_visible = self.group_size == ID_SIZE and exchange.sees_id(frame, self.group_at)
            elif entry == OFFER or is_visible:
                exchange.on_offer(frame, self.at)
            if entry != GROUP:
                exchange.count_record(False, _COUNTED[entry], self.end - at)
                at = self.end
            entry = self.next()
        return OK if entry == OK else E_PEER

    def _take(self, exchange: "Exchange", frame: bytearray) -> None:
        """Rewrite a message in place into its stored form, head and body, and hand it on.

        The stored form is never longer than the message on the wire.
        """
        core = exchange.core
        if self.group_size != ID_SIZE:
            core.unknown += 1
            return
        parents = self._parents
        start = self.at
        count = 0
        at = self.next_parent()
        while at >= 0 and count < DEPENDENCIES_MAX:
            # Peers may repeat a parent, or name more than we keep (docs/limits.md). Metadata is
            # not hashed, so dropping the others does not change the message's id.
            if find(parents, ID_SIZE, count, frame, at, ID_SIZE) < 0:
                copy(parents, count * ID_SIZE, frame, at, ID_SIZE)
                count += 1
            at = self.next_parent()
        head = count
        if self.flags & EPHEMERAL:
            head |= HEAD_EPHEMERAL
        ids = core.graph.ids
        copy(ids, 0, frame, self.group_at, ID_SIZE)
        self.timestamp_into(ids, ID_SIZE)
        size = self.body_size
        copy(frame, start + 1 + count * ID_SIZE, frame, self.body_at, size)
        frame[start] = head
        copy(frame, start + 1, parents, 0, count * ID_SIZE)
        exchange.on_message(ids, 0, ids, ID_SIZE, frame, start, 1 + count * ID_SIZE + size)

    # --- out ---

    def fill(self, exchange: "Exchange", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due as one payload to frame[at:limit]; its end, `at` if nothing is due."""
        is_waiting = oversize.prepare(exchange, len(frame))
        size_max = min(limit, FRAME_SIZE_MAX)
        self.open(frame, at, size_max)
        self._put_ids(exchange, ACK, size_max)
        self._put_ids(exchange, OFFER, size_max)
        self._put_ids(exchange, REQUEST, size_max)
        while self.at < FRAME_SIZE_MAX and exchange.next_message():
            before = self.at
            if self._put_message(exchange, frame):
                exchange.count_record(True, _COUNTED[MESSAGE], self.at - before)
            elif before > at:
                break  # the next frame has room
            elif self._limit < limit and not oversize.reads_segments(exchange):
                self._limit = limit  # the message goes alone, in a frame of the carrier's length
            elif limit < len(frame):
                break  # the next epoch has room
            elif oversize.reads_segments(exchange):
                exchange.too_long()
            else:
                oversize.pass_over(exchange, exchange.core.message_row)
        if self.at > at or not is_waiting:
            return self.at
        end = oversize.ask_into(exchange, frame)
        if not end:
            return at
        exchange.count_record(True, _COUNT_ASK, end - at)
        return end

    def wait_epochs(self, exchange: "Exchange") -> int:
        """Epochs until a message that is too long for the link is tried again; 0: never."""
        return oversize.wait_epochs(exchange)

    def _put_ids(self, exchange: "Exchange", entry: int, limit: int) -> None:
        id = exchange.core.graph.ids
        at = self.at
        room_for_one = limit - self.id_size_max
        while at <= room_for_one:
            if entry == ACK:
                taken = exchange.take_ack(id, 0)
            elif entry == REQUEST:
                taken = exchange.take_request(id, 0)
            else:
                taken = exchange.take_offer(id, 0)
            if not taken:
                return
            end = self.put_id(entry, id, 0)
            exchange.count_record(True, _COUNTED[entry], end - at)
            at = end

    def _put_message(self, exchange: "Exchange", frame: bytearray) -> bool:
        """Write the message that is due; False if there is no room for it."""
        core = exchange.core
        store = core.store
        before = self.at
        parents = self._parents
        is_read = exchange.body_into(parents, 0, 0, 1)
        head = parents[0] if is_read else 0
        count = head & HEAD_PARENTS
        # The head comes from our log, so it was checked when the message was accepted.
        assert count <= DEPENDENCIES_MAX and 1 + count * ID_SIZE <= store.size
        is_read = is_read and exchange.body_into(parents, 0, 1, count * ID_SIZE)
        body_size = store.size - 1 - count * ID_SIZE
        flags = METADATA  # always present in `mvds-1`: without it the newest Go node crashes
        if self._fields is MVDS_NESTED:
            flags = count = 0
        elif head & HEAD_EPHEMERAL:
            flags = METADATA | EPHEMERAL
        elif not count and self._fields is MVDS_5001:
            flags = 0
        ids = core.members.group_ids
        body_at = self.put_message(
            ids, exchange.message_group * ID_SIZE, ID_SIZE, store.timestamp, 0, body_size,
            parents, count, flags,
        )  # fmt: skip
        if body_at < 0:
            return False
        offset = store.size - body_size
        if not is_read or not exchange.body_into(frame, body_at, offset, body_size):
            self.start = before  # flash failed: a truncated message would have another id
        exchange.put_message()
        return True
