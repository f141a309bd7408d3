"""Where something lies: a path of this machine, or a URI of a store elsewhere.

`place` gives a `Path` for the former and a `Remote` for the latter, which has those methods of a
path that are used here; `filesystem_of` gives pyarrow's file system for both. Credentials come
from the environment, as the tools of each store take them, and never from a URI.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.base.local_path import NotLocalError, local_path
from drupelet_tools.telemetry.base.errors import TelemetryError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow import fs

T = TypeVar("T")
# `Path` makes one slash of two.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}([^/]*)(.*)", re.DOTALL)
_S3 = ("s3", "s3a", "s3n")  # Hadoop has other names for it
# The rest of pyarrow's; what it has not is asked of fsspec.
_OF_PYARROW = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
# Here a folder is only the beginning of names.
_WITHOUT_FOLDERS = (*_S3, "gs", "gcs")
_CONNECT_TIMEOUT_S = 5
_REQUEST_TIMEOUT_S = 30
_WRITE_BUFFER = 1 << 20
# Of delta-rs, whose own are 10 tries within 3 minutes.
_DELTA_RETRIES = {"max_retries": "8", "retry_timeout": "60s"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_REASON_MAX = 300
_CUT = "error decoding response body|response body error"
# A store that is busy, and a connection that is cut, are asked again.
_ATTEMPTS = 5
# What stores say, and what that means for who reads it; the first that fits.
_REASONS = (
    (
        r"NO_SUCH_BUCKET|NoSuchBucket",
        "no such bucket; make it, or mend the URI",
    ),
    (
        r"Path does not exist|NO_SUCH_KEY|NoSuchKey|RESOURCE_NOT_FOUND",
        "No such file or directory",
    ),
    (
        r"(?i)no credentials|credentials.{0,40}not (?:been )?(?:loaded|found|enabled)"
        r"|failed to (?:get|load|resolve)[\w ]* credentials|credential provider",
        "no credentials; set those of the store in the environment (AWS_ACCESS_KEY_ID and"
        " AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)",
    ),
    (
        r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId"
        r"|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|\b403\b|\b401\b|HTTP response code: 403",
        "permission denied; look at the credentials in the environment and at what they may do",
    ),
    (
        r"NETWORK_CONNECTION|curlCode|error sending request|tcp connect error|REQUEST_TIMEOUT"
        rf"|{_CUT}",
        "no connection to the store; look at the network and at AWS_ENDPOINT_URL",
    ),
    (
        r"INTERNAL_FAILURE|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING|\b50[0234]\b",
        "the store is in trouble or overloaded; run it again later",
    ),
)


@dataclass(frozen=True, order=True, slots=True)
class Remote:
    """A file or folder of a store elsewhere; `size` and `mtime_ns` as it was listed."""

    uri: str
    size: int = field(default=-1, compare=False)
    mtime_ns: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.uri.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.uri.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot on."""
        return posixpath.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        """The name without that."""
        return posixpath.splitext(self.name)[0]

    def with_suffix(self, suffix: str) -> Remote:
        """The file beside it with another end of the name."""
        return self.parent / f"{self.stem}{suffix}"

    @property
    def parent(self) -> Remote:
        """The folder that it is in."""
        return Remote(self.uri.rpartition("/")[0])

    def match(self, pattern: str) -> bool:
        """Whether the name fits a pattern."""
        return fnmatchcase(self.name, pattern)

    def resolve(self) -> Remote:
        """The same: there are no links."""
        return self

    def is_dir(self) -> bool:
        """Whether it is a folder. Raises TelemetryError: the store does not say."""
        return self._kind() == "Directory"

    def is_file(self) -> bool:
        """Whether it is a file. Raises TelemetryError: the store does not say."""
        return self._kind() == "File"

    def exists(self) -> bool:
        """Whether there is something. Raises TelemetryError: the store does not say."""
        return self._kind() != "NotFound"

    def _kind(self) -> str:
        with _naming(self):
            filesystem, path = filesystem_of(self)
            kind = str(filesystem.get_file_info(path).type.name)
            bucket = path.partition("/")[0]
            missing = kind == "NotFound" and filesystem.type_name == "s3"
            if missing and filesystem.get_file_info(bucket).type.name == "NotFound":
                raise OSError("NoSuchBucket")
            return kind

    def below(self) -> list[Remote]:
        """The files in a folder and below it; none without it.

        Raises:
            TelemetryError: the store does not list them.
        """
        from pyarrow import fs

        with _naming(self):
            filesystem, path = filesystem_of(self)
            selector = fs.FileSelector(path, allow_not_found=True, recursive=True)
            return [
                Remote(self.uri + info.path[len(path) :], info.size, info.mtime_ns or 0)
                for info in filesystem.get_file_info(selector)
                if info.is_file
            ]

    def may_be_empty(self) -> bool:
        """Whether a folder with nothing in it looks as if it were not there."""
        return self.uri.partition(":")[0] in _WITHOUT_FOLDERS

    def listed(self) -> Remote:
        """The same file with its size and time. Raises TelemetryError: it is not there."""
        with _naming(self):
            filesystem, path = filesystem_of(self)
            info = filesystem.get_file_info(path)
            if not info.is_file:
                raise FileNotFoundError("No such file or directory")
            return Remote(self.uri, info.size, info.mtime_ns or 0)

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:  # noqa: ARG002
        """Make a folder, where a store has folders."""
        if not self.may_be_empty():
            filesystem, path = filesystem_of(self)
            filesystem.create_dir(path)

    def unlink(self, missing_ok: bool = True) -> None:
        """Remove a file."""
        filesystem, path = filesystem_of(self)
        try:
            filesystem.delete_file(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def read_text(self, encoding: str) -> str:
        """All of a file as text."""
        with Opened(self) as opened:
            return opened.pread(opened.size, 0).decode(encoding)


Place = Path | Remote


@contextmanager
def _naming(where: Remote) -> Iterator[None]:
    """Turn an error of the store into one line that names the place and what it means."""
    try:
        yield
    except OSError as refused:
        raise TelemetryError(f"{where}: {reason(refused)}") from None


def place(given: str | os.PathLike[str] | Remote) -> Place:
    """Where a path or a URI leads.

    Raises:
        NotLocalError: a URI that has credentials or no place in it, or of an unknown scheme.
    """
    if isinstance(given, Remote):
        return given
    text = os.fspath(given)
    uri = _URI.match(text)
    if uri is None or uri[1].lower() == "file":
        return local_path(text)
    scheme, authority, path = uri[1].lower(), uri[2], uri[3].rstrip("/")
    if ":" in authority.rpartition("@")[0] or (scheme in _S3 and "@" in authority):
        raise NotLocalError(
            f"{scheme}://…@{authority.rpartition('@')[2]}{path}: credentials in a URI end up in"
            " logs; set them in the environment and leave them out of it"
        )
    if scheme in _S3:
        scheme = "s3"
    elif scheme not in _OF_PYARROW and not _is_of_fsspec(scheme):
        known = ", ".join(f"{name}://" for name in ("file", "s3", *_OF_PYARROW))
        raise NotLocalError(
            f"{text}: {scheme}:// is neither read nor written; give a path, or a URI of {known}"
            " or of an installed fsspec package"
        )
    if not authority and scheme not in ("hdfs", "viewfs", "memory"):
        raise NotLocalError(f"{scheme}://{path}: names no bucket; write {scheme}://BUCKET/PATH")
    return Remote(f"{scheme}://{authority}{path}")


def _is_of_fsspec(scheme: str) -> bool:
    import fsspec

    return scheme in fsspec.available_protocols() and scheme not in ("http", "https", "local")


def filesystem_of(where: Place) -> tuple[fs.FileSystem, str]:
    """Pyarrow's file system for a place, and its path there.

    Raises:
        OSError: there is no access to it.
        TelemetryError: what it needs is not installed here.
    """
    from pyarrow import fs

    if isinstance(where, Path):
        return fs.LocalFileSystem(), str(where)
    scheme, authority, path = _URI.match(where.uri).groups()  # type: ignore[union-attr]
    filesystem, root = _filesystem(scheme, authority, _endpoint(), _region())
    own = posixpath.join(root, path.lstrip("/"))
    return filesystem, own.rstrip("/") or "/"


@lru_cache(maxsize=16)
def _filesystem(
    scheme: str, authority: str, endpoint: str, region: str
) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs

    if scheme == "s3":
        options: dict[str, Any] = {
            "region": region or (None if endpoint else fs.resolve_s3_region(authority)),
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "request_timeout": _REQUEST_TIMEOUT_S,
            # A small file is one request and not three.
            "allow_delayed_open": True,
            "retry_strategy": fs.AwsDefaultS3RetryStrategy(max_attempts=_ATTEMPTS),
        }
        if endpoint:
            parts = urlsplit(endpoint)
            options |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
        return fs.S3FileSystem(**options), authority
    try:
        if scheme in _OF_PYARROW:
            opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
            return opened
        import fsspec

        own, root = fsspec.core.url_to_fs(f"{scheme}://{authority}/")
        return fs.PyFileSystem(fs.FSSpecHandler(own)), root
    except (ImportError, ValueError, NotImplementedError, OSError) as error:
        raise TelemetryError(f"{scheme}://{authority}: {reason(error)}") from None


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""


def delta_uri(where: Place) -> str:
    """What delta-rs calls a place."""
    if isinstance(where, Path):
        return str(where)
    scheme, authority, path = _URI.match(where.uri).groups()  # type: ignore[union-attr]
    return f"{scheme}://{authority}{quote(path)}"


def delta_options(where: Place) -> dict[str, str] | None:
    """What delta-rs must be told of a store; it finds credentials in the environment itself."""
    if isinstance(where, Path) or not where.uri.startswith("s3:"):
        return None
    filesystem, _ = filesystem_of(where)
    # A commit is a file that must not be there yet: the store looks at that.
    options = {"aws_conditional_put": "etag", "aws_region": filesystem.region, **_DELTA_RETRIES}
    if endpoint := _endpoint():
        allows = "true" if endpoint.startswith("http:") else "false"
        options |= {"aws_endpoint": endpoint, "aws_allow_http": allows}
    return options


def again(where: Place, work: Callable[[], T]) -> T:
    """Work that only reads, done again where the connection to a store was cut in between."""
    from deltalake.exceptions import DeltaError

    for _ in range(_ATTEMPTS - 1 if isinstance(where, Remote) else 0):
        try:
            return work()
        except (DeltaError, OSError) as refused:
            if not is_cut(refused):
                raise
    return work()


def is_cut(refused: BaseException) -> bool:
    """Whether a connection to a store ended in the middle of an answer."""
    return re.search(_CUT, str(refused)) is not None


def reason(refused: BaseException) -> str:
    """What an error says, in one line that shows nothing secret."""
    text = str(refused)
    for pattern, meaning in _REASONS:
        if re.search(pattern, text) and not _is_local(refused):
            return meaning
    if _COLOUR.search(text):  # delta-rs draws a tree
        text = " ".join(_COLOUR.sub("", text).split())[:_REASON_MAX]
    first = getattr(refused, "strerror", None) or (text.splitlines() or [""])[0]
    first = re.sub(r"//[^/@\s]*@", "//", re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", str(first)))
    return first or type(refused).__name__


def _is_local(refused: BaseException) -> bool:
    """Whether the machine's own system refused something, which says what by a number."""
    return isinstance(refused, OSError) and isinstance(refused.filename, str | bytes)


def size_of(where: Place) -> int:
    """The size of a file in bytes.

    Raises:
        OSError: it is not there, or nobody may look at it.
    """
    if isinstance(where, Path):
        return where.stat().st_size
    if where.size >= 0:
        return where.size
    filesystem, path = filesystem_of(where)
    return int(filesystem.get_file_info(path).size or 0)


def is_below(where: Place, folder: Place) -> bool:
    """Whether a place is a folder or in it."""
    if isinstance(where, Path) and isinstance(folder, Path):
        return where.is_relative_to(folder)
    return f"{where}/".startswith(f"{folder}/")


def dataset(paths: Collection[str], schema: pa.Schema) -> ds.Dataset:
    """Parquet files of one store or of this machine.

    Raises:
        OSError: there is no access to them.
    """
    import pyarrow.dataset as ds

    places = [place(path) for path in paths]
    if isinstance(places[0], Path):
        return ds.dataset(list(paths), schema=schema, format="parquet")
    # Without a look at each of them before it is read.
    opened = [filesystem_of(where) for where in places]
    return ds.FileSystemDataset.from_paths(
        [path for _, path in opened],
        schema=schema,
        format=ds.ParquetFileFormat(),
        filesystem=opened[0][0],
    )


class Opened:
    """A file that is open for reading at any place in it. Raises OSError if that cannot be."""

    def __init__(self, where: Place) -> None:
        self._handle = -1
        if isinstance(where, Path):
            self._handle = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._handle).st_size
        else:
            filesystem, path = filesystem_of(where)
            self._file = filesystem.open_input_file(path)
            self.size = int(self._file.size())

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pread(self, size: int, offset: int) -> bytes:
        """At most so many bytes from an offset on."""
        if self._handle >= 0:
            return os.pread(self._handle, size, offset)
        return bytes(self._file.read_at(size, offset)) if offset < self.size else b""

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill a buffer from an offset on; how many bytes there were."""
        if self._handle >= 0:
            return os.preadv(self._handle, [target], offset)
        data = self.pread(len(target), offset)
        target[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
        else:
            self._file.close()


def create(where: Place) -> pa.NativeFile:
    """A new file, to be written from its beginning to its end; `finish` closes it.

    Raises:
        OSError: it cannot be made.
    """
    filesystem, path = filesystem_of(where)
    return filesystem.open_output_stream(path, buffer_size=_WRITE_BUFFER)


def write_text(where: Place, text: str) -> None:
    """Replace a file whole; a store shows it when all of it is there.

    Raises:
        OSError: it cannot be written.
    """
    if isinstance(where, Path):
        atomic_write(where, text, durable=False)
        return
    file = create(where)
    file.write(text.encode("utf-8"))
    finish(file, where)


def finish(file: pa.NativeFile, where: Place) -> int:
    """Close what `create` gave, and wait until its bytes are kept; its size.

    Raises:
        OSError: they are not.
    """
    size = int(file.tell())
    file.close()
    if isinstance(where, Path):
        sync(where)
    return size


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are kept.

    Raises:
        OSError: they are not.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_folder(folder: Place) -> None:
    """Remove a folder with all in it, as far as that can be done."""
    import shutil

    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        filesystem, path = filesystem_of(folder)
        filesystem.delete_dir(path)
    except (OSError, TelemetryError):
        return  # a compaction removes it
