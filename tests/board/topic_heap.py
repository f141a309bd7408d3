"""Runs on a board: a sealed topic of three members under `heap_lock`, stores in RAM.

Prints a line `name calls frames bytes` per part of the hot path, as core_heap.py does.
"""

import heap_check

from boards.aead import Aead
from drupelet.channel.sender_keys import SenderKeys
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.link.topic import Topic
from drupelet.node import Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet_transports.common.transport import Transport
from drupelet_transports.seal.sealed_topic import SealedTopic
from seal_ends import Bytes

# Named constants are numbers in compiled firmware: their names are not there.
BATCH, CARRIER_MQTT, PROFILE_BSP_1, SHARED, OK, E_STORAGE = 0, 1, 0, 2, 0, -3
MESSAGES = 45
WARM_UP = 6
IDLE_EPOCHS = 1000
IDS = b"AAAABBBBCCCC"


class Keys:
    """A key port in RAM."""

    def load(self, _row, _out):
        return E_STORAGE

    def save(self, _row, _record):
        return OK

    def drop(self, _row):
        return OK


class Bus(Transport):
    """What one member hears of the others: a ring of frames."""

    def __init__(self):
        Transport.__init__(self)
        self.frames = [bytearray(1024) for _ in range(8)]
        self.sizes = [0] * 8
        self.first = self.count = 0

    def put(self, frame, size):
        assert self.count < 8
        at = (self.first + self.count) % 8
        to = self.frames[at]
        for i in range(size):
            to[i] = frame[i]
        self.sizes[at] = size
        self.count += 1

    def send(self, frame, size):
        for bus in buses:
            if bus is not self:
                bus.put(frame, size)
        self.last_wire_size = size
        return OK

    def receive_into(self, frame):
        if not self.count:
            return 0
        size = self.sizes[self.first]
        held = self.frames[self.first]
        for i in range(size):
            frame[i] = held[i]
        self.first = (self.first + 1) % 8
        self.count -= 1
        return size


buses = [Bus() for _ in range(3)]


class Clock:
    """What all share."""

    now_ms = 0
    published = 0


clock = Clock()


def now_ms():
    return clock.now_ms


class Member:
    """A node with a topic."""

    def __init__(self, row):
        store = FlashStore(RamFiles(1 << 20, 65535, 6), segment_size=65535, segments_max=4)
        store.open()
        own = IDS[4 * row : 4 * row + 4]
        draw = Bytes(row + 1)
        self.node = Node(store, draw, 2, 2, 16, 16)
        self.group = self.node.join(READINGS_CLIENT_ID, b"heap")
        others = IDS[: 4 * row] + IDS[4 * row + 4 :]
        peers = [self.node.add_peer(others[at : at + 4]) for at in (0, 4)]
        for peer in peers:
            self.node.share(self.group, peer, SHARED)
        self.node.boot(0)
        links = [self.node.link(peer, PROFILE_BSP_1, CARRIER_MQTT, 1000, BATCH) for peer in peers]
        self.topic = Topic(self.node, self.group, links, others, own, draw)
        self.keys = SenderKeys(Aead(), Keys(), own, draw, 2)
        assert self.keys.create() == OK
        self.carrier = SealedTopic(buses[row], self.keys, now_ms, bytearray(1024))
        self.frame = bytearray(1024)
        self.out = memoryview(self.frame)[: self.carrier.frame_size_max]
        self.frames = 0

    def turn(self):
        size = self.carrier.receive_into(self.frame)
        while size:
            self.frames += 1
            self.topic.received(self.carrier.last_wire_size)
            assert self.topic.receive(self.frame, size, clock.now_ms) == OK
            size = self.carrier.receive_into(self.frame)
        size = self.topic.poll_into(self.out, clock.now_ms)
        while size:
            assert self.carrier.send(self.out, size) == OK
            self.topic.sent(self.carrier.last_wire_size)
            size = self.topic.poll_into(self.out, clock.now_ms)
        while self.node.next_event():
            self.node.done(self.node.event_handle)
        self.node.wake_ms(clock.now_ms)


members = [Member(row) for row in range(3)]
record = bytearray(52)
for member in members:
    for other in members:
        if other is not member:
            assert other.keys.record_into(record, 0)
            assert member.keys.admit(record, 0) == OK

body = bytearray(5)
stamp = bytearray(8)


def run_idle(count):
    for _ in range(count):
        clock.now_ms = (clock.now_ms + 1000) & 0x3FFFFFFF
        for member in members:
            member.turn()


def run_messages(count):
    for _ in range(count):
        member = members[clock.published % 3]
        clock.published += 1
        body[1] = clock.published >> 8
        body[2] = clock.published & 255
        handle = member.node.publish(member.group, body, 5, stamp, clock.now_ms)
        assert handle > 0, handle
        run_idle(3)
    run_idle(40)


def frames():
    return sum([member.frames for member in members])


heap_check.run("messages", run_messages, MESSAGES, WARM_UP, frames)
for member in members:
    assert member.node.delivered == clock.published, member.node.delivered
heap_check.run("idle", run_idle, IDLE_EPOCHS, 10, frames)
print("delivered", clock.published)
