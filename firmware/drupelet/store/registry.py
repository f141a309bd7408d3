"""Groups, peers and the owner's state in a store: who has which number, and what survives a sleep.

A number, 1..254, is one byte on flash and lasts while any message carries it. A group that was
left keeps its row, so that its messages are passed over until they are gone; so does a removed
peer's. Descriptors are files of their own: a part file (head 16 | client id 32 | descriptor).
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import ID_SIZE, WAKE_STATE_SIZE_MAX
from drupelet.base.memory import copy, equal, get_u32_le
from drupelet.store.index import MEMBER_COUNTED, MEMBER_GROUP
from drupelet.store.log import AT_SOURCE, KIND_MEMBER, KIND_MESSAGE, KIND_WAKE
from drupelet.store.parts import PART_HEAD_SIZE
from drupelet.store.reclaim import Room
from drupelet.store.segments import RECORD_EXTRA

MEMBER_PEER = const(2)
_NUMBER_MAX = const(254)  # members are one byte on flash; 0 is ourselves, 255 nobody
_TRIES = const(4)
_DESCRIPTOR_AT = const(48)  # behind the part's head and the client id

assert _DESCRIPTOR_AT == PART_HEAD_SIZE + ID_SIZE


class Roll(Room):
    """Room with the rows of members, their descriptors and the wake state."""

    def member(self, kind: int, key: "bytes | bytearray | memoryview", at: int, size: int) -> int:
        """Number 1..254 of a group (kind 1) or a peer (kind 2), or a code; new if it was left."""
        assert 0 < size <= ID_SIZE
        log = self._log
        number = self._numbers[kind] + 1
        for row in range(0, len(self._members), 8):
            place = get_u32_le(self._members, row)
            if place and self._members[row + 4] == kind:
                live = not self._members[row + 6] and log.look(place)
                extra = RECORD_EXTRA + 9 if log.tag == MEMBER_COUNTED else RECORD_EXTRA + 1
                if live and log.length == extra + size:
                    log.read_into(place, 5, log.scratch, 0, size)
                    if equal(log.scratch, 0, key, at, size):
                        return self._members[row + 5]
                number = max(number, self._members[row + 5] + 1)
        if self._find_row(self._members, 0) < 0 or number > _NUMBER_MAX:
            number = self._free_number(kind)
            if number < 0:
                return self._refuse(number)
        return self._write_member(kind, number, key, at, size, self._data_max)

    def _write_member(
        self, kind: int, number: int, key: "bytes | bytearray | memoryview", at: int, size: int,
        segments: int,
    ) -> int:  # fmt: skip
        """Note a member, or with `size` 0 that it is one no more; its number or a code."""
        self._small[0] = number
        place = self._note(KIND_MEMBER, kind, 1, key, at, size, segments)
        if place < 0:
            return place
        self._note_member(place, kind, number, not size)
        return number

    def _free_number(self, kind: int) -> int:
        """A number that was given up and that no message carries any more; or E_CAPACITY."""
        log = self._log
        for row in range(0, len(self._members), 8):
            if self._members[row + 4] != kind or not self._members[row + 6]:
                continue
            number = self._members[row + 5]
            place = log.step(0)
            while place:
                if log.kind >= KIND_MESSAGE:
                    carried = log.tag
                    if kind == MEMBER_PEER:
                        log.read_into(place, AT_SOURCE, log.scratch, 0, 1)
                        carried = log.scratch[0]
                    if carried == number:
                        break
                place = log.step(place)
            if not place and not (kind == MEMBER_GROUP and self._gone.has_group(number)):
                return number
        return E_CAPACITY

    def dismiss(self, kind: int, number: int) -> int:
        """A group was left: its messages are as if they had never been here; OK or a code.

        Or a peer was removed: its number is not given to another one before its messages go.
        """
        code = OK
        for row in range(0, len(self._members), 8):
            known = self._members[row + 4] == kind and self._members[row + 5] == number
            if known and not self._members[row + 6]:
                # Who frees room needs some: few bytes of what the wake states have.
                segments = self._log.segments_max
                code = self._write_member(kind, number, self._small, 0, 0, segments)
        # Before that survives a power cut, nothing of the group may be gone.
        code = self.barrier() if code >= 0 else code
        if code == OK:
            self._marks = -1
            self._sweep()
            self._drop_descriptors(self._files.names())
        return code

    # --- descriptors ---

    def descriptor_put(self, part: int, number: int) -> int:
        """Keep a finished part (client id 32 | descriptor) as a group's; OK or a code."""
        if self.part_size(part) < ID_SIZE:
            return E_STORAGE
        # A number that a power cut takes back must not have a descriptor.
        code = self.barrier()
        return self._finish(part, _descriptor_name(number)) if code == OK else code

    def _drop_descriptors(self, names: "list[str]") -> None:
        """Remove the descriptors of numbers that are no group, or none any more, if it goes."""
        for name in names:
            number = name[1:-4]
            if name.endswith(".DSC") and number.isdigit() and not self._is_group(int(number)):
                self._files.remove(name)

    def _is_group(self, number: int) -> bool:
        row = self._member_row(number)
        table = self._members
        known = table[row + 5] == number and table[row + 4] == MEMBER_GROUP
        return known and not table[row + 6]

    def descriptor_size(self, number: int) -> int:
        """Bytes of a group's descriptor; -1 when it has none."""
        size = self._files.size(_descriptor_name(number)) - _DESCRIPTOR_AT
        return size if size >= 0 else -1

    def descriptor_read_into(
        self, number: int, offset: int, buf: bytearray, at: int, size: int
    ) -> int:
        """Copy descriptor bytes; the count, less only at the end, or E_STORAGE."""
        fd = self._files.open(_descriptor_name(number), False)
        if fd < 0:
            return E_STORAGE
        count = self._files.read_into(fd, _DESCRIPTOR_AT + offset, buf, at, size)
        self._files.close(fd)
        return count

    # --- the wake state ---

    def save(self, state: "bytes | bytearray | memoryview", size: int) -> int:
        """Write the owner's state, at most WAKE_STATE_SIZE_MAX bytes; the newest one counts."""
        assert size <= WAKE_STATE_SIZE_MAX
        place = self._note(KIND_WAKE, 0, 0, state, 0, size, self._log.segments_max)
        if place < 0:
            return place
        self._wake = place
        copy(self.saved, 0, state, 0, size)
        self.saved_size = size
        return OK

    def _note(
        self, kind: int, tag: int, head_size: int, buf: "bytes | bytearray | memoryview", at: int,
        size: int, segments: int,
    ) -> int:  # fmt: skip
        """Write a record of the first bytes of `_small` and of `buf`; its place or a code."""
        log = self._log
        for _ in range(_TRIES):
            code = self._room(head_size + size, segments, 0)
            if code != OK:
                return code
            place = log.begin(kind, tag, head_size + size)
            log.add(self._small, 0, head_size)
            log.add(buf, at, size)
            code = log.end()
            # The flash may be full before the log is.
            if code != E_CAPACITY or self.reclaim() != OK:
                break
        return place if code == OK else self._refuse(code)


def _descriptor_name(number: int) -> str:
    return "G%d.DSC" % number
