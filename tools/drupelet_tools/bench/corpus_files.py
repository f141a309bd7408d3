"""A corpus on disk: packs or small files of segments, whole or damaged, with the truth beside.

OUT/pack-0000.dbxpack …   the segments
OUT/truth.json            what is true of each boot, and which copies are damaged where
OUT/names.json            names, carriers and boards of the devices
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from drupelet.base.limits import BLOCK_SIZE, BOX_BLOCKS_MAX, BOX_HEADER_SIZE, EVENTS_PER_BLOCK
from drupelet_tools.bench.corpus import Anchor, Boot, fleet, segments_of
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.telemetry.blackbox import codes

LENGTH_SIZE = 4
FLIPPED = 0.01  # of the blocks
TRUNCATED = 0.01  # of the segments
REPEATED = 0.03  # of the segments
JUMPED = 0.2  # of the boots: some anchors are far off
SET_BACK = 0.1  # of the boots: all anchors are, by the same
CLOCKLESS = 0.2  # of the devices
HOUR_MS = 3_600_000
SEGMENTS_OF_A_JUMP_MIN = 5
SOURCES = ("auto", "simulator", "generator")


@dataclass(frozen=True, slots=True)
class Corpus:
    """What to make. With `damage` all of it is held in memory; `files` packs are written.

    `source`: simulator, generator, or auto: the simulator's logs if that many events allow it.
    """

    events: int
    devices: int
    files: int = 8
    damage: bool = False
    seed: int = 1
    source: str = "generator"


@dataclass(slots=True)
class Copy:
    """A copy of a segment: where it lies, and what is wrong with it.

    `flipped` are blocks with a wrong bit, `cut` the block that is not whole. `whole` blocks
    are there or flipped; `content` tells equal bytes.
    """

    device: str
    boot: int
    number: int
    size: int
    content: int
    first_crc: int
    whole: int
    flipped: list[int] = field(default_factory=list)
    cut: int | None = None
    file: str = ""
    offset: int = 0


@dataclass(slots=True)
class Truth:
    """What is true of one boot. `counters` are [block, index, value] of every counter record,
    blocks counted from the start of the boot; `totals` the last values; `simulated` what the
    simulated world says: messages created and delivered, frames and bytes sent, ms idle and in
    light sleep; null of a fleet that never was."""

    device: str
    boot: int
    wall_ms: int
    clock: str
    events: int
    blocks: int
    last_ms: int
    totals: dict[int, int]
    counters: list[list[int]] = field(default_factory=list)
    simulated: dict[str, int] | None = None


def write(out: Path, wanted: Corpus) -> dict[str, int]:
    """Write a corpus and return counts of its parts; see `write_with_source`."""
    return write_with_source(out, wanted)[1]


def write_with_source(out: Path, wanted: Corpus) -> tuple[str, dict[str, int]]:
    """Write a corpus; return a text that says where its logs are from, and counts of its parts.

    Raises:
        BenchError: the folder cannot be written or is not empty.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise BenchError(f"{out}: not empty; a corpus needs a folder of its own")
        source_text, boots = _boots(wanted)
        make = _write_damaged if wanted.damage else _write_whole
        return source_text, make(out, wanted, boots)
    except OSError as refused:
        raise BenchError(f"{out}: cannot write the corpus: {refused.strerror}") from None


def _boots(wanted: Corpus) -> tuple[str, Iterator[Boot]]:
    """The logs, and before them a text that says where they come from."""
    if wanted.source not in SOURCES:
        raise BenchError(f"no source {wanted.source}: one of {', '.join(SOURCES)}")
    from drupelet_tools.bench import corpus_sim

    few = wanted.events <= corpus_sim.EVENTS_MAX
    if wanted.source == "simulator" or (wanted.source == "auto" and few):
        source, boots = corpus_sim.fleet(wanted.events, wanted.devices, wanted.seed)
        return source.text(), boots
    return "generator", fleet(wanted.events, wanted.devices, wanted.seed)


