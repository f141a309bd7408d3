# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, ARG002
"""What is fuzzed behind a frame's kind: links of each profile, topics, the wake plan.

Each has `sound` frames, `fix`, which makes a frame whole again or spoils it, and `feed`: 0 for a
frame that was refused, 1 when it was taken, 2 or 3 when something left after it.
"""

import drupelet.flashtables  # noqa: F401 - leaves first: imports nest deeply else
from drupelet.duty import WakePlan
from drupelet.files import RamFiles
from drupelet.limits import GONE_HANDLE
from drupelet.memory import copy, find
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
from drupelet.store import FlashStore
from drupelet.topic import Topic

PROFILES = {"bsp-1": 0, "mvds-1": 1, "mvds-nested": 2, "mvds-5001": 3, "compact-1": 4}
SOUND_MAX = 24
EPOCH_MS = 1000
GROUP = bytes(range(32))


class CountingFiles(RamFiles):
    """Files that tell whether anything was written, and remember how the ids in them begin."""

    changes = 0

    def __init__(self, size, segment_size, names_max):
        RamFiles.__init__(self, size, segment_size, names_max)
        self.heads = bytearray(1 << 13)  # a bit for each first two bytes

    def append(self, fd, buf, at, size):
        self.changes += 1
        return RamFiles.append(self, fd, buf, at, size)

    def remove(self, name):
        self.changes += 1
        return RamFiles.remove(self, name)


class QuickStore(FlashStore):
    """A store that remembers what it found until something is written, and how the ids begin that
    ever came in: a scan of its log is most of what a frame costs, and no parser's business."""

    seen = -1
    # For prefixes and for whole ids: ids, how many, handles.
    kept = ()

    def _saw(self, id, at) -> None:
        self._files.heads[id[at] << 5 | id[at + 1] >> 3] |= 1 << (id[at + 1] & 7)

    def put(self, group, source, id, id_at, timestamp, ts_at, body, at, size, state):
        self._saw(id, id_at)
        return FlashStore.put(
            self, group, source, id, id_at, timestamp, ts_at, body, at, size, state
        )

    def put_part(self, part, group, source, id, id_at, state):
        self._saw(id, id_at)
        return FlashStore.put_part(self, part, group, source, id, id_at, state)

    def bury(self, group, source, id, id_at, stamp, ts_at, handle):
        self._saw(id, id_at)
        return FlashStore.bury(self, group, source, id, id_at, stamp, ts_at, handle)

    def find(self, id, at, size=32):
        if not self._files.heads[id[at] << 5 | id[at + 1] >> 3] & 1 << (id[at + 1] & 7):
            return 0
        if not self.kept:
            self.kept = ([bytearray(512), 0, [0] * 16], [bytearray(512), 0, [0] * 16])
        if self.seen != self._files.changes:
            self.seen = self._files.changes
            self.kept[0][1] = self.kept[1][1] = 0
        kept = self.kept[size == 32]
        row = find(kept[0], 32, kept[1], id, at, size)
        if row >= 0:
            return kept[2][row]
        handle = FlashStore.find(self, id, at, size)
        if 0 < handle < GONE_HANDLE and kept[1] < 16 and size in (8, 32):
            copy(kept[0], 32 * kept[1], id, at, size)
            kept[2][kept[1]] = handle
            kept[1] += 1
        return handle


def make_node(profile, peers, draw):
    """A node and its links; its store is in RAM, and small: the parsers are looked at here."""
    store = QuickStore(CountingFiles(1 << 20, 2048, 10), 1024, 4, 4, 2, 512)
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
        result = 0 if plan.told(0, buf, size, now_ms) else 1
        plan.awake_ms(now_ms)
        plan.next_wake_ms(now_ms)
        plan.wake_due_ms(0, now_ms)
        return result | 2 if plan.wake_into(self.frame, 0, now_ms) else result
