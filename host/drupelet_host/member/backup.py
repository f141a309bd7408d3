"""A home in one file, and back: configuration, store, channels and keys.

The file is a tar with mode 0600: it holds chain keys, so whoever has it can be this member. What
comes back is never the member that went on: its store has another `store_gen`, so that the peers
show it again what it has acknowledged since, and its send chains jump ahead, so that no epoch is
used twice. The last thing in the file is a checksum of the rest: half a download, or a bit that
turned, must not come back as a member that lacks something. The owner's own secrets
(`commands.key`, `feed.key` with `feed.readers`, `store.key`) come along as they are: boards and
members know them. What the member said on its channels since comes back from those who heard it.

A restore is made in a folder inside the new home, and moved out of it once all is renewed, the
configuration last: before that there is no home, and the next restore begins again.
"""

import hashlib
import io
import os
import re
import shutil
import sqlite3
import tarfile
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

from drupelet.base.errors import OK, DrupeletError, StorageError
from drupelet.base.limits import SEAL_JUMP
from drupelet.base.memory import put_u32
from drupelet.seal.record import RECORD_EPOCH_AT, RECORD_KEY_AT, RECORD_SIZE, finish, step
from drupelet_host.base.atomic_write import sync_folder
from drupelet_host.home import config, private_files
from drupelet_host.home.private_files import BusyError
from drupelet_host.keys.key_folder import CHAIN_ROWS, HostKeys, known_peers
from drupelet_host.store import database, restored
from drupelet_host.store.sqlite_store import SqliteStore

_KEYS = re.compile(
    r"keys/([0-9a-f]{8}\.(live|bundle|tell)|commands\.key|feed\.key|feed\.readers"
    r"|store\.key)"
)
_STORE = "store.db"
# As long as they are; `drupelet_host.agent.channels` has the latter.
_DATABASES = (_STORE, "channels.db")
# SHA-256 of names, sizes and contents before it, in hex.
_CHECKSUM = "sha256"
_KEY_SIZE_MAX = 4096
# A chunk of the store on its way; a store may be larger than memory.
_CHUNK_SIZE = 1 << 20
_KEY_SIZE = 32
# Where a restore makes the new home, and what a cut one may have left beside it.
_PART = "restore.tmp"
_PIECE = re.compile(rf"{re.escape(_PART)}|keys|(store|channels)\.db(-wal|-shm)?")


class BackupError(DrupeletError):
    """The backup cannot be made or used; the text says why."""


def back_up(home: Path, target: Path) -> int:
    """Write a home to a new file, also while its agent runs; how many files are in it."""
    settings = config.load(home)
    try:
        with private_files.locked(home / "backup.lock"):  # the copy of a database has one place
            return _back_up(settings, target)
    except BusyError:
        raise BackupError(f"{home}: another backup is being made; let it finish") from None


def _back_up(settings: config.Config, target: Path) -> int:
    if target.exists() or target.is_symlink():
        raise BackupError(f"{target}: is there already; give another name")
    part = target.with_name(target.name + ".tmp")
    copy = settings.home / "backup.tmp"
    try:
        with suppress(FileNotFoundError):
            os.unlink(part)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as out:
            os.fchmod(fd, 0o600)
            with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                count = _pack(tar, settings, copy)
            out.flush()
            os.fsync(fd)
        os.replace(part, target)
        sync_folder(target.absolute().parent)
    except OSError as error:
        raise BackupError(f"{target}: cannot be written ({error.strerror})") from None
    finally:
        for path in (part, copy):
            with suppress(OSError):
                os.unlink(path)
    return count


def _pack(tar: tarfile.TarFile, settings: config.Config, copy: Path) -> int:
    names = [config.CONFIG_NAME]
    checksum = hashlib.sha256()
    content = (settings.home / config.CONFIG_NAME).read_bytes()
    _add(tar, config.CONFIG_NAME, content, checksum)
    for name in _DATABASES:
        if (settings.home / name).exists():
            _copy_database(settings.home / name, copy)
            info = _info(name, copy.stat().st_size)
            checksum.update(_head(info))
            with copy.open("rb") as file:
                tar.addfile(info, _Hashed(file, checksum))
            names.append(name)
    private_files.check(settings.keys_path)
    if settings.keys_path.is_dir():
        for path in sorted(settings.keys_path.iterdir()):
            name = f"keys/{path.name}"
            if _KEYS.fullmatch(name):
                _add(tar, name, private_files.read(path, _KEY_SIZE_MAX), checksum)
                names.append(name)
    _add(tar, _CHECKSUM, checksum.hexdigest().encode(), checksum)
    return len(names)


class _Hashed(io.RawIOBase):
    """A file whose checksum is of what was read: of what is in the tar, whatever became of it."""

    def __init__(self, file: BinaryIO, checksum: "hashlib._Hash") -> None:
        self._file = file
        self._checksum = checksum

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, and into the checksum with them."""
        chunk = self._file.read(size)
        self._checksum.update(chunk)
        return chunk


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    return info


def _head(info: tarfile.TarInfo) -> bytes:
    """What the checksum covers before a file's content."""
    return f"{info.name}\n{info.size}\n".encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes, checksum: "hashlib._Hash") -> None:
    info = _info(name, len(content))
    checksum.update(_head(info) + content)
    tar.addfile(info, io.BytesIO(content))


