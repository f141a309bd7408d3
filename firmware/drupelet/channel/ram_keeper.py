"""The keeper of a channel's messages in RAM (`channel/keeper.py`); a restart loses them.

It is in no firmware set: boards use `flash_keeper.py`.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.memory import copy, equal, find, get_u16, get_u32, put_u16, put_u32
from drupelet.channel.keeper import Keeper, compare_ids, put_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import Buffer, Key

# key 8 | handle 4 (0: free) | size 2 | pinned 1
_HANDLE_AT = const(8)
_SIZE_AT = const(12)
_PINNED_AT = const(14)
_STRIDE = const(15)


class RamKeeper(Keeper):
    """Keeps `count` messages of up to `frame_size` bytes; removes the oldest to make room."""

    def __init__(self, count: int, frame_size: int) -> None:
        Keeper.__init__(self, frame_size)
        self._count = count
        self._size = frame_size
        self._rows = bytearray(count * _STRIDE)
        self._frames = bytearray(count * frame_size)
        self._next = 0
        self._issued = 0

    def put(self, key: "Key", size: int, waits: bool) -> int:
        """Keep work[:size]; return its handle, or E_CAPACITY if all messages are pinned."""
        rows = self._rows
        for _ in range(self._count):
            row = self._next
            self._next = row + 1 if row + 1 < self._count else 0
            place = row * _STRIDE
            if not rows[place + _PINNED_AT]:
                break
        else:
            return E_CAPACITY
        if get_u32(rows, place + _HANDLE_AT):
            at = row * self._size
            self.note_removal(self._frames, at, at + get_u16(rows, place + _SIZE_AT))
        self._issued += 1
        copy(rows, place, key, 0, 8)
        put_u32(rows, place + _HANDLE_AT, self._issued)
        put_u16(rows, place + _SIZE_AT, size)
        rows[place + _PINNED_AT] = waits
        copy(self._frames, row * self._size, self.work, 0, size)
        return self._issued

    def _row(self, handle: int) -> int:
        """Return the row of a handle, or -1."""
        rows = self._rows
        row = (handle - 1) % self._count  # there, unless pinned messages were skipped
        if not handle or get_u32(rows, row * _STRIDE + _HANDLE_AT) == handle:
            return row if handle else -1
        for row in range(self._count):
            if get_u32(rows, row * _STRIDE + _HANDLE_AT) == handle:
                return row
        return -1

    def load(self, handle: int) -> int:
        """Copy a message's frame to `work`; its size, 0: it is gone."""
        row = self._row(handle)
        if row < 0:
            return 0
        size = get_u16(self._rows, row * _STRIDE + _SIZE_AT)
        copy(self.work, 0, self._frames, row * self._size, size)
        return size

    def find(self, key: "Key", id: "Buffer", at: int, size: int) -> int:
        """Return the handle of the message with this key and id, or 0."""
        rows = self._rows
        row = find(rows, _STRIDE, self._count, key, 0, 8)
        while 0 <= row < self._count:
            place = row * _STRIDE
            handle = get_u32(rows, place + _HANDLE_AT)
            is_match = handle and equal(rows, place, key, 0, 8)
            id_at = row * self._size + 3 + self._frames[row * self._size + 1]
            if is_match and compare_ids(self._frames, id_at, id, at, size) == 0:
                return handle
            row += 1
        return 0

    def names_into(self, handle: int, out: bytearray) -> bool:
        """Write sender and id of a message to `out`; False: it is gone."""
        row = self._row(handle)
        if row >= 0:
            put_names(out, self._frames, row * self._size)
        return row >= 0

    def barrier(self) -> int:
        """Do nothing: RAM needs no flush."""
        return OK

    def pin(self, handle: int, pinned: bool) -> None:
        """Pin a message or let it go; pinned ones are not removed to make room."""
        row = self._row(handle)
        if row >= 0:
            self._rows[row * _STRIDE + _PINNED_AT] = pinned

    def waited_ms(self, handle: int) -> int:
        """0: the message may wait for a dependency; -1: it does not."""
        row = self._row(handle)
        return 0 if row >= 0 and self._rows[row * _STRIDE + _PINNED_AT] else -1

    def drop(self, handle: int) -> None:
        """Forget a message; it can be received again."""
        row = self._row(handle)
        if row >= 0:
            put_u32(self._rows, row * _STRIDE + _HANDLE_AT, 0)
            self._rows[row * _STRIDE + _PINNED_AT] = 0

    def next(self, handle: int) -> int:
        """Return the handle of the message put after `handle` (0: the first message), or 0."""
        handles = [get_u32(self._rows, row * _STRIDE + _HANDLE_AT) for row in range(self._count)]
        return min([other for other in handles if other > handle], default=0)

    def tail(self, count: int) -> int:
        """Return the handle after which the last `count` messages were put."""
        return max(self._issued - count, 0)
