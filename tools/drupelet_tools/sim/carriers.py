"""Carriers with faults: serial lines, a broker that keeps and repeats, sticks that are carried.

What becomes of a frame follows from the seed of its direction and its number there, so leaving one
fault out of a run changes no other draw.
"""

from dataclasses import dataclass

from drupelet.base.errors import E_CAPACITY, OK
from drupelet_transports.common.framing import Decoder, encode_into, wire_size_max
from drupelet_transports.stick.stick import SPARE_SIZE

_MASK = (1 << 64) - 1
_PER_MILLE = 1024
# Frames that a broker keeps for a client that is away.
BROKER_QUEUE_MAX = 64
# Frames that somebody on the way keeps, to send them again when it likes.
KEPT_MAX = 64


def mix(value: int) -> int:
    """64 well-mixed bits of a number (the finaliser of SplitMix64)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31


@dataclass(slots=True)
class Rates:
    """How a direction treats frames; each share is of 1024, each time in ms."""

    loss: int = 0
    burst: int = 0  # a burst of losses begins at a frame ...
    burst_frames: int = 8  # ... and takes so many
    dup: int = 0
    reorder: int = 0  # held back for up to `reorder_ms`, behind frames that come after
    reorder_ms: int = 2_000
    flip: int = 0  # one bit
    cut: int = 0  # the frame's end is missing
    late: int = 0  # held back for up to `late_ms`
    late_ms: int = 0
    delay_ms: int = 20  # every frame
    jitter_ms: int = 20

    @property
    def clean(self) -> bool:
        """True when nothing but delay happens."""
        return not (
            self.loss or self.burst or self.dup or self.reorder or self.flip or self.cut
            or self.late
        )  # fmt: skip


CLEAN = Rates()


class Wire:
    """One direction of a carrier. `fates` turns a frame into what arrives, and when."""

    __slots__ = (
        "_burst", "_kept", "_last_ms", "lost", "number", "rates", "replay", "sealed", "seed",
        "serial", "twice",
    )  # fmt: skip

    def __init__(self, seed: int, serial: bool) -> None:
        self.seed = seed
        self.serial = serial
        self.sealed = False
        self.rates = CLEAN
        self.number = 0
        self.lost = 0
        self.twice = 0
        self.replay = 0  # of 1024: an old frame comes again with this one; sealed links only
        self._kept: list[bytes] = []
        self._burst = 0
        self._last_ms = 0

    def fates(self, frame: bytes, now_ms: int) -> list[tuple[int, bytes]]:
        """The copies that arrive, each with its time; empty when it is lost.

        Frames keep their order but for those that are held back.
        """
        self.number += 1
        rates = self.rates
        bits = mix(self.seed + self.number)
        delay_ms = rates.delay_ms + (bits >> 50) % (rates.jitter_ms + 1)
        at_ms = self._last_ms = max(self._last_ms, now_ms + delay_ms)
        if self.sealed and self.replay:
            return self._replayed(frame, at_ms, bits) + self._fates(frame, at_ms, bits)
        return self._fates(frame, at_ms, bits)

    def _replayed(self, frame: bytes, at_ms: int, bits: int) -> list[tuple[int, bytes]]:
        kept = self._kept
        if len(kept) < KEPT_MAX:
            kept.append(frame)
        else:
            kept[self.number % KEPT_MAX if self.number % 3 == 0 else 0] = frame
        more = mix(bits ^ 0x5EA1)
        if more & 1023 >= self.replay:
            return []
        return [(at_ms + (more >> 10 & 4095), kept[(more >> 24) % len(kept)])]

    def _fates(self, frame: bytes, at_ms: int, bits: int) -> list[tuple[int, bytes]]:
        rates = self.rates
        if rates.clean:
            return [(at_ms, frame)]
        if self._burst or bits >> 40 & 1023 < rates.burst:
            self._burst = self._burst - 1 if self._burst else rates.burst_frames
            self.lost += 1
            return []
        if bits & 1023 < rates.loss:
            self.lost += 1
            return []
        more = mix(bits)
        if bits >> 10 & 1023 < rates.reorder:
            at_ms += (more & 0xFFFFFFFF) % (rates.reorder_ms + 1)
        if more >> 54 < rates.late:
            at_ms += (more >> 20 & 0x3FFFFFFF) % (rates.late_ms + 1)
        arriving = self._damaged(frame, rates, bits, more)
        if not arriving:
            self.lost += 1
            return []
        arrivals = [(at_ms, arriving)]
        if bits >> 20 & 1023 < rates.dup:
            self.twice += 1
            again_ms = (more >> 32) % (2 * rates.reorder_ms + 1)
            arrivals.append((self._last_ms + again_ms, frame))
        return arrivals

    def _damaged(self, frame: bytes, rates: Rates, bits: int, more: int) -> bytes:
        if bits >> 30 & 1023 < rates.flip:
            return self._spoil(frame, more, False)
        if more & 1023 < rates.cut:
            return self._spoil(frame, more, True)
        return frame

    def _spoil(self, frame: bytes, more: int, cut: bool) -> bytes:
        """The frame with a flipped bit, or cut short; on a line, what its far end decodes."""
        wire = bytearray(wire_size_max(len(frame))) if self.serial else bytearray(frame)
        size = encode_into(wire, bytearray(frame), len(frame)) if self.serial else len(frame)
        place = (more >> 10) % size
        if cut:
            size = place
        else:
            wire[place] ^= 1 << (more & 7)
        if not self.serial:
            # TCP delivers no such thing; behind a seal it is the broker's work.
            return bytes(wire[:size]) if self.sealed else b""
        decoder = Decoder(len(frame))
        at = 0
        while at < size:
            at = decoder.feed(wire, at, size)
            if decoder.size:
                return bytes(decoder.frame[: decoder.size])
        return b""


@dataclass(slots=True)
class Bundle:
    """A file on a stick: its frames, the highest bundle its writer had read, and its end."""

    frames: list[bytes]
    seen: int
    complete: bool


class SimStick:
    """A stick that is carried from node to node; `view` is what a device's visit works on."""

    def __init__(self, capacity: int = 1 << 20) -> None:
        self.capacity = capacity
        self.files: dict[tuple[bytes, bytes, int], Bundle] = {}
        # A stick that is pulled keeps so many frames of the bundle that is being written; -1: all.
        self.pulled_after = -1

    def view(self, own_id: bytes) -> "StickView":
        """The stick as one device sees it."""
        return StickView(self, own_id)

    def copy(self) -> "SimStick":
        """Another stick with the same content: an image that somebody kept."""
        other = SimStick(self.capacity)
        other.files = dict(self.files)
        return other

    def spoil(self, bits: int) -> None:
        """Cut one bundle short, as a damaged sector does."""
        names = sorted(self.files)
        if names:
            name = names[bits % len(names)]
            bundle = self.files[name]
            kept = (bits >> 16) % (len(bundle.frames) + 1)
            self.files[name] = Bundle(bundle.frames[:kept], bundle.seen, False)

    @property
    def used(self) -> int:
        """Bytes on the stick."""
        return sum(sum(map(len, bundle.frames)) for bundle in self.files.values())


