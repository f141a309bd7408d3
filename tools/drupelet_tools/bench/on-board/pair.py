# mypy: ignore-errors
"""Two nodes that exchange what they publish, and who counts the records and the heap meanwhile."""

import gc

import meter

try:
    import micropython
except ImportError:  # CPython: nothing is locked and nothing measured there
    micropython = None
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.node import Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore

EPOCH_MS = 1000
SEGMENT_SIZE = 65535  # one takes a whole run: making a file is an occasion of its own
RECORDS = 6  # what a tally knows: ACK, MESSAGE, OFFER, REQUEST, what else a profile has, pieces
OTHER, PIECE = 4, 5


class Tally:
    """A black box that only counts records; `seen` are those of the call that is being made."""

    def __init__(self, base: int) -> None:
        self._base = base
        self.seen = bytearray(2 * RECORDS)
        self.counts = [0] * (2 * RECORDS)
        self.peaks = [0] * (2 * RECORDS)
        self.header = 1

    def log(self, *_: object) -> None:
        """Not kept."""

    def count(self, index: int, amount: int) -> None:
        """Account for one record of one kind and direction."""
        at = index - self._base
        if at < 0 or at >= 32:
            return
        row = 0
        if at >= 16:
            at -= 16
            row = RECORDS
        if 8 <= at < 12:
            row += at - 8
        elif at == 12:
            row += PIECE
        elif at == 7 and amount > self.header:
            row += OTHER
        else:
            return
        self.seen[row] = 1
        self.counts[row] += 1

    def log_id(
        self, now_ms: int, code: int, a: int, b: int, ids: "bytearray", at: int
    ) -> None:  # fmt: skip
        """Not kept."""

    def end_call(self, allocated: int) -> None:
        """A call is over: it allocated so much, whatever records it handled."""
        row = 0
        while row < 2 * RECORDS:
            if self.seen[row]:
                self.seen[row] = 0
                if allocated > self.peaks[row]:
                    self.peaks[row] = allocated
            row += 1


class OpenHash:
    """A hash that may allocate although the heap is locked; it knows what it took.

    It looks at the heap only while `measured` is set: that takes longer than the hash.
    """

    def __init__(self, inner: "object") -> None:
        self.inner = inner
        self.locked = False
        self.measured = False
        self.bytes = 0  # of this id so far
        self.total = 0  # of all
        self.peak = 0
        self.count = 0
        self._before = 0

    def start(
        self, group_id: "bytes", at: int, stamp: "bytes", stamp_at: int, size: int
    ) -> None:  # fmt: skip
        """Begin an id."""
        self._open()
        self.inner.start(group_id, at, stamp, stamp_at, size)
        self._close()

    def update(self, body: "bytes", at: int, size: int) -> None:
        """Go on."""
        self._open()
        self.inner.update(body, at, size)
        self._close()

    def digest_into(self, out: "bytearray", at: int) -> None:
        """End."""
        self._open()
        self.inner.digest_into(out, at)
        self._close()
        self.count += 1
        if self.bytes > self.peak:
            self.peak = self.bytes
        self.bytes = 0

    def _open(self) -> None:
        if self.locked:
            micropython.heap_unlock()
        elif self.measured:
            self._before = meter.used()

    def _close(self) -> None:
        if self.locked:
            micropython.heap_lock()
        elif self.measured:
            taken = meter.used() - self._before
            self.bytes += taken
            self.total += taken


class End:
    """One of the two nodes, and its link to the other."""

    def __init__(self, config: "dict", other: bytes) -> None:
        store = FlashStore(
            RamFiles(1 << 20, SEGMENT_SIZE, 6), segment_size=SEGMENT_SIZE, segments_max=4
        )
        store.open()
        self.node = Node(
            store, meter.no_random, config["peers"], 2, config["messages_max"], config["offers"]
        )
        self.tally = self.node.core.box = Tally(config["counters"])
        if config["family"]:
            self.group = self.node.join_id(READINGS_CLIENT_ID, config["family"])
        else:
            self.group = self.node.join(READINGS_CLIENT_ID, b"bench")
        hashes = self.node.core.hashes
        self.hash = OpenHash(hashes[config["family"]])
        self._replace_hash(self.hash.inner, self.hash)
        peer = self.node.add_peer(other)
        self.node.share(self.group, peer, config["shared"])
        self.node.boot(0)
        self.link = self.node.link(peer, config["profile"], 0, EPOCH_MS, config["mode"])

    def use_bare_hash(self) -> None:
        """Hash as a node does whose heap nobody measures."""
        self._replace_hash(self.hash, self.hash.inner)

    def _replace_hash(self, old: "object", new: "object") -> None:
        hashes = self.node.core.hashes
        for family in range(len(hashes)):
            if hashes[family] is old:
                hashes[family] = new


