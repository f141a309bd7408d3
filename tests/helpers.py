"""Members and the bad lines between them: one helper for tests on CPython and on a board.

It runs on MicroPython, too: no typing, no dataclasses, randomness of its own. Everything is
bounded: `Network.run` gives up after `rounds_max` rounds.
"""

from drupelet.clients.default import READINGS_CLIENT_ID, Author
from drupelet.engine.members import HEAD_PARENTS
from drupelet.link.host_link import HostLink
from drupelet.node import (
    BATCH,
    CARRIER_SERIAL,
    FAMILY_BSP,
    FAMILY_MVDS,
    PROFILE_BSP_1,
    SHARED,
    Node,
)
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max

EPOCH_MS = 1000
ROUND_MS = 250
FRAMES_PER_ROUND_MAX = 80


class Draw:
    """Numbers of a seed, the same on every interpreter."""

    def __init__(self, seed):
        self._state = (seed * 7919 + 12345) & 0x3FFFFFFF

    def __call__(self, below):
        """Return a number 0 <= n < below (at most 2^12)."""
        # Two steps of 12 bits: no product leaves the small ints of a 32-bit board.
        state = self._state
        low = (state & 0x7FFF) * 0x3D09 + 0x1537
        high = (state >> 15) * 0x3D09 + (low >> 15)
        state = (low & 0x7FFF) | (high & 0x7FFF) << 15
        self._state = state
        return ((state >> 12) & 0xFFF) * below >> 12


class Line:
    """Frames one way: lost, repeated, swapped or with a flipped bit, each of 1,000 times."""

    def __init__(self, draw, loss=0, repeat=0, reorder=0, flip=0):
        self._draw = draw
        self.loss = loss
        self._repeat = repeat
        self._reorder = reorder
        self._flip = flip
        self.frames = []
        self.never = None  # what has these bytes is lost
        self.sent = 0
        self.bytes = 0

    def send(self, frame, size):
        """Put a copy of the frame on its way, or not."""
        self.sent += 1
        self.bytes += size
        frame = bytes(frame[:size])
        if self.never and self.never in frame:
            return
        if self._draw(1000) < self._flip:
            frame = self._damaged(frame)
        for _ in range(2 if self._draw(1000) < self._repeat else 1):
            if frame and self._draw(1000) >= self.loss:
                self.frames.append(frame)
        if len(self.frames) > 1 and self._draw(1000) < self._reorder:
            self.frames.append(self.frames.pop(-2))

    def _damaged(self, frame):
        """The frame as a serial line's other end decodes it with one bit flipped."""
        wire = bytearray(wire_size_max(len(frame)))
        size = encode_into(wire, frame, len(frame))
        wire[self._draw(size)] ^= 1 << self._draw(8)
        decoder = Decoder(len(frame))
        at = 0
        while at < size:
            at = decoder.feed(wire, at, size)
            if decoder.size:
                return bytes(decoder.frame[: decoder.size])
        return b""

    def take(self):
        """Everything that has arrived."""
        frames = self.frames
        self.frames = []
        return frames


