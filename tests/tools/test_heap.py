"""What each module costs a board: `pytest -s tests/tools/test_heap.py` prints the table."""

import ast
import json
import os
import subprocess
from pathlib import Path

from drupelet_tools.flash.build import _dotted as dotted
from drupelet_tools.flash.build import _sources as sources
from drupelet_tools.flash.build import build, micropython_command
from drupelet_tools.flash.fold import collect, fold

SCRIPT = Path(__file__).with_name("heap_by_module.py")
CARRIERS = {
    "serial": ["drupelet_transports.serial_board"],
    "mqtt": ["drupelet_transports.mqtt_board"],
    "stick": ["boards.stick", "drupelet_transports.stick"],
}
COMMON = ["boards.unix.board", "boards.device", "boards.unix.sensors", "drupelet.node"]
COMMON += ["drupelet.clients", "drupelet.store", "drupelet.blackbox"]
COMMON += ["boards.unix.files", "boards.unix.ports"]
# Of 128 KB, for the board with the most code: a stick and a cable. Tables, buffers and a little
# garbage need the rest.
CODE_SIZE_MAX = 98 * 1024


def needs() -> dict[str, list[str]]:
    """Each module of the firmware -> the modules that it still imports once it is folded."""
    texts = {dotted(path): source for source, path in sources("unix")}
    constants = collect(texts.items())
    found: dict[str, list[str]] = {}
    for name, source in texts.items():
        tree = ast.parse(fold(name, source.read_text("utf-8"), constants))
        found[name] = [
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in texts
        ]
    return found


def bottom_up(wanted: list[str]) -> list[str]:
    """The modules that `wanted` need and themselves, each after what it imports."""
    graph = needs()
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for other in graph[name]:
                if "hashlib" not in other and "plain" not in other and "slices" not in other:
                    visit(other)
            order.append(name)

    for name in wanted:
        visit(name)
    return order


def test_what_each_module_costs(tmp_path: Path) -> None:
    build(tmp_path, "x86")
    carriers = [name for names in CARRIERS.values() for name in names]
    names = bottom_up([*COMMON, *carriers])
    done = subprocess.run(
        [*micropython_command("x86"), "-X", "heapsize=512K", str(SCRIPT), *names],
        env=os.environ | {"MICROPYPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    costs = dict(json.loads(line) for line in done.stdout.splitlines())
    total = costs.pop("all")
    for name, size in costs.items():
        print(f"{size:7,} {name}")
    print(f"{total:7,} in all, every carrier loaded")

    def with_only(*chosen: str) -> int:
        """The heap with these carriers alone."""
        kept = bottom_up(COMMON + [name for carrier in chosen for name in CARRIERS[carrier]])
        return total - sum(costs[name] for name in set(names) - set(kept))

    for chosen in (("serial",), ("mqtt",), ("stick", "serial")):
        print(f"{with_only(*chosen):7,} with {' and '.join(chosen)} alone")
    assert costs.keys() == {"start", *names}
    assert abs(total - sum(costs.values())) <= 64
    assert with_only("stick", "serial") <= CODE_SIZE_MAX
