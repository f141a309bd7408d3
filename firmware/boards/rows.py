"""Lines of a file as readings: a line of any length, which is never read into memory whole."""

from drupelet.base.memory import find

_CHUNK_SIZE = 128
_NEWLINE = b"\n"


class Rows:
    """Returns line n of a file as reading n; after the last line there are no more readings.

    The object itself is the payload of the last reading: a sequence of bytes.
    """

    def __init__(self, path: str, readings_max: int) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._readings_max = readings_max
        self._chunk = bytearray(_CHUNK_SIZE)
        self._row = 0  # the row that begins at `_start`
        self._start = 0
        self._size = 0

    def take(self, number: int) -> "Rows | None":
        """Return the payload of reading `number`; None after the last line."""
        if number >= self._readings_max:
            return None
        if number < self._row:
            self._row = self._start = 0
        while self._row < number:
            size = self._row_size()
            if not size:
                return None
            self._start += size + 1
            self._row += 1
        self._size = self._row_size()
        return self if self._size else None

    def __len__(self) -> int:
        """Return the size of the line in bytes."""
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """Return the bytes from part.start to part.stop."""
        self._file.seek(self._start + part.start)
        return self._file.read(min(part.stop, self._size) - part.start)

    def _row_size(self) -> int:
        """Return the size of the line that begins at `_start`; 0 after the last line."""
        self._file.seek(self._start)
        size = 0
        while got := self._file.readinto(self._chunk):
            found = find(self._chunk, 1, got, _NEWLINE, 0, 1)
            if found >= 0:
                return size + found
            size += got
        return size
