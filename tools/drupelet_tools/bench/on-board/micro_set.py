# mypy: ignore-errors
"""The micro set: what its member takes of a heap, and what its records and epochs allocate.

On standard input: modules, peers, offers, messages, bodies (bytes), records, epochs. Prints one
JSON object. Two members pass frames to each other;
"""

import gc
import sys

import meter
import micropython

config = meter.settings()
gc.threshold(2048)
code_bytes = meter.load(config["modules"])

from drupelet.micro.link import MicroLink  # noqa: E402
from drupelet.micro.member import Micro  # noqa: E402
from drupelet.micro.serial_line import MicroSerial  # noqa: E402

EPOCH_MS = 1000
FRAME_SIZE = 251
KINDS = 4  # ACK, MESSAGE, OFFER, REQUEST
DAMAGED = 24
CLIENT_ID = bytes(range(32))


def state() -> "dict":
    """Node, one link for each peer and one line's two buffers; bodies apart."""
    gc.collect()
    before = meter.used()
    node = Micro(
        CLIENT_ID, b"bench", config["peers"], config["offers"], config["messages"],
        config["bodies"],
    )  # fmt: skip
    links = [MicroLink(node, 0) for _ in range(config["peers"])]
    line = MicroSerial(links[0], None)
    gc.collect()
    taken = meter.used() - before
    bodies = len(node.bodies)
    return {
        "code_bytes": code_bytes, "core_state": taken - bodies, "store_state": bodies,
        "largest_slab": max(bodies, len(node.table)), "free_after_boot": gc.mem_free(),
        "kept": line.damaged,
    }  # fmt: skip


class Counted(MicroLink):
    """Counts records, in and out, as they are accounted for."""

    def start(self) -> None:
        """Begin."""
        self.counts = [0] * (2 * KINDS)

    def count_record(self, sent: bool, kind: int, _size: int) -> None:
        """Account for one."""
        if kind < KINDS:
            self.counts[kind if sent else KINDS + kind] += 1


class Pair:
    """Two members, one clock and one frame."""

    def __init__(self, mode: int) -> None:
        self.nodes = [Micro(CLIENT_ID, b"bench", epoch_ms=EPOCH_MS) for _ in range(2)]
        self.links = [Counted(node, mode) for node in self.nodes]
        for link in self.links:
            link.start()
        self.now_ms = 0
        self.frame = bytearray(FRAME_SIZE)
        self.stamp = bytearray(8)
        self.payload = bytearray(20)
        self.published = 0
        self.kept = []
        self.kept_max = 0
        self.bad = []

    def epochs(self, count: int) -> None:
        """Let so many epochs pass."""
        while count:
            count -= 1
            self.now_ms = (self.now_ms + EPOCH_MS) & 0x3FFFFFFF
            self.pass_on(self.links[0], self.links[1])
            self.pass_on(self.links[1], self.links[0])
            self.take(self.nodes[0])
            self.take(self.nodes[1])

    def pass_on(self, here: "Counted", there: "Counted") -> None:
        """Everything that is due one way."""
        size = here.poll_into(self.frame, self.now_ms)
        while size:
            if len(self.kept) < self.kept_max:
                self.kept.append(bytearray(self.frame[:size]))
            there.receive(self.frame, size, self.now_ms)
            size = here.poll_into(self.frame, self.now_ms)
        here.wake_ms(self.now_ms)

    def take(self, node: "Micro") -> None:
        """The client's turn."""
        row = node.next_event()
        while row >= 0:
            node.done(row)
            row = node.next_event()

    def exchange(self, count: int) -> None:
        """So many messages from each, until all is settled."""
        while count:
            count -= 1
            for node in self.nodes:
                self.published += 1
                self.payload[0] = self.published >> 8
                self.payload[1] = self.published & 255
                assert node.publish(self.payload, len(self.payload), self.stamp) >= 0
            self.epochs(4)
        self.epochs(12)

    def feed(self, count: int) -> None:
        """Give every damaged frame to one member, so many times."""
        while count:
            count -= 1
            for frame in self.bad:
                self.links[1].receive(frame, len(frame), self.now_ms)
            self.epochs(1)


def locked(call: "object", count: int) -> bool:
    """True when a call allocates nothing."""
    gc.collect()
    micropython.heap_lock()
    try:
        call(count)
    except MemoryError:
        return False
    finally:
        micropython.heap_unlock()
    return True


def opened(call: "object", count: int) -> int:
    """What a call allocates."""
    gc.collect()
    gc.disable()
    before = meter.used()
    call(count)
    taken = meter.used() - before
    gc.enable()
    return taken


def sentinel(count: int) -> "list":
    """Allocates."""
    return [count] * 9


def records(mode: int) -> "dict":
    """One mode's exchange, idle epochs and damaged frames."""
    pair = Pair(mode)
    pair.kept_max = DAMAGED
    pair.exchange(12)
    pair.kept_max = 0
    pair.bad = meter.damaged(pair.kept, DAMAGED)
    pair.feed(1)
    bytes_open = opened(pair.exchange, 12)
    for link in pair.links:
        link.start()
    through = locked(pair.exchange, config["records"])
    both = pair.links[0].counts, pair.links[1].counts
    counts = [both[0][row] + both[1][row] for row in range(2 * KINDS)]
    assert [node.delivered for node in pair.nodes] == [pair.published // 2] * 2
    idle_bytes = opened(pair.epochs, 20)
    idle = locked(pair.epochs, config["epochs"])
    malformed = pair.nodes[1].malformed
    invalid_bytes = opened(pair.feed, 1)
    invalid = locked(pair.feed, -(-config["records"] // DAMAGED))
    return {
        "counts": counts, "bytes": bytes_open, "locked": through, "idle_bytes": idle_bytes,
        "idle_locked": idle, "invalid_bytes": invalid_bytes, "invalid_locked": invalid,
        "invalid_frames": len(pair.bad) * -(-config["records"] // DAMAGED),
        "malformed": pair.nodes[1].malformed - malformed,
    }  # fmt: skip


assert not locked(sentinel, 1), "the lock must notice an allocation"
result = state()
result["modes"] = [records(0), records(1)]
result["version"] = ".".join([str(part) for part in sys.implementation.version[:3]])
meter.say(result)
