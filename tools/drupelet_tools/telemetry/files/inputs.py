"""What is given to an ingest: segment files, folders of them, packs, and an agent's folder.

A segment file (`*.dbx`) is one segment. A pack (`*.dbxpack`) is segments one after the other,
each behind its size as a 32-bit little-endian number. A folder stands for every such file in
it and below; an agent's folder for the segments that its devices have sent. Of a board's flash
that was copied, the ring of its black box is read, and what waits there to be sent.
"""

from __future__ import annotations

import json
import os
import posixpath
import sqlite3
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drupelet.base.errors import DrupeletError
from drupelet.base.limits import (
    BLOCK_HEADER_SIZE,
    BLOCK_SIZE,
    BOX_BLOCKS_MAX,
    BOX_HEADER_SIZE,
    CONTENT_HEADER_SIZE,
)
from drupelet.store.spool import PART_HEAD_SIZE
from drupelet_host.view import telemetry_files
from drupelet_tools.telemetry.base.errors import InputFileError, TelemetryError
from drupelet_tools.telemetry.base.place import (
    Opened,
    Place,
    Remote,
    create,
    is_below,
    reason,
    size_of,
)
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.blackbox.codes import device_name
from drupelet_tools.telemetry.blackbox.decode import NONE, Bytes, Flags, Ints, read_header
from drupelet_tools.telemetry.energy import board_table

SEGMENT_SUFFIX = telemetry_files.SUFFIX
OTHER_SUFFIX = telemetry_files.OTHER_SUFFIX
PACK_SUFFIX = ".dbxpack"
BUNDLE_SUFFIX = ".DRP"
# A board's files of the ring, and bodies of messages: a segment behind a part's head, a message's
# and its count of dependencies (docs/SPEC.md 5.6).
RING_PATTERN = "BOX*.PRT"
BODY_PATTERN = "B*.BOD"
FLASH_HEAD_SIZE = PART_HEAD_SIZE + CONTENT_HEADER_SIZE + 1
_SEGMENT_FILES = f"*{SEGMENT_SUFFIX}, *{PACK_SUFFIX}"
AGENT_STORE = "store.db"
AGENT_EXPORT = "agent-{}"  # where the segments of a given agent are written
NAMES_FILE = "names.json"
PACK_LENGTH = struct.Struct("<I")
# A damaged length in a pack must not ask for the memory of the machine.
SEGMENT_SIZE_MAX = 1 << 20
_WHOLE_SIZE_MAX = BOX_HEADER_SIZE + BOX_BLOCKS_MAX * BLOCK_SIZE
# Read of a segment before anything is decoded: its header and that of its first block, whose
# CRC tells two contents under one header apart.
HEAD_SIZE = BOX_HEADER_SIZE + BLOCK_HEADER_SIZE
WINDOW_SIZE = 1 << 20
# Heads of files elsewhere that are asked for at once, and that are held.
HEADS_AT_ONCE, HEADS_HELD = 16, 1024
FOLDERS_MAX = 1 << 20  # below a given one; a link to the root of a machine must come to an end
# Of the black box's own carriers, and those that a board's table tells apart.
CARRIERS = (*codes.CARRIERS, "lora", "ble")
UNTOLD = ("", "-", "board")  # what an agent writes of a peer of which it does not know
# Of a segment that an export put beside the one with its name (drupelet_host/view).
UNNAMED = ""  # device of a segment whose header is damaged


@dataclass(slots=True)
class Listing:
    """Where segments lie and what their heads say; parallel arrays but for `files`.

    `file` indexes `files`; `size` is in bytes. `device` is the 8-byte id as a number.
    `reason` has the rows that are no segment. The rest is only good where `ok`.
    """

    files: list[str]
    file: Ints
    offset: Ints
    size: Ints
    ok: Flags
    reason: dict[int, str]
    device: npt.NDArray[np.uint64]
    boot: Ints
    number: Ints
    wall_ms: Ints
    wall_uncertainty_ms: Ints
    header_crc: Ints
    first_crc: Ints

    def __len__(self) -> int:
        return len(self.file)


