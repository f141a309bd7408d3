"""Bodies that are still arriving or being composed, and descriptors, in the host's database."""

from collections.abc import Callable, Iterable
from typing import Any

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import (
    BODY_SIZE_MAX,
    CONTENT_HEADER_SIZE,
    ID_SIZE,
    PART_INCOMING,
)
from drupelet.base.ports import Buffer

# Incomplete messages at once: one per peer (32), so that no peer waits for another.
PARTS_HOST_MAX = 32
PART_COUNT = PART_INCOMING + PARTS_HOST_MAX
PART_SIZE_MAX = CONTENT_HEADER_SIZE + BODY_SIZE_MAX
PART_KEY_SIZE = 8


class _Part:
    """A body that is still arriving or being composed; flushed with the next commit."""

    def __init__(self) -> None:
        self.key = b""
        self.total = 0
        self.data = bytearray()
        self.open = False
        self.dirty = False


class SqliteSpool:
    """The parts of a store; what changed is written at the next barrier.

    `write` runs one statement in the open transaction; it returns the rows touched or E_STORAGE.
    `row` reads the first row of a query, or None.
    """

    def __init__(
        self, write: Callable[..., int], row: Callable[..., tuple[Any, ...] | None]
    ) -> None:
        self._write = write
        self._row = row
        self._parts = [_Part() for _ in range(PART_COUNT)]

    def load(self, rows: Iterable[tuple[int, bytes, int, bytes]]) -> None:
        """Take over what the table of parts holds."""
        self._parts = [_Part() for _ in range(PART_COUNT)]
        for number, key, total, data in rows:
            if 0 <= number < PART_COUNT:
                part = self._parts[number]
                part.key, part.total, part.data = bytes(key), total, bytearray(data)

    def write_changed(self) -> int:
        """Write the parts that changed; OK or a code."""
        for number, part in enumerate(self._parts):
            if part.dirty and self._write_part(number, part) < 0:
                return E_STORAGE
        return OK

    def content(self, part: int) -> bytes | None:
        """All bytes of an open part; None for one that is not open."""
        it = self._parts[part]
        return bytes(it.data) if it.open else None

    def part_open(self, part: int, key: Buffer, at: int, total: int) -> int:
        """Open a part; return its size.

        An existing part is continued where it ends, if its 8-byte key and total (0: it is being
        composed) are the same.
        """
        assert 0 <= total <= PART_SIZE_MAX
        it = self._parts[part]
        name = bytes(key[at : at + PART_KEY_SIZE])
        if it.key != name or it.total != total:
            it.key, it.total, it.data = name, total, bytearray()
        it.open = it.dirty = True
        return len(it.data)

    def part_append(self, part: int, buf: Buffer, at: int, size: int) -> int:
        """Add bytes to an open part; E_CAPACITY when it would outgrow its total."""
        it = self._parts[part]
        if not it.open:
            return E_STORAGE
        if len(it.data) + size > (it.total or PART_SIZE_MAX):
            return E_CAPACITY
        it.data += buf[at : at + size]
        it.dirty = True
        return OK

    def part_size(self, part: int) -> int:
        """Bytes in an open part so far; 0 for one that is not open."""
        it = self._parts[part]
        return len(it.data) if it.open else 0

    def part_left(self, part: int) -> int:
        """Bytes that were left of a part; 0 or less for none."""
        return len(self._parts[part].data)

    def part_read_into(self, part: int, offset: int, buf: bytearray, at: int, size: int) -> int:
        """Copy bytes out of an open part; returns how many there were."""
        it = self._parts[part]
        return copy_out(it.data, offset, buf, at, size) if it.open else 0

    def flush(self) -> int:
        """OK: parts are in the transaction that the store's barrier commits."""
        return OK

    def part_drop(self, part: int) -> int:
        """Forget a part."""
        self._parts[part] = _Part()
        return OK if self._write("DELETE FROM parts WHERE part = ?", part) >= 0 else E_STORAGE

    def descriptor_size(self, number: int) -> int:
        """Bytes of a group's descriptor; -1 when it has none."""
        row = self._row("SELECT length(content) FROM descriptors WHERE number = ?", number)
        return row[0] - ID_SIZE if row else -1

    def descriptor_read_into(
        self, number: int, offset: int, buf: bytearray, at: int, size: int
    ) -> int:
        """Copy descriptor bytes; the count, less only at the end, or E_STORAGE."""
        row = self._row(
            "SELECT substr(content, ?, ?) FROM descriptors WHERE number = ?",
            ID_SIZE + offset + 1, size, number,
        )  # fmt: skip
        return copy_out(row[0], 0, buf, at, size) if row else E_STORAGE

    def _write_part(self, number: int, part: _Part) -> int:
        part.dirty = False
        return self._write(
            "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?)",
            number,
            part.key,
            part.total,
            bytes(part.data),
        )


def copy_out(data: Buffer, offset: int, buf: bytearray, at: int, size: int) -> int:
    """Copy what there is of `data[offset:offset + size]` to `buf[at:]`; how many bytes."""
    piece = data[offset : offset + size]
    buf[at : at + len(piece)] = piece
    return len(piece)
