"""Profiles of the MVDS family as a link uses them: payloads to engine calls, and back.

A stored body of this family begins with a head (docs/SPEC.md 4.3) that is not hashed: a byte that
counts parents and says whether the message is ephemeral, then the parents. On the wire they are
the message's metadata; `mvds-nested` has none and leaves them out.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import DEPENDENCIES_MAX, FRAME_SIZE_MAX, ID_SIZE, WAKE_STATE_SIZE_MAX
from drupelet.base.memory import copy, find
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
from drupelet.wire.registry import PROFILE_MVDS_1, PROFILE_MVDS_NESTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.ports import LinkPort

# A message's parents pass through the store's `saved`, which is of no use between boot and the
# next save.
assert DEPENDENCIES_MAX * ID_SIZE <= WAKE_STATE_SIZE_MAX

# How a link counts records.
_COUNT_ACK = const(0)
_COUNT_MESSAGE = const(1)
_COUNT_OFFER = const(2)
_COUNT_REQUEST = const(3)
_COUNT_ASK = const(4)  # of the link itself


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
                oversize.acknowledged(link, frame, self.at)
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
        while at >= 0 and count < DEPENDENCIES_MAX:
            # Peers repeat a parent, and name more than are kept (docs/limits.md): metadata is not
            # hashed, so the message stays the same without the others.
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
        link.on_message(ids, 0, ids, ID_SIZE, frame, start, 1 + count * ID_SIZE + size)

    # --- out ---

    def fill(self, link: "LinkPort", frame: bytearray, at: int, limit: int) -> int:
        """Write what is due as one payload; its end (`at`: nothing is due, no empty payload)."""
        is_waiting = oversize.prepare(link, len(frame))
        size_max = min(limit, FRAME_SIZE_MAX)
        self.open(frame, at, size_max)
        self._put_ids(link, ACK, size_max)
        self._put_ids(link, OFFER, size_max)
        self._put_ids(link, REQUEST, size_max)
        while self.at < FRAME_SIZE_MAX and link.next_message():
            before = self.at
            if self._put_message(link, frame):
                link.count_record(True, _COUNT_MESSAGE, self.at - before)
            elif before > at:
                break  # the next frame has room
            elif self._limit < limit and not oversize.reads_segments(link):
                self._limit = limit  # it goes alone, in a frame as long as the carrier takes
            elif limit < len(frame):
                break  # the next epoch has room
            elif oversize.reads_segments(link):
                link.too_long()
            else:
                link.core.message_left -= 1
                oversize.pass_over(link, link.core.message_slot)
        if self.at > at or not is_waiting:
            return self.at
        end = oversize.ask_into(link, frame)
        if not end:
            return at
        link.count_record(True, _COUNT_ASK, end - at)
        return end

    def wait_epochs(self, link: "LinkPort") -> int:
        """Epochs until a message that is too long for the link is looked at again; 0: never."""
        return oversize.wait_epochs(link)

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
        flags = METADATA  # never left out in `mvds-1`: without it the newest Go node crashes
        if self._fields is MVDS_NESTED:
            flags = count = 0
        elif head & HEAD_EPHEMERAL:
            flags = METADATA | EPHEMERAL
        elif not count and self._fields is MVDS_5001:
            flags = 0
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
