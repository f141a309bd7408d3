"""The commands to boards that are in a home's log, and what became of them."""

from typing import Annotated, TypedDict

from msgspec import Meta

from drupelet.clients.command import COMMAND_SIZE, Command
from drupelet_host.clients.command_host import answered
from drupelet_host.view.log_view import LogView


class SentCommand(TypedDict):
    """A command to a board."""

    counter: Annotated[int, Meta(description="number of the command")]
    board: Annotated[str, Meta(description="name of the board, else its id")]
    operation: Annotated[str, Meta(description="what it is to do")]
    value: Annotated[int, Meta(description="of epoch and sleep in ms; else 0")]
    result: Annotated[int | None, Meta(description="the board's answer; null: none yet")]


def sent_commands(view: LogView) -> list[SentCommand]:
    """The commands in a home's log and what became of them, whether or not an agent runs."""
    names = view.config.names()
    messages = [
        Command(entry.payload)
        for entry in view.entries("commands")
        if len(entry.payload) == COMMAND_SIZE
    ]
    return [
        {
            "counter": answer.counter,
            "board": names.get(answer.board.hex(), answer.board.hex()),
            "operation": answer.operation,
            "value": answer.argument,
            "result": answer.result,
        }
        for answer in answered(messages)
    ]
