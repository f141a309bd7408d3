"""Writes black-box segments of a home's log to files; no member replaces another's segment.

A segment says itself which device it is of, and messages of the telemetry group are relayed: who
handed one over need not be its device. So a segment that its device handed over itself is the one
that gets the name `<device>-<boot>-<number>.dbx`; without such a one the first does. Any other
with other bytes lies beside it as `<device>-<boot>-<number>-<hash>.dbx-other`.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from drupelet.base.limits import BOX_HEADER_SIZE
from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.base.output import counted

SUFFIX = ".dbx"
OTHER_SUFFIX = ".dbx-other"
_MAGIC = b"DRBX"
_DEVICE_SIZE = 8  # a device id, zeros behind it
_HASH_DIGITS = 8


@dataclass(frozen=True)
class Segment:
    """A segment in the log, and the id of the device that handed it over (ours for our own)."""

    sender: bytes
    content: bytes

    @property
    def stem(self) -> str:
        """`<device>-<boot>-<number>` (docs/SPEC.md 6); "" when it is no segment."""
        content = self.content
        if len(content) <= BOX_HEADER_SIZE or not content.startswith(_MAGIC):
            return ""
        device = content[8:16].hex()
        boot = int.from_bytes(content[6:8], "little")
        number = int.from_bytes(content[16:20], "little")
        return f"{device.removesuffix('00000000')}-{boot:05d}-{number:08d}"

    @property
    def from_its_device(self) -> bool:
        """Whether the device that it is of handed it over."""
        return self.content[8:16] == self.sender.ljust(_DEVICE_SIZE, b"\0")


@dataclass(frozen=True)
class Exported:
    """How many segments have the name of their own, and how many others lie beside them."""

    segments: int
    others: int

    @property
    def text(self) -> str:
        """The counts for a person."""
        counts = counted(self.segments, "segment")
        if self.others:
            counts += (
                f"; {self.others} more with a number that another segment of their device has:"
                f" kept beside it as *{OTHER_SUFFIX}"
            )
        return counts


def write_segments(folder: Path, segments: Callable[[], Iterable[Segment]]) -> Exported:
    """Write each segment to a file; `segments` gives them in the log's order, twice.

    The same log gives the same files. Raises OSError.
    """
    genuine: dict[str, str] = {}  # stem -> hash of the first that its device handed over
    for segment in segments():
        if segment.stem and segment.from_its_device:
            genuine.setdefault(segment.stem, _hash(segment.content))
    named: set[str] = set()
    others: set[str] = set()
    for segment in segments():
        stem = segment.stem
        if not stem:
            continue
        path = folder / (stem + SUFFIX)
        held = path.read_bytes() if path.exists() else None
        digest = _hash(segment.content)
        if held == segment.content:
            named.add(stem)
        elif held is None or digest == genuine.get(stem):
            # What lies there may have left the log since: it is kept, too.
            if held is not None:
                others.add(_put_beside(folder, stem, held))
            atomic_write(path, segment.content, durable=False)
            named.add(stem)
        else:
            others.add(_put_beside(folder, stem, segment.content))
    return Exported(len(named), len(others))


def _put_beside(folder: Path, stem: str, content: bytes) -> str:
    name = f"{stem}-{_hash(content)[:_HASH_DIGITS]}{OTHER_SUFFIX}"
    atomic_write(folder / name, content, durable=False)
    return name


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
