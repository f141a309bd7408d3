"""Profiles of the MVDS family as a link uses them: payloads to engine calls, and back.

A stored body of this family begins with a head (docs/SPEC.md 4.3) that is not hashed: a byte that
counts parents and tells of metadata, then the parents. On the wire they are the message's
metadata; `mvds-nested` has none and leaves them out.
"""

from drupelet._compat import const
from drupelet.errors import E_PEER, OK
from drupelet.limits import DEPENDENCIES_MAX, ID_SIZE, WAKE_STATE_SIZE_MAX
from drupelet.members import HEAD_EPHEMERAL, HEAD_METADATA, HEAD_PARENTS
from drupelet.memory import copy
from drupelet.profiles import PROFILE_MVDS_1, PROFILE_MVDS_NESTED
from drupelet.wire.mvds import (
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.ports import LinkPort

# A message's parents pass through the store's `saved`, which is of no use between boot and the
# next save.
assert DEPENDENCIES_MAX * ID_SIZE <= WAKE_STATE_SIZE_MAX

# How a link counts records.
_COUNT_ACK = const(0)
_COUNT_MESSAGE = const(1)
_COUNT_OFFER = const(2)
_COUNT_REQUEST = const(3)


class MvdsCodec(Payload):
    """Reads and writes payloads; between two calls it remembers nothing, so links share it."""

    def __init__(self, profile: int) -> None:
        table = MVDS_5001
        if profile == PROFILE_MVDS_1:
            table = MVDS_1
        elif profile == PROFILE_MVDS_NESTED:
            table = MVDS_NESTED
        Payload.__init__(self, table)

    # --- in ---

    def parse(self, link: "LinkPort", frame: bytearray, at: int, end: int) -> int:
        """Hand each record of a payload to the engine; OK, or E_PEER where it is malformed."""
        self.open(frame, at, end)
        seen = False  # the group of the group offer that is being read
        what = self.next()
        while what > 0:
            kind = _COUNT_OFFER
            if what == ACK:
                kind = _COUNT_ACK
                link.on_ack(frame, self.at)
            elif what == REQUEST:
                kind = _COUNT_REQUEST
                link.on_request(frame, self.at)
            elif what == MESSAGE:
                kind = _COUNT_MESSAGE
                self._take(link, frame)
            elif what == GROUP:
                seen = self.group_size == ID_SIZE and link.sees_id(frame, self.group_at)
            elif what == OFFER or seen:
                link.on_offer(frame, self.at)
            if what != GROUP:
                link.count_record(False, kind, self.end - at)
                at = self.end
            what = self.next()
        return OK if what == OK else E_PEER

    def _take(self, link: "LinkPort", frame: bytearray) -> None:
        """Bring a message into its stored form, in place: head and body are no longer than it."""
        core = link.core
        if self.group_size != ID_SIZE:
            core.unknown += 1
            return
        parents = core.store.saved
        start = self.at
        count = 0
        at = self.next_parent()
        while at >= 0:
            if count == DEPENDENCIES_MAX:
                core.graph.refused += 1
                return
            copy(parents, count * ID_SIZE, frame, at, ID_SIZE)
            count += 1
            at = self.next_parent()
        head = count
        if self.flags & METADATA:
            head |= HEAD_METADATA
        if self.flags & EPHEMERAL:
            head |= HEAD_EPHEMERAL
        ids = core.graph.ids
        copy(ids, 0, frame, self.group_at, ID_SIZE)
        self.timestamp_into(ids, ID_SIZE)
        size = self.body_size
        copy(frame, start + 1 + count * ID_SIZE, frame, self.body_at, size)
        frame[start] = head
        copy(frame, start + 1, parents, 0, count * ID_SIZE)
        link.on_message(ids, 0, ids, ID_SIZE, frame, start, 1 + count * ID_SIZE + size)

    # --- out ---

    def fill(self, link: "LinkPort", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due as one payload; its end (`at`: nothing is due, no empty payload)."""
        self.open(frame, at, limit)
        self._put_ids(link, ACK, limit)
        self._put_ids(link, OFFER, limit)
        self._put_ids(link, REQUEST, limit)
        while link.next_message():
            before = self.at
            if self._put_message(link, frame):
                link.count_record(True, _COUNT_MESSAGE, self.at - before)
            elif before == at and limit == len(frame):
                link.too_long()
            else:
                break  # the next frame has room
        return self.at

    def _put_ids(self, link: "LinkPort", what: int, limit: int) -> None:
        id = link.core.graph.ids
        at = self.at
        room_for_one = limit - self.id_size_max
        while at <= room_for_one:
            kind = _COUNT_OFFER
            if what == ACK:
                kind = _COUNT_ACK
                taken = link.take_ack(id, 0)
            elif what == REQUEST:
                kind = _COUNT_REQUEST
                taken = link.take_request(id, 0)
            else:
                taken = link.take_offer(id, 0)
            if not taken:
                return
            end = self.put_id(what, id, 0)
            link.count_record(True, kind, end - at)
            at = end

    def _put_message(self, link: "LinkPort", frame: bytearray) -> bool:
        """Write the message that is due; False when there is no room for it."""
        core = link.core
        store = core.store
        before = self.at
        parents = store.saved
        whole = link.body_into(parents, 0, 0, 1)
        head = parents[0]
        count = head & HEAD_PARENTS
        # Our own log holds it: a message that was taken in.
        assert not whole or (count <= DEPENDENCIES_MAX and 1 + count * ID_SIZE <= store.size)
        whole = whole and link.body_into(parents, 0, 1, count * ID_SIZE)
        body_size = store.size - 1 - count * ID_SIZE
        flags = 0
        if self._fields is not MVDS_NESTED and head & HEAD_METADATA:
            flags = METADATA | EPHEMERAL if head & HEAD_EPHEMERAL else METADATA
        if not flags:
            count = 0
        ids = core.members.group_ids
        body_at = self.put_message(
            ids, core.message_group * ID_SIZE, ID_SIZE, store.timestamp, 0, body_size,
            parents, count, flags,
        )  # fmt: skip
        if body_at < 0:
            return False
        offset = store.size - body_size
        if not whole or not link.body_into(frame, body_at, offset, body_size):
            self.start = before  # the flash did not give it: half a message has another id
        link.put_message()
        return True