class _Rows:
    """A listing while it grows: three numbers and a head per row, window by window."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew, with the first file of another listing."""
        self.file = 0
        self.count = 0
        self.reason: dict[int, str] = {}
        self._places: list[Ints] = []
        self._heads: list[Bytes] = []

    def add(self, places: list[tuple[int, int, int]], heads: Bytes) -> None:
        """Rows of file, offset and size, with the first HEAD_SIZE bytes of each."""
        self._places.append(np.array(places, dtype=np.int64).reshape(-1, 3))
        self._heads.append(heads)
        self.count += len(places)

    def places(self) -> Ints:
        """File, offset and size of all rows, as columns."""
        none = np.zeros((0, 3), dtype=np.int64)
        return np.concatenate([none, *self._places])

    def heads(self) -> Bytes:
        """The first bytes of all rows."""
        return np.concatenate([np.zeros((0, HEAD_SIZE), dtype=np.uint8), *self._heads])


def find_files(paths: Iterable[Place], lake: Place) -> list[Place]:
    """Files behind the paths that a user gave, each once, in order of name.

    A lake inside a given folder is not input: its packs are what was read before. A given
    folder that is inside a lake is.

    Raises:
        TelemetryError: a path does not exist, or there is no segment behind any of them.
    """
    chosen: dict[Place, None] = {}
    given = list(paths)
    for path in given:
        if path.is_dir():
            inside = (p for p in _below(path) if has_segments(p))
            files = sorted(p.resolve() for p in inside)
            given_place = path.resolve()
            chosen.update(dict.fromkeys(p for p in files if not in_lake(p, given_place, lake)))
        else:
            check_file(path)
            chosen[path.resolve()] = None
    for path in chosen:
        check_path(path)
    if not chosen:
        for path in given:
            if path.is_dir() and any(p.suffix == BUNDLE_SUFFIX for p in _below(path)):
                raise TelemetryError(_bundle(path))
        names = ", ".join(str(path) for path in given)
        raise TelemetryError(f"{names}: no black-box segments ({_SEGMENT_FILES}) in it")
    return list(chosen)


def check_file(path: Place) -> None:
    """Refuse what a user gave that is no folder and no file of black boxes.

    Raises:
        TelemetryError: it does not exist, or is something else.
    """
    if path.suffix == BUNDLE_SUFFIX:
        raise TelemetryError(_bundle(path))
    if path.is_file():
        if not (has_segments(path) or _begins_as_segment(path, 0)):
            raise TelemetryError(
                f"{path}: no black box ({_SEGMENT_FILES}): it does not begin as a segment does"
            )
    elif path.exists():
        raise TelemetryError(f"{path}: neither a file nor a folder")
    else:
        raise TelemetryError(f"{path}: no such file or folder")


def _below(folder: Place) -> Iterator[Place]:
    """Files in a folder and below it, also through links; each folder once.

    Raises:
        TelemetryError: there are too many folders.
    """
    if isinstance(folder, Remote):
        yield from folder.below()
        return
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        if len(seen) > FOLDERS_MAX:
            raise TelemetryError(too_many_folders(folder))
        yield from (path for name in names if (path := Path(place, name)).is_file())


def too_many_folders(given: Place) -> str:
    """What is wrong where there is no end of folders."""
    return f"{given}: more than {FOLDERS_MAX:,} folders; does a link lead out of it?"


def check_path(path: Place) -> None:
    """Refuse a path that no table can hold.

    Raises:
        TelemetryError: its name is no UTF-8.
    """
    if not codes.is_text(str(path)):
        raise TelemetryError(f"{str(path)!a}: its name is not UTF-8; rename it")


