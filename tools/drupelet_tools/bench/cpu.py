"""`drupelet bench cpu`: how long records, messages, hashes and seals take, beside SHA-256;
and events of the black box, beside struct.pack_into."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet.base.events import COUNT_CARRIERS
from drupelet.base.limits import EVENT_SIZE
from drupelet.node import BATCH, SHARED
from drupelet_tools.bench import board
from drupelet_tools.bench.board import Interpreter
from drupelet_tools.bench.columns import CPU, Row
from drupelet_tools.bench.profiles import Profile
from drupelet_tools.bench.table import Table, pick
from drupelet_tools.flash.build import build

HASHED = (64, 1024)
_BODY = 100
_HEAP = 4 << 20
_EVENTS = 2000
# Deliveries and hashes make a ratio, and each is of the fastest of so many processes: one may be
# slowed down from its start to its end, and a slow hash would make a delivery look fast.
_PROCESSES = 9
# What only hashes has the heap of a board.
_HASH_HEAP = 128 << 10


@dataclass(frozen=True)
class Plan:
    """What to measure: choices of a command line, and how long each figure may take."""

    profiles: Sequence[Profile]
    interpreters: Sequence[Interpreter]
    min_ms: int = 50


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[list[Row]]:
    """Yield the rows of one interpreter after another. Raises BenchError, BuildError."""
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-") as folder:
        for interpreter in plan.interpreters:
            firmware = Path(folder) / interpreter.name
            firmware.mkdir()
            if interpreter.arch:
                build(firmware, interpreter.arch)
            say(f"{interpreter.name} …")
            yield _rows(plan, interpreter, firmware)


def _rows(plan: Plan, interpreter: Interpreter, firmware: Path) -> list[Row]:
    codec_results = [_codecs(plan, interpreter, firmware, profile) for profile in plan.profiles]
    sizes = {round(row[2]) for result in codec_results for row in result["codec"]} | {
        _BODY,
        *HASHED,
    }
    settings = {"sizes": sorted(sizes), "seals": HASHED, "min_us": plan.min_ms * 1000}
    answer = board.run(interpreter, firmware, _HASH_HEAP, "speed.py", settings)
    hashes = {size: (blake2s, sha256) for size, blake2s, sha256 in answer["hashes"]}
    for _ in range(_PROCESSES - 1):
        again = board.run(interpreter, firmware, _HASH_HEAP, "speed.py", settings | {"seals": ()})
        for size, blake2s, sha256 in again["hashes"]:
            fastest = hashes[size]
            hashes[size] = min(blake2s, fastest[0]), min(sha256, fastest[1])
    rows = []
    for profile, result in zip(plan.profiles, codec_results, strict=True):
        for work, record, size, us in result["codec"]:
            rows.append(_row(interpreter, profile.name, work, record, round(size), us, hashes))
        us = result["delivery_us"]
        rows.append(_row(interpreter, profile.name, "deliver", "MESSAGE", _BODY, us, hashes))
    for size in HASHED:
        blake2s, sha256 = hashes[size]
        rows.append(_row(interpreter, "blake2s", "hash", None, size, blake2s, hashes))
        rows.append(_row(interpreter, "sha256", "hash", None, size, sha256, hashes))
    rows += _events(plan, interpreter, firmware)
    for loops, size, seal, opened in answer["seals"]:
        # Where the loops of AES have a name they are the core's, for ports without cryptolib.
        cipher = f"aes {loops}" if loops else "aes-ccm"
        rows.append(_row(interpreter, cipher, "seal", None, size, seal, hashes))
        rows.append(_row(interpreter, cipher, "open", None, size, opened, hashes))
    return rows


def _events(plan: Plan, interpreter: Interpreter, firmware: Path) -> list[Row]:
    """What an event of the black box takes, beside the bare packing of its bytes."""
    settings = {"min_us": plan.min_ms * 1000, "events": _EVENTS}
    answer = board.run(interpreter, firmware, _HASH_HEAP, "events.py", settings)
    pack_us = answer["pack_us"]
    rows = []
    for call, us, allocated in answer["rows"]:
        row = _row(interpreter, "black box", "event", call, EVENT_SIZE, us, {})
        rows.append(
            row | {
                "pack_into_us": round(pack_us, 3), "ratio_to_pack_into": round(us / pack_us, 2),
                "alloc_per_event": allocated,
            }
        )  # fmt: skip
    return rows


def _codecs(
    plan: Plan, interpreter: Interpreter, firmware: Path, profile: Profile
) -> dict[str, Any]:  # fmt: skip
    """The answer of speed.py for a profile, with the delivery of the fastest process."""
    settings = {
        "profile": profile.number, "family": profile.family, "mode": BATCH, "shared": SHARED,
        "counters": COUNT_CARRIERS, "peers": 4, "offers": 64, "messages_max": 64,
        "stamp": profile.stamp(0).hex(), "body": _BODY, "min_us": plan.min_ms * 1000, "sizes": [],
    }  # fmt: skip
    result = board.run(interpreter, firmware, _HEAP, "speed.py", settings | {"codecs": True})
    for _ in range(_PROCESSES - 1):
        again = board.run(interpreter, firmware, _HEAP, "speed.py", settings | {"codecs": False})
        result["delivery_us"] = min(result["delivery_us"], again["delivery_us"])
    return result


def _row(
    interpreter: Interpreter, profile: str, work: str, record: str | None, size: int, us: float,
    hashes: dict[int, tuple[float, float]],
) -> Row:  # fmt: skip
    builtin = hashes[size][1] if size in hashes else None
    return {
        "interpreter": interpreter.name, "profile": profile, "work": work, "record": record,
        "bytes": size, "per_second": round(1e6 / us), "us": round(us, 2),
        "sha256_us": builtin and round(builtin, 2), "ratio": builtin and round(us / builtin, 2),
        "pack_into_us": None, "ratio_to_pack_into": None, "alloc_per_event": None,
    }  # fmt: skip


def tables(rows: Sequence[Row]) -> list[Table]:
    """One table; figures depend on what else the machine does, ratios less so."""
    names = " ".join(column.name for column in CPU)
    return [Table("Time per record, message, hash, seal and event", pick(CPU, names), rows)]
