"""The default client: what a message body means (docs/SPEC.md 4).

    byte  0      1..            then
          count  ids, 32 each   payload

The ids are the message's dependencies, `count` of them; the payload is the user's.
"""

from drupelet.base.errors import OK
from drupelet.base.limits import ID_SIZE, INLINE_SIZE_MAX
from drupelet.base.memory import copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.node import Node

# Client ids are random, and made once by the client's developer (BSP v1 2.1).
READINGS_CLIENT_ID = bytes.fromhex(
    "6f1d5e0b92c84a37b5e3f0a7d41c9826e57b3a90c6124df8a9e07bb15d83f264"
)
TELEMETRY_CLIENT_ID = bytes.fromhex(
    "b83a47c1d9065e2f7c14fa8be6903d52a1f7c80e4b6d923578cf0ae41b5d6973"
)


class Author:
    """Composes a member's messages; each depends on its last one and the newest one of others."""

    def __init__(self, node: "Node", group: int) -> None:
        self._node = node
        self.group = group
        self.seen = 0  # the handle up to which the log has been looked at
        self.logged = 0  # messages of the group in the log, up to `seen`
        self.own = 0  # those that are our own, published ones included
        self._newest = 0  # the handle of our last one
        self._has_foreign = False
        self._ids = bytearray(2 * ID_SIZE)
        self.body = bytearray(INLINE_SIZE_MAX)

    def recover(self) -> None:
        """Read the log from `seen` on, to find our last message and the newest one of others.

        Call it after `Node.boot`.
        """
        store = self._node.store
        while (handle := store.next(self.seen)) > 0:
            self.saw(handle)

    def saw(self, handle: int) -> None:
        """Look at a message of the log: our next message depends on it.

        Call it in log order; a message that was seen before changes nothing.
        """
        store = self._node.store
        if handle <= self.seen:
            return
        self.seen = handle
        if store.load(handle) != OK or store.group != self.group:
            return
        self.logged += 1
        if store.source:
            copy(self._ids, ID_SIZE, store.id, 0, ID_SIZE)
            self._has_foreign = True
        elif handle > self._newest:
            self.published(handle)

    def published(self, handle: int) -> None:
        """Record that our own message entered the log."""
        self.own += 1
        if self._node.store.load(handle) == OK:
            copy(self._ids, 0, self._node.store.id, 0, ID_SIZE)
            self._newest = handle
            self._has_foreign = False

    def compose(self, payload: "bytes | bytearray", size: int) -> int:
        """Write the body of our next message to `body`; return its size, or -1: it is too long."""
        at = self.head()
        if at + size > len(self.body):
            return -1
        copy(self.body, at, payload, 0, size)
        return at + size

    def head(self) -> int:
        """Write the dependencies of our next message to `body`; return their size."""
        at = 1
        if self._newest:
            copy(self.body, at, self._ids, 0, ID_SIZE)
            at += ID_SIZE
        if self._has_foreign:
            copy(self.body, at, self._ids, ID_SIZE, ID_SIZE)
            at += ID_SIZE
        self.body[0] = at // ID_SIZE
        return at
