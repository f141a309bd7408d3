"""docs/field-guide.md section 6: programs print what it quotes, and what it names is there.

A row's first cell quotes messages in code: each is a text of the source, where `…` stands for what
the program fills in. Its last two cells name commands with options that docs/cli.md has.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from command_pages import help_texts, unknown_options

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("firmware", "host", "tools", "transports")
HEAD = ("You see", "It means", "Look with", "Remedy")
# A shorter quote, such as a column of a table, has to be a whole text of the source.
PART_CHARACTERS_MIN = 12
_FORMAT = re.compile(r"%[-0-9.]*[a-z]")


def table_rows() -> list[tuple[str, ...]]:
    """The cells of each row of the section's tables."""
    page = (ROOT / "docs" / "field-guide.md").read_text("utf-8")
    section = page[page.index("\n## 6 ") :]
    lines = re.findall(r"^\| (.+) \|$", section, re.M)
    return [cells for line in lines if (cells := tuple(line.split(" | "))) != HEAD]


def quotes() -> list[str]:
    """The messages that people see, as the section quotes them."""
    return [quote for row in table_rows() for quote in re.findall(r"`([^`]+)`", row[0])]


def _texts(tree: ast.AST) -> Iterator[str]:
    """Each text of a module; what an f-string or a % fills in is `…`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield _FORMAT.sub("…", node.value)


@cache
def texts_of_the_source() -> frozenset[str]:
    """All texts of our programs."""
    paths = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    return frozenset(text for path in paths for text in _texts(ast.parse(path.read_text("utf-8"))))


def is_in_the_source(quote: str) -> bool:
    """Whether a program prints it."""
    parts = [part for part in quote.split("…") if part]
    if sum(map(len, parts)) < PART_CHARACTERS_MIN:
        return quote in texts_of_the_source()
    wanted = re.compile(".*".join(map(re.escape, parts)), re.S)
    return any(wanted.search(text) for text in texts_of_the_source())


def test_every_row_has_its_four_cells_and_they_say_something() -> None:
    rows = table_rows()
    assert len(rows) > 60
    for row in rows:
        assert len(row) == len(HEAD) and all(len(cell) > 3 for cell in row), row


def test_every_quoted_message_is_a_text_of_the_source() -> None:
    assert len(quotes()) > 60
    missing = [quote for quote in quotes() if not is_in_the_source(quote)]
    assert not missing, "no program prints " + "; ".join(missing)


@pytest.mark.parametrize(
    "quote",
    [
        "…: no stick here; plug it in, or check where it is mounted",
        "the stick is gone, read-only or full",
        "owing",
        "…: another agent uses this home…",
    ],
)
def test_a_message_that_nobody_prints_is_noticed(quote: str) -> None:
    assert not is_in_the_source(quote)


def test_every_command_that_a_row_names_has_its_options() -> None:
    texts = help_texts()
    count = 0
    for row in table_rows():
        for command in re.findall(r"`drupelet ([^`]+)`", " ".join(row[1:])):
            words = shlex.split(command)
            assert words[0] in texts, f"there is no `drupelet {command}`"
            assert unknown_options(words, texts) <= {"--help"}, command
            count += 1
    assert count > 60
