"""`drupelet bench ram`: what a node takes of a board's heap, and what each record allocates."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drupelet.base.events import COUNT_CARRIERS
from drupelet.base.limits import GROUPS_MAX, SEGMENT_SIZE
from drupelet.node import BATCH, INTERACTIVE, SHARED
from drupelet.store.states import STATE_DELIVERED
from drupelet_host.broker import Broker
from drupelet_tools.bench import board
from drupelet_tools.bench.board import Interpreter
from drupelet_tools.bench.columns import RAM, Column, Row
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.profiles import Profile
from drupelet_tools.bench.table import Table, pick
from drupelet_tools.flash.build import build
from drupelet_tools.flash.sets import Built, Choice, build_set, table

# Heap of the runs that count allocations: both nodes and their logs are in it.
_PAIR_HEAP = 2 << 20
_RECORD_NAMES = ("ACK", "MESSAGE", "OFFER", "REQUEST", "other", "piece")
_BODY_SIZE = 40
_WARM_UP = 12
# Messages that each end publishes in one round: both logs stay in their first segment.
_ROUND_MESSAGES = 180
# Modules of a board that are not there once it runs, or that are picked by those that need them.
_NOT_LOADED = ("boards.unix.main", "boards.setup", "boards.sealing", "boards.micro.main")
# What the scripts call of a set that has only what its own program calls.
_CALLED = ("pending_max", "join_id", "share", "wake_ms")
_STATE = (
    "core_state", "largest_slab", "link_state", "code_bytes", "free_after_boot", "store_state",
    "beside_state",
)  # fmt: skip
_MICRO = "micro"
_HASHED = "hashed"  # ids that the dearest visit computed
_MICRO_BODIES = 2048


@dataclass(frozen=True)
class Config:
    """A size of the tables, written peers/offered pool/messages."""

    peers: int
    offers: int
    messages: int
    buffer: int
    core_state_max: int

    @property
    def name(self) -> str:
        return f"{self.peers}/{self.offers}/{self.messages}"


# docs/DESIGN.md 20.
CONFIGS = (Config(4, 16, 32, 256, 6144), Config(8, 64, 64, 1024, 14336))
# Where a set must fit as .mpy (docs/DESIGN.md 16); micro is frozen, its .mpy is only counted.
HEAPS = {"micro": 128 * 1024, "small": 128 * 1024, "full": 256 * 1024}
# docs/DESIGN.md 20; core_state is a configuration's, largest_slab a quarter of the heap.
LIMITS = {
    "alloc_per_record": 0, "alloc_per_epoch": 0, "alloc_hash": 192, "alloc_per_segment": 400,
    "alloc_per_connect": 1024, "alloc_per_stick_visit": 2560, "seal_per_peer": 200,
    "cipher_per_peer": 352,
}  # fmt: skip


def sets() -> tuple[str, ...]:
    """The firmware sets that the build knows."""
    return tuple(table()["sets"])


@dataclass(frozen=True)
class Plan:
    """What to measure: choices of a command line, and how much of it."""

    configs: Sequence[Config]
    sets: Sequence[str]
    interpreters: Sequence[Interpreter]
    profiles: Sequence[Profile]
    heap: int = 0  # 0: what the set must fit
    records: int = 1000
    epochs: int = 1000


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[list[Row]]:
    """Yield the rows of one configuration after another. Raises BenchError, BuildError."""
    with tempfile.TemporaryDirectory(prefix="drupelet-bench-") as folder:
        broker = Broker()
        broker.start()
        try:
            for interpreter in plan.interpreters:
                built = _Builds(Path(folder) / interpreter.name, interpreter)
                # CPython loads no firmware: the sets are all the same there.
                for name in plan.sets if interpreter.arch else ("full",):
                    bench = _Bench(plan, interpreter, name, built, broker.port)
                    for config in plan.configs:
                        say(f"{interpreter.name}, set {name}, {config.name} …")
                        yield bench.rows(config)
        finally:
            broker.stop()


class _Builds:
    """The firmware of one interpreter: each set once, and once all modules there are."""

    def __init__(self, folder: Path, interpreter: Interpreter) -> None:
        self._folder = folder
        self._arch = interpreter.arch
        self._sets: dict[tuple[str, str], tuple[Path, Built]] = {}
        self._files = 0
        self.script_results: dict[tuple[str, str, str], dict[str, Any]] = {}

    def set(self, name: str, profile: str) -> tuple[Path, Built]:
        """A set with one profile, and all of them where it has all; its module path."""
        everything = table()["sets"][name].get("everything", False)
        key = (name, "" if everything else profile)
        if key not in self._sets:
            target = self._folder / "-".join(key)
            target.mkdir(parents=True)
            choice = Choice(name, profiles=() if everything else (profile,), keep=_CALLED)
            self._sets[key] = (target, build_set(target, self._arch, choice))
        return self._sets[key]

    def all(self) -> Path:
        """Every module that a board could have: for scripts that keep their log in RAM."""
        target = self._folder / "all"
        if not target.exists():
            target.mkdir(parents=True)
            if self._arch:
                build(target, self._arch)
        return target

    def files(self) -> str:
        """An empty folder for a script's files."""
        self._files += 1
        folder = self._folder / f"files-{self._files}"
        folder.mkdir(parents=True)
        return str(folder)


