"""The tree's own rules: who imports whom, what a board can run, what is made from the code."""

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from drupelet import __version__
from drupelet_tools import docs
from drupelet_tools.bench import rooms
from drupelet_tools.bench.house import House
from drupelet_tools.flash.build import is_host_only
from drupelet_tools.flash.nodes import walk, without_collections

ROOT = Path(__file__).resolve().parents[1]
CORE = "firmware/drupelet"
TRANSPORTS = "transports/drupelet_transports"
# Import name -> folder, in the order of the arrows: each may import those before it.
ROOMS = {
    "drupelet": CORE,
    "drupelet_transports": TRANSPORTS,
    "drupelet_host": "host/drupelet_host",
    "drupelet_tools": "tools/drupelet_tools",
}
CORE_MODULES = {"micropython", "struct", "hashlib", "binascii", "os", "errno"}
# What firmware/boards and the carriers on a board find in MicroPython beside that.
BOARD_MODULES = CORE_MODULES | {
    *(
        "array",
        "asyncio",
        "cryptolib",
        "ffi",
        "gc",
        "io",
        "json",
        "machine",
        "network",
        "random",
        "rp2",
    ),
    *("esp32", "select", "socket", "sys", "termios", "time", "tls", "uctypes", "vfs"),
    *("pyb", "stm", "sdcard"),  # STM32; micropython-lib
}
LINE_WIDTH_MAX = 99
# The longest chain of imports in the core: each takes C stack of a board.
FLOORS_MAX = 10
# Who looks at the inside of the core, or at private things of others, and why.
INSIDE = {
    "tools/drupelet_tools/bench/on-board": "measures the core's own calls on a board",
    "tools/drupelet_tools/bench/pipe.py": "counts what nodes tell a black box: `NoBox`",
    "tools/drupelet_tools/sim/filter_sync.py": "a protocol in place of a link's offers",
    "tools/drupelet_tools/sim/exhaust_node.py": "checks the engine's tables after each step",
    "tools/drupelet_tools/sim/exhaust_probe.py": "takes the whole state of an engine out",
    "tools/drupelet_tools/sim/on-board": "breaks states of the core to see them refused",
    "tools/drupelet_tools/sim/rows.py": "checks the engine's tables after each frame",
    "tools/drupelet_tools/telemetry/spark/session.py": "Spark's session ends by its private names",
    "transports/drupelet_transports/host/mqtt_host.py": "paho tells by no other name what came in",
}
# What of the engine anybody may import: what a client is and is asked, and numbers of members.
ENGINE_DOORS = {"drupelet.engine.body", "drupelet.engine.members"}
# What `store.load` leaves in the store until the next call: `host_api.message` copies it.
LOADED = {"edges_size", "group", "id", "private", "size", "source", "state", "timestamp"}
# With a leading underscore, and documented: why anybody may use it.
PUBLIC_UNDERSCORES = {
    "_asdict": "a method of each namedtuple, named so that no field can clash with it",
    "_exit": "a function of the module os: ends a process without its clean-up",
    "_fields": "as `_asdict`",
    "_get_command": "what builds a command line, in Typer's module for tests",
    "_make": "as `_asdict`",
    "_mpy": "the version of bytecode in MicroPython's `sys.implementation`",
    "_replace": "as `_asdict`",
}
# Modules of which each interpreter takes one, by `drupelet.base`: tests compare them.
ALTERNATIVES = {"_blake2s", "_blake2s_hashlib", "_ccm_plain", "_memory_plain", "_memory_slices"}
# Modules of tests that may use private names of the code under test, and why.
PRIVATE_USERS = {
    "tests/sim/test_exhaust.py": "plants faults in whatever function would have them",
    "tests/sim/test_mutations.py": "plants faults in whatever function would have them",
}
# The functions that take an attribute's name as text, by their last name.
NAMING_CALLS = {"setattr", "getattr", "hasattr", "delattr", "patch", "object"}


