"""Gives private names short ones in a closed set of modules: each different name is heap, too.

Only names that begin with one underscore and a small letter are ours alone; the modules that are
named so keep their names, and so does what stands in a string. A name that only one module uses,
or those whose classes inherit from each other, may be as short as one of another module.
Parameters that nobody names in a call are ours as well: each function has a few short names for
them.
"""

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator, Mapping

from drupelet_tools.flash.nodes import parsed, walk

_PRIVATE = re.compile(r"_[a-z][a-z0-9_]+$")
# Private names of MicroPython's own: attributes of `sys.implementation`.
_FOREIGN = ("_machine", "_mpy", "_build")
_DIGITS = "abcdefghijklmnopqrstuvwxyz"


def shorten(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Module name -> its text with short private names; and short name -> what it was (joined by
    "or" where modules have it for names of their own).

    Lines and columns before a name stay on their lines.
    """
    modules = {part for name in texts for part in name.split(".")}.union(_FOREIGN)
    names = {module: _names(text) for module, text in texts.items()}
    trees = {module: parsed(text) for module, text in texts.items()}
    families = _families(trees)
    counts: dict[str, int] = {}
    homes: dict[str, set[str]] = {}
    taken = set()
    for module, tokens in names.items():
        for token in tokens:
            if _PRIVATE.match(token.string) and token.string not in modules:
                counts[token.string] = counts.get(token.string, 0) + 1
                homes.setdefault(token.string, set()).add(families[module])
            else:
                taken.add(token.string)
    shared = {name for tree in trees.values() for name in _of_others(tree)}
    shared |= {name for name, where in homes.items() if len(where) > 1}
    ordered = sorted(counts, key=lambda name: (-counts[name], name))
    free = iter(_free_names(taken.union(counts)))
    short = {name: _shorter(next(free), name) for name in ordered if name in shared}
    # What is no other family's begins at the same name in each.
    own_names = [next(free) for _ in counts]
    for family in set(families.values()):
        own = [name for name in ordered if name not in shared and family in homes[name]]
        short |= {
            name: _shorter(short_name, name)
            for name, short_name in zip(own, own_names, strict=False)
        }
    meanings: dict[str, list[str]] = {}
    for name in sorted(short):
        meanings.setdefault(short[name], []).append(name)
    return (
        {module: _replaced(text, names[module], short) for module, text in texts.items()},
        {short_name: " or ".join(known) for short_name, known in meanings.items()},
    )


def _families(trees: Mapping[str, ast.AST]) -> dict[str, str]:
    """Module -> the first of those with which it shares objects by inheritance."""
    classes = {
        module: [node for node in walk(tree) if isinstance(node, ast.ClassDef)]
        for module, tree in trees.items()
    }
    families = {module: module for module in trees}
    for module in trees:
        for base in (base for node in classes[module] for base in node.bases):
            name = base.attr if isinstance(base, ast.Attribute) else ast.unparse(base)
            for other in trees:
                if any(node.name == name for node in classes[other]):
                    joined = {families[module], families[other]}
                    families = {
                        each: min(joined) if family in joined else family
                        for each, family in families.items()
                    }
    return families


def _of_others(tree: ast.AST) -> Iterator[str]:
    """Names of attributes that a module uses of more than its own `self`."""
    for node in walk(tree):
        if isinstance(node, ast.Attribute):
            is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not is_own:
                yield node.attr


def _free_names(taken: Collection[str]) -> Iterator[str]:
    number = 0
    while True:
        short_name = _short(number)
        if short_name not in taken:
            yield short_name
        number += 1


def _shorter(short_name: str, name: str) -> str:
    return short_name if len(short_name) < len(name) else name


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
        short_name = short.get(token.string)
        if short_name:
            row, start = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:start] + short_name + line[start + len(token.string) :]
    return "\n".join(lines)


def shorten_parameters(texts: Mapping[str, str], keep: Collection[str] = ()) -> dict[str, str]:
    """Module name -> its text with short names for parameters whose name stands for nothing else.

    MicroPython keeps the name of each parameter for calls that name it. Those in `keep` stay: a
    program outside of the set names them. Lines stay where they are.
    """
    trees = {module: parsed(text) for module, text in texts.items()}
    needed = {name for tree in trees.values() for name in _needed(tree)}.union(keep)
    return {
        module: _with_short_parameters(text, trees[module], needed)
        for module, text in texts.items()
    }


def _needed(tree: ast.AST) -> Iterator[str]:
    """Names that a module needs as they are, beside those of parameters and local variables."""
    for node in walk(tree):
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
            for name in walk(node)
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
    for function in walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        inner = [node for statement in function.body for node in walk(statement)]
        if any(isinstance(node, _SCOPES) for node in inner):
            continue
        names = [node for node in inner if isinstance(node, ast.Name)]
        taken = {node.id for node in walk(function) if isinstance(node, ast.Name)}
        taken |= {parameter.arg for parameter in function.args.args}
        number = 0
        for parameter in function.args.args:
            if parameter.arg in needed or len(parameter.arg) < len(_short(0)):
                continue
            while (short_name := _short(number)) in taken:
                number += 1
            taken.add(short_name)
            places.append((parameter.lineno, parameter.col_offset, parameter.arg, short_name))
            places += [
                (name.lineno, name.col_offset, name.id, short_name)
                for name in names
                if name.id == parameter.arg
            ]
    lines = [line.encode() for line in text.split("\n")]
    for row, start, name, short_name in sorted(places, reverse=True):
        line = lines[row - 1]
        end = start + len(name.encode())
        assert line[start:end] == name.encode()
        lines[row - 1] = line[:start] + short_name.encode() + line[end:]
    return b"\n".join(lines).decode()
