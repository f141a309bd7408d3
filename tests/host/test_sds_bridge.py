"""Dialect `sds-nim` as a channel, and one channel carried between the two dialects."""

import random

import pytest

from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import CHANNEL_OUT_MAX
from drupelet.channel.channel import Channel
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.settings import Settings
from drupelet.wire.sds.nim import Entry, Message, decode, encode, from_sds
from drupelet_host.channel.dialect_bridge import Bridge
from drupelet_host.channel.nim_dialect import NimChannel
from helpers_channel import START_MS, Said, Talker, wire

START_S = START_MS // 1000


class Nim:
    """A participant of dialect `sds-nim`."""

    def __init__(self, name: bytes = b"nina", seed: int = 5, capacity: int = 100) -> None:
        draw = random.Random(seed)
        self.side = NimChannel(
            b"nim", name, RamKeeper(128, 2048), lambda: draw.randrange(256), Settings(),
            capacity=capacity, error_rate=0.01,
        )  # fmt: skip
        self.channel = self.side.channel
        self.channel.clock.set_wall(START_S.to_bytes(8, "little"), 0, True)
        self.now_ms = 0

    def publish(self, content: bytes, id: bytes | None = None) -> None:
        assert self.channel.publish(content, 0, len(content), self.now_ms, id) > 0

    def say(self) -> list[bytes]:
        found = []
        while frame := self.side.poll(self.now_ms):
            found.append(frame)
        return found

    def hear(self, frame: bytes) -> int:
        code = self.side.receive(frame, self.now_ms)
        while self.channel.next_event():
            pass
        return code

    @property
    def log(self) -> list[bytes]:
        return log_of(self)


def log_of(one: Nim | Talker) -> list[bytes]:
    channel = one.channel
    found = []
    for row in range(channel.log.rows.count):
        size = channel.keeper.load(channel.log.rows.handle(row))
        found.append(Said(bytes(channel.keeper.work[:size])).id)
    return found


def test_frames_are_those_of_the_dialect() -> None:
    nina, olaf = Nim(), Nim(b"olaf")
    nina.publish(b"hello", b"first")
    [frame] = nina.say()
    said = decode(frame)
    assert (said.sender_id, said.channel_id, said.content) == (b"nina", b"nim", b"hello")
    assert said.lamport == START_S + 1 and encode(said) == frame
    assert olaf.hear(frame) == OK
    olaf.publish(b"reply", b"second")
    [reply] = olaf.say()
    assert [entry.message_id for entry in decode(reply).causal] == [b"first"]
    assert nina.hear(reply) == OK
    assert nina.log == olaf.log == [b"first", b"second"] and not nina.channel.outbox.rows.count


def test_filters_with_other_parameters_are_read() -> None:
    nina, olaf = Nim(), Nim(b"olaf", capacity=1000)
    nina.publish(b"x", b"m")
    [frame] = nina.say()
    message = decode(frame)
    message.causal = []
    olaf.hear(encode(message))
    olaf.publish(b"y", b"n")
    [reply] = olaf.say()
    answer = decode(reply)
    answer.causal = []
    nina.hear(encode(answer))
    assert nina.channel.outbox.rows.state(0) == 2, "possibly acknowledged"


def test_what_nim_does_not_send_is_refused() -> None:
    nina = Nim()
    empty = Message(b"olaf", b"m", b"nim", START_S, content=b"")
    assert nina.hear(b"\x0a") == nina.hear(encode(empty)) == E_PEER
    empty.content, empty.lamport = b"x", -1
    assert nina.hear(encode(empty)) == E_PEER
    assert nina.channel.malformed == 3


def test_a_message_without_a_sender_is_taken() -> None:
    nina = Nim()
    assert nina.hear(encode(Message(b"", b"m", b"nim", START_S, content=b"x"))) == OK
    assert nina.log == [b"m"]


def test_no_sync_messages() -> None:
    nina = Nim()
    for _ in range(50):
        nina.now_ms += 60_000
        assert nina.say() == []


