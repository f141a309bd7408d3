"""The board's store: messages, members and the wake state in a log of flash segments.

    store = FlashStore(files); damaged = store.open()
    handle = store.put(...); store.barrier()            # now it survives a power cut

A message is PENDING while dependencies are missing, DELIVERED once it is in the log, DELETED when
only its id is kept. Whatever instant the power goes, after `open` a message is there whole or not
at all, and in the log once. Handles are > 0 and < 2^30, rising in log order and stable.

When the log is full, the oldest segment goes if everything in it is below `settled_handle`;
members, the wake state and pending messages in it are written again first. Otherwise new data is
refused (E_CAPACITY) and counted; the wake state still has room. Our own messages and pending ones
are refused before what enters from peers (`OWN_SHARE`).
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import (
    BODY_FILES_MAX,
    CONTENT_HEADER_SIZE,
    FILTER_SIZE,
    ID_SIZE,
    INLINE_SIZE_MAX,
    PENDING_MAX,
    SEGMENT_SIZE,
    SEGMENTS_MAX,
    SEGMENTS_SPARE,
    TIMESTAMP_SIZE,
    WAKE_STATE_SIZE_MAX,
)
from drupelet.base.memory import copy, get_u32_le, put_u16_le, put_u32_le
from drupelet.store.index import PLACE_LAST, is_pending
from drupelet.store.log import (
    FLAG_INVALID,
    FLAG_PRIVATE,
    KIND_MESSAGE,
    KIND_MESSAGE_FILE,
    KIND_OPENED,
    KIND_PENDING,
    KIND_PENDING_FILE,
    KIND_TOMBSTONE,
    MESSAGE_PAYLOAD,
    RecordLog,
)
from drupelet.store.reader import (
    STATE_DELETED,
    STATE_GONE,
    STATE_INVALID,
    STATE_PENDING,
    STATE_PRIVATE,
    Shelf,
)
from drupelet.store.segments import RECORD_EXTRA, body_name

_NEVER_CAME = const(1)  # a tag of `flashgone`
_TRIES = const(4)

# The port is only a type here: importing it would load RamFiles into a board's heap.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.store.files import Files


class FlashStore(Shelf):
    """A store over a Files port. Full tables refuse and count; codes are those of `errors`."""

    def __init__(
        self, files: "Files", segment_size: int = SEGMENT_SIZE, segments_max: int = SEGMENTS_MAX,
        pending_max: int = PENDING_MAX, body_files_max: int = BODY_FILES_MAX,
        filter_size: int = FILTER_SIZE, salt: int = 0,
    ) -> None:  # fmt: skip
        """`salt`: random, 0..2^32-1, of a log that is begun with this."""
        assert segments_max > SEGMENTS_SPARE + 1, "data needs two segments beside the spare ones"
        log = RecordLog(files, segment_size, segments_max)
        Shelf.__init__(self, files, log, pending_max, body_files_max, filter_size)
        self._stamp = bytearray(TIMESTAMP_SIZE)
        self._new_salt = salt
        self.duplicates = 0

    @property
    def store_gen(self) -> int:
        """A number of this log: peers of one that is begun anew offer again what they hold."""
        return get_u32_le(self._log.salt, 0)

    @property
    def programs(self) -> int:
        """Flushes that made something durable."""
        return self._log.programs + self._gone.programs + self.part_programs

    @property
    def erases(self) -> int:
        """Segments removed."""
        return self._log.erases + self._gone.erases

    @property
    def forgotten(self) -> int:
        """Ids of messages that made room which are not known any more."""
        return self._gone.forgotten

    @property
    def damaged(self) -> int:
        """Damaged places that `open` skipped: what was there is lost."""
        return self._log.damaged + self._gone.damaged

    def open(self) -> int:
        """Recover by one scan; the count of damaged places, or a code: then it is not to be used.

        E_CAPACITY for too many files, E_STORAGE when the flash does not say what it has.
        """
        names = self._files.names()
        if self._new_salt and not [name for name in names if name.endswith(".LOG")]:
            for name in names:
                if name[-4:] in (".IDS", ".SLT"):  # of a log that is gone
                    self._files.remove(name)
            names = self._files.names()
        # Both have one salt; only the log begins one.
        code = self._gone.open(names, 0)
        if code == OK:
            code = self._log.open(names, self._new_salt)
        if code != OK:
            return code
        self._gone.index()
        self._gone.resume()
        for name in names:
            if name.endswith(".BOD") and name[1:8].isdigit():
                self._set_body(int(name[1:8]), 0)
        self._untwin()
        self._index()
        self._log.resume()
        self._sweep()
        self._drop_descriptors(names)
        if self._wake and self._log.look(self._wake):
            self.saved_size = min(self._log.length - RECORD_EXTRA, WAKE_STATE_SIZE_MAX)
            self._log.read_into(self._wake, 4, self.saved, 0, self.saved_size)
        return self.damaged

    # --- messages in ---

    def put(
        self, group: int, source: int, id: "bytes | bytearray | memoryview", id_at: int,
        timestamp: "bytes | bytearray | memoryview", ts_at: int,
        body: "bytes | bytearray | memoryview", at: int, size: int, state: int,
    ) -> int:  # fmt: skip
        """Take a message in, at most INLINE_SIZE_MAX bytes of body; its handle or a code.

        `state`: STATE_DELIVERED, STATE_PENDING or STATE_PRIVATE. One that is known already is
        counted and keeps its handle; a pending one that comes again as delivered is promoted.
        """
        assert size <= INLINE_SIZE_MAX
        handle = self._known(id, id_at, state)
        if handle:
            return handle
        pending = state == STATE_PENDING
        if pending and self._find_row(self._pending, 0) < 0:
            return self._refuse(E_CAPACITY)
        kind = KIND_PENDING if pending else KIND_MESSAGE
        return self._write(
            kind, group, source, _flags(state), size, 0, id, id_at, timestamp, ts_at, body, at,
            size,
        )  # fmt: skip

    def put_part(
        self, part: int, group: int, source: int, id: "bytes | bytearray | memoryview",
        id_at: int, state: int,
    ) -> int:  # fmt: skip
        """Take a finished part in as a message with a body file; its handle or a code.

        E_CAPACITY leaves the part as it is; after E_STORAGE it may be gone.
        """
        handle = self._known(id, id_at, state)
        pending = state == STATE_PENDING
        if handle:
            self.part_drop(part)
            return handle
        size = self.part_size(part) - CONTENT_HEADER_SIZE
        if size < 0:
            return E_STORAGE
        full = pending and self._find_row(self._pending, 0) < 0
        if full or self._free_body() < 0:
            return self._refuse(E_CAPACITY)
        enters = source and not pending
        code = self._room(MESSAGE_PAYLOAD + 4, self._data_max if enters else self._own_max, group)
        if code != OK:
            return code
        self.part_read_into(part, ID_SIZE, self._stamp, 0, TIMESTAMP_SIZE)
        number = self._body_newest + 1
        code = self._finish(part, body_name(number))
        if code != OK:
            return self._refuse(code)
        self._set_body(number, PLACE_LAST)  # making room must not sweep it
        kind = KIND_PENDING_FILE if pending else KIND_MESSAGE_FILE
        handle = self._write(
            kind, group, source, _flags(state), size, 0, id, id_at, self._stamp, 0,
            self._number(number), 0, 4,
        )  # fmt: skip
        self._set_body(number, handle if handle > 0 else 0)
        if handle < 0:
            self._sweep()
        return handle

    def promote(self, handle: int, state: int) -> int:
        """Enter a pending message in the log; its new handle, or E_STORAGE if it is not pending.

        `state`: STATE_DELIVERED or STATE_PRIVATE.

        The new record names the pending one, which is dead from then on.
        """
        if self._find_row(self._pending, handle) < 0 or not self._look(handle):
            return E_STORAGE
        code = self._room(self._log.length - RECORD_EXTRA, self._data_max, self._log.tag)
        if code != OK:
            return code
        # Making room may have moved the record.
        row = self._find_row(self._pending, handle)
        place = get_u32_le(self._pending, row + 4)
        entered = self._rewrite(place, KIND_MESSAGE - KIND_PENDING, place, _flags(state))
        if entered < 0:
            return self._refuse(entered)
        self._set_row(self._pending, handle, 0)
        self._move_body(place, entered)
        return entered

    def note(self, id: "bytes | bytearray | memoryview", at: int) -> bool:
        """Remember that nobody has a message any more, should it not come after all.

        False when there is no room for that.
        """
        self._gone.note(id, at, 0, _NEVER_CAME)
        return self._gone.write_noted() == OK and self.noted(id, at)

    def noted(self, id: "bytes | bytearray | memoryview", at: int) -> bool:
        """True for a message of which `note` said that nobody has it any more."""
        return self._gone.find(id, at, self._left, _NEVER_CAME) != 0

    def entomb(
        self, handle: int, edges: "bytes | bytearray | memoryview", size: int, missing: int = 0
    ) -> int:  # fmt: skip
        """Keep the id, the place in the log and `size` bytes of edges; the body goes.

        `missing`: a bit (0..15) for each sharer that is not known to have the message. Until
        `keep` says that none is left, the id is not forgotten; E_CAPACITY when too many are.
        Overwrites what `load` set.
        """
        code = self.load(handle)
        if code != OK or self.state in (STATE_DELETED, STATE_INVALID, STATE_GONE):
            return code
        if missing and self._find_row(self._kept, 0) < 0:
            return self._refuse(E_CAPACITY)
        code = self._entomb(handle, FLAG_PRIVATE if self.private else 0, edges, size, missing)
        return code if code < 0 else OK

    def keep(self, handle: int, missing: int) -> int:
        """Change who is not known to have a deleted message (`next_kept`); OK or a code."""
        row = self._find_row(self._kept, handle)
        if row < 0:
            return OK
        place = get_u32_le(self._kept, row + 4)
        self._log.look(place)
        size = self._log.length - RECORD_EXTRA
        code = self._room(size, self._data_max, 0)
        row = self._find_row(self._kept, handle)
        if code == OK:
            place = self._rewrite(get_u32_le(self._kept, row + 4), 0, handle, 0, missing)
            code = min(place, OK)
        if code == OK:
            self._apply(place)
        return code

    def bury(
        self, group: int, source: int, id: "bytes | bytearray | memoryview", id_at: int,
        timestamp: "bytes | bytearray | memoryview", ts_at: int, handle: int,
    ) -> int:  # fmt: skip
        """Keep only the id of a message that is not valid; its handle or a code.

        `handle`: the pending message that it is, or 0. One that is in the log, or buried, stays
        what it is and is counted as a duplicate.
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
            self.duplicates += 1
            return handle
        place = self._entomb(handle, FLAG_INVALID, self.id, 0)
        return self._stands_for(place) if place > 0 else place

    def _entomb(
        self, handle: int, flags: int, edges: "bytes | bytearray | memoryview", size: int,
        missing: int = 0,
    ) -> int:  # fmt: skip
        """Write a tombstone for the message that was loaded; its place or a code."""
        body = self._body
        place = self._write(
            KIND_TOMBSTONE, self.group, self.source, flags, missing, handle, self.id, 0,
            self.timestamp, 0, self._number(body), 0, 4, edges, size,
        )  # fmt: skip
        if place < 0:
            return place
        self._apply(place)
        if body:
            self._sweep()
        return place

    def open_up(self, handle: int) -> int:
        """Share a private message from now on; its handle and place stay. OK or a code.

        One that was deleted meanwhile only counts as shared.
        """
        code = self.load(handle)
        if code != OK or not self.private:
            return code
        place = self._write(
            KIND_OPENED, self.group, self.source, 0, 0, handle, self.id, 0, self.timestamp, 0,
            self.id, 0, 0,
        )  # fmt: skip
        if place < 0:
            return place
        self._apply(place)
        if self._look(handle):
            self._log.pin(self._log.at)  # its segment may be one that nobody needed
        return OK

    # --- records of messages ---

    def _write(
        self, kind: int, group: int, source: int, flags: int, size: int, ref: int,
        id: "bytes | bytearray | memoryview", id_at: int,
        timestamp: "bytes | bytearray | memoryview", ts_at: int,
        body: "bytes | bytearray | memoryview", at: int, stored: int,
        edges: "bytes | bytearray | memoryview" = b"", edges_size: int = 0,
    ) -> int:  # fmt: skip
        log = self._log
        payload = MESSAGE_PAYLOAD + stored + edges_size
        waits = is_pending(kind) or (not source and KIND_MESSAGE <= kind <= KIND_MESSAGE_FILE)
        for _ in range(_TRIES):
            code = self._room(payload, self._own_max if waits else self._data_max, group)
            if code != OK:
                return code
            handle = log.begin(kind, group, payload)
            small = log.scratch
            small[0] = source
            small[1] = flags
            put_u16_le(small, 2, size)
            put_u32_le(small, 4, ref)
            log.add(small, 0, 8)
            log.add(timestamp, ts_at, TIMESTAMP_SIZE)
            log.add(id, id_at, ID_SIZE)
            log.add(body, at, stored)
            log.add(edges, 0, edges_size)
            code = log.end()
            # The flash may be full before the log is.
            if code != E_CAPACITY or self.reclaim() != OK:
                break
        if code != OK:
            return self._refuse(code)
        self._filter.add(id, id_at, 0)
        log.pin(handle)
        if is_pending(kind):
            self._set_row(self._pending, handle, handle)
        return handle

    def _known(self, id: "bytes | bytearray | memoryview", at: int, state: int) -> int:
        """Handle of a message that is here already, promoted unless it is to be pending."""
        handle = self.find(id, at)
        if handle:
            self.duplicates += 1
            if state != STATE_PENDING and self._find_row(self._pending, handle) >= 0:
                return self.promote(handle, state)
        return handle


def _flags(state: int) -> int:
    return FLAG_PRIVATE if state == STATE_PRIVATE else 0
