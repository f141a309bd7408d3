"""The man page drupelet(1), made from what `--help` says.

`drupelet man > docs/drupelet.1` writes the page that the wheel installs; a test compares the two.
"""

from typing import Any

import typer

import drupelet
from drupelet_host.cli import command_tree, exit_codes

_FILES = (
    ("~/.local/state/drupelet", "the home, unless --home or XDG_STATE_HOME says otherwise"),
    ("drupelet.toml", "in the home: the configuration; see docs/configuration.md"),
    ("keys/", "in the home: keys, for the owner only"),
)


def render(app: typer.Typer) -> str:
    """The whole page in the man(7) macros."""
    pages = list(_pages(app))
    lines = [
        '.\\" Made by `drupelet man` from the help of the commands; change it there.',
        f'.TH DRUPELET 1 "" "drupelet {drupelet.__version__}" "User Commands"',
        ".SH NAME",
        "drupelet \\- data sync for devices that are mostly asleep and mostly offline",
        ".SH SYNOPSIS",
        ".B drupelet",
        "[\\fIOPTION\\fR] \\fICOMMAND\\fR [\\fIARGUMENT\\fR]...",
        ".SH DESCRIPTION",
        "Each command prints its own help with \\fB\\-\\-help\\fR. With \\fB\\-\\-json\\fR it",
        "prints the same facts for programs.",
        ".SH COMMANDS",
        *pages,
        ".SH EXIT STATUS",
    ]
    for status, text in exit_codes.table():
        lines += [".TP", f".B {status}", _escaped(text.replace("`", ""))]
    lines.append(".SH FILES")
    for name, text in _FILES:
        lines += [".TP", f".I {_escaped(name)}", _escaped(text)]
    return "\n".join(lines) + "\n"


def _pages(app: typer.Typer) -> list[str]:
    lines: list[str] = []
    for words, command, context in command_tree.walk(app):
        if words == command_tree.PROGRAM:
            continue
        pieces = [_escaped(piece) for piece in command.collect_usage_pieces(context)]
        lines += [f'.SS "{_escaped(words)}"', f".B {_escaped(words)}", *pieces]
        for paragraph in _paragraphs(command.help or ""):
            lines += [".PP", _escaped(paragraph)]
        for option in command.get_params(context):
            record = option.get_help_record(context)
            if record is not None and record[0] != "--help":
                lines += [".TP", f".B {_escaped(record[0])}", _escaped(_one_line(record[1]))]
    return lines


def _paragraphs(text: str) -> list[str]:
    return [_one_line(part) for part in text.split("\n\n") if part.strip()]


def _one_line(text: Any) -> str:  # noqa: ANN401 - typer's help may be None
    return " ".join(str(text or "").split())


def _escaped(text: str) -> str:
    """As troff reads it: no escape, no accidental request, dashes that can be copied."""
    line = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq").replace("…", "...")
    line = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in line)
    return f"\\&{line}" if line[:1] in (".", "'") else line
