# mypy: ignore-errors
# ruff: noqa: ARG002
"""How long a codec takes for each record type, a node for a record, and a hash for its bytes.

On standard input: profile, family, mode, shared, counters (numbers), peers, offers, messages_max,
stamp (hex), body, codecs (whether records are measured, too), min_us (how long each measurement
takes at least); or sizes (what is hashed), seals (what is sealed) and min_us. Prints one JSON
object.
"""

import gc
import hashlib
import sys

import meter
from stopwatch import best_us, now_us, passed_us

from drupelet.base.hashes import Blake2s
from drupelet.base.memory import copy

KINDS = ("ACK", "MESSAGE", "OFFER", "REQUEST")
ACK, MESSAGE, OFFER, REQUEST = 0, 1, 2, 3
IDS = 8  # messages that both ends hold
FRAME_SIZE = 1024
config = meter.settings()


def once_us(call: "object") -> float:
    """Microseconds of one call."""
    return best_us(call, config["min_us"])


class Messages:
    """The ids of what one end has for the other, by row, and with `compact-1` its numbers."""

    def __init__(self, exchange: "object") -> None:
        outbox = exchange.outbox
        self.numbers = [0] * IDS
        self.ids = bytearray(32 * IDS)
        for row in range(IDS):
            assert exchange.core.store.id_into(outbox.handles[row], self.ids, row * 32)
            self.numbers[row] = outbox.number(row)


class Engine:
    """Stands where an exchange stands for its codec: has messages, and takes everything."""

    def __init__(self, real: "object", messages: Messages) -> None:
        self.real = real
        self.core = real.core
        self.peer = real.peer
        self.visits = False
        self.interactive = True
        self.kind = 0
        self.left = 0
        self.seen = 0
        self.body = bytearray(config["body"] + 1)
        self.messages = messages

    def __getattr__(self, name: str) -> "object":
        return getattr(self.real, name)

    def _take(self, buf: "bytearray", at: int, kind: int) -> int:
        if self.kind != kind or not self.left:
            return 0
        self.left -= 1
        self.core.message_row = self.left
        copy(buf, at, self.messages.ids, self.left * 32, 32)
        return 1 + self.messages.numbers[self.left]

    def take_ack(self, buf: "bytearray", at: int) -> int:
        """The next id, while this is what is encoded."""
        return self._take(buf, at, ACK)

    def take_request(self, buf: "bytearray", at: int, prefixes: bool = False) -> int:
        """The same."""
        return self._take(buf, at, REQUEST)

    def take_offer(self, buf: "bytearray", at: int) -> bool:
        """The same."""
        return self._take(buf, at, OFFER) > 0

    def next_message(self) -> bool:
        """The message that the store has loaded, again and again."""
        self.core.message_row = self.left - 1
        return self.kind == MESSAGE and self.left > 0

    def body_into(self, buf: "bytearray", at: int, offset: int, size: int) -> bool:
        """Its body is zeros."""
        copy(buf, at, self.body, offset, size)
        return True

    def put_message(self) -> None:
        """It is in the frame."""
        self.left -= 1

    def too_long(self) -> None:
        """None is."""
        self.left = 0

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        """Nobody keeps accounts."""

    def on_ack(self, buf: "bytearray", at: int) -> None:
        """Count it."""
        self.seen += 1

    def on_offer(self, buf: "bytearray", at: int) -> None:
        """Count it."""
        self.seen += 1

    def on_request(self, buf: "bytearray", at: int) -> None:
        """Count it."""
        self.seen += 1

    def acked(self, row: int) -> None:
        """Count it."""
        self.seen += 1

    def requested(self, row: int) -> None:
        """Count it."""
        self.seen += 1

    def on_message(
        self, group: "bytearray", group_at: int, stamp: "bytearray", stamp_at: int,
        body: "bytearray", at: int, size: int,
    ) -> None:  # fmt: skip
        """Count it."""
        self.seen += 1


class Codec:
    """One record type through one end's codec and into the other's."""

    def __init__(
        self, here: "object", there: "object", messages: Messages, kind: int, count: int
    ) -> None:
        self.encoder = here.codec
        self.decoder = there.codec
        self.source = Engine(here.exchange, messages)
        self.target = Engine(there.exchange, messages)
        self.source.kind = kind
        self.kind_byte = 0x40 | config["profile"]
        self.count = count
        self.frame = bytearray(FRAME_SIZE)
        self.end = 1

    def encode(self, times: int) -> None:
        """Fill a frame, so many times."""
        frame = self.frame
        while times:
            times -= 1
            frame[0] = self.kind_byte
            self.source.left = self.count
            self.end = self.encoder.fill(self.source, frame, 1, FRAME_SIZE)

    def parse(self, times: int) -> None:
        """Read that frame, so many times."""
        while times:
            times -= 1
            self.target.seen = 0
            self.decoder.parse(self.target, self.frame, 1, self.end)