def may_have_segments(name: str) -> bool:
    """Whether an ingest reads a file of this name, if `has_segments` does not say otherwise."""
    suffix = posixpath.splitext(name)[1]
    if suffix in (SEGMENT_SUFFIX, OTHER_SUFFIX, PACK_SUFFIX):
        return True
    return fnmatchcase(name, RING_PATTERN) or fnmatchcase(name, BODY_PATTERN)


def has_segments(path: Place) -> bool:
    """Whether a file is one that an ingest reads, by its name; a body by its beginning."""
    if path.match(RING_PATTERN):
        return size_of(path) > FLASH_HEAD_SIZE
    if path.match(BODY_PATTERN):
        return _begins_as_segment(path, FLASH_HEAD_SIZE)
    return path.suffix in (SEGMENT_SUFFIX, OTHER_SUFFIX, PACK_SUFFIX)


def _begins_as_segment(path: Place, offset: int) -> bool:
    try:
        with Opened(path) as opened:
            return opened.pread(len(codes.MAGIC), offset) == codes.MAGIC
    except OSError:
        return True  # who reads it says why that cannot be


def _begin(path: Place) -> int:
    """Where in a file its segment begins."""
    return FLASH_HEAD_SIZE if path.match(RING_PATTERN) or path.match(BODY_PATTERN) else 0


def ends_in_between(path: Place) -> bool:
    """Whether a file ends within a block or a segment, as one does that is still being copied.

    An object of a store appears whole.

    Raises:
        InputFileError: it cannot be read.
    """
    if isinstance(path, Remote):
        return False
    if path.suffix == PACK_SUFFIX:
        with _reading(path) as pack:
            at = 0
            while at < pack.size:
                length = pack.pread(PACK_LENGTH.size, at)
                if len(length) < PACK_LENGTH.size:
                    return True
                size = PACK_LENGTH.unpack(length)[0]
                if not BOX_HEADER_SIZE <= size <= SEGMENT_SIZE_MAX:
                    return False  # damaged; its end is nothing to go by
                at += PACK_LENGTH.size + size
            return at > pack.size
    size = size_of(path) - _begin(path) - BOX_HEADER_SIZE
    return size <= 0 or size % BLOCK_SIZE != 0


def in_lake(file: Place, given: Place, lake: Place) -> bool:
    """Whether a file is of this lake, or in the packs of another, below the given folder."""
    if is_below(file, lake):
        return not is_below(given, lake)
    other = file.parent.parent
    if file.parent.name != "packs" or is_below(given, other):
        return False
    return (other / "table" / "_delta_log").is_dir() or (other / "manifest.json").is_file()


def find_files_or_agents(paths: Iterable[Place], lake: Place) -> None:
    """Check that there is something to read behind the paths, before anything is made.

    Raises:
        TelemetryError: as `find_files`.
    """
    plain = [path for path in paths if not is_agent(path)]
    if plain:
        find_files(plain, lake)


def is_agent(path: Place) -> bool:
    """Whether a path is an agent's folder, which lies where the agent runs."""
    return isinstance(path, Path) and (path / AGENT_STORE).is_file()


def export_and_find(
    paths: Sequence[Place], exported: Place, lake: Place
) -> tuple[list[Place], list[Place]]:
    """The folders that paths of files and agents stand for, and the files behind them.

    Args:
        paths: what a user gave.
        exported: where the segments of agents are written.
        lake: as `find_files`.

    Raises:
        TelemetryError: as `find_files` and `export_agents`, about the paths that were given.
    """
    folders = export_agents(paths, exported)
    try:
        return folders, find_files(folders, lake)
    except TelemetryError as refused:
        text = str(refused)
        for given, folder in zip(paths, folders, strict=True):
            text = text.replace(str(folder), str(given))
        raise TelemetryError(text) from None


def _bundle(path: Place) -> str:
    return (
        f"{path}: bundles of a stick are for the agent: run drupelet stick on it, then ingest"
        f" the agent's folder"
    )


