"""All commands of the program with their help, as the pages that are made from it need them."""

from collections.abc import Iterator
from typing import Any

import typer

PROGRAM = "drupelet"
# Pages are the same bytes whatever the terminal.
WIDTH = 80


def walk(app: typer.Typer) -> Iterator[tuple[str, Any, Any]]:
    """Each command as (all its words, command, context), a group before what is in it.

    The context is open as long as the caller looks at it.
    """
    command = typer.main.get_command(app)
    with command.make_context(
        PROGRAM, [], resilient_parsing=True, terminal_width=WIDTH
    ) as context:
        yield from _walk(PROGRAM, command, context)


def _walk(words: str, command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401
    yield words, command, context
    if not hasattr(command, "list_commands"):
        return
    for verb in command.list_commands(context):
        child = command.get_command(context, verb)
        with child.make_context(verb, [], parent=context, resilient_parsing=True) as inner:
            yield from _walk(f"{words} {verb}", child, inner)