class Between:
    """ann and ben speak `sds`, nina and olaf `sds-nim`; the bridge is in both channels."""

    def __init__(self, loss: float = 0.0) -> None:
        self.draw = random.Random(3)
        self.loss = loss
        self.sds = [Talker(b"ann"), Talker(b"ben", seed=2)]
        self.nim = [Nim(), Nim(b"olaf", seed=6)]
        self.left = Talker(b"bridge", seed=7)
        self.right = Nim(b"bridge", seed=8)
        self.bridge = Bridge(self.left.channel, self.right.side)

    def arrives(self) -> bool:
        return self.draw.random() >= self.loss

    def round(self, ms: int) -> None:
        sds, nim = [*self.sds, self.left], [*self.nim, self.right]
        for one in (*sds, *nim):
            one.now_ms += ms
        for one in sds:
            frames = []
            while size := one.channel.poll_into(one.frame, one.now_ms):
                frames.append(bytes(one.frame[:size]))
            for frame in frames:
                for other in sds:
                    if other is not one and self.arrives():
                        copy = bytearray(frame)
                        assert other.channel.receive(copy, len(copy), other.now_ms) in (0, -2)
                        if other is not self.left:
                            other.drain()
        for talker in nim:
            for frame in talker.say():
                for hearer in nim:
                    if hearer is not talker and self.arrives():
                        assert hearer.side.receive(frame, hearer.now_ms) in (0, -2)
                        while hearer is not self.right and hearer.channel.next_event():
                            pass
        self.bridge.step(self.left.now_ms)

    def logs(self) -> list[list[bytes]]:
        return [log_of(one) for one in (*self.sds, *self.nim, self.left, self.right)]


def test_one_channel_in_two_dialects() -> None:
    world = Between()
    for number in range(5):
        world.sds[0].publish(b"from ann", b"a%d" % number)
        world.round(2000)
        world.nim[0].publish(b"from nina", b"n%d" % number)
        world.round(2000)
    for _ in range(20):
        world.round(15_000)
    logs = world.logs()
    assert all(log == logs[0] for log in logs) and len(logs[0]) == 10
    assert logs[0] == [b"%c%d" % (c, n) for n in range(5) for c in b"an"]
    nina = world.nim[0].channel
    size = nina.keeper.load(nina.log.rows.handle(0))
    message = from_sds(bytes(nina.keeper.work[:size]))
    assert (message.sender_id, message.content) == (b"ann", b"from ann")
    assert not any(one.channel.outbox.rows.count for one in world.sds)


def test_order_within_a_second_keeps_what_depends_behind() -> None:
    world = Between()
    for number in range(6):
        world.sds[number % 2].publish(b"x", b"z%d" % (9 - number))
        world.round(20)
    for _ in range(20):
        world.round(15_000)
    logs = world.logs()
    assert logs[0] == [b"z%d" % (9 - number) for number in range(6)]
    assert all(log == logs[0] for log in logs)


def test_with_losses_and_a_restart_of_the_bridge() -> None:
    world = Between(loss=0.3)
    for number in range(8):
        world.sds[number % 2].publish(b"from sds", b"s%d" % number)
        world.nim[number % 2].publish(b"from nim", b"n%d" % number)
        world.round(7000)
        if number == 4:
            world.bridge = Bridge(world.left.channel, world.right.side)
    for _ in range(600):
        world.round(15_000)
    logs = [set(log) for log in world.logs()]
    expected = {b"%c%d" % (c, n) for n in range(8) for c in b"sn"}
    assert logs[0] == logs[1] == logs[4] == expected, "the sds side"
    assert world.logs()[0] == world.logs()[1]
    assert logs[5] == expected


def test_a_side_that_says_nothing_holds_nothing_up() -> None:
    world = Between()
    for number in range(60):
        world.sds[number % 2].publish(b"from sds", b"s%d" % number)
        world.round(20_000)
    for _ in range(40):
        world.round(20_000)
    logs = world.logs()
    assert len(logs[0]) == 60 and all(set(log) == set(logs[0]) for log in logs)
    assert all(log == logs[2] for log in (logs[3], logs[5]))


def test_a_bridge_with_more_to_carry_than_it_has_room_for_is_spoken_on() -> None:
    world = Between()
    carried: list[bytes] = []
    for number in range(CHANNEL_OUT_MAX + 8):
        world.nim[0].publish(b"from nina", b"n%02d" % number)
        for frame in world.nim[0].say():
            world.right.side.receive(frame, 0)  # the bridge takes its events
        world.nim[0].channel.outbox.release(0)  # as if somebody else had acknowledged it
        world.bridge.step(0)
        carried.append(b"n%02d" % number)
    assert world.bridge.waiting(0) > 0, "more than the buffer has room for"
    for number in range(4):
        assert world.left.publish(b"said here", b"own%d" % number) > 0
        world.bridge.step(0)
    for _ in range(40):
        world.round(20_000)
    assert set(world.logs()[0]) == {*carried, *(b"own%d" % number for number in range(4))}


def test_what_is_too_long_for_a_side_holds_nothing_up() -> None:
    world = Between()
    keeper = world.right.channel.keeper
    keeper.work = bytearray(300)
    world.sds[0].publish(b"x" * 300, b"long")
    world.round(2000)
    world.sds[1].publish(b"short", b"next")
    for _ in range(6):
        world.round(20_000)
    assert world.logs()[1] == [b"long", b"next"] and world.logs()[2] == [b"next"]
    assert world.bridge.refused == 1


