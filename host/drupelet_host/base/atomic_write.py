"""Replacing a file in one step: readers see the old content or the new, whole."""

import os
from contextlib import suppress
from pathlib import Path


def atomic_write(path: Path, content: bytes | str, *, durable: bool, mode: int = 0o666) -> None:
    """Put new content in place of the old; a text in UTF-8. Raises OSError, and leaves the old.

    durable: it survives a power cut once this returns; else a cut may leave the old content.
    mode: permissions of the new file, which the umask may reduce. What a cut leaves of the new
    content, beside the file as `.tmp`, the next call replaces.
    """
    part = path.with_name(path.name + ".tmp")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(fd)
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make durable which files a folder has. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