def _loaded(built: Built) -> list[str]:
    """What a board loads of a set at boot, by dotted name."""
    return [
        name
        for name in built.texts
        if not name.rpartition(".")[2].startswith("_") and name not in _NOT_LOADED
    ]


class _Bench:
    """One set on one interpreter."""

    def __init__(
        self, plan: Plan, interpreter: Interpreter, name: str, built: _Builds, port: int
    ) -> None:  # fmt: skip
        self._plan = plan
        self._interpreter = interpreter
        self._set = name
        self._built = built
        self._port = port

    def rows(self, config: Config) -> list[Row]:
        """The row of the largest figures, then those of each profile, record and direction."""
        known = table()["sets"][self._set]["profiles"]
        profiles = [profile for profile in self._plan.profiles if profile.name in known]
        rows = [row for profile in profiles for row in self._profile(config, profile)]
        if not rows:
            return []
        whole: Row = {column.name: None for column in RAM}
        for name, value in rows[0].items():
            values = [row[name] for row in rows if row[name] is not None]
            whole[name] = value
            if isinstance(value, int):
                whole[name] = min(values) if name == "free_after_boot" else max(values)
        whole |= {"profile": "all", "record": "all", "direction": "both"}
        whole["locked"] = all(row["locked"] is not False for row in rows)
        whole["records"] = sum(row["records"] or 0 for row in rows)
        return [self._judge(row, config) for row in (whole, *rows)]

    def _profile(self, config: Config, profile: Profile) -> Iterator[Row]:
        row: Row = {column.name: None for column in RAM} | {
            "config": config.name, "interpreter": self._interpreter.name,
            "profile": profile.name,
        }  # fmt: skip
        common = {
            "profile": profile.number, "family": profile.family, "shared": SHARED,
            "mode": INTERACTIVE, "stamp": profile.stamp(0).hex(), "peers": config.peers,
            "offers": config.offers, "groups": GROUPS_MAX, "word": self._interpreter.word,
        }  # fmt: skip
        if not self._interpreter.arch:
            state = board.run(
                self._interpreter, self._built.all(), 0, "state.py",
                common | {"messages": config.messages, "buffer": config.buffer},
            )  # fmt: skip
            names = ("core_state", "largest_slab", "link_state")
            row |= {name: state[name] for name in names}
            yield row | {"record": "all", "direction": "both"}
            return
        firmware, built = self._built.set(self._set, profile.name)
        row |= {"set": self._set, "code_lines": built.code_lines}
        settings = common | {"modules": _loaded(built), "messages": config.messages}
        if self._set == _MICRO:
            yield from self._micro(row, firmware, settings)
            return
        state = self._state(row, firmware, settings | {"buffer": config.buffer})
        row |= {name: state[name] for name in _STATE}
        row |= self._occasions(config, profile.name, common)
        yield from self._records(row, config, common)

    def _state(self, row: Row, firmware: Path, settings: dict[str, object]) -> dict[str, Any]:
        """What state.py says, in as many times the heap as it takes."""
        heap = self._plan.heap or HEAPS[self._set]
        for times in (1, 2, 4):
            row["heap"] = heap * times
            try:
                return board.run(
                    self._interpreter, firmware, heap * times, "state.py",
                    settings | {"flash": self._built.files()},
                )  # fmt: skip
            except BenchError as error:
                if "MemoryError" not in str(error) or times == 4:
                    raise
        raise AssertionError

    def _once(
        self, script: str, config: Config, profile: str, settings: dict[str, Any]
    ) -> dict[str, Any]:  # fmt: skip
        """The answer of a script of two nodes; it is the same for every set that has the code."""
        key = (script, config.name, profile)
        if key not in self._built.script_results:
            self._built.script_results[key] = board.run(
                self._interpreter, self._built.all(), _PAIR_HEAP, script, settings
            )
        return self._built.script_results[key]

    def _occasions(self, config: Config, profile: str, common: dict[str, Any]) -> Row:
        """The bytes that the declared occasions allocate."""
        settings = common | {
            "stick": self._built.files(), "mqtt_port": self._port, "delivered": STATE_DELIVERED,
            "segment_size": SEGMENT_SIZE,
        }  # fmt: skip
        answers = self._once("occasions.py", config, profile, settings)
        seals = self._once("seals.py", config, "", {})
        return {
            "seal_per_peer": seals["seal_per_peer"],
            "cipher_per_peer": seals["cipher_per_peer"],
            "alloc_per_segment": answers["segments"]["peak"],
            "alloc_per_connect": answers["connect"],
            "alloc_per_stick_visit": answers["stick"]["peak"],
            _HASHED: answers["stick"]["hashed"],
        }

    def _micro(self, row: Row, firmware: Path, settings: dict[str, Any]) -> Iterator[Row]:
        """The micro set is a program of its own: one script measures all of it."""
        heap = self._plan.heap or HEAPS[_MICRO]
        answers = board.run(
            self._interpreter, firmware, heap, "micro_set.py",
            settings | {
                "bodies": _MICRO_BODIES, "records": -(-self._plan.records // 2),
                "epochs": self._plan.epochs,
            },
        )  # fmt: skip
        modes = answers["modes"]
        names = ("core_state", "largest_slab", "code_bytes", "free_after_boot", "store_state")
        row |= {name: answers[name] for name in names} | {
            "heap": heap, "alloc_hash": 0,
            "alloc_per_epoch": max(mode["idle_bytes"] for mode in modes) // 20,
        }  # fmt: skip
        peak = max(mode["bytes"] for mode in modes)
        through = all(mode["locked"] and mode["idle_locked"] for mode in modes)
        counts = [sum(pair) for pair in zip(*(mode["counts"] for mode in modes), strict=True)]
        for at, count in enumerate(counts):
            yield row | {
                "record": _RECORD_NAMES[at % 4], "direction": "out" if at < 4 else "in",
                "records": count, "alloc_per_record": peak, "locked": through,
            }  # fmt: skip
        yield row | {
            "record": "invalid", "direction": "in",
            "records": sum(mode["invalid_frames"] for mode in modes),
            "alloc_per_record": max(mode["invalid_bytes"] for mode in modes),
            "locked": all(mode["invalid_locked"] for mode in modes),
        }  # fmt: skip

    def _records(self, row: Row, config: Config, common: dict[str, Any]) -> Iterator[Row]:
        plan = self._plan
        modes = [BATCH]
        modes += [INTERACTIVE] * (-(-plan.records // (2 * _ROUND_MESSAGES)))
        settings = common | {
            "body": _BODY_SIZE, "warm_up": _WARM_UP, "epochs": plan.epochs, "modes": modes,
            "messages": min(_ROUND_MESSAGES, plan.records), "messages_max": config.messages,
            "invalid": -(-plan.records // 24), "counters": COUNT_CARRIERS,
        }  # fmt: skip
        answers = self._once("records.py", config, row["profile"], settings)
        idle = answers["idle_bytes"] // 20
        row |= {"alloc_hash": answers["alloc_hash"], "alloc_per_epoch": idle}
        # The ids of what a visit brings have a column of their own.
        row["alloc_per_stick_visit"] -= row.pop(_HASHED) * answers["alloc_hash"]
        for at, direction in ((0, "out"), (len(_RECORD_NAMES), "in")):
            for kind, name in enumerate(_RECORD_NAMES):
                count, peak = answers["counts"][at + kind], answers["peaks"][at + kind]
                locked = answers["locked"] and answers["idle_locked"]
                if name == "piece":
                    count, locked = answers["pieces"], answers["pieces_locked"]
                if count:
                    yield row | {
                        "record": name, "direction": direction, "records": count,
                        "alloc_per_record": peak, "locked": locked,
                    }  # fmt: skip
        yield row | {
            "record": "invalid", "direction": "in", "records": answers["invalid_frames"],
            "alloc_per_record": 0 if answers["invalid_locked"] else answers["invalid_bytes"],
            "locked": answers["invalid_locked"],
        }  # fmt: skip

    def _judge(self, row: Row, config: Config) -> Row:
        """Add the limits that count for the row, and which are broken."""
        limits: dict[str, int] = {}
        if self._interpreter.arch == "x86":
            heap = self._plan.heap or HEAPS[self._set]
            lines = table()["sets"][self._set]["code_lines_max"]
            limits = {"heap": heap, "core_state": config.core_state_max, "largest_slab": heap // 4}
            limits |= {"code_lines": lines} | LIMITS
        over = [name for name, limit in limits.items() if (row[name] or 0) > limit]
        if limits and row["locked"] is False and "alloc_per_record" not in over:
            over.append("alloc_per_record")
        return row | {"limits": limits, "over": over}


_WHOLE = (
    "config set profile heap core_state largest_slab code_bytes code_lines free_after_boot"
    " alloc_per_epoch alloc_hash alloc_per_segment alloc_per_connect alloc_per_stick_visit"
    " seal_per_peer cipher_per_peer over"
)
_LIMITED = ("heap", "core_state", "largest_slab", "code_lines", *LIMITS)


def tables(rows: Sequence[Row]) -> list[Table]:
    """For each interpreter: what a configuration takes; then what each record allocates."""
    cells = {name: _limited(name) for name in _LIMITED}
    cells["over"] = lambda row: ("over" if row["over"] else "ok") if row["limits"] else "-"
    printed = []
    for interpreter in dict.fromkeys(row["interpreter"] for row in rows):
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            if row["interpreter"] == interpreter:
                key = (row["config"], str(row["set"] or "-"), row["profile"])
                groups.setdefault(key, []).append(row)
        title = f"{interpreter}: heap in bytes (≤ within its limit, > over it)"
        printed.append(
            Table(title, pick(RAM, _WHOLE), [members[0] for members in groups.values()], cells)
        )
        each = [
            _by_record(key, members)
            for key, members in groups.items()
            if members[0]["record"] != "all"
        ]
        columns = [Column(name, "", text=True) for name in ("config", "set", "profile")]
        columns += [Column(name, "") for name in (*_RECORD_NAMES, "invalid", "records")]
        columns.append(Column("locked", "", "under lock"))
        title = "Bytes allocated by a call with such a record, written/received; at most 0"
        printed.append(Table(title, columns, each))
    return printed


def _by_record(key: tuple[str, ...], rows: Sequence[Row]) -> Row:
    """A profile's rows as one: a column for each record type."""
    row_of_all: Row = dict(zip(("config", "set", "profile"), key, strict=True))
    for name in (*_RECORD_NAMES, "invalid"):
        by_way = {
            row["direction"]: row["alloc_per_record"] for row in rows if row["record"] == name
        }
        if by_way:
            row_of_all[name] = "/".join(
                f"{by_way[way]:,}" for way in ("out", "in") if way in by_way
            )
    row_of_all["records"] = sum(row["records"] or 0 for row in rows)
    row_of_all["locked"] = all(row["locked"] is not False for row in rows)
    return row_of_all


def _limited(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        if row[name] is None:
            return "-"
        limit = row["limits"].get(name)
        if limit is None:
            return f"{row[name]:,}"
        return f"{row[name]:,} {'>' if name in row['over'] else '≤'} {limit:,}"

    return cell