class Pair:
    """Both ends, one clock, and one frame buffer."""

    def __init__(self, config: "dict") -> None:
        self.a = End(config, b"BBBB")
        self.b = End(config, b"AAAA")
        self.now_ms = 0
        self.frame = bytearray(1024)
        self.stamp = bytearray(bytes.fromhex(config["stamp"]))
        self.body = bytearray(config["body"])
        self.published = 0
        self.measured = False
        self.kept: list = []  # copies of frames, while there is room for more
        self.kept_max = 0

    def publish(self, end: "End") -> None:
        """Put a message of its own into a node's log."""
        self.published += 1
        self.body[1] = self.published >> 8
        self.body[2] = self.published & 255
        handle = end.node.publish(
            end.group, self.body, len(self.body), self.stamp, self.now_ms
        )  # fmt: skip
        assert handle > 0, handle

    def pass_on(self, here: "End", there: "End") -> None:
        """Everything that is due from one end to the other."""
        while self.pass_one(here, there):
            pass

    def pass_one(self, here: "End", there: "End") -> int:
        """One frame from one end to the other; its size, 0 when nothing is due."""
        size = self._poll(here)
        if size:
            if len(self.kept) < self.kept_max:
                self.kept.append(bytearray(self.frame[:size]))
            self._receive(there, size)
        return size

    def pieces(self, count: int) -> None:
        """So many frames from A to B; when nothing is due, time passes."""
        while count:
            if self.pass_one(self.a, self.b):
                count -= 1
            else:
                self.now_ms = (self.now_ms + EPOCH_MS) & 0x3FFFFFFF

    def _poll(self, end: "End") -> int:
        before = self._used(end)
        size = end.link.poll_into(self.frame, self.now_ms)
        end.tally.end_call(self._used(end) - before)
        return size

    def _receive(self, end: "End", size: int) -> None:
        before = self._used(end)
        end.link.receive(self.frame, size, self.now_ms)
        end.tally.end_call(self._used(end) - before)

    def _used(self, end: "End") -> int:
        return meter.used() - end.hash.total if self.measured else 0

    def take(self, end: "End") -> None:
        """The client's turn."""
        while end.node.next_event():
            end.node.done(end.node.event_handle)
        end.node.wake_ms(self.now_ms)

    def epochs(self, count: int) -> None:
        """Let so many epochs pass."""
        while count:
            count -= 1
            self.now_ms = (self.now_ms + EPOCH_MS) & 0x3FFFFFFF
            self.pass_on(self.a, self.b)
            self.pass_on(self.b, self.a)
            self.take(self.a)
            self.take(self.b)

    def exchange(self, count: int) -> None:
        """Publish so many on both sides, and go on until all is acknowledged."""
        while count:
            count -= 1
            self.publish(self.a)
            self.publish(self.b)
            self.epochs(2)
        self.epochs(12)

    def lock(self, call: "object", count: int) -> None:
        """Make a call while nothing but a hash may allocate; MemoryError when something does."""
        gc.collect()
        self.a.hash.locked = self.b.hash.locked = True
        micropython.heap_lock()
        try:
            call(count)
        finally:
            micropython.heap_unlock()
            self.a.hash.locked = self.b.hash.locked = False

    def open(self, call: "object", count: int) -> int:
        """Make a call and return what it allocates in all; nothing is collected meanwhile."""
        gc.collect()
        gc.disable()
        before = meter.used()
        call(count)
        allocated = meter.used() - before
        gc.enable()
        return allocated
