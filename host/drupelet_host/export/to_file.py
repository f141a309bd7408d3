"""Exports messages into a file, or shows them."""

from typing import BinaryIO

from drupelet_host.export.export_file import ExportFile
from drupelet_host.export.formats import Format
from drupelet_host.export.reading import Reading
from drupelet_host.export.run import BATCH_MAX, Journal


class FileTarget:
    """A file in one of the forms."""

    batch_max = BATCH_MAX

    def __init__(self, file: ExportFile, form: Format) -> None:
        self._file = file
        self._form = form

    def write(self, readings: list[Reading], journal: Journal) -> int:  # noqa: ARG002
        """Append messages; the file's length when they are on disk."""
        data = b"".join(map(self._form.encode, readings))
        if readings and not self._file.size:
            data = self._form.head() + data
        return self._file.append(data)

    def rest(self) -> None:
        """Nothing: the file stays ours."""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class StreamTarget:
    """Standard output: nothing of it is remembered."""

    def __init__(self, stream: BinaryIO, form: Format) -> None:
        self._stream = stream
        self._form = form
        self._is_begun = False

    def write(self, readings: list[Reading]) -> None:
        """Print messages."""
        if not self._is_begun:
            self._stream.write(self._form.head())
            self._is_begun = True
        self._stream.write(b"".join(map(self._form.encode, readings)))
        self._stream.flush()
