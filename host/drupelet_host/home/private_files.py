"""Files that only their owner may read: folders 0700, files 0600, no links, replaced in one step.

What others can read, or somebody else could have put there, is refused as ssh refuses it: with one
line that says what to do. Nothing in a message is ever the content of a file.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drupelet.base.errors import DrupeletError, StorageError
from drupelet_host.base.atomic_write import sync_folder
from drupelet_host.base.errors import DamagedError
from drupelet_host.home import file_lock

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
# A new file never follows a link that somebody laid in its place.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateError(DrupeletError):
    """A secret lies open, or where it may not lie; the text names the file and the remedy."""


class BusyError(DrupeletError):
    """Another process uses the file."""


def problem(path: Path) -> str:
    """What is wrong with a secret file or folder, with the remedy; '' when all is well.

    A missing one is well: it has nothing to hide.
    """
    try:
        info = path.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{path}: cannot be looked at ({error.strerror})"
    mode = stat.S_IMODE(info.st_mode)
    if stat.S_ISLNK(info.st_mode):
        return f"{path}: is a link; put the file itself there"
    if not stat.S_ISDIR(info.st_mode) and not stat.S_ISREG(info.st_mode):
        return f"{path}: is no ordinary file; remove it"
    if info.st_uid != os.geteuid():
        return f"{path}: belongs to user {info.st_uid}; make it yours with chown"
    if mode & _OTHERS:
        wanted = _FOLDER_MODE if stat.S_ISDIR(info.st_mode) else _FILE_MODE
        return f"{path}: others can get at it (mode {mode:04o}); run chmod {wanted:o} on it"
    return ""


def check(path: Path) -> None:
    """Raise PrivateError unless `problem` finds none."""
    if wrong := problem(path):
        raise PrivateError(wrong)


def make_folder(path: Path) -> None:
    """Make the folder (0700), or check the one that is there."""
    try:
        path.mkdir(mode=_FOLDER_MODE)
        sync_folder(path.parent)
    except FileExistsError:
        check(path)
        if not path.is_dir():
            raise PrivateError(f"{path}: is no folder; move it away") from None
    except OSError as error:
        raise StorageError(f"{path}: cannot be made ({error.strerror})") from error


def read(path: Path, size_max: int) -> bytes:
    """The content of a file that nobody else can read; raises PrivateError or StorageError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        check(path)
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        check(path)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise PrivateError(f"{path}: is no ordinary file; remove it")
        content = os.read(fd, size_max + 1)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from None
    finally:
        os.close(fd)
    if len(content) > size_max:
        raise DamagedError(f"{path}: longer than {size_max} bytes; it is not ours")
    return content


def secret(path: Path, size: int, remedy: str) -> bytes:
    """A file of so many random bytes, made on first use. Raises PrivateError, or StorageError.

    remedy: what to do when it was cut short, as by a power cut: everybody knows such a secret.
    """
    if not path.is_symlink() and not path.exists():
        make_folder(path.parent)
        replace(path, os.urandom(size))
    content = read(path, size)
    if len(content) != size:
        raise DamagedError(f"{path}: cut short; {remedy}")
    return content


def create(path: Path, content: bytes, has_modes: bool = True) -> None:
    """Write a new file, durably; FileExistsError when there is one.

    has_modes: False where the file system may be FAT, which has none and says so.
    """
    fd = os.open(path, _NEW, _FILE_MODE)
    try:
        with suppress(*(() if has_modes else (PermissionError,))):
            os.fchmod(fd, _FILE_MODE)  # whatever the umask is
        _write(fd, content)
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(fd)
    sync_folder(path.parent)


def replace(path: Path, content: bytes) -> None:
    """Put new content in place of the old in one step, durably; raises StorageError."""
    part = path.with_name(path.name + ".tmp")
    try:
        with suppress(FileNotFoundError):
            os.unlink(part)  # of an earlier run that was cut; a link goes, not what it points to
        create(part, content)
        os.replace(part, path)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror})") from None


def remove(path: Path) -> bool:
    """Take a file away, durably; False when there was none. Overwritten first, for what it helps.

    A journal or the flash below a disk may keep older copies: only a new key heals that. A cut in
    between leaves zeros: who reads such a file takes them for none.
    """
    try:
        size = path.lstat().st_size
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _write(fd, bytes(size))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.unlink(path)
        sync_folder(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"{path}: cannot be removed ({error.strerror})") from None
    return True


def _write(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def lock(path: Path) -> int:
    """Hold `path` until the descriptor is closed; raises BusyError or StorageError."""
    check(path)
    try:
        fd = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, _FILE_MODE
        )
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened ({error.strerror})") from None
    try:
        if file_lock.take(fd):
            return fd
    except OSError as error:
        os.close(fd)
        raise StorageError(f"{path}: cannot be locked ({error.strerror})") from None
    os.close(fd)
    raise BusyError(f"{path}: another process uses these keys; let it finish")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """As `lock`, for the length of a block."""
    fd = lock(path)
    try:
        yield
    finally:
        os.close(fd)
