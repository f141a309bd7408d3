"""The rooms of core, host, carriers and telemetry: who may import whom, and code lines per room.

A module of a room imports its own room and those named here, nothing else (see `house`). Tests
hold it (tests/test_tidy.py); `drupelet bench rooms` prints it.
"""

from graphlib import TopologicalSorter
from pathlib import Path

import drupelet
import drupelet_host
import drupelet_tools
import drupelet_transports
from drupelet_tools.bench.house import House
from drupelet_tools.flash.build import is_host_only
from drupelet_tools.flash.sets import Built, Choice, count_lines, table, texts

# A room, and the rooms that its modules may import beside their own.
MAY_IMPORT: dict[str, set[str]] = {
    "base": set(),
    "store": {"base"},
    "engine": {"base", "store"},
    "wire": {"base", "engine", "store"},
    "link": {"base", "engine", "wire", "store"},
    "duty": {"base", "engine", "store"},
    "seal": {"base"},
    "channel": {"base", "wire", "seal", "store"},
    "telemetry": {"base", "store"},
    "micro": {"base", "engine", "wire"},
    "node": {"base", "store", "engine", "wire", "link", "channel", "telemetry"},
    "clients": {"base", "engine", "wire", "node"},
    # What hosts and tools ask beside `node` and `link`; no board loads it.
    "host_api": {"base", "store", "engine", "wire", "link", "duty", "node"},
}
# Modules of another room that may be imported from outside of it: shapes, constants and, of wire,
# the codecs that `link` loads by the registry.
STORE_DOORS = {"drupelet.store.ports", "drupelet.store.states", "drupelet.store.files"}
# Imports inside of a function: what a set leaves out, or lets go after the boot.
LATE = {
    ("drupelet.engine.exchange", "drupelet.engine.control"),
    ("drupelet.engine.exchange", "drupelet.engine.unavailable"),
    ("drupelet.engine.graph", "drupelet.engine.dependency_cycle"),
    ("drupelet.node", "drupelet.channel.channel"),
    ("drupelet.node", "drupelet.engine.control"),
    ("drupelet.node", "drupelet.engine.descriptor"),
    ("drupelet.node", "drupelet.engine.group_family"),
    ("drupelet.node", "drupelet.engine.recovery"),
    ("drupelet.node", "drupelet.link.arbiter"),
    ("drupelet.node", "drupelet.link.stick_visit"),
    ("drupelet.store.flash_store", "drupelet.store.recovery"),
    ("drupelet.store.recovery", "drupelet.store.migration"),
    ("drupelet.wire.registry", "drupelet.base.hashes_mvds"),
    ("drupelet.wire.registry", "drupelet.engine.oversize"),
    ("drupelet.wire.registry", "drupelet.wire.bsp0.codec"),
    ("drupelet.wire.registry", "drupelet.wire.bsp0.hash"),
    ("drupelet.wire.registry", "drupelet.wire.bsp1"),
    ("drupelet.wire.registry", "drupelet.wire.compact.codec"),
    ("drupelet.wire.registry", "drupelet.wire.mvds.codec"),
}
CORE = House("drupelet", Path(drupelet.__path__[0]).resolve(), MAY_IMPORT, {"store": STORE_DOORS})
# The host, from the bottom up: a room imports only rooms whose rows stand before its own.
HOST_MAY_IMPORT: dict[str, set[str]] = {
    "base": set(),
    "store": {"base"},
    "home": {"base"},
    "keys": {"base", "home"},
    "channel": {"store"},
    "remote": {"base", "store", "channel"},
    "clients": {"base", "home", "keys", "remote"},
    "member": {"base", "store", "home", "keys", "clients"},
    "requests": {"home", "member"},
    "feeds": {"base", "store", "home", "keys", "channel", "remote", "clients", "member"},
    "agent": {
        "base",
        "store",
        "home",
        "keys",
        "channel",
        "remote",
        "clients",
        "member",
        "requests",
        "feeds",
    },
    "view": {"base", "store", "home", "keys", "clients", "member", "requests"},
    "readers": {"store", "home", "view"},
    "export": {"base", "store", "home", "member", "view", "readers"},
    # What programs import: `from drupelet_host import open_home`.
    "api": {"base", "store", "home", "member", "requests", "agent", "view", "readers"},
    # What stands around an agent: units, and sticks as they are plugged in.
    "service": {"base"},
    # A program of its own, which `drupelet broker` runs.
    "broker": set(),
    "cli": {
        "base",
        "store",
        "home",
        "keys",
        "clients",
        "member",
        "requests",
        "feeds",
        "agent",
        "view",
        "readers",
        "export",
        "service",
        "broker",
    },
    # Where the `drupelet` command begins.
    "entry": {"cli"},
    "__main__": {"entry"},
}
HOST = House("drupelet_host", Path(drupelet_host.__path__[0]).resolve(), HOST_MAY_IMPORT)
# The carriers; a board loads none of `host`.
CARRIERS = House(
    "drupelet_transports",
    Path(drupelet_transports.__path__[0]).resolve(),
    {
        "common": set(),
        "seal": {"common"},
        "stick": set(),
        "board": {"common"},
        "host": {"common"},
    },
)
# The tools, from the bottom up. Owners of devices use the products; the other rooms are for
# developers, and no product imports one of them.
TOOLS_PRODUCTS = ("telemetry", "flash", "image")
TOOLS = House(
    "drupelet_tools",
    Path(drupelet_tools.__path__[0]).resolve(),
    {
        "bounded": set(),
        "descriptor_line": set(),
        "terminal": set(),
        "telemetry": set(),
        "flash": {"bounded"},
        "image": {"flash"},
        "m3": {"flash", "image", "terminal"},
        "pico": {"flash", "image", "terminal"},
        "demo": {"flash", "image", "pico", "telemetry", "terminal"},
        "sim": {"bounded", "flash", "telemetry"},
        "bench": {
            "demo", "descriptor_line", "flash", "image", "m3", "pico", "sim", "telemetry",
        },
        "docs": {"bench", "flash"},
        "cli": {"bench", "demo", "flash", "image", "sim", "telemetry"},
    },
)  # fmt: skip
# A product with rooms of its own, from the bottom up.
TELEMETRY = House(
    "drupelet_tools.telemetry",
    TOOLS.root / "telemetry",
    {
        "base": set(),
        "blackbox": set(),
        "text": {"blackbox"},
        "energy": {"base", "blackbox"},
        "tables": {"blackbox"},
        "files": {"base", "blackbox", "energy"},
        "lake": {"base", "blackbox", "files", "tables"},
        "intake": {"base", "blackbox", "files", "lake", "tables"},
        "imports": {"base", "blackbox", "energy", "files", "lake"},
        "calibration": {"base", "blackbox", "energy", "files", "tables"},
        "forecast": {"base", "blackbox", "calibration", "energy"},
        "analysis": {"base", "blackbox", "calibration", "energy", "lake", "tables", "text"},
        "page": {"analysis", "base", "blackbox", "text"},
        "monitor": {"analysis", "base", "blackbox", "lake", "tables"},
        "spark": {"base", "blackbox", "files", "intake", "lake", "tables"},
        "commands": {
            "analysis", "base", "blackbox", "calibration", "energy", "files", "forecast",
            "imports", "intake", "lake", "monitor", "page", "spark", "text",
        },
    },
)  # fmt: skip


