"""Takes out of a closed set of modules what no code in it mentions: functions, methods, imports.

A name counts as mentioned wherever any code that stays reads it, or a string that could be one, in
whatever module; a method's only where it is an attribute: it stays because another of the same
name is called, not because of a variable. So nothing that is used can go; some that is not stays.
A method that only raises NotImplementedError goes: its subclasses have it.
What a board's owner calls from a program of his own is not seen here: he names it in `keep`.

Lines stay where they are, as in `fold`.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping

from drupelet_tools.flash.nodes import parsed, walk

# The interpreter itself calls these: streams, block devices.
_CALLED_FROM_C = frozenset(
    ("readinto", "read", "readline", "write", "ioctl", "close", "readblocks", "writeblocks")
)
Definition = ast.FunctionDef | ast.ClassDef | ast.Assign
_METHOD = "."  # before the name of what was read as an attribute


def shake(texts: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """Module name -> its text without what nothing mentions; as many lines as before."""
    trees = {name: parsed(text) for name, text in texts.items()}
    live = {mark + name for name in (*keep, *_CALLED_FROM_C) for mark in ("", _METHOD)}
    waiting: list[Definition] = []
    for tree in trees.values():
        _read_body(tree.body, live, waiting)
    inner = {id(part) for tree in trees.values() for part in _parts_of_classes(tree)}
    grown = True
    while grown:
        grown = False
        for node in list(waiting):
            is_called = _METHOD * (id(node) in inner) + _name(node) in live
            if is_called and not _is_abstract(node):
                waiting.remove(node)
                grown = True
                if isinstance(node, ast.ClassDef):
                    for part in (*node.bases, *node.decorator_list):
                        live.update(_mentions(part))
                    _read_body(node.body, live, waiting)
                else:
                    live.update(_mentions(node))
    dead = set(map(id, waiting))
    return {name: _cut(text, trees[name], dead, live) for name, text in texts.items()}


def _read_body(body: list[ast.stmt], live: set[str], waiting: list[Definition]) -> None:
    """Sort what a module or a class holds: what runs at once is mentioned, the rest waits."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign) and _may_go(node):
            waiting.append(node)
        else:
            live.update(_mentions(node))


def _may_go(node: Definition) -> bool:
    if _name(node).startswith("__") and _name(node).endswith("__"):
        return False
    if isinstance(node, ast.Assign):
        # A table or number: making it has no effect but itself.
        calls = [part for part in walk(node.value) if isinstance(part, ast.Call)]
        pure = all(ast.unparse(call.func) in ("bytes", "bytearray") for call in calls)
        return pure and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    return True


def _is_abstract(node: Definition) -> bool:
    """Whether a method only says what its subclasses have."""
    return isinstance(node, ast.FunctionDef) and (
        ast.unparse(node.body[-1]) == "raise NotImplementedError" and len(node.body) <= 2
    )


def _parts_of_classes(tree: ast.Module) -> Iterator[ast.stmt]:
    """What is reached through an instance or a class, not by its name alone."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from node.body


def _name(node: Definition) -> str:
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else node.name


def _mentions(top: ast.AST) -> Iterator[str]:
    """Names that code reads; annotations and docstrings are no code."""
    queue = [top]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
            yield _METHOD + node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.isidentifier():
                yield node.value
                yield _METHOD + node.value
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.FunctionDef):
            children = [*node.decorator_list, *node.args.defaults, *node.body]
        elif isinstance(node, ast.AnnAssign):
            children = [part for part in (node.target, node.value) if part]
        queue += children


def _cut(text: str, tree: ast.Module, dead: set[int], live: set[str]) -> str:
    lines = text.splitlines(keepends=True)
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        if isinstance(node, ast.FunctionDef):
            continue  # it stays whole
        for field in ("body", "orelse", "finalbody", "handlers"):
            body = [part for part in getattr(node, field, []) if isinstance(part, ast.AST)]
            left = len(body)
            for part in body:
                if id(part) in dead or (isinstance(part, ast.ImportFrom) and _unused(part, live)):
                    left -= 1
                    # A body that is empty now needs a statement.
                    _blank(lines, part, "" if left or isinstance(node, ast.Module) else "pass")
                elif isinstance(part, ast.ImportFrom):
                    _prune(lines, part, live)
                else:
                    queue.append(part)
    return "".join(lines)


def _unused(node: ast.ImportFrom, live: set[str]) -> bool:
    return not any((alias.asname or alias.name) in live for alias in node.names)


def _prune(lines: list[str], node: ast.ImportFrom, live: set[str]) -> None:
    kept = [alias for alias in node.names if (alias.asname or alias.name) in live]
    if len(kept) < len(node.names):
        names = ", ".join(ast.unparse(alias) for alias in kept)
        _blank(lines, node, f"from {node.module} import {names}")


def _blank(lines: list[str], node: ast.AST, instead: str) -> None:
    """Replace a statement by one line, or by nothing; the count of lines stays."""
    assert isinstance(node, ast.stmt)
    first = node.lineno
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
        first = node.decorator_list[0].lineno
    last = node.end_lineno or first
    indent = " " * node.col_offset if instead else ""
    lines[first - 1 : last] = [indent + instead + "\n"] + ["\n"] * (last - first)
