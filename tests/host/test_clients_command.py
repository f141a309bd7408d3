"""The command channel: a closed set, answered; strangers and replays refused."""

import random

import pytest

from drupelet.base.errors import CapacityError
from drupelet.clients.command import (
    COMMAND,
    COMMAND_SIZE,
    COMMANDS_CLIENT_ID,
    CommandBoard,
    CommandClient,
    put_command,
)
from drupelet.clients.default import Author
from drupelet_host.clients.command_host import CommandHost, command_key
from helpers_clients import World

ROOT = bytes(32)
STAMP = (1_700_000_000_000).to_bytes(8)


class Channel:
    """A host `h`, a board `b`, and a relay `r` between them that has no key."""

    def __init__(self) -> None:
        self.world = World("hrb", [("h", "r"), ("r", "b")])
        self.id = World.id("b")
        key = command_key(ROOT, self.id)
        self.clients = {
            name: CommandClient({self.id: key} if name != "r" else {}) for name in "hrb"
        }
        self.groups = {
            name: node.join(COMMANDS_CLIENT_ID, b"orchard", 0, self.clients[name])
            for name, node in self.world.nodes.items()
        }
        self.world.start(self.groups)
        self.host = CommandHost(self.world.nodes["h"], self.groups["h"], self.clients["h"])
        self.acts: list[tuple[str, int]] = []
        self.injected = 0
        self.restart()

    def restart(self) -> None:
        """The board's end as after a boot."""
        actions = [self.act("epoch"), self.act("sleep"), self.act("flush", -3)]
        actions.append(self.act("report", 3700))
        self.board = CommandBoard(self.clients["b"], self.id, actions)
        node = self.world.nodes["b"]
        self.author = Author(node, self.groups["b"])
        self.author.recover()
        self.board.recover(node, self.groups["b"])

    def act(self, name: str, result: int = 0):
        def do(value: int) -> int:
            self.acts.append((name, value))
            return result

        return do

    def run(self) -> None:
        self.world.run()
        node = self.world.nodes["b"]
        for handle in self.world.events("b"):
            self.author.saw(handle)
            assert self.board.take(node, self.groups["b"], handle, self.author, STAMP, 0) == 0
        self.world.run()
        for handle in self.world.events("h"):
            self.host.saw(handle)

    def inject(self, payload: bytes) -> None:
        """A member without a key writes into the group."""
        node = self.world.nodes["r"]
        body = b"\x00" + payload
        self.injected += 1
        stamp = self.injected.to_bytes(8)
        assert node.publish(self.groups["r"], body, len(body), stamp, 0) != 0
        self.run()


def test_commands_are_done_in_order_and_answered() -> None:
    channel = Channel()
    for name, value in (("epoch", 60_000), ("flush", 0), ("report", 0), ("sleep", 5000)):
        channel.host.send(channel.id, name, value, STAMP, 0)
    assert [sent.result for sent in channel.host.sent()] == [None] * 4
    channel.run()
    assert channel.acts == [("epoch", 60_000), ("flush", 0), ("report", 0), ("sleep", 5000)]
    assert [sent.result for sent in channel.host.sent()] == [0, -1, 3700, 0]
    assert channel.board.done == 4
    channel.run()
    assert len(channel.acts) == 4


def test_a_replay_is_refused_also_after_a_boot() -> None:
    channel = Channel()
    counter = channel.host.send(channel.id, "epoch", 60_000, STAMP, 0)
    channel.run()
    key = command_key(ROOT, channel.id)
    old = bytearray(COMMAND_SIZE)
    for restart in (False, True):
        if restart:
            channel.restart()
        put_command(old, 0, COMMAND, channel.id, (counter - restart).to_bytes(4), 0, 1, key)
        channel.inject(bytes(old))
    assert channel.acts == [("epoch", 60_000)] and channel.board.replayed == 1
    assert channel.host.send(channel.id, "report", 0, bytes(8), 0) == counter + 1
    channel.run()
    assert channel.acts[-1] == ("report", 0)


def test_strangers_are_refused_before_the_log() -> None:
    channel = Channel()
    payload = bytearray(COMMAND_SIZE)
    put_command(payload, 0, COMMAND, channel.id, b"\xff" * 4, 0, 1, bytes(32))
    for bad in (bytes(payload), bytes(payload[:-1]), b"", b"\x00" * COMMAND_SIZE):
        channel.inject(bad)
    node = channel.world.nodes["b"]
    assert channel.acts == [] and node.delivered == 0
    refused = {name: client.refused for name, client in channel.clients.items()}
    assert refused == {"h": 1, "r": 3, "b": 1}  # without a key, only the shape is judged
    channel.host.send(channel.id, "report", 0, STAMP, 0)
    channel.run()
    assert channel.acts == [("report", 0)]


def test_an_unknown_operation_is_answered_and_not_done() -> None:
    channel = Channel()
    key = command_key(ROOT, channel.id)
    payload = bytearray(COMMAND_SIZE)
    put_command(payload, 0, COMMAND, channel.id, b"\x00\x00\x00\x07", 9, 1, key)
    channel.inject(bytes(payload))
    assert channel.acts == [] and [sent.result for sent in channel.host.sent()] == [-1]


def test_a_command_needs_a_key() -> None:
    channel = Channel()
    with pytest.raises(CapacityError, match="no command key"):
        channel.host.send(b"none", "report", 0, STAMP, 0)


def test_fuzzed_commands_do_nothing() -> None:
    channel = Channel()
    rng = random.Random(2)
    good = bytearray(COMMAND_SIZE)
    key = command_key(ROOT, channel.id)
    put_command(good, 0, COMMAND, channel.id, b"\x00\x00\x00\x07", 0, 1, key)
    node = channel.world.nodes["r"]
    for number in range(300):
        bad = bytearray(b"\x00") + good
        bad[1 + rng.randrange(COMMAND_SIZE)] ^= 1 << rng.randrange(8)
        node.publish(channel.groups["r"], bad, len(bad), number.to_bytes(8), 0)
        if number % 50 == 49:
            channel.run()
    assert channel.acts == []