def unlisted() -> list[str]:
    """Imports inside of functions that are not listed, but within a `# host only` module."""
    known = CORE.modules()
    return [
        f"{module} imports {target} inside of a function"
        for module, targets in CORE.imports(late=True).items()
        for target in sorted(targets)
        if (module, target) not in LATE and not is_host_only(known[module])
        if CORE.room_of(module) != "channel"  # `opening` loads its room, the deepest modules first
    ]


def floors() -> int:
    """The longest chain of imports outside of functions, as a board's interpreter runs them."""
    depth: dict[str, int] = {}
    arrows = CORE.imports(late=False, types=False)
    for module in TopologicalSorter(arrows).static_order():
        depth[module] = 1 + max((depth[target] for target in arrows[module]), default=0)
    return max(depth[module] for module, path in CORE.modules().items() if not is_host_only(path))


_LET_GO = "let go"


def code_lines() -> dict[str, dict[str, int]]:
    """Set -> room -> code lines, of the sets micro, small on a cable, and full.

    Beside the rooms, "let go": how many of the set's lines are in modules that leave the heap
    after the boot.
    """
    choices = {
        "micro": Choice("micro"),
        "small": Choice("small", carriers=("serial",)),
        "full": Choice("full"),
    }
    lines: dict[str, dict[str, int]] = {}
    for name, choice in choices.items():
        lines[name] = {_LET_GO: 0}
        leaves = table()["sets"][name].get("leaves", ())
        for module, text in texts(choice, "armv7m").items():
            room = CORE.room_of(module) if module.startswith("drupelet.") else module.split(".")[0]
            count = Built({module: text}, 1).code_lines
            lines[name][room] = lines[name].get(room, 0) + count
            lines[name][_LET_GO] += count if module in leaves else 0
    return lines


def rows_of(house: House) -> list[dict[str, object]]:
    """A row for each room of a house outside of the core."""
    known = house.modules()
    rows: list[dict[str, object]] = []
    for room, others in house.may_import.items():
        paths = [path for name, path in known.items() if house.room_of(name) == room]
        rows.append({
            "room": room,
            "modules": sum(path.name != "__init__.py" for path in paths),
            "code_lines": sum(count_lines(path.read_text("utf-8")) for path in paths),
            "may_import": " ".join(sorted(others)),
        })  # fmt: skip
    return rows


def rows() -> list[dict[str, object]]:
    """A row for each room, as `drupelet bench rooms --json` prints them."""
    lines = code_lines()
    known = CORE.modules()
    room_rows: list[dict[str, object]] = []
    for room, others in MAY_IMPORT.items():
        row: dict[str, object] = {
            "room": room,
            "modules": sum(
                CORE.room_of(name) == room and not is_host_only(path)
                for name, path in known.items()
            ),
            "may_import": " ".join(sorted(others)),
        }
        room_rows.append(row | {name: of_set.get(room, 0) for name, of_set in lines.items()})
    outside: dict[str, object] = {
        "room": "boards and carriers", "modules": 0, "may_import": "all",
    }  # fmt: skip
    whole: dict[str, object] = {"room": "all", "modules": 0, "may_import": ""}
    let_go: dict[str, object] = {
        "room": "of all, let go after the boot", "modules": 0, "may_import": "",
    }  # fmt: skip
    for name, of_set in lines.items():
        let_go[name] = of_set.pop(_LET_GO)
        whole[name] = sum(of_set.values())
        outside[name] = sum(lines for room, lines in of_set.items() if room not in MAY_IMPORT)
    return [*room_rows, outside, whole, let_go]
