"""What is given to an ingest: segment files, folders of them, and packs.

A segment file (`*.dbx`) is one segment. A pack (`*.dbxpack`) is segments one after the other,
each behind its size as a 32-bit little-endian number. A folder stands for every such file in
it and below.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drupelet.limits import BOX_HEADER_SIZE
from drupelet_tools.telemetry.codes import device_name
from drupelet_tools.telemetry.decode import Header, read_header
from drupelet_tools.telemetry.errors import TelemetryError

SEGMENT_SUFFIX = ".dbx"
PACK_SUFFIX = ".dbxpack"
PACK_LENGTH = struct.Struct("<I")
# A damaged length in a pack must not ask for the memory of the machine.
SEGMENT_SIZE_MAX = 1 << 20
UNNAMED = ""  # device of a segment whose header is damaged


@dataclass(frozen=True, slots=True)
class Source:
    """Where a segment lies: `size` bytes at `offset` of the file `path`.

    `reason` says why it is no segment, where the place itself tells.
    """

    path: str
    offset: int
    size: int
    reason: str = ""

    def read(self) -> bytes:
        """The segment's bytes; short if the file has become shorter."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True, slots=True)
class Found:
    """A source with what its first 32 bytes say: a header, or the reason why there is none."""

    source: Source
    header: Header | str

    @property
    def device(self) -> str:
        """Device id, or UNNAMED."""
        return UNNAMED if isinstance(self.header, str) else self.header.device


def find_files(paths: Iterable[Path], lake: Path) -> list[Path]:
    """Files behind the paths that a user gave, each once, in order of name.

    A lake inside a given folder is not input: its packs are what was read before.

    Raises:
        TelemetryError: a path does not exist, or there is no segment behind any of them.
    """
    found: dict[Path, None] = {}
    given = [Path(path) for path in paths]
    for path in given:
        if path.is_dir():
            inside = (p for p in path.rglob("*") if p.suffix in (SEGMENT_SUFFIX, PACK_SUFFIX))
            files = sorted(p.resolve() for p in inside if p.is_file())
            found.update(dict.fromkeys(p for p in files if not p.is_relative_to(lake)))
        elif path.exists():
            found[path.resolve()] = None
        else:
            raise TelemetryError(f"{path}: no such file or folder")
    if not found:
        names = ", ".join(str(path) for path in given)
        raise TelemetryError(
            f"{names}: no black-box segments (*{SEGMENT_SUFFIX}, *{PACK_SUFFIX}) in it"
        )
    return list(found)


def scan(files: Iterable[Path]) -> Iterator[Found]:
    """Read headers only; a pack gives one entry per segment in it."""
    for path in files:
        try:
            size = path.stat().st_size
            with open(path, "rb") as file:
                if path.suffix == PACK_SUFFIX:
                    yield from _scan_pack(str(path), file.read())
                else:
                    source = Source(str(path), 0, size)
                    yield Found(source, read_header(file.read(BOX_HEADER_SIZE)))
        except OSError as refused:
            raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None


def _scan_pack(path: str, data: bytes) -> Iterator[Found]:
    at = 0
    while at < len(data):
        start = at + PACK_LENGTH.size
        size = PACK_LENGTH.unpack_from(data, at)[0] if start <= len(data) else 0
        if not 0 < size <= min(SEGMENT_SIZE_MAX, len(data) - start):
            # Nothing behind a bad length can be trusted to be where it seems to be.
            reason = f"pack: bad length at {at}"
            yield Found(Source(path, at, len(data) - at, reason), reason)
            return
        header = read_header(data[start : start + BOX_HEADER_SIZE])
        yield Found(Source(path, start, size), header)
        at = start + size


def append_to_pack(pack: bytearray, data: bytes) -> int:
    """Append one segment and return the offset of its first byte."""
    pack += PACK_LENGTH.pack(len(data))
    offset = len(pack)
    pack += data
    return offset


def content_crc(data: bytes) -> int:
    """CRC-32 over a whole segment: tells copies with equal headers apart."""
    return zlib.crc32(data)


def read_names(path: Path) -> dict[str, dict[str, str]]:
    """Read names.json: device id in hex -> `name`, `carrier` (one or a list), `board`.

    Raises:
        TelemetryError: no such file, not JSON, or not of that shape.
    """
    try:
        told = json.loads(path.read_text("utf-8"))
    except OSError as refused:
        raise TelemetryError(f"{path}: cannot read it: {refused.strerror}") from None
    except ValueError as broken:
        raise TelemetryError(f"{path}: not JSON: {broken}") from None
    try:
        return clean_names(told)
    except (AttributeError, TypeError, ValueError):
        raise TelemetryError(
            f'{path}: want {{"<device id, hex>": {{"name": …, "carrier": …, "board": …}}}}'
        ) from None


def clean_names(told: dict[str, dict[str, object]]) -> dict[str, dict[str, str]]:
    """Bring device ids to the form of the tables, and carriers to one string."""
    names = {}
    for device, facts in told.items():
        carriers = facts.get("carrier", "")
        listed = carriers if isinstance(carriers, list) else [carriers]
        names[device_name(bytes.fromhex(device).ljust(8, b"\0"))] = {
            "name": str(facts.get("name", "")),
            "carriers": ", ".join(str(carrier) for carrier in listed if carrier),
            "board": str(facts.get("board", "")),
        }
    return names
