"""Gives private names short ones, the same in every module of a closed set: names are heap, too.

Only names that begin with one underscore and a small letter are ours alone; the modules that are
named so keep their names, and so does what stands in a string. Parameters that nobody names in a
call are ours as well: each function has a few short names for them.
"""

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping

_PRIVATE = re.compile(r"_[a-z][a-z0-9_]+$")
# Private names of MicroPython's own: attributes of `sys.implementation`.
_FOREIGN = ("_machine", "_mpy", "_build")
_DIGITS = "abcdefghijklmnopqrstuvwxyz"


def shorten(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Module name -> its text with short private names; and short name -> what it was.

    Lines and columns before a name stay on their lines.
    """
    modules = {part for name in texts for part in name.split(".")}.union(_FOREIGN)
    names = {module: _names(text) for module, text in texts.items()}
    found: dict[str, int] = {}
    taken = set()
    for tokens in names.values():
        for token in tokens:
            if _PRIVATE.match(token.string) and token.string not in modules:
                found[token.string] = found.get(token.string, 0) + 1
            else:
                taken.add(token.string)
    short: dict[str, str] = {}
    number = 0
    for name in sorted(found, key=lambda name: (-found[name], name)):
        while (made := _short(number)) in taken or made in found:
            number += 1
        number += 1
        short[name] = made if len(made) < len(name) else name
    return (
        {module: _replaced(text, names[module], short) for module, text in texts.items()},
        {made: name for name, made in short.items()},
    )


def _short(number: int) -> str:
    if number < len(_DIGITS):
        return "_" + _DIGITS[number]
    return "_" + _DIGITS[number // len(_DIGITS) - 1] + _DIGITS[number % len(_DIGITS)]


def _names(text: str) -> list[tokenize.TokenInfo]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token for token in tokens if token.type == tokenize.NAME]


def _replaced(text: str, names: list[tokenize.TokenInfo], short: Mapping[str, str]) -> str:
    lines = text.split("\n")
    for token in reversed(names):
        made = short.get(token.string)
        if made:
            row, start = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:start] + made + line[start + len(token.string) :]
    return "\n".join(lines)


def shorten_parameters(texts: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """Module name -> its text with short names for parameters whose name stands for nothing else.

    MicroPython keeps the name of each parameter for calls that name it. Those in `keep` stay: a
    program outside of the set names them. Lines stay where they are.
    """
    trees = {module: ast.parse(text) for module, text in texts.items()}
    needed = {name for tree in trees.values() for name in _needed(tree)}.union(keep)
    return {
        module: _with_short_parameters(text, trees[module], needed)
        for module, text in texts.items()
    }


def _needed(tree: ast.AST) -> Iterator[str]:
    """Names that a module needs as they are, beside those of parameters and local variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
            yield node.asname or node.name
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    for node in ast.iter_child_nodes(tree):
        yield from (
            name.id
            for name in ast.walk(node)
            if isinstance(name, ast.Name)
            and isinstance(name.ctx, ast.Store)
            and not isinstance(node, ast.FunctionDef)
        )


# What sees its own names, or makes names of a text: such a function keeps its parameters.
_SCOPES = (
    ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
    ast.JoinedStr, ast.Global, ast.Nonlocal,
)  # fmt: skip


def _with_short_parameters(text: str, tree: ast.AST, needed: set[str]) -> str:
    places: list[tuple[int, int, str, str]] = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        inner = [node for statement in function.body for node in ast.walk(statement)]
        if any(isinstance(node, _SCOPES) for node in inner):
            continue
        names = [node for node in inner if isinstance(node, ast.Name)]
        taken = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        taken |= {parameter.arg for parameter in function.args.args}
        number = 0
        for parameter in function.args.args:
            if parameter.arg in needed or len(parameter.arg) < len(_short(0)):
                continue
            while (made := _short(number)) in taken:
                number += 1
            taken.add(made)
            places.append((parameter.lineno, parameter.col_offset, parameter.arg, made))
            places += [
                (name.lineno, name.col_offset, name.id, made)
                for name in names
                if name.id == parameter.arg
            ]
    lines = [line.encode() for line in text.split("\n")]
    for row, start, name, made in sorted(places, reverse=True):
        line = lines[row - 1]
        end = start + len(name.encode())
        assert line[start:end] == name.encode()
        lines[row - 1] = line[:start] + made.encode() + line[end:]
    return b"\n".join(lines).decode()
