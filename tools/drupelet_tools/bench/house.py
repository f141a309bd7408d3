"""A package that is divided into rooms: which module imports which, and who may not.

A room is a folder of the package, or a single module. A module of a room imports its own room and
those named for it, nothing else, also not for types and not inside of a function.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path


@dataclass(frozen=True)
class House:
    """A package and its table of rooms.

    may_import: a room -> the rooms that its modules may import beside their own.
    doors: of a room, the only modules that others may import; all of a room that is not named.
    """

    package: str
    root: Path
    may_import: Mapping[str, set[str]]
    doors: Mapping[str, set[str]] = field(default_factory=dict)

    def modules(self) -> dict[str, Path]:
        """Every module by its dotted name; of a package its __init__.py."""
        return {
            ".".join(
                (self.package, *path.relative_to(self.root).with_suffix("").parts)
            ).removesuffix(".__init__"): path
            for path in self.root.rglob("*.py")
        }

    def room_of(self, module: str) -> str:
        """The room of a module; "" of the package itself."""
        return module.removeprefix(self.package).lstrip(".").partition(".")[0]

    def imports(self, late: bool | None = None, types: bool = True) -> dict[str, set[str]]:
        """Module -> modules of the package that it imports.

        late: True: only inside of functions, False: only outside of them, None: both. types: also
        what is imported for the type checker alone.
        """
        known = self.modules()
        arrows: dict[str, set[str]] = {}
        for name, path in known.items():
            arrows[name] = set()
            for node, is_late, is_type in _import_statements(path.read_text("utf-8")):
                if (late is None or late == is_late) and (types or not is_type):
                    arrows[name] |= set(_imported(node, known)) - {name, self.package}
        return arrows

    def strangers(self) -> list[str]:
        """Imports from a room that is not named for the importing one."""
        problems = []
        for module, targets in self.imports().items():
            room = self.room_of(module)
            for target in sorted(targets):
                other = self.room_of(target)
                if other in ("", room) or not room:
                    continue
                if other not in self.may_import.get(room, ()):
                    problems.append(f"{module} imports {target}: {room} may not import {other}")
                elif target not in self.doors.get(other, {target}):
                    problems.append(f"{module} imports {target}: it is no door of {other}")
        return problems

    def idle(self) -> list[str]:
        """Arrows of the table that no import needs."""
        needed = {
            (self.room_of(module), self.room_of(target))
            for module, targets in self.imports().items()
            for target in targets
        }
        return [
            f"{room} may import {other}, and does not"
            for room, others in self.may_import.items()
            for other in sorted(others)
            if (room, other) not in needed
        ]

    def check_circles(self) -> None:
        """Raise graphlib.CycleError, which names the modules of a circle, if there is one."""
        TopologicalSorter(self.imports()).prepare()


@cache
def _import_statements(text: str) -> list[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """The imports of a module; of each, whether it is inside of a function, and for types only."""
    statements = []
    queue: list[tuple[ast.AST, bool, bool]] = [(ast.parse(text), False, False)]
    while queue:
        node, is_late, is_type = queue.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            statements.append((node, is_late, is_type))
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            queue += [(child, is_late, True) for child in node.body]
            queue += [(child, is_late, is_type) for child in node.orelse]
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case | ast.Module):
            is_late = is_late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            queue += [(child, is_late, is_type) for child in ast.iter_child_nodes(node)]
    return statements


def _imported(node: ast.Import | ast.ImportFrom, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of the package that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    else:
        for alias in node.names:
            names = (f"{node.module}.{alias.name}", str(node.module))
            yield from [name for name in names if name in known][:1]
