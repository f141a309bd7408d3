"""The modules of the simulator import each other one way, for types, too."""

import ast
from pathlib import Path

import drupelet_tools.sim

ROOM = Path(drupelet_tools.sim.__file__).parent
PREFIX = "drupelet_tools.sim"


def arrows(path: Path) -> set[str]:
    """The modules of the room that one of them imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == PREFIX:
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PREFIX + "."):
            found.add((node.module or "").rpartition(".")[2])
    return found


def test_there_is_no_circle() -> None:
    left = {path.stem: arrows(path) for path in ROOM.glob("*.py")}
    assert len(left) > 30 and left["world"]
    while left:
        free = {name for name, uses in left.items() if not uses & set(left)}
        assert free, f"in circles: {left}"
        left = {name: uses for name, uses in left.items() if name not in free}
