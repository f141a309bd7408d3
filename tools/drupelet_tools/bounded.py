"""Reads of files that a user names: bounded, for one may be a device without end."""

from pathlib import Path

# A board's configuration, its trace or traceback, the book of a year's soaks: all far smaller.
FILE_SIZE_MAX = 16 << 20


def read_bounded(path: Path, size_max: int = FILE_SIZE_MAX) -> bytes:
    """Return what a file holds. Raises OSError, and ValueError if that is more than `size_max`."""
    with path.open("rb") as file:
        content = file.read(size_max + 1)
    if len(content) > size_max:
        raise ValueError(f"longer than {size_max} bytes: name another file")
    return content