def _write_whole(out: Path, wanted: Corpus, boots: Iterable[Boot]) -> dict[str, int]:
    """Device by device, straight to the packs: any size."""
    truths: list[Truth] = []
    names: dict[str, dict[str, str]] = {}
    counts = {"events": 0, "segments": 0, "bytes": 0}
    whole = wanted.events // (EVENTS_PER_BLOCK * BOX_BLOCKS_MAX)
    segments_each = max(1, whole // wanted.files)
    writer = _Packs(out, wanted.files, segments_each)
    for boot in boots:
        truths.append(_truth(boot, "set", with_counters=False))
        names[boot.device.hex()] = _name(boot.device)
        counts["events"] += len(boot)
        for data in segments_of(boot):
            writer.add(data)
            counts["segments"] += 1
            counts["bytes"] += len(data) + LENGTH_SIZE
    writer.close()
    _write_truth(out, truths, [], names)
    return {**counts, "files": writer.file_count}


class _Packs:
    """Packs of so many segments each; the last takes what is left."""

    def __init__(self, out: Path, files: int, segments_each: int) -> None:
        self.out = out
        self.files = files
        self.each = segments_each
        self.file_count = 0
        self._held = 0
        self._file: Any = None

    def add(self, data: bytes) -> tuple[str, int]:
        """Append one segment; its file and offset."""
        full = self._held >= self.each and self.file_count < self.files
        if self._file is None or full:
            if self._file is not None:
                self._file.close()
            self.path = self.out / f"pack-{self.file_count:05}.dbxpack"
            self._file = open(self.path, "wb", buffering=1 << 20)  # noqa: SIM115 - see `close`
            self.file_count += 1
            self._held = 0
            self._offset = 0
        self._file.write(len(data).to_bytes(LENGTH_SIZE, "little"))
        self._file.write(data)
        self._held += 1
        begin = self._offset + LENGTH_SIZE
        self._offset = begin + len(data)
        return str(self.path), begin

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _name(device: bytes) -> dict[str, str]:
    return {"name": f"node {int.from_bytes(device, 'big') & 0xFFFF}", "carrier": "mqtt",
            "board": "esp32"}  # fmt: skip


def _truth(boot: Boot, clock: str, with_counters: bool) -> Truth:
    counters: list[list[int]] = []
    if with_counters:
        at = np.flatnonzero(boot.code == codes.COUNTER)
        values = boot.b[at] << 32 | boot.c[at]
        rows = np.column_stack((at // EVENTS_PER_BLOCK, boot.a[at], values))
        counters = rows.tolist()
    return Truth(
        boot.device.hex(),
        boot.boot,
        boot.wall_ms,
        clock,
        len(boot),
        -(-len(boot) // EVENTS_PER_BLOCK),
        int(boot.time_ms[-1]),
        boot.totals,
        counters,
        boot.simulated,
    )


def _write_truth(
    out: Path, truths: Iterable[Truth], copies: Iterable[Copy], names: dict[str, dict[str, str]]
) -> None:
    truth = {
        "boots": [asdict(boot_truth) for boot_truth in truths],
        "copies": [asdict(copy) for copy in copies],
    }
    (out / "truth.json").write_text(json.dumps(truth), "utf-8")
    (out / "names.json").write_text(json.dumps(names, indent=1), "utf-8")


# --- damage ---


def _write_damaged(out: Path, wanted: Corpus, boots: Iterable[Boot]) -> dict[str, int]:
    rng = np.random.default_rng([wanted.seed, 7])
    truths: list[Truth] = []
    names: dict[str, dict[str, str]] = {}
    segments: list[tuple[Copy, bytes]] = []
    clockless: dict[bytes, bool] = {}
    for boot in boots:
        names[boot.device.hex()] = _name(boot.device)
        without = clockless.setdefault(boot.device, bool(rng.random() < CLOCKLESS))
        clock, anchor = _clock(boot, without, rng)
        truths.append(_truth(boot, clock, with_counters=True))
        for number, data in enumerate(segments_of(boot, anchor)):
            segments += _damaged_copies(boot, number, data, rng)
    rng.shuffle(segments)
    writer = _Packs(out, wanted.files, len(segments) // wanted.files + 1)
    for copy, data in segments:
        copy.file, copy.offset = writer.add(data)
    writer.close()
    copies = [copy for copy, _ in segments]
    _write_truth(out, truths, copies, names)
    return {
        "events": sum(truth.events for truth in truths),
        "segments": len(copies),
        "bytes": sum(copy.size + LENGTH_SIZE for copy in copies),
        "files": writer.file_count,
        "flipped": sum(len(copy.flipped) for copy in copies),
        "cut": sum(copy.cut is not None for copy in copies),
    }


def _clock(boot: Boot, without: bool, rng: np.random.Generator) -> tuple[str, Anchor]:
    """What the device's clock says in this boot, and the name of what is wrong with it."""
    segments = -(-len(boot) // (EVENTS_PER_BLOCK * BOX_BLOCKS_MAX))
    offset = np.full(segments, boot.wall_ms)
    known = np.full(segments, not without)
    chance = rng.random()
    if without:
        return "none", Anchor(offset, known, 50)
    if chance < JUMPED and segments >= SEGMENTS_OF_A_JUMP_MIN:
        begin = int(rng.integers(0, segments))
        far = int(rng.integers(2, 24 * 30)) * HOUR_MS * (1 if rng.random() < 0.5 else -1)
        offset[begin : begin + max(1, segments // 4)] += far
        return "jump", Anchor(offset, known, 50)
    if JUMPED <= chance < JUMPED + SET_BACK and boot.boot > 1:
        offset -= int(rng.integers(24 * 60, 24 * 90)) * HOUR_MS
        return "set back", Anchor(offset, known, 50)
    return "set", Anchor(offset, known, 50)


def _damaged_copies(
    boot: Boot, number: int, data: bytes, rng: np.random.Generator
) -> Iterator[tuple[Copy, bytes]]:
    """A segment as it arrives: once, damaged or not, and now and then again."""
    blocks = (len(data) - BOX_HEADER_SIZE) // BLOCK_SIZE
    flipped = np.flatnonzero(rng.random(blocks) < FLIPPED).tolist()
    length = len(data)
    if rng.random() < TRUNCATED:
        length = int(rng.integers(BOX_HEADER_SIZE + 1, len(data)))
    first = _copy(boot, number, data, flipped, length, rng)
    yield first
    if rng.random() < REPEATED:
        # The same bytes again, or what was sent before the damage.
        if rng.random() < 0.5:
            yield _again(first)
        else:
            yield _copy(boot, number, data, [], len(data), rng)


def _again(first: tuple[Copy, bytes]) -> tuple[Copy, bytes]:
    return Copy(**asdict(first[0])), first[1]


def _copy(
    boot: Boot, number: int, data: bytes, flipped: list[int], length: int,
    rng: np.random.Generator,
) -> tuple[Copy, bytes]:  # fmt: skip
    spoilt = bytearray(data)
    for block in flipped:
        bit = int(rng.integers(0, BLOCK_SIZE * 8))
        spoilt[BOX_HEADER_SIZE + block * BLOCK_SIZE + bit // 8] ^= 1 << bit % 8
    del spoilt[length:]
    whole, rest = divmod(len(spoilt) - BOX_HEADER_SIZE, BLOCK_SIZE)
    first = spoilt[BOX_HEADER_SIZE + 12 : BOX_HEADER_SIZE + 16]
    copy = Copy(
        boot.device.hex(), boot.boot, number, len(spoilt), zlib.crc32(spoilt),
        int.from_bytes(first, "little"), whole, [block for block in flipped if block < whole],
        whole if rest else None,
    )  # fmt: skip
    return copy, bytes(spoilt)