def _copy_database(path: Path, copy: Path) -> None:
    """One consistent state of a database, however busy the agent is."""
    with suppress(FileNotFoundError):
        os.unlink(copy)
    private_files.create(copy, b"")
    try:
        with (
            closing(_source(path)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            (verdict,) = target.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise StorageError(
                    f"{path}: it is damaged, and so would the backup be; restore an older one"
                )
    except sqlite3.Error as error:
        raise StorageError(database.explain(path, error)) from error


def _source(path: Path) -> sqlite3.Connection:
    if path.name == _STORE:
        return database.connect(path, read_only=True)
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=database.BUSY_TIMEOUT_S
    )


def _is_free(home: Path) -> bool:
    """True for a home that is not there yet, or that a restore began and did not end."""
    if not home.exists():
        return True
    names = {path.name for path in home.iterdir()} if home.is_dir() else {""}
    return not names or (_PART in names and all(_PIECE.fullmatch(name) for name in names))


def restore(source: Path, home: Path) -> config.Config:
    """Make a new home from a backup; raises BackupError and leaves nothing if it cannot."""
    if not _is_free(home):
        raise BackupError(f"{home}: is not empty; move it away or choose another --home")
    is_new = not home.exists()
    part = home / _PART
    done = False
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(home, 0o700)
        _clear(home, False)
        private_files.make_folder(part)
        private_files.make_folder(part / "keys")
        _unpack(source, part)
        settings = config.load(part)
        _renew_store(settings)
        _renew_keys(settings)
        _move(part, home)
        settings = config.load(home)
        done = True
    except tarfile.TarError:
        raise BackupError(
            f"{source}: cannot be restored (it is damaged, or nothing that `drupelet backup`"
            " wrote; use another copy)"
        ) from None
    except (OSError, DrupeletError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BackupError(f"{source}: cannot be restored ({reason})") from None
    finally:
        if not done:  # Ctrl-C, too
            _clear(home, is_new)
    return settings


def _unpack(source: Path, home: Path) -> None:
    """Write what a backup may hold, and nothing else, whatever the file says."""
    seen: set[str] = set()
    checksum = hashlib.sha256()
    with tarfile.open(source, "r:") as tar:
        for info in tar:
            if info.name == _CHECKSUM and info.isreg():
                _compare(tar, info, checksum, seen)
                return
            known = info.name in (config.CONFIG_NAME, *_DATABASES) or _KEYS.fullmatch(info.name)
            if not known or not info.isreg() or info.name in seen:
                raise BackupError("it holds something that is no part of a home")
            if info.name not in _DATABASES and info.size > config.CONFIG_SIZE_MAX:
                raise BackupError("it holds something too long for a home")
            seen.add(info.name)
            checksum.update(_head(info))
            file = tar.extractfile(info)
            assert file is not None
            private_files.create(home / info.name, b"")
            with (home / info.name).open("wb") as out:
                while chunk := file.read(_CHUNK_SIZE):
                    checksum.update(chunk)
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())
    if config.CONFIG_NAME in seen:
        raise BackupError("it is cut short: the checksum at its end is missing; use another copy")
    raise BackupError("it is no backup of a home: there is no drupelet.toml in it")


def _compare(
    tar: tarfile.TarFile, info: tarfile.TarInfo, checksum: "hashlib._Hash", seen: set[str]
) -> None:
    file = tar.extractfile(info)
    assert file is not None
    if file.read(checksum.digest_size * 2) != checksum.hexdigest().encode():
        raise BackupError("it is damaged: its checksum is another; use another copy")
    if config.CONFIG_NAME not in seen:
        raise BackupError("it is no backup of a home: there is no drupelet.toml in it")


def _renew_store(settings: config.Config) -> None:
    """Another store_gen: the peers are told that acknowledgements since the backup are void."""
    if not settings.store_path.exists():
        return
    store = SqliteStore(settings.store_path)
    store.open()
    try:
        restored.notice(store, settings.status_path, [peer.id for peer in settings.peers], True)
        # The member's first start sees to what only it can renew: its bundles' numbers.
        restored.put(store, restored.PLACE, restored.NOWHERE)
        if store.barrier() != OK:
            raise StorageError(store.failure)
    finally:
        store.close()


def _renew_keys(settings: config.Config) -> None:
    """No send chain goes on where the backup stood: the member may have used what follows."""
    record = bytearray(RECORD_SIZE)
    for peer_id in known_peers(settings.keys_path):
        keys = HostKeys(settings.keys_path, settings.id, peer_id)
        try:
            for row in range(CHAIN_ROWS):
                if row & 2 or keys.load(row, record) != OK:
                    continue
                epoch = int.from_bytes(record[RECORD_EPOCH_AT : RECORD_EPOCH_AT + 4])
                key_end = RECORD_KEY_AT + _KEY_SIZE
                record[RECORD_KEY_AT:key_end] = step(
                    bytes(record[RECORD_KEY_AT:key_end]), epoch, SEAL_JUMP
                )
                put_u32(record, RECORD_EPOCH_AT, epoch + SEAL_JUMP)
                finish(record)
                if keys.save(row, record) != OK:
                    raise StorageError(keys.failure)
        finally:
            keys.close()


def _move(part: Path, home: Path) -> None:
    """Make a home of what was unpacked and renewed: it is one with its configuration."""
    for path in part.iterdir():
        if path.name != config.CONFIG_NAME:
            os.rename(path, home / path.name)
    sync_folder(home)
    os.rename(part / config.CONFIG_NAME, home / config.CONFIG_NAME)
    sync_folder(home)
    part.rmdir()


def _clear(home: Path, is_new: bool) -> None:
    """Take away what a restore left half done; the home was empty before it.

    The folder that says so goes last.
    """
    with suppress(OSError):
        for path in sorted(home.iterdir(), key=lambda path: path.name == _PART):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if is_new:
            home.rmdir()
