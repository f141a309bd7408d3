"""The command channel: a host sends commands to a board, and the board answers that it did them.

    payload: kind u8, board's id [4], counter u32, operation u8, value u32, tag [16]; big-endian

Kind is COMMAND, with an argument as value, or ANSWER, with the result (docs/SPEC.md 15.8). The tag
is the first half of the HMAC-SHA256 of everything before it, under the board's command key: what
was made without the key enters no log. A counter that is not above the last answered one is
refused: an old command never runs again.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.hmac256 import hmac
from drupelet.base.limits import ID_SIZE
from drupelet.engine.body import INVALID, SHARE, DefaultClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.clients.default import Author
    from drupelet.engine.body import BodyReader
    from drupelet.node import Node

# Random, made once (BSP v1 2.1).
COMMANDS_CLIENT_ID = bytes.fromhex(
    "4b0a7d93e51c2f68a9d4370be8f51c6a02bd97e4338c5fa1d06e72b94fa8135c"
)
COMMAND = const(0x43)
ANSWER = const(0x41)
# Operations.
SET_EPOCH = const(0)  # value: ms
SLEEP = const(1)  # value: ms
FLUSH = const(2)  # publish the black box as far as it is written
REPORT = const(3)  # the answer has what the board wants to report, e.g. mV
OPERATIONS = const(4)
# Value of an answer to a command that failed.
FAILED = const(0xFFFFFFFF)

COMMAND_SIZE = const(30)
_BOARD_AT = const(1)
_COUNTER_AT = const(5)
_OPERATION_AT = const(9)
_VALUE_AT = const(10)
_TAG_AT = const(14)


def put_command(
    out: bytearray, at: int, kind: int, board: "bytes | bytearray", counter: "bytes | bytearray",
    operation: int, value: int, key: bytes,
) -> int:  # fmt: skip
    """Write a payload; return the offset after it. `counter`: 4 bytes."""
    head = bytes((kind,)) + board + counter + bytes((operation,)) + value.to_bytes(4, "big")
    out[at : at + _TAG_AT] = head
    out[at + _TAG_AT : at + COMMAND_SIZE] = hmac(key, head)[: COMMAND_SIZE - _TAG_AT]
    return at + COMMAND_SIZE


class Command:
    """A payload that was read."""

    def __init__(self, payload: "bytes | bytearray") -> None:
        self.kind = payload[0]
        self.board = bytes(payload[_BOARD_AT:_COUNTER_AT])
        self.counter = bytes(payload[_COUNTER_AT:_OPERATION_AT])
        self.operation = payload[_OPERATION_AT]
        self.value = int.from_bytes(payload[_VALUE_AT:_TAG_AT], "big")


class CommandClient(DefaultClient):
    """The client of a group of commands; `keys`: from a board's id to its command key of 32 bytes.

    A board has its own key only: it passes on what is for others unchecked; their hosts check it.
    """

    def __init__(self, keys: "dict[bytes, bytes]") -> None:
        DefaultClient.__init__(self)
        self.keys = keys
        self.refused = 0
        self._payload = bytearray(COMMAND_SIZE)

    def validate(self, reader: "BodyReader") -> int:
        """Return SHARE, or INVALID for a payload that no holder of the key made."""
        payload = self._payload
        at = 1 + self.dependencies(reader) * ID_SIZE
        whole = reader.size == at + COMMAND_SIZE
        if whole and reader.read_into(at, payload, 0, COMMAND_SIZE) == COMMAND_SIZE:
            key = self.keys.get(bytes(payload[_BOARD_AT:_COUNTER_AT]))
            if payload[0] in (COMMAND, ANSWER) and (key is None or self._is_from(key)):
                return SHARE
        self.refused += 1
        return INVALID

    def _is_from(self, key: bytes) -> bool:
        """Return True if the tag is right; takes the same time if it is wrong."""
        tag = hmac(key, bytes(self._payload[:_TAG_AT]))
        difference = 0
        for row in range(COMMAND_SIZE - _TAG_AT):
            difference |= tag[row] ^ self._payload[_TAG_AT + row]
        return difference == 0

    def read(self, node: "Node", group: int, handle: int) -> "Command | None":
        """Return the command in a message of this group's log; None: deleted, or another group."""
        reader = node.open_body(group, handle)
        if reader is None:
            return None
        at = 1 + self.dependencies(reader) * ID_SIZE
        if reader.read_into(at, self._payload, 0, COMMAND_SIZE) != COMMAND_SIZE:
            return None
        return Command(self._payload)


class CommandBoard:
    """Executes the commands for one board, and answers them.

    `actions`: OPERATIONS functions in the order of the operations, which take the value and return
    the value of the answer (0 to 2^32 - 1) or a negative code. They must return: a sleep is only
    planned. After a power cut between an action and its answer, the action is repeated.
    """

    def __init__(
        self, client: CommandClient, id: bytes, actions: "list[Callable[[int], int]]"
    ) -> None:
        assert len(actions) == OPERATIONS and id in client.keys
        self._client = client
        self._id = id
        self._actions = actions
        self._last = bytes(4)
        self.done = 0
        self.replayed = 0

    def recover(self, node: "Node", group: int) -> None:
        """Find the last answered counter in the log; call it after `Node.boot`."""
        handle = 0
        while (handle := node.store.next(handle)) > 0:
            command = self._client.read(node, group, handle)
            if command is not None and command.kind == ANSWER and command.board == self._id:
                self._last = max(self._last, command.counter)

    def take(
        self, node: "Node", group: int, handle: int, author: "Author",
        timestamp: "bytes | bytearray", now_ms: int,
    ) -> int:  # fmt: skip
        """Handle an event of the group; OK, also if it is no command for this board.

        E_CAPACITY: the command was executed, but there is no room for the answer; do not confirm
        the event.
        """
        command = self._client.read(node, group, handle)
        if command is None or command.kind != COMMAND or command.board != self._id:
            return OK
        if command.counter <= self._last:
            self.replayed += 1
            return OK
        value = -1
        if command.operation < OPERATIONS:
            value = self._actions[command.operation](command.value)
        at = author.head()
        size = put_command(
            author.body, at, ANSWER, self._id, command.counter, command.operation,
            value if value >= 0 else FAILED, self._client.keys[self._id],
        )  # fmt: skip
        answer = node.publish(group, author.body, size, timestamp, now_ms)
        if answer < 0:
            return E_CAPACITY
        self._last = command.counter
        self.done += 1
        author.published(answer)
        return OK