def export_agents(paths: Iterable[Place], folder: Place) -> list[Place]:
    """The paths, with each agent's folder replaced by one with the segments that it holds.

    Raises:
        TelemetryError: an agent's folder cannot be read.
    """
    folders: list[Place] = []
    for at, path in enumerate(paths):
        if not isinstance(path, Path) or not is_agent(path):
            folders.append(path)
            continue
        from drupelet_host.view.log_view import LogView

        target = folder / AGENT_EXPORT.format(at)
        try:
            view = LogView(path)
            try:
                with _filled(target) as filled:
                    view.export_telemetry(filled)
            finally:
                view.close()
        except (DrupeletError, sqlite3.Error) as refused:
            raise TelemetryError(f"{path}: cannot read the agent's folder: {refused}") from None
        folders.append(target)
    return folders


@contextmanager
def _filled(target: Place) -> Iterator[Path]:
    """A folder of this machine in whose place `target` is filled."""
    if isinstance(target, Path):
        target.mkdir(parents=True, exist_ok=True)
        yield target
        return
    with TemporaryDirectory() as name:
        yield Path(name)
        for path in filter(Path.is_file, Path(name).rglob("*")):
            with create(target / path.relative_to(name).as_posix()) as out:
                out.write(path.read_bytes())


def scan(files: Iterable[Place]) -> Listing:
    """Read the heads of all segments at once; see `scan_batches`."""
    return next(iter(scan_batches(files, None)))


def scan_batches(files: Iterable[Place], rows_max: int | None) -> Iterator[Listing]:
    """Read heads only; a pack gives one row per segment in it.

    Args:
        files: segment files and packs.
        rows_max: a listing ends where it has about so many rows, or behind a pack with half as
            many; None: one listing.

    Raises:
        TelemetryError: a file cannot be read.
    """
    names: list[str] = []
    rows = _Rows()
    for path, head in _with_heads(files):
        names.append(str(path))
        rows.file = len(names) - 1
        if head is None:
            with _reading(path) as pack:
                for begun in _scan_pack(pack, rows):
                    # By its first window alone a large pack would look small.
                    if rows_max is not None and rows.count >= rows_max and begun > WINDOW_SIZE:
                        yield _cut(names, rows)
                        names = [str(path)]
        else:
            at, size, content = head
            if path.suffix == OTHER_SUFFIX:
                rows.reason[rows.count] = codes.REASON_OTHER
            rows.add([(rows.file, at, size)], _padded(content))
        # Where a pack ends few boots are cut in two: those are read back from the lake, which
        # takes time and memory.
        enough = (rows_max or 0) // (2 if path.suffix == PACK_SUFFIX else 1)
        if rows_max is not None and rows.count >= enough:
            yield _cut(names, rows)
            names = []
    if rows_max is None or rows.count:
        yield _cut(names, rows)


@contextmanager
def _reading(path: Place) -> Iterator[Opened]:
    """A file that is open for reading; says which one could not be read."""
    try:
        with Opened(path) as opened:
            yield opened
    except OSError as refused:
        text = f"{path}: cannot read it: {reason(refused)}"
        raise InputFileError(text, [str(path)]) from None


Head = tuple[int, int, bytes]  # where a file's segment begins, its size, its first bytes


def _read_head(path: Place) -> Head:
    at = _begin(path)
    with _reading(path) as opened:
        return at, max(opened.size - at, 0), opened.pread(HEAD_SIZE, at)


def _with_heads(files: Iterable[Place]) -> Iterator[tuple[Place, Head | None]]:
    """Files with their heads; None for packs. Those elsewhere are read many at a time, for each
    takes a round trip."""
    for is_far, group in groupby(files, lambda path: isinstance(path, Remote)):
        if not is_far:
            yield from ((p, None if p.suffix == PACK_SUFFIX else _read_head(p)) for p in group)
            continue
        with ThreadPoolExecutor(HEADS_AT_ONCE) as pool:
            while some := list(islice(group, HEADS_HELD)):
                heads = {p: pool.submit(_read_head, p) for p in some if p.suffix != PACK_SUFFIX}
                yield from ((p, heads[p].result() if p in heads else None) for p in some)


