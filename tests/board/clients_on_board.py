"""A board with a group of commands; a helper plays its host.

Runs on MicroPython and CPython. argv: folders of modules. Prints what was done and answered.
"""

import sys

sys.path[:0] = sys.argv[1].split(":")

from drupelet.clients.command import (  # noqa: E402
    ANSWER,
    COMMAND,
    COMMANDS_CLIENT_ID,
    CommandBoard,
    CommandClient,
    put_command,
)
from drupelet.clients.default import Author  # noqa: E402
from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_BSP_1, SHARED, Node  # noqa: E402
from drupelet.store.files import RamFiles  # noqa: E402
from drupelet.store.flash_store import FlashStore  # noqa: E402

KEY = bytes(range(32))
BOARD = b"brd1"
ROUNDS = 30


def stamp(second):
    """A timestamp of 8 bytes."""
    return (second * 1000).to_bytes(8, "big")


class End:
    """A node with the group."""

    def __init__(self, other):
        store = FlashStore(RamFiles(1 << 17))
        store.open()
        self.node = Node(store, lambda: 0, 1, 1, 16, 16)
        self.client = CommandClient({BOARD: KEY})
        self.commands = self.node.join(COMMANDS_CLIENT_ID, b"x", 0, self.client)
        peer = self.node.add_peer(other)
        self.node.share(self.commands, peer, SHARED)
        self.node.boot(0)
        self.author = Author(self.node, self.commands)
        self.link = self.node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)


def carry(one, two, now_ms):
    """All frames that are due, both ways."""
    frame = bytearray(1024)
    for sender, receiver in ((one, two), (two, one)):
        size = sender.link.poll_into(frame, now_ms)
        while size:
            receiver.link.receive(frame, size, now_ms)
            size = sender.link.poll_into(frame, now_ms)


def command(host, counter, operation, value, key):
    """The host tells the board something."""
    at = host.author.head()
    size = put_command(
        host.author.body, at, COMMAND, BOARD, counter.to_bytes(4, "big"), operation, value, key
    )
    return host.node.publish(host.commands, host.author.body, size, stamp(counter), 0)


def main():
    """See the module."""
    host, board = End(BOARD), End(b"host")
    host.client.keys = {}  # so that its own client lets a wrong key pass
    done = []
    actions = [lambda value, n=number: done.append((n, value)) or n for number in range(4)]
    runner = CommandBoard(board.client, BOARD, actions)
    for counter, operation in ((5, 0), (6, 3), (4, 1), (7, 1)):
        command(host, counter, operation, 60000 + counter, KEY)
    command(host, 9, 2, 0, bytes(32))
    for turn in range(ROUNDS):
        carry(host, board, turn * 500)
        while board.node.next_event():
            handle = board.node.event_handle
            board.author.saw(handle)
            runner.take(board.node, board.commands, handle, board.author, stamp(99), turn * 500)
            board.node.done(handle)
    runner.recover(board.node, board.commands)
    print("done", done, "replayed", runner.replayed, "refused", board.client.refused)
    answers = []
    handle = host.node.store.next(0)
    while handle:
        said = host.client.read(host.node, host.commands, handle)
        if said is not None and said.kind == ANSWER:
            answers.append((int.from_bytes(said.counter, "big"), said.value))
        handle = host.node.store.next(handle)
    print("answers", answers)


main()
