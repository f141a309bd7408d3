"""Folds the firmware's named constants into the code that uses them, before it is compiled.

mpy-cross folds `const` inside one module only: a constant that another module imports stays a
name in both, and every name is heap on a board. Here each use becomes its number and the name
goes, across all modules, and so does what only the type checker reads; lines stay where they are,
so tracebacks still point at the source. `drupelet.base.limits` keeps its names for whoever imports
it by hand.

A use that cannot be folded would find no name on the board: it is refused with a BuildError.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.nodes import walk

# Arithmetic that a constant's definition may use.
_ALLOWED = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Load, ast.Add, ast.Sub,
    ast.Mult, ast.FloorDiv, ast.LShift, ast.RShift, ast.BitOr, ast.BitAnd, ast.USub,
)  # fmt: skip
_KEPT = "drupelet.base.limits"
_TYPES_ONLY = "TYPE_CHECKING"

Constants = dict[str, dict[str, int]]


def collect(
    modules: Iterable[tuple[str, Path]], others: Mapping[str, dict[str, int]] | None = None
) -> Constants:
    """Module name -> its constants: those written `NAME = const(...)` or `NAME = OTHER`.

    others: those of modules that the given ones may import, which the result has, too.
    """
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in modules}
    definitions = {name: list(_definitions(tree)) for name, tree in trees.items()}
    constants: Constants = {**(others or {}), **{name: {} for name in trees}}
    # A constant may be made of an imported one, whose module comes later: until nothing changes.
    changed = True
    while changed:
        changed = False
        for name, tree in trees.items():
            known = visible(tree, constants) | constants[name]
            for target, value in definitions[name]:
                if target not in constants[name] and (number := _number(value, known)) is not None:
                    constants[name][target] = number
                    known[target] = number
                    changed = True
    return constants


def _definitions(tree: ast.Module) -> Iterable[tuple[str, ast.expr]]:
    """Each NAME that is bound once in the whole module, at its top level, and its value."""
    bound: dict[str, int] = {}
    for node in walk(tree):
        for name in _bindings(node):
            bound[name] = bound.get(name, 0) + 1
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target = node.targets[0].id
            value = node.value
            if target != target.upper() or bound[target] != 1 or target == _TYPES_ONLY:
                continue
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "const":
                value = value.args[0]
            yield target, value


def _bindings(node: ast.AST) -> Iterator[str]:
    """Names that this one node gives a value to or declares, imports apart."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


def _number(value: ast.expr, known: Mapping[str, int]) -> int | None:
    whole = ast.Expression(value)
    for node in walk(whole):
        if not isinstance(node, _ALLOWED):
            return None
        if isinstance(node, ast.Name) and node.id not in known:
            return None
        if isinstance(node, ast.Constant) and type(node.value) is not int:
            return None
    code = compile(ast.fix_missing_locations(whole), "<constant>", "eval")
    # The expression holds only numbers and the operators of _ALLOWED, and no calls.
    return int(eval(code, {"__builtins__": {}}, dict(known)))  # noqa: S307


def visible(tree: ast.Module, constants: Constants) -> dict[str, int]:
    """Constants that a module imports at its top level, by the names that it uses."""
    visible_constants = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in constants:
            for alias in node.names:
                if alias.name in constants[node.module]:
                    visible_constants[alias.asname or alias.name] = constants[node.module][
                        alias.name
                    ]
    return visible_constants


def fold(name: str, text: str, constants: Constants) -> str:
    """The module's text with constants as numbers; as many lines as before. Raises BuildError."""
    if name == _KEPT:
        return text
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    _drop_types(tree, lines)
    nodes = walk(tree)
    imported = visible(tree, constants)
    _Refusal(name, constants, imported).look(tree, nodes)
    numbers = imported | constants[name]
    if "const" not in numbers and not _const_stays(tree, nodes, constants[name]):
        constants = {**constants, "drupelet.base.compat": {"const": 0}}
    _replace(nodes, lines, numbers)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in constants:
            kept = [alias for alias in node.names if alias.name not in constants[node.module]]
            if len(kept) < len(node.names):
                names = ", ".join(ast.unparse(alias) for alias in kept)
                _blank(lines, node, f"from {node.module} import {names}\n" if kept else "\n")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in (*constants[name], "__all__", _TYPES_ONLY):
                _blank(lines, node, "\n")
        elif isinstance(node, ast.Assert):
            _blank(lines, node, "\n")  # arithmetic between constants: checked on the host
    return "".join(lines)