@cache
def tracked() -> tuple[Path, ...]:
    """Return every file that is in the repository or would be with `git add .`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    paths = {ROOT / name for name in listed.decode().split("\0") if name}
    return tuple(sorted(path for path in paths if path.is_file()))


def sources(*folders: str) -> list[Path]:
    """Return the Python files below these folders of the repository; all without one."""
    roots = [ROOT / folder for folder in folders] or [ROOT]
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and any(path.is_relative_to(root) for root in roots)
    ]


@cache
@without_collections()
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"), str(path))


def where(path: Path, node: ast.AST | None = None) -> str:
    """Return file:line as the reader clicks on it."""
    line = f":{node.lineno}" if isinstance(node, ast.stmt | ast.expr | ast.ExceptHandler) else ""
    return f"{path.relative_to(ROOT)}{line}"


def none(problems: list[str]) -> None:
    """Fail with one line per problem."""
    assert not problems, "\n" + "\n".join(problems)


def imported(node: ast.AST) -> list[str]:
    """Return the modules that one import statement names; `.` stands for a relative one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." if node.level else node.module or ""]
    return []


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk the nodes that an interpreter runs: the body of `if TYPE_CHECKING:` is left out."""
    queue = [tree]
    while queue:
        node = queue.pop()
        yield node
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        queue += node.orelse if typing_only else ast.iter_child_nodes(node)


def test_the_tree_is_there() -> None:
    for folder in ROOMS.values():
        assert sources(folder), f"no Python files in {folder}"


@pytest.mark.parametrize("room", ROOMS)
def test_imports_follow_the_arrows(room: str) -> None:
    order = list(ROOMS)
    later = set(order[order.index(room) + 1 :]) | {"tests", "conftest", "boards"}
    none(
        [
            f"{where(path, node)}: {room} may not import {name}"
            for path in sources(ROOMS[room])
            for node in walk(parsed(path))
            for name in imported(node)
            if name.split(".")[0] in later or name == "."
            if "on_board" not in path.parts  # programs for a board's prompt
        ]
    )


def test_boards_import_each_other_in_no_circle() -> None:
    """Not for types, nor when a function runs: what both need is a port (boards/ports.py)."""
    root = ROOT / "firmware"
    paths = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sources("firmware/boards")
    }
    arrows = {
        name: {
            whole
            for node in walk(parsed(path))
            for module in imported(node)
            for alias in (node.names if isinstance(node, ast.ImportFrom) else [])
            for whole in (module, f"{module}.{alias.name}")
            if whole in paths
        }
        | {module for node in walk(parsed(path)) for module in imported(node)} & paths.keys()
        for name, path in paths.items()
    }
    assert arrows["boards.start"] > {"boards.setup", "boards.ports"}
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names them


def test_rooms_of_the_core_import_only_those_named() -> None:
    """Nor for types: what a module asks of another room's class is a port."""
    core = rooms.CORE
    assert {core.room_of(module) for module in core.modules()} - {""} == set(core.may_import)
    none(core.strangers())


def test_modules_of_the_core_import_each_other_in_no_circle() -> None:
    """Not for types, nor when a function runs."""
    rooms.CORE.check_circles()
    assert rooms.CORE.imports()["drupelet.engine.core"] > {"drupelet.engine.graph"}


ORDERED = [rooms.HOST, rooms.CARRIERS, rooms.TOOLS, rooms.TELEMETRY]


@pytest.mark.parametrize("house", ORDERED, ids=lambda house: house.package)
def test_rooms_outside_of_the_core_import_only_those_named(house: House) -> None:
    """A row names only rooms of rows before it, and none that its modules do not need."""
    assert {house.room_of(module) for module in house.modules()} - {""} == set(house.may_import)
    order = list(house.may_import)
    none(
        [
            f"{room} may import {other}, which does not stand before it"
            for room, others in house.may_import.items()
            for other in others
            if order.index(other) >= order.index(room)
        ]
    )
    none(house.strangers() + house.idle())


def test_what_an_owner_of_devices_uses_needs_nothing_for_developers() -> None:
    house = rooms.TOOLS
    # What has no commands of its own serves both.
    shared = {"bounded", "terminal", "descriptor_line"}
    for product in rooms.TOOLS_PRODUCTS:
        assert house.may_import[product] <= {*rooms.TOOLS_PRODUCTS, *shared}
    planted = replace(house, may_import={**house.may_import, "bench": set()})
    assert any("bench may not import" in problem for problem in planted.strangers())


