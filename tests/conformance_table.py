"""The rows of docs/conformance.md, and the functions of the files that they name."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "conformance.md"


class Row(NamedTuple):
    """One row of conformance.md."""

    numbers: list[str]
    statement: str
    where: str
    shown: str


def conformance() -> list[Row]:
    """Every row whose first cell holds numbers of statements."""
    text = PAGE.read_text("utf-8")
    found = re.findall(
        r"^\| ((?:[A-Z]\d?-[\d.]+-\d+ ?)+)\| (.+?) \| (.+?) \| (.+) \|$", text, re.M
    )
    assert len(found) == len(re.findall(r"^\| [A-Z]\d?-", text, re.M)), "a row is not in its form"
    return [Row(numbers.split(), *cells) for numbers, *cells in found]


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
