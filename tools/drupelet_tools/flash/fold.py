"""Folds the firmware's named constants into the code that uses them, before it is compiled.

mpy-cross folds `const` inside one module only: a constant that another module imports stays a
name in both, and every name is heap on a board. Here each use becomes its number and the name
goes, across all modules; lines stay where they are, so tracebacks still point at the source.
`drupelet.limits` keeps its names for whoever imports it by hand.
"""

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path

# Arithmetic that a constant's definition may use.
_ALLOWED = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Load, ast.Add, ast.Sub,
    ast.Mult, ast.FloorDiv, ast.LShift, ast.RShift, ast.BitOr, ast.BitAnd, ast.USub,
)  # fmt: skip
_KEPT = "drupelet.limits"

Constants = dict[str, dict[str, int]]


def collect(modules: Iterable[tuple[str, Path]]) -> Constants:
    """Module name -> its constants: those written `NAME = const(...)` or `NAME = OTHER`."""
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in modules}
    found: Constants = {name: {} for name in trees}
    # A constant may be made of an imported one, whose module comes later: until nothing changes.
    changed = True
    while changed:
        changed = False
        for name, tree in trees.items():
            known = visible(tree, found) | found[name]
            for target, value in _definitions(tree):
                if target not in found[name] and (number := _number(value, known)) is not None:
                    found[name][target] = number
                    known[target] = number
                    changed = True
    return found


def _definitions(tree: ast.Module) -> Iterable[tuple[str, ast.expr]]:
    assigned: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned[node.id] = assigned.get(node.id, 0) + 1
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target = node.targets[0].id
            value = node.value
            if target != target.upper() or assigned[target] != 1 or target == "TYPE_CHECKING":
                continue
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "const":
                value = value.args[0]
            yield target, value


def _number(value: ast.expr, known: Mapping[str, int]) -> int | None:
    whole = ast.Expression(value)
    for node in ast.walk(whole):
        if not isinstance(node, _ALLOWED):
            return None
        if isinstance(node, ast.Name) and node.id not in known:
            return None
        if isinstance(node, ast.Constant) and type(node.value) is not int:
            return None
    code = compile(ast.fix_missing_locations(whole), "<constant>", "eval")
    return int(eval(code, {"__builtins__": {}}, dict(known)))  # numbers and operators only


def visible(tree: ast.Module, constants: Constants) -> dict[str, int]:
    """Constants that a module imports at its top level, by the names that it uses."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in constants:
            for alias in node.names:
                if alias.name in constants[node.module]:
                    found[alias.asname or alias.name] = constants[node.module][alias.name]
    return found


def fold(name: str, text: str, constants: Constants) -> str:
    """The module's text with constants as numbers; as many lines as before."""
    if name == _KEPT:
        return text
    tree = ast.parse(text)
    numbers = visible(tree, constants) | constants[name]
    lines = _replace(text, numbers).splitlines(keepends=True)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in constants:
            kept = [alias for alias in node.names if alias.name not in constants[node.module]]
            if len(kept) < len(node.names):
                names = ", ".join(alias.name for alias in kept)
                _blank(lines, node, f"from {node.module} import {names}\n" if kept else "\n")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in constants[name] or node.targets[0].id == "__all__":
                _blank(lines, node, "\n")
        elif isinstance(node, ast.Assert):
            _blank(lines, node, "\n")  # arithmetic between constants: checked on the host
    return "".join(lines)


def _blank(lines: list[str], node: ast.stmt, text: str) -> None:
    assert node.end_lineno is not None
    lines[node.lineno - 1 : node.end_lineno] = [text] + ["\n"] * (node.end_lineno - node.lineno)


def _replace(text: str, numbers: Mapping[str, int]) -> str:
    lines = text.splitlines(keepends=True)
    before = ""
    spots = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in numbers and before != ".":
            spots.append(token)
        before = token.string
    for token in reversed(spots):
        row, start = token.start
        line = lines[row - 1]
        lines[row - 1] = line[:start] + str(numbers[token.string]) + line[token.end[1] :]
    return "".join(lines)