def _drop_types(tree: ast.Module, lines: list[str]) -> None:
    """Take out what stands below `if TYPE_CHECKING:`; an `else` of it stays."""
    for node in list(tree.body):
        if isinstance(node, ast.If) and ast.unparse(node.test) == _TYPES_ONLY:
            if node.orelse:
                last = node.body[-1].end_lineno
                assert last is not None
                first = node.lineno
                lines[first - 1 : last] = ["if 0:\n", "    pass\n"] + ["\n"] * (last - first - 1)
                node.test, node.body = ast.Constant(0), []
            else:
                _blank(lines, node, "\n")
                tree.body.remove(node)


def _const_stays(tree: ast.Module, nodes: list[ast.AST], folded: Mapping[str, int]) -> bool:
    """Return whether `const` is still called once the folded definitions are gone."""
    rest = [
        node
        for node in tree.body
        if not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in folded)
    ]
    return any(
        isinstance(node, ast.Name) and node.id == "const" for top in rest for node in walk(top)
    ) or any("const" in _bindings(node) for node in nodes)


class _Refusal:
    """Finds the uses of a folded constant that would still look for its name on the board."""

    def __init__(self, name: str, constants: Constants, imported: Mapping[str, int]) -> None:
        self._name = name
        self._constants = {m: names for m, names in constants.items() if m != _KEPT}
        self._imported = imported
        self._own = constants[name]
        self._modules: dict[str, str] = {}  # local name -> module

    def _refuse(self, node: ast.AST, why: str) -> None:
        line = getattr(node, "lineno", 0)
        raise BuildError(f"{self._name}, line {line}: {why}")

    def look(self, tree: ast.Module, nodes: list[ast.AST]) -> None:
        """Learn what names stand for modules, then look at everything."""
        for inner in nodes:
            if isinstance(inner, ast.Import):
                for alias in inner.names:
                    if alias.asname:
                        self._modules[alias.asname] = alias.name
                    else:
                        self._modules.update({p: p for p in _prefixes(alias.name)})
            elif isinstance(inner, ast.ImportFrom):
                self._look_at_import(inner, inner in tree.body)
            for name in _bindings(inner):
                if name in self._imported:
                    self._refuse(
                        inner, f"{name} hides the imported constant; give it another name"
                    )
        for inner in nodes:
            if isinstance(inner, ast.Attribute):
                self._look_at_attribute(inner)
            elif isinstance(inner, ast.JoinedStr):
                self._look_at_string(inner)

    def _look_at_import(self, node: ast.ImportFrom, at_top: bool) -> None:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            if whole in self._constants:
                self._modules[alias.asname or alias.name] = whole
            folded = self._constants.get(node.module or "", {})
            if alias.name == "*" and folded:
                self._refuse(node, f"import the constants of {node.module} by name")
            if alias.name in folded and not at_top:
                self._refuse(node, f"import {alias.name} at the top level: it is folded")

    def _look_at_attribute(self, node: ast.Attribute) -> None:
        """`module.CONSTANT` finds nothing: the module has no such name on a board."""
        if not isinstance(node.value, ast.Name | ast.Attribute):
            return
        module = self._modules.get(ast.unparse(node.value), "")
        if node.attr in self._constants.get(module, {}):
            self._refuse(node, f"write `from {module} import {node.attr}`: it is folded")

    def _look_at_string(self, node: ast.JoinedStr) -> None:
        """Strings stay as they are, so an f-string cannot hold a constant."""
        for inner in walk(node):
            if isinstance(inner, ast.Name) and inner.id in {*self._imported, *self._own}:
                self._refuse(node, f"{inner.id} in an f-string is not folded; use %")


def _prefixes(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _blank(lines: list[str], node: ast.stmt, text: str) -> None:
    assert node.end_lineno is not None
    lines[node.lineno - 1 : node.end_lineno] = [text] + ["\n"] * (node.end_lineno - node.lineno)


def _replace(nodes: list[ast.AST], lines: list[str], numbers: Mapping[str, int]) -> None:
    spots = [
        node
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in numbers
    ]
    for node in sorted(spots, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1].encode()  # columns are counted in bytes
        number = numbers[node.id]
        shown = f"({number})" if number < 0 else str(number)
        end = node.end_col_offset
        assert end is not None
        folded = line[: node.col_offset] + shown.encode() + line[end:]
        lines[node.lineno - 1] = folded.decode()
