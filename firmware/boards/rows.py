"""The rows of a file as readings: one text a line, however long, never whole in memory."""

from drupelet.base.memory import find

_CHUNK_SIZE = 128
_NEWLINE = b"\n"


class Rows:
    """Replays a file, row n as reading n; after the last row there are no more readings.

    It is the payload of the row that was taken last, too.
    """

    def __init__(self, path: str, readings_max: int) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._readings_max = readings_max
        self._chunk = bytearray(_CHUNK_SIZE)
        self._row = 0  # the row that begins at `_start`
        self._start = 0
        self._size = 0

    def take(self, number: int) -> "Rows | None":
        """The row of this reading; None behind the last."""
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
        """Bytes of the row."""
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """Some of them."""
        self._file.seek(self._start + part.start)
        return self._file.read(min(part.stop, self._size) - part.start)

    def _row_size(self) -> int:
        """Bytes before the end of the line that begins at `_start`; 0 behind the last one."""
        self._file.seek(self._start)
        size = 0
        while got := self._file.readinto(self._chunk):
            found = find(self._chunk, 1, got, _NEWLINE, 0, 1)
            if found >= 0:
                return size + found
            size += got
        return size