class Member:
    """A node over files that survive `reboot`, with its author and one group."""

    def __init__(self, name, draw, pool=64, offers=64, files=None, family=FAMILY_BSP, **store):
        self.name = name
        self.family = family
        self.draw = draw
        self.pool = pool
        self.offers = offers
        self.files = files or RamFiles(1 << 22)
        self.store_options = store
        self.peers = []
        self.boots = 0
        self.start()

    def start(self):
        """Make store and node; `boot` follows once peers are known."""
        self.store = self.make_store()
        self.store.open()
        self.node = Node(
            self.store, lambda: self.draw(256), peers_max=4, groups_max=2,
            messages_max=self.pool, offers_max=self.offers,
        )  # fmt: skip
        if self.family == FAMILY_BSP:
            self.group = self.node.join(READINGS_CLIENT_ID, b"test")
        else:
            self.group = self.node.join_id(READINGS_CLIENT_ID, self.family)
        self.numbers = {}
        self.links = {}
        self.again = []
        for name in self.peers:
            self.add(name)

    def make_store(self):
        """The store; a test may bring its own."""
        return FlashStore(self.files, **self.store_options)

    def add(self, name):
        """Know a peer and share the group with it."""
        self.numbers[name] = self.node.add_peer(name.encode() + b"___")
        self.node.share(self.group, self.numbers[name], SHARED)

    def boot(self, now_ms=0, generation=-1):
        """Take up where the files, or a snapshot of this generation, leave off."""
        self.node.boot(now_ms, generation)
        self.boots += 1
        self.author = Author(self.node, self.group)
        self.author.recover()

    def publish(self, payload, now_ms=0):
        """Publish after what we know; the id, or None when it was refused."""
        head = self.author.head()
        body = bytes(self.author.body[:head]) + payload
        moment = stamp(now_ms)
        if self.family == FAMILY_MVDS:
            moment = (1_700_000_000 + now_ms // 1000).to_bytes(8, "little")
        handle = self.node.publish(self.group, body, len(body), moment, now_ms)
        if handle < 0:
            return None
        self.author.published(handle)
        self.store.load(handle)
        return bytes(self.store.id)

    def consume(self, keep=False):
        """Take every event in; `keep`: leave them unconfirmed. Returns the handles."""
        handles = []
        while self.node.next_event():
            handle = self.node.event_handle
            handles.append(handle)
            if self.node.event_again:
                self.again.append(handle)
            self.author.saw(handle)
            if not keep:
                self.node.done(handle)
        return handles

    def log(self):
        """The ids of the log in order."""
        ids = []
        handle = self.store.next(0)
        while handle:
            self.store.load(handle)
            ids.append(bytes(self.store.id))
            handle = self.store.next(handle)
        return ids

    def body(self, handle):
        """The body of a message of the log."""
        assert self.store.load(handle) == 0
        out = bytearray(self.store.size)
        assert self.store.read_into(handle, 0, out, 0, len(out)) == len(out)
        return bytes(out)

    def dependencies(self):
        """Dictionary id -> ids that it depends on, of the whole log."""
        found = {}
        handle = self.store.next(0)
        while handle:
            body = self.body(handle)
            count = body[0] & HEAD_PARENTS if body else 0
            ids = [bytes(body[1 + 32 * i : 33 + 32 * i]) for i in range(count)]
            self.store.load(handle)
            found[bytes(self.store.id)] = ids
            handle = self.store.next(handle)
        return found


def stamp(now_ms):
    """A timestamp of 8 bytes."""
    return (1_700_000_000_000 + now_ms).to_bytes(8, "big")


class Network:
    """Members, the live links between some of them, and time."""

    def __init__(self, draw, members, edges, mode=BATCH, frame_size=1024, epoch_ms=EPOCH_MS,
                 profile=PROFILE_BSP_1, **faults):  # fmt: skip
        self.draw = draw
        self.profile = profile
        self.members = {member.name: member for member in members}
        self.edges = edges
        self.mode = mode
        self.frame_size = frame_size
        self.epoch_ms = epoch_ms
        self.now_ms = 0
        self.lines = {}
        for a, b in edges:
            for here, there in ((a, b), (b, a)):
                self.members[here].peers.append(there)
                self.members[here].add(there)
                self.lines[here, there] = Line(draw, **faults)
        for member in members:
            member.boot(0)
            self.connect(member)

    def connect(self, member):
        """Make a member's links; after its `boot`."""
        for name in member.peers:
            if (member.name, name) in self.lines:
                member.links[name] = member.node.link(
                    member.numbers[name], self.profile, CARRIER_SERIAL, self.epoch_ms,
                    self.mode, self.now_ms, HostLink,
                )  # fmt: skip

    def round(self):
        """One step of time: every link sends what is due, then takes what has come."""
        self.now_ms = (self.now_ms + ROUND_MS) & 0x3FFFFFFF
        frame = bytearray(self.frame_size)
        order = sorted(self.lines)
        first = self.draw(len(order))
        for here, there in order[first:] + order[:first]:
            link = self.members[here].links[there]
            for _ in range(FRAMES_PER_ROUND_MAX):
                size = link.poll_into(frame, self.now_ms)
                if not size:
                    break
                self.lines[here, there].send(frame, size)
        for here, there in order:
            for got in self.lines[here, there].take():
                frame[: len(got)] = got
                self.members[there].links[here].receive(frame, len(got), self.now_ms)
        for name in sorted(self.members):
            self.members[name].consume()

    def run(self, done, rounds_max):
        """Rounds until `done()`; how many it took. Fails after `rounds_max`."""
        for count in range(rounds_max):
            if done():
                return count
            self.round()
        raise AssertionError("not done in time", rounds_max)

    def complete(self, count):
        """True when every log has `count` messages, everybody knows, and none comes twice."""
        for member in self.members.values():
            for number in member.numbers.values():
                if member.node.outstanding(number):
                    return False
        for member in self.members.values():
            log = member.log()
            assert len(set(log)) == len(log), "a message twice in a log"
            if len(log) != count:
                return False
        return True


def check_causal(member, told=()):
    """Everything in the log comes after what it depends on, but for what it was `told` is gone."""
    seen = set(told)
    dependencies = member.dependencies()
    for id in member.log():
        for parent in dependencies[id]:
            assert parent in seen, "a message before its dependency"
        seen.add(id)


def kinds_of(inbox):
    """The kinds of an inbox's entries, the register last."""
    return [inbox.kind(entry) for entry in range(inbox.offers_max + 1)]


def part_owners(node: Node) -> list[int]:
    """Of each incoming part file: the peer (row + 1) whose content it takes in, 0: nobody's."""
    core = node.core
    return [incoming.peer + 1 for incoming in core.long.incoming]


def frames(net: Network, here: str, there: str) -> list[bytes]:
    """What a link sends now."""
    frame = bytearray(net.frame_size)
    link = net.members[here].links[there]
    found = []
    for _ in range(100):
        size = link.poll_into(frame, net.now_ms)
        if not size:
            break
        found.append(bytes(frame[:size]))
    return found


def give(net: Network, here: str, there: str, sent: list[bytes]) -> list[int]:
    """Frames that were sent come to a link now; what each one was to it."""
    link = net.members[there].links[here]
    return [link.receive(bytearray(frame), len(frame), net.now_ms) for frame in sent]


def serve(line, link, frame: bytearray, now_ms: int) -> None:
    """One turn of a link on a serial line: take what came in, send what is due."""
    size = line.receive_into(frame)
    while size > 0:
        assert link.receive(frame, size, now_ms) == 0
        size = line.receive_into(frame)
    while not line.pending_size and (size := link.poll_into(frame, now_ms)):
        line.send(frame, size)