def scan_places(places: Sequence[tuple[Place, int, int]]) -> Listing:
    """Read the heads of segments that are known to lie there: file, offset and size.

    Raises:
        TelemetryError: a file cannot be read.
    """
    names: list[str] = []
    rows = _Rows()
    for path, group in groupby(sorted(places), key=lambda place: place[0]):
        names.append(str(path))
        rows.file = len(names) - 1
        with _reading(path) as opened:
            for _, offset, size in group:
                head = opened.pread(min(HEAD_SIZE, size), offset)
                rows.add([(rows.file, offset, size)], _padded(head))
    return _cut(names, rows)


def _cut(names: list[str], rows: _Rows) -> Listing:
    """The listing of what was gathered, which is held no longer."""
    listing = _listing(names, rows)
    rows.clear()
    return listing


def _padded(head: bytes) -> Bytes:
    return np.frombuffer(head.ljust(HEAD_SIZE, b"\0"), dtype=np.uint8).reshape(1, HEAD_SIZE)


def _scan_pack(pack: Opened, rows: _Rows) -> Iterator[int]:
    """One row per segment of a pack, window by window; between them how far it has come.

    A length is believed where it is that of whole blocks and leads to the end of the pack or to
    another segment.
    """
    end = pack.size
    base = 0
    unpack = PACK_LENGTH.unpack_from
    while base < end:
        window = pack.pread(WINDOW_SIZE, base)
        at = 0
        places: list[tuple[int, int, int]] = []
        limit = len(window) - PACK_LENGTH.size - HEAD_SIZE
        last = base + len(window) >= end
        good = True
        while at <= limit or (last and at < len(window)):
            start = at + PACK_LENGTH.size
            size = unpack(window, at)[0] if start <= len(window) else 0
            good = BOX_HEADER_SIZE <= size <= min(SEGMENT_SIZE_MAX, end - base - start)
            good = good and (size - BOX_HEADER_SIZE) % BLOCK_SIZE == 0
            if good and base + start + size < end:
                magic_at = start + size + PACK_LENGTH.size
                magic = window[magic_at : magic_at + len(codes.MAGIC)]
                if len(magic) < len(codes.MAGIC):
                    magic = pack.pread(len(codes.MAGIC), base + magic_at)
                good = magic == codes.MAGIC
            if not good:
                break
            places.append((rows.file, base + start, size))
            at = start + size
        _gather(window, base, places, rows)
        if good and at == 0:
            return
        base += at
        if not good:
            base = _mend(pack, base, end, rows)
        yield base


def _mend(pack: Opened, at: int, end: int, rows: _Rows) -> int:
    """Take what lies behind a length at `at` that leads to no segment; where the rest begins.

    The next header whose CRC agrees bounds it. A segment whose own header is good ends there if
    that makes it whole blocks, else by its length if that is not beyond. Without a good header
    it is as long as its length says, if that can be.
    """
    start = at + PACK_LENGTH.size
    start_bytes = pack.pread(PACK_LENGTH.size + HEAD_SIZE, at)
    head = start_bytes[PACK_LENGTH.size :]
    size = PACK_LENGTH.unpack_from(start_bytes)[0] if len(start_bytes) >= PACK_LENGTH.size else 0
    headed = not isinstance(read_header(head), str)
    following = _next_segment(pack, start + BOX_HEADER_SIZE if headed else at + 1, end)
    room = following - start
    whole = room <= _WHOLE_SIZE_MAX and (room - BOX_HEADER_SIZE) % BLOCK_SIZE == 0
    if headed and whole:
        taken = room
    elif BOX_HEADER_SIZE <= size <= min(room, SEGMENT_SIZE_MAX):
        taken = size
    elif headed:
        taken = min(room, _WHOLE_SIZE_MAX)
    else:
        rows.reason[rows.count] = f"pack: bad length at {at}"
        rows.add([(rows.file, at, following - at)], _padded(b""))
        return following
    rows.add([(rows.file, start, taken)], _padded(head[:taken]))
    # Where a pack ends within a block, that block tells of it.
    cut = following == end and room < size <= SEGMENT_SIZE_MAX and not whole
    if taken != size and not cut:
        rows.reason[rows.count] = f"pack: bad length at {at}"
        rows.add([(rows.file, at, start - at + BOX_HEADER_SIZE)], _padded(b""))
    return start + taken


