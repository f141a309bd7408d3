"""Sealed ends of the pipe: keys in RAM, and a carrier that keeps what goes through it."""

import random

from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.limits import FRAME_SIZE_MAX, SEAL_STEPS_HOST_MAX
from drupelet.seal.record import RECORD_SIZE, install
from drupelet.seal.seal import CLASS_BUNDLE, CLASS_LIVE, Seal, SealContext
from drupelet.seal.sleep import SLEEP_SIZE, export_into, import_from
from drupelet_host.base.aead import Aead
from drupelet_tools.bench.errors import BenchError
from drupelet_transports.common.transport import Transport
from drupelet_transports.seal.sealed_carrier import Sealed

_KID = 4
_STORE_GEN = b"\x00\x00\x00\x01"


class RamKeys:
    """Chain records that nothing has to outlive."""

    def __init__(self, own_id: bytes, peer_id: bytes) -> None:
        self.own_id = own_id
        self.peer_id = peer_id
        self._rows: dict[int, bytes] = {}

    def load(self, row: int, out: bytearray) -> int:
        """See KeyPort."""
        kept = self._rows.get(row)
        if kept is None:
            return E_STORAGE
        out[:RECORD_SIZE] = kept
        return OK

    def save(self, row: int, record: bytearray) -> int:
        """See KeyPort."""
        self._rows[row] = bytes(record)
        return OK

    def drop(self, row: int) -> int:
        """See KeyPort."""
        self._rows.pop(row, None)
        return OK

    def revoke(self, id: bytearray, at: int) -> int:
        """See KeyPort; nobody is revoked here."""
        raise AssertionError(bytes(id[at : at + 4]))


class Wire(Transport):
    """One end of a pipe; `frames` is the pair's account. A frame is at once at the other end."""

    def __init__(self, from_a: bool, frames: list[tuple[bool, bytes]]) -> None:
        super().__init__(FRAME_SIZE_MAX)
        self.inbox: list[bytes] = []
        self.other: Wire | None = None
        self.frames = frames
        self._from_a = from_a

    def send(self, frame: bytearray, size: int) -> int:
        """See Transport."""
        assert self.other is not None
        taken = bytes(frame[:size])
        self.frames.append((self._from_a, taken))
        self.other.inbox.append(taken)
        self.last_wire_size = size
        return OK

    def receive_into(self, frame: bytearray) -> int:
        """See Transport."""
        if not self.inbox:
            return 0
        taken = self.inbox.pop(0)
        frame[: len(taken)] = taken
        self.last_wire_size = len(taken)
        return len(taken)

    def close(self) -> None:
        """See Transport."""


class SealedEnds:
    """Both ends' seals, and their carriers around a pipe."""

    def __init__(self, a_id: bytes, b_id: bytes, draw: random.Random) -> None:
        self._now_ms = 0
        root = draw.randbytes(32)
        self.contexts: list[SealContext] = []
        self.keys = (RamKeys(a_id, b_id), RamKeys(b_id, a_id))
        self._draw = draw
        for keys in self.keys:
            install(keys, root, _KID, 0, 0)
            self.contexts.append(self._context())
        self.frames: list[tuple[bool, bytes]] = []
        wires = (Wire(True, self.frames), Wire(False, self.frames))
        wires[0].other, wires[1].other = wires[1], wires[0]
        self.carriers = tuple(
            Sealed(
                wire, self.seal(end, CLASS_LIVE), lambda: self._now_ms, bytearray(FRAME_SIZE_MAX)
            )
            for end, wire in enumerate(wires)
        )
        self.bundles = tuple(self.seal(end, CLASS_BUNDLE) for end in range(2))

    def _context(self) -> SealContext:
        draw = self._draw
        return SealContext(
            Aead(), lambda: draw.randrange(256), _STORE_GEN, SEAL_STEPS_HOST_MAX
        )  # fmt: skip

    def seal(self, end: int, carrier_class: int) -> Seal:
        """A seal of one end, from its records. Raises BenchError."""
        seal = Seal(self.contexts[end], self.keys[end], carrier_class)
        if seal.load() != OK:
            raise BenchError("the bench has lost its own keys")
        return seal

    def at(self, now_ms: int) -> None:
        """Set the clock."""
        self._now_ms = now_ms

    def _clock(self) -> int:
        return self._now_ms

    def open_epoch(self, end: int) -> None:
        """The next frame of one end opens an epoch."""
        self.carriers[end].seal.renew = True

    def sleep(self, end: int) -> None:
        """One end sleeps deeply: its key state goes through a snapshot. Raises BenchError."""
        kept = bytearray(SLEEP_SIZE)
        size = export_into(self.carriers[end].seal, kept, 0)
        seal = self.seal(end, CLASS_LIVE)
        if import_from(seal, kept, 0, size) != OK:
            raise BenchError("the snapshot does not fit")
        seal.frame_size_max = FRAME_SIZE_MAX
        self.carriers[end].seal = seal

    def reboot(self, end: int) -> None:
        """One end boots without a snapshot: its next frame opens an epoch."""
        seal = self.seal(end, CLASS_LIVE)
        seal.frame_size_max = FRAME_SIZE_MAX
        self.carriers[end].seal = seal