def test_modules_outside_of_the_core_import_each_other_in_no_circle() -> None:
    """Not for types, nor when a function runs."""
    for house in ORDERED:
        house.check_circles()
    assert rooms.HOST.imports()["drupelet_host.agent.loop"] > {"drupelet_host.agent.brokers"}


@pytest.mark.parametrize(
    "planted",
    [
        "from drupelet_host.agent.loop import Agent",
        "from drupelet_host.agent import loop",
        "import drupelet_host.agent.loop",
        "if TYPE_CHECKING:\n    from drupelet_host.agent.loop import Agent",
        "def load():\n    from drupelet_host.agent.loop import Agent",
        "async def load():\n    from drupelet_host.agent.loop import Agent",
    ],
)
def test_an_import_that_no_room_is_named_for_is_found(planted: str, tmp_path: Path) -> None:
    """In modules that stand where the host's do; also the circle, and arrows without need."""
    for name, text in {
        "home/config.py": planted,
        "agent/loop.py": "from drupelet_host.home.config import load",
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    house = replace(rooms.HOST, root=tmp_path)
    wrong = "drupelet_host.home.config imports drupelet_host.agent.loop: home may not import agent"
    assert house.strangers() == [wrong]
    assert "agent may import keys, and does not" in house.idle()
    assert "agent may import home, and does not" not in house.idle()
    with pytest.raises(CycleError):
        house.check_circles()


def test_imports_inside_of_functions_are_listed() -> None:
    none(rooms.unlisted())
    late = {(a, b) for a, targets in rooms.CORE.imports(late=True).items() for b in targets}
    assert late >= rooms.LATE, f"listed, and not there: {rooms.LATE - late}"


def test_imports_of_the_core_nest_no_deeper_than_ten_floors() -> None:
    print(f"{rooms.floors()} floors")  # with -s; `drupelet bench rooms` prints the lines, too
    assert rooms.floors() <= FLOORS_MAX


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module gives to what is in its classes."""
    names = set()
    for node in walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {node.attr} if is_own(node.value) else set()
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def is_own(base: ast.expr) -> bool:
    """Return whether an attribute's object is the one whose method this is, or its class."""
    return ast.unparse(base) in ("self", "cls", "super()")


def is_private(name: str) -> bool:
    """Return whether a name says that it is for the module or class that has it."""
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_UNDERSCORES


def reaches(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield where a module looks into the core, or at private names of others."""
    own = own_names(tree)
    modules = {
        (alias.asname or alias.name).split(".")[0]
        for node in walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    called = {id(node.func) for node in walk(tree) if isinstance(node, ast.Call)}
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                is_inside = whole.startswith("drupelet.engine.") and not any(
                    whole == door or whole.startswith(f"{door}.") for door in ENGINE_DOORS
                )
                if is_inside or is_private(alias.name):
                    yield node, f"imports {whole}"
        if not isinstance(node, ast.Attribute):
            continue
        base = ast.unparse(node.value)
        name = node.attr
        is_core = name == "core" or (name == "exchange" and id(node) not in called)
        is_loaded = name in LOADED and base.split(".")[-1].strip("_") == "store"
        if is_private(name) and name not in own and not is_own(node.value):
            yield node, f"looks at {base}.{name}, which is private"
        elif is_core and base not in modules:
            yield node, f"looks at {base}.{name}"
        elif is_loaded:
            yield node, f"reads {base}.{name}"


def test_hosts_and_tools_ask_the_core_by_its_interface() -> None:
    """`Node`, `Link` and `host_api`; who looks deeper is listed with its reason, and does."""
    problems = []
    inside = set()
    for path in sources(*list(ROOMS.values())[1:]):
        name = str(path.relative_to(ROOT))
        listed = {entry for entry in INSIDE if name == entry or name.startswith(f"{entry}/")}
        for node, what in reaches(parsed(path)):
            inside |= listed
            problems += [] if listed else [f"{where(path, node)}: {what}; see drupelet.host_api"]
    problems += [f"{entry}: is listed, and looks at nothing" for entry in INSIDE.keys() - inside]
    none(problems)


@pytest.mark.parametrize(
    ("planted", "what"),
    [
        ("newest = node.core.graph.newest", "looks at node.core"),
        ("outbox = self.link.exchange.outbox", "looks at self.link.exchange"),
        ("codec.use(link.exchange)", "looks at link.exchange"),
        ("ids = author._ids", "looks at author._ids, which is private"),
        ("if store.load(handle) == 0 and store.group: pass", "reads store.group"),
        ("id = bytes(self._node.store.id)", "reads self._node.store.id"),
        ("from drupelet.engine.core import Core", "imports drupelet.engine.core.Core"),
        ("from drupelet.engine import wake_state", "imports drupelet.engine.wake_state"),
        ("from drupelet.link.link import _IN", "imports drupelet.link.link._IN"),
    ],
)
def test_a_look_into_the_core_is_seen(planted: str, what: str) -> None:
    assert [text for _, text in reaches(ast.parse(planted))] == [what]


@pytest.mark.parametrize(
    "line",
    [
        "import typer.core\nclass Group(typer.core.TyperGroup): pass",
        "class End:\n    def __init__(self):\n        self._room = 1\n\nEnd()._room += 1",
        "secret = key.exchange(other)",
        "state = state._replace(seen=1)",
        "from drupelet.engine.members import SHARED",
    ],
)
def test_what_is_public_or_ones_own_is_no_look_into_the_core(line: str) -> None:
    assert not list(reaches(ast.parse(line)))


def off_board(path: Path, modules: set[str]) -> list[str]:
    """Return the imports of a file that a board has not got, outside of a caught ImportError."""
    return [
        f"{where(path, node)}: a board has no {name}"
        for node in running(parsed(path))
        for name in imported(node)
        if name.split(".")[0] not in modules
    ]


def test_the_core_imports_only_what_a_board_has() -> None:
    modules = CORE_MODULES | {"drupelet"}
    paths = [path for path in sources(CORE) if not is_host_only(path)]
    none([problem for path in paths for problem in off_board(path, modules)])


def test_boards_and_their_carriers_import_only_what_a_board_has() -> None:
    modules = BOARD_MODULES | {"drupelet", "drupelet_transports", "boards"}
    paths = [p for p in sources("firmware/boards", TRANSPORTS) if not is_host_only(p)]
    none([problem for path in paths for problem in off_board(path, modules)])


def test_the_core_speaks_the_boards_python() -> None:
    problems = []
    for path in sources("firmware/drupelet", "firmware/boards"):
        for node in walk(parsed(path)):
            if isinstance(node, ast.Match | ast.TryStar):
                problems.append(f"{where(path, node)}: MicroPython has no such statement")
            if isinstance(node, ast.FunctionDef) and node.args.posonlyargs:
                problems.append(f"{where(path, node)}: MicroPython has no positional-only /")
            if isinstance(node, ast.ClassDef) and node.keywords:
                problems.append(f"{where(path, node)}: MicroPython has no metaclasses")
            display = isinstance(node, ast.Tuple | ast.List | ast.Set)
            if display and any(isinstance(item, ast.Starred) for item in node.elts):
                if not isinstance(node, ast.Set) and isinstance(node.ctx, ast.Store):
                    continue
                problems.append(f"{where(path, node)}: MicroPython unpacks no * in a display")
    none(problems)


def of_test_modules(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each import of a `test_*` module, or of a test, wherever in the file it stands."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if any(part.startswith("test_") for part in name.split(".")):
                yield node, name


def test_no_module_of_the_tests_imports_tests() -> None:
    """What two modules of tests share stands in one of its own, named for what it holds."""
    none(
        [
            f"{where(path, node)}: {name} is of a module of tests"
            for path in sources("tests")
            for node, name in of_test_modules(parsed(path))
        ]
    )


@pytest.mark.parametrize(
    "planted",
    [
        "from host.test_cli import run",
        "from host import test_cli",
        "import host.test_cli",
        "import test_docs as docs",
        "def run():\n    from test_docs import rows",
        "from . import test_cli",
    ],
)
def test_an_import_of_a_module_of_tests_is_found(planted: str) -> None:
    assert len(list(of_test_modules(ast.parse(planted)))) == 1


def private_uses(tree: ast.Module) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield where a module of tests uses a private name of another object or module."""
    for node in walk(tree):
        if isinstance(node, ast.Attribute):
            if is_private(node.attr) and ast.unparse(node.value) not in ("self", "cls"):
                yield node, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                is_module = node.module == "drupelet.base" and alias.name in ALTERNATIVES
                if is_private(alias.name) and not is_module:
                    yield node, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            for argument in node.args[:2] if called in NAMING_CALLS else []:
                name = argument.value if isinstance(argument, ast.Constant) else None
                if isinstance(name, str) and is_private(name.rpartition(".")[2]):
                    yield node, f"{called} of {name}"


def test_tests_use_no_private_name_of_the_code_under_test() -> None:
    """What a test needs is public, or handed in; who uses more is listed with its reason."""
    problems, users = [], set()
    for path in sources("tests"):
        name = str(path.relative_to(ROOT))
        for node, what in private_uses(parsed(path)):
            users.add(name)
            if name not in PRIVATE_USERS:
                problems.append(f"{where(path, node)}: {what} is private")
    none(problems + [f"{name}: is listed, and uses none" for name in PRIVATE_USERS.keys() - users])


@pytest.mark.parametrize(
    "planted",
    [
        "assert agent._turn() == 0",
        "agent.store._gen = 5",
        "from drupelet.link.link import _IN",
        "from drupelet.base import _ccm_table",
        'monkeypatch.setattr(repl, "_WAIT_S", 0)',
        'monkeypatch.setattr("drupelet_host.repl._WAIT_S", 0)',
        'if hasattr(stick, "_asked_ms"): pass',
        'mock.patch.object(repl, "_ask", ask)',
        'getattr(agent, "_turn")()',
    ],
)
def test_a_use_of_a_private_name_is_found(planted: str) -> None:
    assert len(list(private_uses(ast.parse(planted)))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "class Clock:\n    def read(self):\n        return self._now_ms",
        "os._exit(1)",
        "row = row._replace(size=1)",
        "from __future__ import annotations",
        "from drupelet.base import _ccm_plain",
        "assert thing.__class__ is Thing",
        'monkeypatch.setattr(repl, "WAIT_S", 0)',
        "for _ in range(3): pass",
    ],
)
def test_what_is_public_or_of_the_tests_own_is_no_use_of_a_private_name(line: str) -> None:
    assert not list(private_uses(ast.parse(line)))


def test_scripts_fit_the_line() -> None:
    scripts = [p for p in tracked() if p.parent == ROOT / "tools" and p.suffix == ""]
    assert scripts
    none(
        [
            f"{where(path)}:{number}: {len(line)} columns, at most {LINE_WIDTH_MAX}"
            for path in [*scripts, ROOT / ".ci/run"]
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
            if len(line) > LINE_WIDTH_MAX
        ]
    )


def test_scripts_stop_at_the_first_error() -> None:
    for name in ("setup", "test", "demo", "micropython", "micropython-i386", "../.ci/run"):
        path = ROOT / "tools" / name
        assert path.stat().st_mode & 0o111, f"{name} is not executable"
        assert "\nset -eu\n" in path.read_text("utf-8"), f"{name} lacks set -eu"


def test_exceptions_are_caught_by_name() -> None:
    problems = []
    for path in sources():
        for node in walk(parsed(path)):
            if isinstance(node, ast.ExceptHandler):
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                names = {ast.unparse(kind) if kind else "everything" for kind in kinds}
                if names & {"everything", "Exception", "BaseException"}:
                    problems.append(
                        f"{where(path, node)}: catches everything, name what it is for"
                    )
    none(problems)


def test_public_things_say_what_they_do() -> None:
    problems = []
    for path in sources(*ROOMS.values()):
        for node in parsed(path).body:
            named = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
            if named and not node.name.startswith("_") and not ast.get_docstring(node):
                problems.append(f"{where(path, node)}: {node.name} has no docstring")
    none(problems)


def test_nothing_of_one_machine_or_registry_is_in_the_tree() -> None:
    # Put together here, so that this file does not hold what it looks for.
    hosts = ["py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "deb." + "debian.org"]
    folders = "|".join(["wo" + "rk", "ho" + "me", "ro" + "ot", "t" + "mp", "Us" + "ers"])
    paths = re.compile(rf"(?<![\w.$}}~/>-])/(?:{folders})/[\w.]")
    problems = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", "replace")
        for number, line in enumerate(text.splitlines(), 1):
            found = [host for host in hosts if host in line]
            found += [match.group() for match in paths.finditer(line)]
            problems += [f"{where(path)}:{number}: holds {word}" for word in found]
    none(problems)


def test_every_limit_has_a_name_a_const_and_a_reason() -> None:
    path = ROOT / CORE / "base/limits.py"
    found = docs.limits(path.read_text("utf-8"))
    assert len(found) > 10, "limits.py is not read"
    problems = [f"{name}: no reason above or beside it" for _, name, why in found if not why]
    for node in parsed(path).body:
        if isinstance(node, ast.AnnAssign):
            problems.append(f"{where(path, node)}: X = const(...) without annotation")
        if isinstance(node, ast.Assign):
            call = node.value
            if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "const"):
                problems.append(f"{where(path, node)}: not a const()")
    none(problems)


def test_made_files_are_up_to_date() -> None:
    for path, text in docs.generated().items():
        remedy = f"{where(path)} is old: run python -m drupelet_tools.docs"
        assert path.is_file() and path.read_text("utf-8") == text, remedy


def test_limits_page_lists_every_constant_with_its_value() -> None:
    from drupelet.base import limits

    page = (ROOT / "docs/limits.md").read_text("utf-8")
    documented = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| ([-\d,]+) \|", page, re.M))
    public = {k: v for k, v in vars(limits).items() if k.isupper() and not k.startswith("_")}
    assert documented == {name: f"{value:,}" for name, value in public.items()}


def test_package_json_lists_files_that_exist() -> None:
    package = json.loads((ROOT / "package.json").read_text("utf-8"))
    assert package["version"] == __version__
    for target, source in package["urls"]:
        assert (ROOT / source).is_file() and source.endswith(target)
    listed = {target for target, _ in package["urls"]}
    assert {
        "boards/rp2/main.py",
        "drupelet/node.py",
        "drupelet_transports/stick/stick.py",
    } <= listed


def test_manifest_freezes_packages_that_exist() -> None:
    calls: list[tuple[str, str]] = []
    versions: list[str] = []

    def metadata(*, version: str) -> None:
        versions.append(version)

    def require(name: str) -> None:
        assert name in [row[0] for row in docs.DEPENDENCIES]

    def package(name: str, *, base_path: str, opt: int) -> None:
        assert opt == 0, "higher levels strip the assertions"
        calls.append((name, base_path))

    path = ROOT / "firmware/manifest.py"
    exec(compile(path.read_text("utf-8"), str(path), "exec"), {**locals()})
    assert versions == [__version__]
    for name, base_path in calls:
        assert (ROOT / "firmware" / base_path / name / "__init__.py").is_file(), name


def test_the_lock_is_hashed_and_names_no_index() -> None:
    for name in ("requirements.lock", "tools/uv.lock"):
        text = (ROOT / name).read_text("utf-8")
        entries = re.split(r"^(?=[a-z0-9])", text, flags=re.M)[1:]
        assert entries and all("--hash=sha256:" in entry for entry in entries), name
        assert "://" not in text and "--index" not in text, name


def test_micropython_is_pinned_for_each_machine_and_names_no_mirror() -> None:
    """One hash and one path of each package for each architecture that tools/setup knows."""
    setup = (ROOT / "tools/setup").read_text("utf-8")
    packages = re.findall(r"^packages=\((.*)\)$", setup, flags=re.M)[0].split()
    builds = " ".join(re.findall(r'builds="([^"]+)" ;;', setup)).split()
    lines = (ROOT / "tools/micropython.lock").read_text("utf-8").splitlines()
    pins = [re.fullmatch(r"[0-9a-f]{64} pool/main/\S+/(\S+)_\S+_(\w+)\.deb", x) for x in lines[2:]]
    named = [(pin[1], pin[2]) for pin in pins if pin is not None]
    assert len(named) == len(pins)
    assert sorted(named) == sorted((package, build) for package in packages for build in builds)
