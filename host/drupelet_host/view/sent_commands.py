"""The commands to boards that are in a home's log, and what became of them."""

from typing import Any

from drupelet.clients.command import COMMAND_SIZE, Command
from drupelet_host.clients.command_host import answered
from drupelet_host.view.log_view import LogView


def commands_told(view: LogView) -> list[dict[str, Any]]:
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
