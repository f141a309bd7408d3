# mypy: ignore-errors
"""What records and epochs allocate, each record type and direction of one profile.

On standard input: profile, family, modes (of one round each), shared, counters (numbers),
peers, offers, messages_max, stamp (hex), body, messages, warm_up, epochs, invalid.
Prints one JSON object.

First a short run in which the heap is measured around each call, then a long one under
`heap_lock`, where any allocation but a hash's own ends the run: `locked` says that it came
through, and `counts` how many records it saw.
"""

import gc

import meter
from pair import EPOCH_MS, PIECE, RECORDS, Pair

PIECES = 12
config = meter.settings()


def sentinel(count: int) -> "list":
    """Allocates."""
    return [count] * 9


def holds(pair: "Pair", call: "object", count: int) -> bool:
    """True when a call comes through under the lock."""
    try:
        pair.lock(call, count)
    except MemoryError:
        return False
    return True


def measure(pair: "Pair", count: int) -> None:
    """The heap around each call of a link, for so many messages."""
    pair.measured = pair.a.hash.measured = pair.b.hash.measured = True
    pair.open(pair.exchange, count)
    pair.measured = pair.a.hash.measured = pair.b.hash.measured = False


def hash_once(pair: "Pair") -> int:
    """What one message id allocates."""
    pair.a.hash.measured = True
    gc.collect()
    gc.disable()
    pair.publish(pair.a)
    gc.enable()
    pair.a.hash.measured = False
    return pair.a.hash.peak


class Run:
    """Fresh pairs, one after the other, until enough records have gone by under the lock."""

    def __init__(self) -> None:
        self.counts = [0] * (2 * RECORDS)
        self.peaks = [0] * (2 * RECORDS)
        self.hashes = 0
        self.locked = self.complete = True
        self.alloc_hash = 0
        self.bad: list = []
        self.pair = None

    def round(self, mode: int) -> None:
        """Warm up, measure, and exchange under the lock."""
        self.pair = None
        gc.collect()
        config["mode"] = mode
        pair = self.pair = Pair(config)
        pair.kept_max = 24
        pair.exchange(config["warm_up"])
        pair.kept_max = 0
        self.bad = meter.damaged(pair.kept, 24)
        self.feed(1)
        self.alloc_hash = hash_once(pair)
        pair.epochs(12)
        measure(pair, config["warm_up"])
        tallies = (pair.a.tally, pair.b.tally)
        hashes = pair.a.hash.count + pair.b.hash.count
        for tally in tallies:
            tally.counts = [0] * (2 * RECORDS)
        self.locked = holds(pair, pair.exchange, config["messages"]) and self.locked
        for tally in tallies:
            for row in range(2 * RECORDS):
                self.counts[row] += tally.counts[row]
                self.peaks[row] = max(self.peaks[row], tally.peaks[row])
        self.hashes += pair.a.hash.count + pair.b.hash.count - hashes
        whole = pair.a.node.delivered == pair.b.node.delivered == pair.published
        self.complete = self.complete and whole

    def feed(self, count: int) -> None:
        """Give every damaged frame to one end, so many times."""
        pair = self.pair
        while count:
            count -= 1
            for frame in self.bad:
                pair.b.link.receive(frame, len(frame), pair.now_ms)
            pair.epochs(1)


def pieces(pair: "Pair", count: int) -> bool:
    """True when so many pieces of a long message go through under the lock.

    The first and the last piece open and close files, an occasion of its own.
    """
    # A frame that was cut short may be a message of its own: b may have some that a has not.
    more = pair.b.node.delivered - pair.a.node.delivered
    body = bytearray(count * 2 * 1024)
    body[1] = 1
    handle = pair.a.node.publish(pair.a.group, body, len(body), pair.stamp, pair.now_ms)
    assert handle > 0, handle
    for _ in range(20):
        if pair.b.node.core.long.part(pair.b.link.peer) >= 0:
            break  # a piece that only asks opens nothing
        pair.now_ms += EPOCH_MS
        piece(pair, pair.a, pair.b)
        piece(pair, pair.b, pair.a)
    through = holds(pair, pair.pieces, count)
    pair.epochs(60)
    assert pair.b.node.delivered - pair.a.node.delivered == more, "the long message is there"
    return through


def piece(pair: "Pair", here: "object", there: "object") -> None:
    """Pass on frames up to the first piece."""
    while pair.pass_one(here, there):
        if there.tally.counts[PIECE + RECORDS]:
            return


run = Run()
for mode in config["modes"]:
    run.round(mode)
pair = run.pair
assert not holds(pair, sentinel, 1), "the lock must notice an allocation"
idle_bytes = pair.open(pair.epochs, 20)
idle_locked = holds(pair, pair.epochs, config["epochs"])
malformed = pair.b.node.malformed
invalid_bytes = pair.open(run.feed, 1)
invalid_locked = holds(pair, run.feed, config["invalid"])
pieces_locked = pieces(pair, PIECES)
meter.say(
    {
        "alloc_hash": run.alloc_hash,
        "counts": run.counts,
        "peaks": run.peaks,
        "hashes": run.hashes,
        "locked": run.locked,
        "complete": run.complete,
        "idle_bytes": idle_bytes,
        "idle_locked": idle_locked,
        "invalid_frames": len(run.bad) * config["invalid"],
        "invalid_bytes": invalid_bytes,
        "invalid_locked": invalid_locked,
        "pieces": PIECES,
        "pieces_locked": pieces_locked,
        "malformed": pair.b.node.malformed - malformed,
    }
)
