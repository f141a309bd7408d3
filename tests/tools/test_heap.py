"""What each module costs a board: `pytest -s tests/tools/test_heap.py` prints the table."""

import ast
import json
import os
import shutil
import subprocess
from pathlib import Path

from drupelet_tools.flash import rom, sets
from drupelet_tools.flash.build import build, micropython_command
from drupelet_tools.flash.flatten import JOINED, TRACE
from drupelet_tools.flash.sets import Choice, build_set, count_lines

SCRIPT = Path(__file__).with_name("heap_by_module.py")
CARRIERS = {
    "serial": ["drupelet_transports.board.terminal", "drupelet_transports.board.stream"],
    "mqtt": ["drupelet_transports.board.mqtt_board"],
    "stick": ["boards.stick", "drupelet_transports.stick.stick"],
}
COMMON = ["boards.device", "boards.unix.sensors", "drupelet.node"]
COMMON += [
    "drupelet.clients.default",
    "drupelet.store.flash_store",
    "drupelet.telemetry.black_box",
]
COMMON += ["boards.files", "boards.base", "boards.unix.port", "boards.start", "drupelet.wire.bsp1"]
# Of each set its first choice, and the dearest carrier; "" is the set's own.
SETS = (
    ("micro", "", ""),
    ("small", "bsp-1", "serial"),
    ("small", "bsp-1", "stick"),
    ("full", "", ""),
)


def needs() -> dict[str, list[str]]:
    """Each module of the firmware -> what it imports at its top once it is folded."""
    folded = sets.texts_of_port("unix")
    machine_code: set[str] = set()
    return {
        name: [other for other in sets.imports_on_board(ast.parse(text).body, folded, machine_code)
               if other in folded and other != name]
        for name, text in folded.items()
    }  # fmt: skip


def bottom_up(wanted: list[str]) -> list[str]:
    """The modules that `wanted` need and themselves, each after what it imports."""
    graph = needs()
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for other in graph[name]:
                visit(other)
            order.append(name)

    for name in wanted:
        visit(name)
    return order


def costs_of(
    names: list[str], heap_size: int, folder: Path, image: Path | None = None
) -> dict[str, int]:
    """Module, or "all" -> bytes that it keeps, from .mpy files or in place from an image."""
    # The heap holds each module's path: from inside of the folder it is as short as on a board.
    shutil.copy(SCRIPT, folder)
    shutil.copy(rom.LAUNCHER, folder)
    done = subprocess.run(
        [*micropython_command("x86"), "-X", f"heapsize={heap_size}", "-m", SCRIPT.stem,
         image.name if image else "", ".", *names],
        env=os.environ | {"MICROPYPATH": "."}, cwd=folder,
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_what_each_module_costs(tmp_path: Path) -> None:
    build(tmp_path, "x86")
    carriers = [name for names in CARRIERS.values() for name in names]
    names = bottom_up([*COMMON, *carriers])
    costs = costs_of(names, 512 * 1024, tmp_path)
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
    assert total <= sets.table()["sets"]["full"]["code_heap_max"]


def in_order(texts: dict[str, str]) -> list[str]:
    """The modules of a set, each after what it imports; the one that starts the board is out."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in texts and name not in order and not name.endswith((".main", ".start")):
            for other in sets.imports_on_board(ast.parse(texts[name]).body, texts, set()):
                if other != name:
                    visit(other)
            order.append(name)

    for name in texts:
        visit(name)
    return order


def unjoined(target: Path, names: list[str]) -> list[str]:
    """What a board loads instead of these modules: the one that some of them were joined into."""
    trace = target / TRACE
    sources = json.loads(trace.read_text("utf-8"))["sources"] if trace.is_file() else []
    joined = {path.removesuffix(".py").replace("/", ".") for _first, path in sources}
    return [JOINED] * bool(joined) + [name for name in names if name not in joined]


def test_what_each_set_costs(tmp_path: Path) -> None:
    """Code on 32 bits, beside the heap that the set is for (sets.toml)."""
    print(f"\n{'set':34}{'modules':>8}{'lines':>7}{'.mpy B':>9}{'heap B':>9}{'of':>9}{'left':>9}")
    for name, profile, carrier in SETS:
        choice = Choice(name, (profile,) if profile else (), (carrier,) if carrier else ())
        built = build_set(tmp_path, "x86", choice)
        row = sets.table()["sets"][name]
        # One after the other is there at boot: the largest counts.
        leaves = [name for name in row.get("leaves", ()) if name in built.texts]
        leaves.sort(key=lambda name: count_lines(built.texts[name]))
        names = [name for name in in_order(built.texts) if name not in leaves[:-1]]
        label = " ".join(part for part in (name, profile, carrier) if part)
        runs = [(label, row["heap_size"], row["code_heap_max"], None)]
        if "in_place_heap_size" in row:
            in_place = tmp_path / "in_place"
            build_set(in_place, "x86", choice, in_place=True)
            place = f"{label} in place"
            image = rom.write(in_place)
            runs.append((place, row["in_place_heap_size"], row["in_place_heap_max"], image))
        for label, size, heap_max, image in runs:
            folder = image.parent if image else tmp_path
            heap = costs_of(unjoined(folder, names), size, folder, image)["all"]
            print(
                f"{label:34}{len(built.texts):8,}{built.code_lines:7,}{built.size:9,}{heap:9,}"
                f"{size:9,}{size - heap:9,}"
            )
            assert heap <= heap_max, label
