# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002, ANN201, ANN204, ARG002
"""What is fuzzed behind a frame's kind: links of each profile, topics, the wake plan.

Each has `sound` frames, `fix`, which makes a frame whole again or spoils it, and `feed`: 0 for a
frame that was refused, 1 when it was taken, 2 or 3 when something left after it.
"""

import drupelet.store.index  # noqa: F401 - leaves first: imports nest deeply else
from drupelet.base.memory import fill, find
from drupelet.duty.wake_plan import WakePlan
from drupelet.link.topic import Topic
from drupelet.node import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    FAMILY_BSP,
    FAMILY_MVDS,
    INTERACTIVE,
    SHARED,
    Node,
)
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet.store.log import AT_ID, KIND_MESSAGE

PROFILES = {"bsp-1": 0, "mvds-1": 1, "mvds-nested": 2, "mvds-5001": 3, "compact-1": 4}
SOUND_MAX = 24
EPOCH_MS = 1000
GROUP = bytes(range(32))
PLACES_MAX = 128


class CountingFiles(RamFiles):
    """Files that tell whether anything was written."""

    changes = 0

    def append(self, fd, buf, at, size):
        self.changes += 1
        return RamFiles.append(self, fd, buf, at, size)

    def remove(self, name):
        self.changes += 1
        return RamFiles.remove(self, name)


class QuickStore(FlashStore):
    """A store that knows which ids stand in its log until something is written: a scan of it is
    most of what a frame costs, and no parser's business."""

    seen = -1
    left = 0  # rows that are free

    def __init__(self, *args) -> None:
        # Of each record that has an id, from the end on: the newest one is first.
        self.ids = bytearray(32 * PLACES_MAX)
        self.places = [0] * PLACES_MAX
        FlashStore.__init__(self, *args)

    def _look_over(self) -> None:
        self.seen = self.files.changes
        left = PLACES_MAX
        log = self.log
        place = log.step(0)
        while place:
            if log.kind >= KIND_MESSAGE and not self.meta.is_left(log.tag):
                left -= 1
                if left >= 0:
                    log.read_into(place, AT_ID, self.ids, 32 * left, 32)
                    self.places[left] = place
            place = log.step(place)
        fill(self.ids, 0, 32 * max(left, 0), 0)
        self.left = left

    def find(self, id, at, size=32):
        if self.seen != self.files.changes:
            self._look_over()
        if self.left >= 0:
            row = find(self.ids, 32, PLACES_MAX, id, at, size)
            if row >= self.left:
                return self.index.handle_of(self.places[row])
            if not self.departed.find(id, at, self.meta.left):
                return 0
        return FlashStore.find(self, id, at, size)


def make_node(profile, peers, draw):
    """A node and its links; its store is in RAM, and small: the parsers are looked at here."""
    store = QuickStore(CountingFiles(1 << 20, 4096, 12), 1024, 4, 4, 2, 512)
    store.open()
    node = Node(store, lambda: draw(256), len(peers), 1, 8, 8, parts_max=1)
    group = node.join_id(GROUP, FAMILY_MVDS if 1 <= profile <= 3 else FAMILY_BSP)
    numbers = [node.add_peer(peer) for peer in peers]
    for number in numbers:
        node.share(group, number, SHARED)
    node.boot(0)
    mode = INTERACTIVE if profile else BATCH
    carrier = CARRIER_SERIAL if len(peers) == 1 else CARRIER_MQTT
    return node, group, [node.link(n, profile, carrier, EPOCH_MS, mode) for n in numbers]


def publish(node, group, name):
    """Some messages, one of them too long for a frame of 200 bytes."""
    for size in (3, 40, 400):
        body = b"\x00" + name + bytes(size)
        node.publish(group, body, len(body), bytes(6) + b"\x01" + name, 0)


def drain(node):
    """Take what entered the log."""
    while node.next_event():
        node.done(node.event_handle)