def _next_segment(pack: Opened, begin: int, end: int) -> int:
    """Where the length in front of the next header is, from `begin` on; or the end."""
    at = begin
    while at < end:
        window = pack.pread(WINDOW_SIZE, at)
        place = window.find(codes.MAGIC)
        while place >= 0:
            start = at + place
            header = pack.pread(BOX_HEADER_SIZE, start)
            if start - PACK_LENGTH.size >= begin and not isinstance(read_header(header), str):
                return start - PACK_LENGTH.size
            place = window.find(codes.MAGIC, place + 1)
        if len(window) < WINDOW_SIZE:
            break
        at += len(window) - len(codes.MAGIC) + 1
    return end


def _gather(window: bytes, base: int, places: list[tuple[int, int, int]], rows: _Rows) -> None:
    """Add the rows of these places of a window that begins at `base` of its file."""
    if not places:
        return
    data = np.frombuffer(window, dtype=np.uint8)
    begins = np.array([offset for _, offset, _ in places]) - base
    index = begins[:, None] + np.arange(HEAD_SIZE)
    short = index >= len(data)
    heads = data[np.minimum(index, len(data) - 1)]
    heads[short] = 0
    rows.add(places, heads)


def _listing(names: list[str], rows: _Rows) -> Listing:
    """Parse all heads at once; those that fail get their reason one by one."""
    heads, places = rows.heads(), rows.places()
    half, word = heads.view("<u2"), heads.view("<u4")
    size = places[:, 2].copy()
    ok = (size >= BOX_HEADER_SIZE) & (word[:, 0] == int.from_bytes(codes.MAGIC, "little"))
    ok &= (half[:, 2] & 0xFF) == codes.VERSION
    ok &= _header_crcs(heads) == word[:, 7]
    ok[list(rows.reason)] = False
    for row in np.flatnonzero(~ok).tolist():
        if row not in rows.reason:
            parsed = read_header(heads[row, : min(int(size[row]), BOX_HEADER_SIZE)].tobytes())
            rows.reason[row] = parsed if isinstance(parsed, str) else "header"
    wall = half[:, 10].astype(np.int64)
    wall |= half[:, 11].astype(np.int64) << 16 | half[:, 12].astype(np.int64) << 32
    known = ((half[:, 2] >> 8 & codes.WALL_KNOWN) > 0) & (wall >= codes.WALL_MS_MIN)
    known &= wall <= codes.WALL_MS_MAX
    spread = half[:, 13].astype(np.int64)
    sure = known & (spread != codes.UNCERTAINTY_UNKNOWN)
    return Listing(
        files=names,
        file=places[:, 0].copy(),
        offset=places[:, 1].copy(),
        size=size,
        ok=ok,
        reason=rows.reason,
        device=np.ascontiguousarray(heads[:, 8:16]).view(">u8").reshape(-1).astype(np.uint64),
        boot=half[:, 3].astype(np.int64),
        number=word[:, 4].astype(np.int64),
        wall_ms=np.where(known, wall, NONE),
        wall_uncertainty_ms=np.where(sure, spread * codes.UNCERTAINTY_UNIT_MS, NONE),
        header_crc=word[:, 7].astype(np.int64),
        first_crc=np.where(size >= HEAD_SIZE, word[:, 11], 0).astype(np.int64),
    )


