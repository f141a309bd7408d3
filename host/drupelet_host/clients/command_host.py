"""The host's end of the command channel: sends commands, finds the answers."""

from dataclasses import dataclass

from drupelet.base.errors import CapacityError, check
from drupelet.base.hkdf import hkdf
from drupelet.clients.command import (
    ANSWER,
    COMMAND,
    FAILED,
    FLUSH,
    REPORT,
    SET_EPOCH,
    SLEEP,
    Command,
    CommandClient,
    put_command,
)
from drupelet.clients.default import Author
from drupelet.node import Node

OPERATION_NAMES = {"epoch": SET_EPOCH, "sleep": SLEEP, "flush": FLUSH, "report": REPORT}
KEY_SIZE = 32


def command_key(root: bytes, board: bytes) -> bytes:
    """The command key of a board, from a root secret of its owner."""
    return hkdf(root, b"", b"drupelet command key" + board, KEY_SIZE)


@dataclass(frozen=True)
class SentCommand:
    """One command and what became of it; `result` None: not answered, -1: the board could not."""

    counter: int
    board: bytes
    operation: str
    argument: int
    result: int | None


class CommandHost:
    """Commands of one owner to any number of boards, in one group."""

    def __init__(self, node: Node, group: int, client: CommandClient) -> None:
        self._node = node
        self._group = group
        self._client = client
        self._author = Author(node, group)
        self._author.recover()

    def send(
        self, board: bytes, operation: str, argument: int, timestamp: bytes, now_ms: int
    ) -> int:
        """Publish a command; its counter. Raises CapacityError, also for an unknown board.

        Counters are at least the second of the timestamp, so they grow over a loss of our log.
        """
        if board not in self._client.keys:
            raise CapacityError(f"{board.hex()}: there is no command key for it")
        last = max((one.counter for one in self.sent() if one.board == board), default=0)
        counter = max(last + 1, int.from_bytes(timestamp) // 1000) & 0xFFFFFFFF
        at = self._author.head()
        size = put_command(
            self._author.body, at, COMMAND, board, counter.to_bytes(4),
            OPERATION_NAMES[operation], argument, self._client.keys[board],
        )  # fmt: skip
        handle = self._node.publish(self._group, self._author.body, size, timestamp, now_ms)
        check(handle, "no room for another command")
        self._author.published(handle)
        return counter

    def saw(self, handle: int) -> None:
        """An event of the group: what we write next comes after it."""
        self._author.saw(handle)

    def sent(self) -> list[SentCommand]:
        """All commands in the log, with their answers."""
        commands: list[Command] = []
        handle = self._node.store.next(0)
        while handle > 0:
            command = self._client.read(self._node, self._group, handle)
            if command is not None:
                commands.append(command)
            handle = self._node.store.next(handle)
        return answered(commands)


def answered(commands: list[Command]) -> list[SentCommand]:
    """The commands among these payloads in their order, each with its answer."""
    answers = {
        (command.board, command.counter): -1 if command.value == FAILED else command.value
        for command in commands
        if command.kind == ANSWER
    }
    names = {number: name for name, number in OPERATION_NAMES.items()}
    return [
        SentCommand(
            int.from_bytes(command.counter), command.board,
            names.get(command.operation, "?"), command.value,
            answers.get((command.board, command.counter)),
        )
        for command in commands
        if command.kind == COMMAND
    ]  # fmt: skip
