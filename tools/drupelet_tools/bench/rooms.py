"""The rooms of the core: who may import whom, how deep imports go, and code lines per room.

A module of a room imports its own room and those named here, nothing else, also not for types and
not inside of a function. Tests hold it (tests/test_tidy.py); `drupelet bench rooms` prints it.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import drupelet
from drupelet_tools.flash.build import is_host_only
from drupelet_tools.flash.sets import Built, Choice, table, texts

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
    ("drupelet.link.link", "drupelet.link.mode_policy"),
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
_ROOT = Path(drupelet.__path__[0]).resolve()


def modules() -> dict[str, Path]:
    """Every module of the core by its dotted name; of a package its __init__.py."""
    return {
        ".".join(("drupelet", *path.relative_to(_ROOT).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in _ROOT.rglob("*.py")
    }


def room_of(module: str) -> str:
    """The room of a module; `node` is a room of its own."""
    return module.split(".")[1] if "." in module else ""


def _imported(node: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the core that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom) and node.module in known:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            yield whole if whole in known else str(node.module)


def imports(late: bool | None = None, types: bool = True) -> dict[str, set[str]]:
    """Module -> modules of the core that it imports.

    late: True: only inside of functions, False: only outside of them, None: both. types: also
    what is imported for the type checker alone.
    """
    known = modules()
    arrows: dict[str, set[str]] = {}
    for name, path in known.items():
        arrows[name] = set()
        queue: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text("utf-8")), False)]
        while queue:
            node, inside = queue.pop()
            if late is None or late == inside:
                arrows[name] |= set(_imported(node, known)) - {name, "drupelet"}
            if (
                isinstance(node, ast.If)
                and ast.unparse(node.test) == "TYPE_CHECKING"
                and not types
            ):
                queue += [(child, inside) for child in node.orelse]
                continue
            inside = inside or isinstance(node, ast.FunctionDef)
            queue += [(child, inside) for child in ast.iter_child_nodes(node)]
    return arrows


def strangers() -> list[str]:
    """Imports from a room that is not named for the importing one."""
    problems = []
    for module, targets in imports().items():
        room = room_of(module)
        for target in sorted(targets):
            other = room_of(target)
            if other in ("", room) or not room:
                continue
            if other not in MAY_IMPORT[room]:
                problems.append(f"{module} imports {target}: {room} may not import {other}")
            elif other == "store" and target not in STORE_DOORS:
                problems.append(f"{module} imports {target}: of store only ports and states")
    return problems


def unlisted() -> list[str]:
    """Imports inside of functions that are not listed, but within a `# host only` module."""
    known = modules()
    return [
        f"{module} imports {target} inside of a function"
        for module, targets in imports(late=True).items()
        for target in sorted(targets)
        if (module, target) not in LATE and not is_host_only(known[module])
        if room_of(module) != "channel"  # `opening` loads its room, the deepest modules first
    ]


def check_circles() -> None:
    """Raise graphlib.CycleError, which names the modules of a circle, if there is one."""
    TopologicalSorter(imports()).prepare()


def floors() -> int:
    """The longest chain of imports outside of functions, as a board's interpreter runs them."""
    depth: dict[str, int] = {}
    arrows = imports(late=False, types=False)
    for module in TopologicalSorter(arrows).static_order():
        depth[module] = 1 + max((depth[target] for target in arrows[module]), default=0)
    return max(depth[module] for module, path in modules().items() if not is_host_only(path))


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
            room = room_of(module) if module.startswith("drupelet.") else module.split(".")[0]
            count = Built({module: text}, 1).code_lines
            lines[name][room] = lines[name].get(room, 0) + count
            lines[name][_LET_GO] += count if module in leaves else 0
    return lines


def rows() -> list[dict[str, object]]:
    """A row for each room, as `drupelet bench rooms --json` prints them."""
    lines = code_lines()
    known = modules()
    found: list[dict[str, object]] = []
    for room, others in MAY_IMPORT.items():
        row: dict[str, object] = {
            "room": room,
            "modules": sum(
                room_of(name) == room and not is_host_only(path) for name, path in known.items()
            ),
            "may_import": " ".join(sorted(others)),
        }
        found.append(row | {name: of_set.get(room, 0) for name, of_set in lines.items()})
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
    return [*found, outside, whole, let_go]