def _header_crcs(heads: Bytes) -> Ints:
    """CRC-32 of the first 28 bytes of each row."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0xEDB88320), table >> 1)
    sums = np.full(len(heads), 0xFFFFFFFF, dtype=np.uint32)
    for at in range(BOX_HEADER_SIZE - 4):
        sums = table[(sums ^ heads[:, at]) & 0xFF] ^ sums >> 8
    inverted: Ints = (~sums).astype(np.int64)
    return inverted


def boots_of(listing: Listing) -> pa.Table:
    """The boots of which a listing has segments, as rows of device and boot."""
    devices, index = np.unique(listing.device[listing.ok], return_inverse=True)
    pairs = np.unique(np.stack((index, listing.boot[listing.ok].astype(np.int64))), axis=1)
    names = pa.array(names_of(devices), pa.string()).take(pa.array(pairs[0]))
    return pa.table({"device": names, "boot": pairs[1]})


def names_of(devices: npt.NDArray[np.uint64]) -> list[str]:
    """Device ids as text."""
    return [device_name(int(device).to_bytes(8, "big")) for device in devices]


def append_to_pack(pack: bytearray, data: bytes) -> int:
    """Append one segment and return the offset of its first byte."""
    pack += PACK_LENGTH.pack(len(data))
    offset = len(pack)
    pack += data
    return offset


def find_names(paths: Iterable[Place]) -> dict[str, dict[str, str]]:
    """What the names.json files directly in the given folders say."""
    names: dict[str, dict[str, str]] = {}
    for path in paths:
        if (path / NAMES_FILE).is_file():
            names.update(read_names(path / NAMES_FILE))
    return names


def read_names(path: Place) -> dict[str, dict[str, str]]:
    """Read names.json: device id in hex -> `name`, `carrier` (one or a list), `board`.

    Raises:
        TelemetryError: no such file, not JSON, not of that shape, or a board or a carrier in
            it is not known.
    """
    try:
        written = json.loads(path.read_text("utf-8"))
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {reason(refused)}") from None
    except (ValueError, RecursionError) as broken:
        raise TelemetryError(f"{path}: not JSON: {broken}") from None
    try:
        return clean_names(written)
    except TelemetryError as wrong:
        raise TelemetryError(f"{path}: {wrong}") from None
    except (AttributeError, TypeError, ValueError):
        raise TelemetryError(
            f'{path}: want {{"<device id, hex>": {{"name": …, "carrier": …, "board": …}}}}'
        ) from None


def clean_names(written: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, str]]:
    """Bring device ids to the form of the tables, and carriers to one string.

    Raises:
        TelemetryError: a board or a carrier that is not known.
    """
    boards = {*board_table.board_names(), *codes.BOARD_KINDS.values()}
    names = {}
    for device, facts in written.items():
        carriers = facts.get("carrier", facts.get("carriers", ""))
        listed = carriers if isinstance(carriers, list) else str(carriers or "").split(",")
        known = [_known(device, "carrier", one, CARRIERS) for one in listed]
        names[device_name(bytes.fromhex(device).ljust(8, b"\0"))] = {
            "name": codes.as_text(str(facts.get("name", ""))),
            "carriers": ", ".join(one for one in known if one),
            "board": _known(device, "board", facts.get("board"), boards),
        }
    return names


def _known(device: str, what: str, value: object, known: Collection[str]) -> str:
    word = "" if value is None else str(value).strip().lower()
    if word in UNTOLD:
        return ""
    if word in known:
        return word
    have = ", ".join(sorted(known))
    raise TelemetryError(f"{device}: {what} {word!r}: leave it out, or want one of {have}")