def codec_rows(pair: "object") -> "list":
    """[work, record, bytes, µs of one record] of each type."""
    rows = []
    messages = Messages(pair.a.link.exchange)
    for kind in range(4):
        # A writes messages and offers; its peer acknowledges and asks.
        here, there = pair.a.link, pair.b.link
        if kind in (ACK, REQUEST):
            here, there = there, here
        count = IDS if kind != MESSAGE else 4
        assert here.core.store.load(here.core.store.next(0)) == 0
        codec = Codec(here, there, messages, kind, count)
        codec.encode(1)
        codec.parse(1)
        assert codec.target.seen == count, KINDS[kind]
        size = (codec.end - 1) / count
        rows.append(["encode", KINDS[kind], size, once_us(codec.encode) / count])
        rows.append(["parse", KINDS[kind], size, once_us(codec.parse) / count])
    return rows


class Ids:
    """Hashes some bytes, so many times."""

    def __init__(self, size: int) -> None:
        self.data = bytes(size)
        self.hash = Blake2s()
        self.out = bytearray(32)

    def sha256(self, times: int) -> None:
        """The interpreter's own."""
        while times:
            times -= 1
            hashlib.sha256(self.data).digest()

    def blake2s(self, times: int) -> None:
        """The firmware's."""
        while times:
            times -= 1
            self.hash.start()
            self.hash.update(self.data, 0, len(self.data))
            self.hash.digest_into(self.out, 0)


class Seals:
    """Seals and opens a frame of some bytes, so many times."""

    def __init__(self, aead: "object", size: int) -> None:
        self.size = size
        self.aead = aead
        self.cipher = self.aead.cipher(bytes(range(16)), 0)
        self.nonce = bytearray(13)
        self.frame = bytearray(7 + size + 8)
        self.sealed = bytearray(len(self.frame))
        self.seal(1)
        copy(self.sealed, 0, self.frame, 0, len(self.frame))

    def seal(self, times: int) -> None:
        """In place, over and over: what is in it makes no difference."""
        while times:
            times -= 1
            self.aead.seal(self.cipher, self.nonce, self.frame, 0, 7, self.size, 8)

    def open(self, times: int) -> None:
        """An authentic frame each time, for others end sooner or later; with the copy of it."""
        while times:
            times -= 1
            self.frame[:] = self.sealed
            assert self.aead.open(self.cipher, self.nonce, self.frame, 0, 7, self.size, 8)


class Engines:
    """Messages from node to node: published, sent, checked, stored, acknowledged."""

    def __init__(self, pair: "object") -> None:
        self.pair = pair

    def run(self, count: int) -> float:
        """Microseconds of one message from A to B with everything that both ends do for it."""
        pair = self.pair
        gc.collect()
        since = now_us()
        for _ in range(count):
            for _message in range(IDS):
                pair.publish(pair.a)
            pair.epochs(2)
        pair.epochs(4)
        return passed_us(since) / count / IDS


def hash_rows() -> "list":
    """[bytes, µs of BLAKE2s, µs of the builtin SHA-256] for each size.

    With nothing else in the heap: the builtin makes an object each time, and finding room for it
    takes the longer, the more there is.
    """
    rows = []
    for size in config["sizes"]:
        ids = Ids(size)
        rows.append([size, once_us(ids.blake2s), once_us(ids.sha256)])
    return rows


def seal_rows() -> "list":
    """[whose AES, bytes, µs to seal, µs to open] for each size."""
    where = "boards.aead" if meter.MICROPYTHON else "drupelet_host.base.aead"
    aeads = [("", __import__(where, None, None, ("Aead",)).Aead())]
    if meter.MICROPYTHON:
        aeads += [("viper", core_aead("_aes_plain")), ("bytecode", core_aead("_aes_viper"))]
    rows = []
    for name, aead in aeads:
        for size in config["seals"]:
            seals = Seals(aead, size)
            rows.append([name, size, once_us(seals.seal), once_us(seals.open)])
    return rows


def core_aead(without: str) -> "object":
    """The AEAD of a port without `cryptolib`; its AES cannot import the loops of `without`."""
    for name in ("aes", "_aes_plain", "_aes_viper"):
        sys.modules.pop("drupelet.base." + name, None)
    sys.modules["drupelet.base." + without] = object()
    from drupelet.base.aes import Aes
    from drupelet.base.ccm import Ccm

    return Ccm(Aes)


def main() -> None:
    """Measure what is asked for."""
    if config["sizes"]:
        meter.say({"hashes": hash_rows(), "seals": seal_rows()})
        return
    from pair import Pair

    pair = Pair(config)
    for end in (pair.a, pair.b):
        end.use_bare_hash()
    for _ in range(IDS):
        pair.publish(pair.a)
    pair.epochs(4)
    delivery_us = Engines(pair).run(12)
    assert pair.b.node.delivered == pair.published
    codec = codec_rows(pair) if config["codecs"] else []
    meter.say({"codec": codec, "delivery_us": delivery_us})


main()
