"""Gives private names short ones, the same in every module of a closed set: names are heap, too.

Only names that begin with one underscore and a small letter are ours alone; the modules that are
named so keep their names, and so does what stands in a string.
"""

import io
import re
import tokenize
from collections.abc import Mapping

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