class StickView:
    """The calls of `drupelet_transports.stick.stick.Stick` that a visit makes."""

    def __init__(self, stick: SimStick, own_id: bytes) -> None:
        self.stick = stick
        self.own_id = own_id

    def present(self) -> bool:
        """A visit happens only where the stick is."""
        return True

    def _numbers(self, receiver: bytes, sender: bytes) -> list[int]:
        return sorted(n for to, by, n in self.stick.files if to == receiver and by == sender)

    def reader(self, sender_id: bytes, after: int) -> "_Reader":
        """The sender's bundles for us above a number, ascending."""
        numbers = [n for n in self._numbers(self.own_id, bytes(sender_id)) if n > after]
        files = [(n, self.stick.files[self.own_id, bytes(sender_id), n]) for n in numbers]
        return _Reader(files)

    def newest_own(self, receiver_id: bytes, _last: int) -> int:
        """The highest number of our bundles for that receiver; 0 for none."""
        return max(self._numbers(bytes(receiver_id), self.own_id), default=0)

    def clean(self, receiver_id: bytes, through: int) -> int:
        """Remove own bundles numbered up to `through`."""
        for number in self._numbers(bytes(receiver_id), self.own_id):
            if number <= through:
                del self.stick.files[bytes(receiver_id), self.own_id, number]
        return OK

    def writer(self, receiver_id: bytes, number: int, seen: int) -> "_Writer":
        """A new bundle."""
        assert (bytes(receiver_id), self.own_id, number) not in self.stick.files
        return _Writer(self.stick, (bytes(receiver_id), self.own_id, number), seen)


class _Reader:
    def __init__(self, files: list[tuple[int, Bundle]]) -> None:
        self._files = iter(files)
        self._frames = iter([b""])
        self.number = self.seen = self.taken = self.last_wire_size = 0
        self.complete = False
        self._whole = False

    def next(self) -> bool:
        for number, bundle in self._files:
            self.number, self.seen = number, bundle.seen
            self._frames = iter(bundle.frames)
            self._whole = bundle.complete
            self.complete = False
            return True
        return False

    def read_into(self, frame: bytearray) -> int:
        for data in self._frames:
            frame[: len(data)] = data
            self.last_wire_size = len(data) + 4
            return len(data)
        self.complete = self._whole
        return 0


class _Writer:
    def __init__(self, stick: SimStick, name: tuple[bytes, bytes, int], seen: int) -> None:
        self._stick = stick
        self._name = name
        self._bundle = Bundle([], seen, True)
        self._room = stick.capacity - stick.used
        self.size = self.answer_size = 0
        self.last_wire_size = 0

    def write(self, frame: bytearray, size: int) -> int:
        if self._stick.pulled_after == 0:
            return E_CAPACITY
        self._stick.pulled_after -= 1
        self._room -= size + 4
        if self._room < 0:
            return E_CAPACITY
        self._bundle.frames.append(bytes(frame[:size]))
        self.last_wire_size = size + 4
        self.size += size + 4
        return OK

    @property
    def room(self) -> int:
        return max(self._room - SPARE_SIZE, 0)

    message_room = room

    def finish(self) -> int:
        if self._stick.pulled_after == 0:
            return E_CAPACITY
        self._stick.files[self._name] = self._bundle
        return OK

    def abandon(self) -> None:
        self._room = -1