def talk(sides, frame, sound):
    """Let two ends exchange frames for ten epochs; the first ones are kept."""
    for epoch in range(10):
        for row in (0, 1):
            node, spoken = sides[row]
            other, listener = sides[1 - row]
            for _ in range(8):
                size = spoken.poll_into(frame, epoch * EPOCH_MS)
                if not size:
                    break
                if len(sound) < SOUND_MAX:
                    sound.append(bytes(frame[:size]))
                listener.receive(frame, size, epoch * EPOCH_MS)
            drain(node)
            drain(other)


class LinkFuzz:
    """A whole link: frame kinds, the profile's records, segments, states."""

    def __init__(self, parser, draw):
        profile = PROFILES[parser]
        self.node, group, links = make_node(profile, [b"B___"], draw)
        self.spoken = links[0]
        other, there, back = make_node(profile, [b"A___"], draw)
        publish(self.node, group, b"a")
        publish(other, there, b"b")
        self.spoken.greet()
        back[0].greet()
        self.begin([(self.node, self.spoken), (other, back[0])])

    def begin(self, sides):
        self.sound = []
        self.frame = bytearray(200)
        talk(sides, self.frame, self.sound)
        self.now_ms = 20_000
        self.count = 0

    def fix(self, buf, size, word):
        return size

    def feed(self, buf, size):
        self.now_ms = (self.now_ms + 70) & 0x3FFFFFFF
        result = 0 if self.spoken.receive(buf, size, self.now_ms) else 1
        self.count += 1
        if not self.count & 7:
            while self.spoken.poll_into(self.frame, self.now_ms):
                result |= 2
            drain(self.node)
        return result


class TopicFuzz(LinkFuzz):
    """A topic that two others listen to."""

    def __init__(self, parser, draw):
        sides = []
        for own, peers in ((b"A___", [b"B___", b"C___"]), (b"B___", [b"A___", b"C___"])):
            node, group, links = make_node(0, peers, draw)
            topic = Topic(node, group, links, b"".join(peers), own, lambda: draw(256))
            publish(node, group, own[:1])
            sides.append((node, topic))
        self.node, self.spoken = sides[0]
        self.begin(sides)

    def fix(self, buf, size, word):
        if word >> 17:  # by somebody who is heard
            buf[0] = 0x53
            buf[1] = 0x42 + (word & 1)
            buf[2] = buf[3] = buf[4] = 0x5F
            buf[5] = 0x40
            return max(size, 7)
        return size


class WakeFuzz:
    """WAKE frames, and what the plan makes of them."""

    def __init__(self, parser, draw):
        self.plans = []
        for own, peer, phase_ms in ((b"A___", b"B___", 17_000), (b"B___", b"A___", 40_000)):
            plan = WakePlan(60_000, 3_000, 600, 1, own, 0, phase_ms)
            plan.seek(0, peer, 0)
            self.plans.append(plan)
        self.frame = bytearray(16)
        self.now_ms = 0
        self.sound = []
        for now_ms in range(0, 600_000, 500):
            size = self.plans[1].wake_into(self.frame, 0, now_ms)
            if size and len(self.sound) < SOUND_MAX:
                self.sound.append(bytes(self.frame[:size]))

    def fix(self, buf, size, word):
        if word >> 18:  # of our plan, wherever the peer's anchor is
            buf[0] = 0x52
            buf[2] = buf[3] = buf[6] = buf[7] = 0
            buf[8], buf[9] = 60_000 >> 8, 60_000 & 255
            return 10
        return size

    def feed(self, buf, size):
        plan = self.plans[0]
        self.now_ms = now_ms = (self.now_ms + 700) & 0x3FFFFFFF
        result = 0 if plan.on_wake(0, buf, size, now_ms) else 1
        plan.awake_ms(now_ms)
        plan.next_wake_ms(now_ms)
        plan.wake_due_ms(0, now_ms)
        return result | 2 if plan.wake_into(self.frame, 0, now_ms) else result
