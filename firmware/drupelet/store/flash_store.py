"""The board's store: messages, members and the wake state in logs of flash segments.

    store = FlashStore(files); damaged = store.open()
    handle = store.put(...); store.barrier()            # now it survives a power cut

A message is PENDING while dependencies are missing, DELIVERED once it is in the log, DELETED when
only its id is kept. Whenever the power fails, after `open` a message is there whole or not at all,
and in the log once. Handles are > 0 and < 2^30, rise in log order, and never change, except that a
pending message gets another handle when it enters the log.

When the log is full, the oldest segment is removed that nobody needs: every message in it is
settled, and no record in it refers to an older segment (`Reclaim`). If there is none, new data is
refused (E_CAPACITY); our own messages and pending ones are refused earlier than those
that enter from peers (`OWN_SHARE`). Members and the wake state are in a log of their own (`meta`),
ids of removed messages in a third one (`departed_ids`), long bodies in files (`spool`).

Messages rely on members and a wake state written before them, and a wake state on messages before
it. So `save` flushes the message log first, and nothing is appended to the message log while a
record of the meta log is not durable.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import (
    BODY_FILES_MAX,
    BOX_SLOTS,
    CONTENT_HEADER_SIZE,
    FILTER_SIZE,
    GONE_HANDLE,
    ID_SIZE,
    INLINE_SIZE_MAX,
    OWN_SHARE,
    PENDING_MAX,
    RECENT_MAX,
    SCRATCH_SIZE,
    SEGMENT_SIZE,
    SEGMENTS_MAX,
    SEGMENTS_SPARE,
    TIMESTAMP_SIZE,
    WAKE_STATE_SIZE_MAX,
)
from drupelet.base.memory import (
    copy,
    equal,
    fill,
    get_u16_le,
    get_u32_le,
    put_u16_le,
    put_u32_le,
)
from drupelet.store.departed_ids import NEVER_CAME, DepartedIds
from drupelet.store.index import Index, has_file, is_pending
from drupelet.store.log import (
    AT_BODY,
    AT_FLAGS,
    AT_ID,
    AT_SIZE,
    AT_SOURCE,
    AT_TIMESTAMP,
    FLAG_INVALID,
    FLAG_PRIVATE,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    KIND_OPENED,
    KIND_PENDING,
    KIND_PENDING_FILE,
    KIND_TOMBSTONE,
    MESSAGE_HEAD_SIZE,
    MESSAGE_PAYLOAD,
    RECORD_EXTRA,
    Log,
    body_name,
)
from drupelet.store.meta import MEMBER_GROUP, Meta
from drupelet.store.reclaim import Reclaim
from drupelet.store.spool import PART_HEAD_SIZE, Spool, descriptor_name
from drupelet.store.states import (
    STATE_DELETED,
    STATE_DELIVERED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
)

_GROUPS = const(8)  # settled handles and quotas are kept by group number modulo 8

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import Buffer
    from drupelet.store.files import Files


class FlashStore:
    """A store over a Files port. Full tables refuse; codes are in `base.errors`."""

    def __init__(
        self, files: "Files", segment_size: int = SEGMENT_SIZE, segments_max: int = SEGMENTS_MAX,
        pending_max: int = PENDING_MAX, body_files_max: int = BODY_FILES_MAX,
        filter_size: int = FILTER_SIZE, salt: int = 0, meta_size: int = SEGMENT_SIZE,
        recent_max: int = RECENT_MAX,
    ) -> None:  # fmt: skip
        """`salt`: random, 0 to 2^32-1, for a log that is created now.

        `segment_size`, `meta_size`: bytes of a segment of the message log and of the meta log.
        `recent_max`: ids whose place is known without a search, in a group of many authors.
        """
        assert segments_max > SEGMENTS_SPARE + 1, "data needs two segments beside the spare ones"
        self.files = files
        # Buffers that the three logs share: only one record is written at a time.
        self.scratch = bytearray(SCRATCH_SIZE)
        self.crc = bytearray(4)
        self.saved = bytearray(WAKE_STATE_SIZE_MAX)  # the newest wake state
        self.saved_size = 0
        self.salt = bytearray(4)
        self._new_salt = salt
        self.log = Log(self, ".LOG", segment_size, segments_max, MESSAGE_HEAD_SIZE)
        self.meta = Meta(self, meta_size)
        self.departed = DepartedIds(self, self.log, filter_size)
        self.index = Index(
            self, self.log, self.meta, pending_max, body_files_max, filter_size, recent_max
        )
        self.space = Reclaim(self, self.log, self.index, self.meta, self.departed)
        self.spool = Spool(self)
        # Flushes; segments removed; damaged places that `open` skipped; ids of removed messages
        # that have been forgotten since; reads of a log that the flash refused.
        self.programs = self.erases = self.damaged = self.forgotten = self.unread = 0
        # Set by the engine: messages before this handle may be removed; also by group.
        self.settled_handle = 0
        self.settled = [0] * _GROUPS
        # Set by the owner, by group: the most segments that a group may hold; 0: no quota.
        self.quotas = bytearray(_GROUPS)
        # The part of the black box is one file of a ring: how many there are, and the present one.
        self.box_slots = BOX_SLOTS
        self.box_slot = 0
        self.data_max = segments_max - SEGMENTS_SPARE
        # Our own messages and pending ones leave some of these to messages that enter from peers:
        # at least two segments, since a peer needs one to be able to free one of its own.
        kept = min(self.data_max // OWN_SHARE, OWN_SHARE)
        self.own_max = self.data_max - kept - (kept > 0)
        # Set by `load`.
        self.id = bytearray(ID_SIZE)
        self.timestamp = bytearray(TIMESTAMP_SIZE)
        self.group = self.source = self.size = self.state = 0
        # Of a deleted message; `missing`: the sharers that may lack it, as given to `entomb`.
        self.edges_size = self.missing = 0
        self.private = False  # it is not shared, or was not when it was deleted
        self._stamp = bytearray(TIMESTAMP_SIZE)
        self._body = 0
        # Methods of the port that are implemented elsewhere.
        self.bodies = self.space.bodies
        self.dropped = self.space.dropped

    @property
    def store_gen(self) -> int:
        """The generation of this log; peers offer everything again to a new generation."""
        return get_u32_le(self.salt, 0)

    def open(self) -> int:
        """Recover by one scan; return the number of damaged places, or a code.

        E_CAPACITY: too many files. E_STORAGE: the flash could not be read. Do not use the store
        after either.
        """
        from drupelet.store.recovery import recover

        code = recover(self, self.log, self.index, self.meta, self.departed, self._new_salt)
        return code if code != OK else self.damaged

    # --- messages in ---

    def put(
        self, group: int, source: int, id: "Buffer", id_at: int, timestamp: "Buffer", ts_at: int,
        body: "Buffer", at: int, size: int, state: int,
    ) -> int:  # fmt: skip
        """Store a message of at most INLINE_SIZE_MAX body bytes; return its handle or a code.

        The caller has asked `find`, which does not know the id. `state`: STATE_DELIVERED,
        STATE_PENDING or STATE_PRIVATE.
        """
        assert size <= INLINE_SIZE_MAX
        kind = KIND_PENDING if state == STATE_PENDING else KIND_MESSAGE
        flags = FLAG_PRIVATE if state == STATE_PRIVATE else 0
        return self._write(
            kind, group, source, flags, size, 0, id, id_at, timestamp, ts_at, -1, body, at, size
        )

    def put_part(
        self, part: int, group: int, source: int, id: "Buffer", id_at: int, state: int
    ) -> int:
        """Store a complete part as a message with a body file; return its handle or a code.

        The caller has asked `find`, as for `put`. After E_CAPACITY the part is unchanged; after
        E_STORAGE it may be lost.
        """
        index = self.index
        size = self.spool.part_size(part) - CONTENT_HEADER_SIZE
        if size < 0:
            return E_STORAGE
        kind = KIND_PENDING_FILE if state == STATE_PENDING else KIND_MESSAGE_FILE
        code = self._make_room(MESSAGE_PAYLOAD + 4, kind, group, source)
        code = code or (OK if self.space.free_body() else E_CAPACITY)
        if code != OK:
            return code
        self.spool.part_read_into(part, ID_SIZE, self._stamp, 0, TIMESTAMP_SIZE)
        number = index.body_newest + 1
        code = self.spool.finish(part, body_name(number))
        if code != OK:
            return code
        index.body_newest = number
        flags = FLAG_PRIVATE if state == STATE_PRIVATE else 0
        handle = self._write(
            kind, group, source, flags, size, 0, id, id_at, self._stamp, 0, number, b"", 0, 0
        )
        index.set_row(index.bodies, number, max(handle, 0))
        if handle < 0:
            index.sweep()
        return handle

    def promote(self, handle: int, state: int) -> int:
        """Enter a pending message in the log; return its new handle, or E_STORAGE.

        `state`: STATE_DELIVERED or STATE_PRIVATE. The new record refers to the pending one, which
        no longer counts from then on.
        """
        index = self.index
        if index.row(index.pending, handle) < 0 or not index.look(handle):
            return E_STORAGE
        flags = FLAG_PRIVATE if state == STATE_PRIVATE else 0
        return self._write_again(handle, self.log.kind + KIND_MESSAGE - KIND_PENDING, flags, -1)

    def note(self, id: "Buffer", at: int) -> bool:
        """Remember that no peer has this message any more; False if there is no room for it."""
        self.departed.note(id, at, 0, NEVER_CAME)
        return self.departed.write_noted() == OK and self.noted(id, at)

    def noted(self, id: "Buffer", at: int) -> bool:
        """Return True if `note` was called for this id."""
        return self.departed.find(id, at, self.meta.left, NEVER_CAME) != 0

    def entomb(self, handle: int, edges: "Buffer", size: int, missing: int = 0) -> int:
        """Delete a message: keep its id, its place in the log and `size` bytes of edges.

        `missing`: a bit (0 to 15) for each sharer that may lack the message. Its id is not
        forgotten until `keep` sets that to 0; E_CAPACITY if too many such ids are kept. Overwrites
        what `load` set.
        """
        code = self.load(handle)
        if code != OK or self.state in (STATE_DELETED, STATE_INVALID, STATE_GONE):
            return code
        if missing and self.index.row(self.index.kept, 0) < 0:
            return E_CAPACITY
        flags = FLAG_PRIVATE if self.private else 0
        return min(self._mark(KIND_TOMBSTONE, handle, flags, edges, size, missing), OK)

    def keep(self, handle: int, missing: int) -> int:
        """Change which sharers may lack a deleted message (`next_kept`); return OK or a code."""
        if self.index.row(self.index.kept, handle) < 0:
            return OK
        return min(self._write_again(handle, KIND_TOMBSTONE, 0, missing), OK)

    def _write_again(self, handle: int, kind: int, flags: int, missing: int) -> int:
        """Write a pending or kept record again as `kind`; return its place or a code."""
        log = self.log
        index = self.index
        place = E_STORAGE
        if index.look(handle):
            group = 0 if kind == KIND_TOMBSTONE else log.tag
            place = self._make_room(log.length - RECORD_EXTRA, kind, group, 1)
        if place == OK and index.look(handle):  # making room may have moved the record
            ref = handle if kind == KIND_TOMBSTONE else log.at
            place = index.write_again(log.at, kind, ref, flags, missing)
        return place or E_STORAGE

    def bury(
        self, group: int, source: int, id: "Buffer", id_at: int, timestamp: "Buffer", ts_at: int,
        handle: int,
    ) -> int:  # fmt: skip
        """Keep only the id of an invalid message; return its handle or a code.

        `handle`: the pending message that it is, or 0. A message that is in the log, or buried
        already, is unchanged.
        """
        handle = handle or self.find(id, id_at)
        if not handle:
            self.group = group
            self.source = source
            self._body = 0
            copy(self.id, 0, id, id_at, ID_SIZE)
            copy(self.timestamp, 0, timestamp, ts_at, TIMESTAMP_SIZE)
        elif self.load(handle) != OK:
            return E_STORAGE
        elif self.state != STATE_PENDING:
            return handle
        place = self._mark(KIND_TOMBSTONE, handle, FLAG_INVALID, self.id, 0, 0)
        return self.index.handle_of(place) if place > 0 else place

    def _mark(
        self, kind: int, handle: int, flags: int, edges: "Buffer", size: int, missing: int
    ) -> int:
        """Write a TOMBSTONE or OPENED about the loaded message; return its place or a code."""
        body = self._body if kind == KIND_TOMBSTONE else -1
        place = self._write(
            kind, self.group, self.source, flags, missing, handle, self.id, 0, self.timestamp, 0,
            body, edges, 0, size,
        )  # fmt: skip
        self.index.sweep()
        return place

    def open_up(self, handle: int) -> int:
        """Share a private message from now on, under the same handle; return OK or a code.

        If it was deleted meanwhile, only its flag changes.
        """
        code = self.load(handle)
        if code == OK and self.private:
            code = min(self._mark(KIND_OPENED, handle, 0, self.id, 0, 0), OK)
        return code

    def _write(
        self, kind: int, group: int, source: int, flags: int, size: int, ref: int, id: "Buffer",
        id_at: int, timestamp: "Buffer", ts_at: int, number: int, rest: "Buffer", at: int,
        rest_size: int,
    ) -> int:  # fmt: skip
        """Append a message record; return its place or a code. `number`: its body file, or -1."""
        log = self.log
        first_size = MESSAGE_PAYLOAD + 4 * (number >= 0)
        code = E_CAPACITY
        while code == E_CAPACITY:
            # A record about a message that is there counts against no quota: also a full group can
            # delete.
            code = self._make_room(first_size + rest_size, kind, 0 if ref else group, source)
            if code != OK:
                return code
            first = log.scratch
            first[0] = source
            first[1] = flags
            put_u16_le(first, 2, size)
            put_u32_le(first, 4, ref)
            copy(first, AT_TIMESTAMP - 4, timestamp, ts_at, TIMESTAMP_SIZE)
            copy(first, AT_ID - 4, id, id_at, ID_SIZE)
            put_u32_le(first, MESSAGE_PAYLOAD, max(number, 0))
            code = log.append(kind, group, first, first_size, rest, at, rest_size)
            # The flash may be full although the log is not.
            if code < 0 and not self._made_room(code):
                return code
        self.index.apply(code)
        return code

    def _make_room(self, size: int, kind: int, group: int, source: int) -> int:
        """Make room for a payload; OK or a code. `group`: whose quota applies, 0 for none."""
        if is_pending(kind) and self.index.row(self.index.pending, 0) < 0:
            return E_CAPACITY
        waits = is_pending(kind) or (not source and kind <= KIND_MESSAGE_FILE)
        segments = self.own_max if waits else self.data_max
        return self.meta.log.flush() or self.space.make_room(size, segments, group)

    # --- messages out ---

    def find(self, id: "Buffer", at: int, size: int = ID_SIZE) -> int:
        """Return the handle of a message by the first `size` bytes of its id (8 to 32).

        0 if the id is unknown or forgotten, E_STORAGE if the flash refused a read meanwhile. The
        handle of a departed id is above GONE_HANDLE.
        """
        unread = self.unread
        place = self.index.find(id, at, size)
        handle = self.index.handle_of(place) if place else 0
        if not handle:
            handle = self.departed.find(id, at, self.meta.left)
            if handle:
                copy(self.id, 0, id, at, size)
                fill(self.id, size, ID_SIZE - size, 0)
        return handle if self.unread == unread else E_STORAGE

    def is_id(self, handle: int, id: "Buffer", at: int, size: int) -> bool:
        """Return True if a message's id begins with these bytes; keeps what `load` set."""
        return self.index.look(handle) and equal(self.log.head, AT_ID, id, at, size)

    def id_into(self, handle: int, buf: bytearray, at: int) -> bool:
        """Copy the id of a message; False if there is none. Keeps what `load` set."""
        is_there = self.index.look(handle)
        if is_there:
            copy(buf, at, self.log.head, AT_ID, ID_SIZE)
        return is_there

    def load(self, handle: int) -> int:
        """Set id, timestamp, group, source, size and state of a message; OK or E_STORAGE.

        E_STORAGE: there is none, or the flash refused a read meanwhile. For a departed id: only
        group and state; the id is as it was given to `find`.
        """
        unread = self.unread
        self.edges_size = self.missing = self._body = self.source = self.size = 0
        self.private = False
        if handle >= GONE_HANDLE:
            self.group = handle & 0xFF
            self.state = STATE_INVALID if handle & FLAG_INVALID << 8 else STATE_GONE
            return OK
        index = self.index
        if not index.look(handle):
            return E_STORAGE
        log = self.log
        head = log.head
        kind = log.kind
        copy(self.timestamp, 0, head, AT_TIMESTAMP, TIMESTAMP_SIZE)
        copy(self.id, 0, head, AT_ID, ID_SIZE)
        self.group = log.tag
        self.source = head[AT_SOURCE]
        size = get_u16_le(head, AT_SIZE)
        self._body = get_u32_le(head, AT_BODY) if has_file(kind) else 0
        private = head[AT_FLAGS] & FLAG_PRIVATE
        tombstone = index.tombstone(handle, self.id, 0)
        self.private = private != 0 and not index.later(KIND_OPENED, handle, self.id, 0)
        if tombstone:
            log.look(tombstone)
            self.edges_size = log.length - RECORD_EXTRA - MESSAGE_PAYLOAD - 4
            # A tombstone that was written again since has bits that are outdated.
            if index.row(index.places, tombstone) >= 0:
                self.missing = get_u16_le(head, AT_SIZE)
            self.state = STATE_INVALID if head[AT_FLAGS] & FLAG_INVALID else STATE_DELETED
        elif kind == KIND_OPENED or (self._body and index.row(index.bodies, self._body) < 0):
            self.state = STATE_DELETED  # its record or its body was reclaimed
        else:
            self.size = size
            self.state = STATE_PRIVATE if self.private else STATE_DELIVERED
            if is_pending(kind):
                self.state = STATE_PENDING
                if index.row(index.pending, handle) < 0:
                    return E_STORAGE  # promoted: its handle has changed
        return OK if self.unread == unread else E_STORAGE

    def read_into(self, handle: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Read body bytes; return the count, less only at the end, or E_STORAGE.

        For a deleted message, these are the bytes of its edges.
        """
        if not self.index.look(handle):
            return E_STORAGE
        log = self.log
        head = log.head
        place = log.at
        total = get_u16_le(head, AT_SIZE)
        body = get_u32_le(head, AT_BODY) if has_file(log.kind) else 0
        tombstone = self.index.tombstone(handle, head, AT_ID)
        if tombstone:
            place = tombstone
            body = 0
            offset += 4
            log.look(tombstone)
            total = log.length - RECORD_EXTRA - MESSAGE_PAYLOAD
        size = min(size, total - offset)
        if size <= 0:
            return 0
        if not body:
            return log.read_into(place, AT_BODY + offset, buf, at, size)
        if self.index.row(self.index.bodies, body) < 0:
            return 0
        fd = log.descriptor(-body)
        if fd < 0:
            return E_STORAGE
        offset += PART_HEAD_SIZE + CONTENT_HEADER_SIZE
        return self.files.read_into(fd, offset, buf, at, size)

    def next(self, handle: int) -> int:
        """Return the handle of the message after `handle` in the log (0: the first).

        0 at the end, E_STORAGE if the flash refused a read on the way. Includes deleted messages;
        pending and invalid ones never were in the log.
        """
        log = self.log
        unread = self.unread
        while handle := log.step(handle):
            if KIND_MESSAGE <= log.kind <= KIND_MESSAGE_FILE and not self.meta.is_left(log.tag):
                break
        return handle if self.unread == unread else E_STORAGE

    def next_pending(self, handle: int) -> int:
        """Return the handle of the pending message after `handle` (0: the first); 0 at the end."""
        return self.index.next_key(self.index.pending, handle)

    def next_kept(self, handle: int) -> int:
        """Return the handle of the next deleted message that a sharer may lack; 0 at the end."""
        return self.index.next_key(self.index.kept, handle)

    # --- members and the wake state ---

    def member(self, kind: int, key: "Buffer", at: int, size: int) -> int:
        """Return the number (1 to 254) of a group (kind 1) or a peer (kind 2), adding it if it is
        unknown or was dismissed; or a code."""
        assert 0 < size <= ID_SIZE
        meta = self.meta
        unread = self.unread
        number = meta.find(kind, key, at, size)
        if number or self.unread != unread:
            return number or E_STORAGE
        number = meta.new_number(kind)
        if not number:
            from drupelet.store.recovery import free_number

            number = free_number(kind, self.log, meta, self.departed)
        code = self._put_meta(kind, number, key, at, size) if number else E_CAPACITY
        return number if code == OK else code

    def _put_meta(self, kind: int, number: int, buf: "Buffer", at: int, size: int) -> int:
        """Write a record to the meta log. Begin the message log first: without one, a boot takes
        the meta log for that of a log that was removed."""
        code = OK if self.log.count else self.log.rotate(self.data_max)
        code = code or self.meta.put(kind, number, buf, at, size)
        while self._made_room(code):
            code = self.meta.put(kind, number, buf, at, size)
        return code

    def _made_room(self, code: int) -> bool:
        """Return True if a call failed because the flash is full, and a segment was removed."""
        return code == E_CAPACITY and self.space.reclaim() == OK

    def dismiss(self, kind: int, number: int) -> int:
        """Dismiss a group or a peer; return OK or a code.

        The messages of a group that was left count no more. The number of a removed peer is given
        to another one only once its messages are gone.
        """
        # Remove nothing of the group before its dismissal is durable.
        code = OK
        if self.meta.is_member(kind, number):
            code = self._put_meta(kind, number, b"", 0, 0)
        code = code or self.barrier()
        if code == OK:
            self.index.build()
            self.index.sweep()
            if kind == MEMBER_GROUP:
                self.files.remove(descriptor_name(number))
        return code

    def descriptor_put(self, part: int, number: int) -> int:
        """Keep a complete part (client id 32 | descriptor) as a group's; return OK or a code."""
        if self.spool.part_size(part) < ID_SIZE:
            return E_STORAGE
        # A number that is not durable yet must not have a descriptor.
        return self.barrier() or self.spool.finish(part, descriptor_name(number))

    def save(self, state: "Buffer", size: int) -> int:
        """Write the wake state, at most WAKE_STATE_SIZE_MAX bytes; return OK or a code."""
        assert size <= WAKE_STATE_SIZE_MAX
        code = self.log.flush() or self._put_meta(0, 0, state, 0, size)
        if code == OK:
            copy(self.saved, 0, state, 0, size)
            self.saved_size = size
        return code

    def unsettle(self) -> None:
        """Settle nothing until the engine does so again: a peer needs messages that none did."""
        self.settled_handle = 0
        for group in range(_GROUPS):
            self.settled[group] = 0

    def barrier(self) -> int:
        """Make everything that was put durable; costs nothing if there is nothing to flush."""
        return self.meta.log.flush() or self.log.flush()