class Owed:
    """What a bridge owes, as it outlives the bridge."""

    def __init__(self) -> None:
        self.ids: set[bytes] = set()

    def load(self) -> list[bytes]:
        return sorted(self.ids)

    def add(self, id: bytes) -> None:
        self.ids.add(id)

    def remove(self, id: bytes) -> None:
        self.ids.discard(id)


def test_what_was_carried_and_lost_goes_out_again_after_a_restart() -> None:
    world = Between()
    owed = (Owed(), Owed())
    world.bridge = Bridge(world.left.channel, world.right.side, 0, owed)
    world.sds[0].publish(b"from ann", b"m")
    while size := world.sds[0].channel.poll_into(world.sds[0].frame, 0):
        frame = bytearray(world.sds[0].frame[:size])
        world.left.channel.receive(frame, size, 0)
    assert world.bridge.step(0) == 1 and owed[1].ids == {b"m"} and world.right.say() != []
    # The frame is lost, and so is what the bridge had in memory.
    again = Nim(b"bridge", seed=9)
    again.side = NimChannel(
        b"nim", b"bridge", world.right.channel.keeper, lambda: 7, Settings(), capacity=100
    )
    again.channel = again.side.channel
    again.channel.clock.set_wall(START_S.to_bytes(8, "little"), 0, True)
    assert again.log == [b"m"] and again.say() == []
    world.right = again
    world.bridge = Bridge(world.left.channel, again.side, 0, owed)
    assert world.bridge.step(0) == 0
    [frame] = again.say()
    assert decode(frame).message_id == b"m" and decode(frame).sender_id == b"ann"
    for hearer in world.nim:
        hearer.hear(frame)
    world.nim[0].publish(b"has it", b"n")
    for reply in world.nim[0].say():
        again.side.receive(reply, 0)
    world.bridge.step(0)
    assert owed[1].ids == set(), "a frame of nina's names it"


def test_sync_messages_end_at_the_bridge() -> None:
    world = Between()
    frame = wire(b"sync", content=None)
    world.left.channel.receive(frame, len(frame), 0)
    assert world.bridge.step(0) == 0 and world.right.say() == []


def values(channel: Channel) -> dict[bytes, int]:
    """The Lamport values of what a channel keeps."""
    found = {}
    handle = channel.keeper.next(0)
    while handle:
        size = channel.keeper.load(handle)
        message = from_sds(bytes(channel.keeper.work[:size]))
        found[message.message_id] = message.lamport or 0
        handle = channel.keeper.next(handle)
    return found


# What wraps when it is a thousand times as much, and the highest there is.
@pytest.mark.parametrize("far", [(1 << 64) // 1000 + 1, (1 << 63) - 1])
def test_a_value_too_far_ahead_does_not_go_over(far: int) -> None:
    world = Between()
    for id, lamport, causal in (
        (b"first", START_S, ()),
        (b"far", far, ()),
        (b"next", START_S + 5, (b"first", b"far")),
    ):
        history = [Entry(one) for one in causal]
        frame = encode(Message(b"nina", id, b"nim", lamport, history, None, [], b"x"))
        assert world.right.side.receive(frame, 1000) == OK
        world.bridge.step(1000)
    there = values(world.left.channel)
    assert there[b"first"] < there[b"far"] < there[b"next"] == START_MS + 5000
    assert there[b"far"] <= START_MS + 1001 and world.bridge.refused == 1
    # Nor is it in the way of what comes back, or after a restart.
    world.bridge = Bridge(world.left.channel, world.right.side, 1000)
    frame = wire(b"back", causal=(b"far",), lamport=START_MS + 7000)
    world.left.channel.receive(frame, len(frame), 1000)
    world.bridge.step(1000)
    assert values(world.right.channel)[b"back"] == START_S + 7


def test_the_highest_value_of_sds_does_not_go_over() -> None:
    world = Between()
    frame = wire(b"far", lamport=(1 << 64) - 1)
    world.left.channel.receive(frame, len(frame), 1000)
    world.bridge.step(1000)
    assert values(world.right.channel)[b"far"] <= START_S + 2 and world.bridge.refused == 1
    reply = encode(Message(b"nina", b"next", b"nim", START_S + 9, [Entry(b"far")], None, [], b"x"))
    assert world.right.side.receive(reply, 1000) == OK
    world.bridge.step(1000)
    assert values(world.left.channel)[b"next"] == START_MS + 9000
