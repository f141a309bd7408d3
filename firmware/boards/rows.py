"""The rows of a file as readings: one text a line, however long, never whole in memory."""

from drupelet.base.memory import find

_CHUNK_SIZE = 128
_NEWLINE = b"\n"


class Rows:
    """Replays a file, row n as reading n; after the last row there are no more readings."""

    def __init__(self, path: str, readings_max: int) -> None:
        self._file = open(path, "rb")  # noqa: SIM115
        self._readings_max = readings_max
        self._chunk = bytearray(_CHUNK_SIZE)
        self._row = 0  # the row that begins at `_start`
        self._start = 0
        self._at = 0

    def ready(self, number: int) -> bool:
        """True while there is a row for this reading."""
        if number >= self._readings_max:
            return False
        if number < self._row:
            self._row = self._start = 0
        while self._row < number:
            size = self._row_size()
            if not size:
                return False
            self._start += size + 1
            self._row += 1
        return self._row_size() > 0

    def size(self) -> int:
        """The size of the row that `ready` has just found."""
        self._at = self._start
        return self._row_size()

    def read_into(self, buf: bytearray, at: int, size: int) -> None:
        """The next `size` bytes of the row."""
        self._file.seek(self._at)
        self._file.readinto(memoryview(buf)[at : at + size])
        self._at += size

    def _row_size(self) -> int:
        """Bytes before the end of the line that begins at `_start`; 0 behind the last one."""
        self._file.seek(self._start)
        size = 0
        while True:
            got = self._file.readinto(self._chunk)
            if not got:
                return size
            found = find(self._chunk, 1, got, _NEWLINE, 0, 1)
            if found >= 0:
                return size + found
            size += got
