"""The key folder of a home: the chains of every peer, each class in a file and lock of its own.

    keys/            0700
      a0000001.live      0600  six records of 52 bytes (docs/SPEC.md 8.2): serial lines and MQTT
      a0000001.bundle    0600  four for sticks
      a0000001.live.lock 0600  held while a process uses that chain

The files hold chain keys, never a root. Live and bundle chains have nothing in common, so a stick
can be written while the agent talks.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drupelet.base.errors import E_PEER, E_STORAGE, OK, DrupeletError
from drupelet.seal.record import (
    FLAG_ISSUER,
    FLAG_PACKS,
    FLAG_RECEIVE,
    FLAG_REVOKED,
    FLAG_TAG16,
    FLAG_WAITING,
    RECORD_SIZE,
    finish,
    is_sound,
)
from drupelet_host.home import private_files

LIVE = 0
BUNDLE = 1
CLASS_NAMES = ("live", "bundle")
_CLASS_WORDS = ("cables and brokers", "sticks")
ROWS = 10
CHAIN_ROWS = 8  # the others hold name keys, of one generation each
_ROWS_PER_CLASS = 4
# Of a class, in one file, in this order; topics of a broker belong to the live chains.
ROWS_OF = ((0, 1, 2, 3, 8, 9), (4, 5, 6, 7))
FILE_SIZES = tuple(len(rows) * RECORD_SIZE for rows in ROWS_OF)
ID_SIZE = 4
_EMPTY = bytes(RECORD_SIZE)
_NAME = re.compile(r"([0-9a-f]{8})\.(live|bundle)")
_KEY = slice(16, 48)


def _place_of(row: int) -> tuple[int, int]:
    """The class in whose file a row is, and where there."""
    carrier_class = BUNDLE if row in ROWS_OF[BUNDLE] else LIVE
    return carrier_class, ROWS_OF[carrier_class].index(row) * RECORD_SIZE


class KeysError(DrupeletError):
    """There are no keys, or they may not be used; the text says for whom, and the remedy."""


@dataclass(frozen=True)
class ChainState:
    """What may be told of one record; the chain key is not among it."""

    row: int
    kid: int
    generation: int
    epoch: int
    extra: int
    tag_size: int
    revoked: bool
    waiting: bool
    issuer: bool
    packs: bool

    @property
    def carrier_class(self) -> int:
        """LIVE or BUNDLE."""
        return self.row // _ROWS_PER_CLASS

    @property
    def receives(self) -> bool:
        """True for the chain of what the peer sends."""
        return bool(self.row & 2)


def state_of(row: int, record: bytes | bytearray) -> ChainState | None:
    """The public part of a record; None for one that is not there or not sound."""
    flags = record[1]
    if not is_sound(record) or bool(flags & FLAG_RECEIVE) != bool(row & 2):
        return None
    return ChainState(
        row, int.from_bytes(record[2:4]), int.from_bytes(record[4:6]),
        int.from_bytes(record[8:12]), int.from_bytes(record[12:16]),
        16 if flags & FLAG_TAG16 else 8, bool(flags & FLAG_REVOKED), bool(flags & FLAG_WAITING),
        bool(flags & FLAG_ISSUER), bool(flags & FLAG_PACKS),
    )  # fmt: skip


@dataclass
class HostKeys:
    """The key port of one peer (docs/SPEC.md 11). `open` a class before its rows are used.

    `revoke_other` carries out a REVOKE that the peer sent: it gets a device id and a kid.
    """

    folder: Path
    own_id: bytes
    peer_id: bytes
    revoke_other: Callable[[bytes, int], int] = lambda _, __: E_PEER
    failure: str = ""  # why the last call failed
    _locks: dict[int, int] = field(default_factory=dict, repr=False)
    # Key material: in no message and no traceback.
    _files: dict[int, bytearray] = field(default_factory=dict, repr=False)

    def path(self, carrier_class: int) -> Path:
        """The file of one class."""
        return self.folder / f"{self.peer_id.hex()}.{CLASS_NAMES[carrier_class]}"

    def open(self, carrier_class: int) -> None:
        """Own one class of chains until `close`; raises PrivateError, BusyError, StorageError."""
        if carrier_class in self._locks:
            return
        private_files.check(self.folder)
        path = self.path(carrier_class)
        fd = private_files.lock(path.with_name(path.name + ".lock"))
        try:
            there = path.is_symlink() or path.exists()
            content = private_files.read(path, FILE_SIZES[carrier_class]) if there else b""
        except DrupeletError:
            os.close(fd)
            raise
        self._locks[carrier_class] = fd
        self._files[carrier_class] = bytearray(content.ljust(FILE_SIZES[carrier_class], b"\0"))

    def close(self) -> None:
        """Let go of the files."""
        for fd in self._locks.values():
            os.close(fd)
        self._locks.clear()
        for content in self._files.values():
            content[:] = bytes(len(content))
        self._files.clear()

    def load(self, row: int, out: bytearray) -> int:
        """Put the record of `row` into out[0:52]; OK, or E_STORAGE when there is none."""
        carrier_class, at = _place_of(row)
        content = self._content(carrier_class)
        if content is None:
            return E_STORAGE
        out[:RECORD_SIZE] = content[at : at + RECORD_SIZE]
        return OK if is_sound(out) else E_STORAGE

    def _content(self, carrier_class: int) -> bytearray | None:
        """The file of one class, opened if it is not yet: a REKEY changes both."""
        if carrier_class not in self._files:
            try:
                self.open(carrier_class)
            except DrupeletError as error:
                self.failure = str(error)
                return None
        return self._files[carrier_class]

    def save(self, row: int, record: bytes | bytearray) -> int:
        """Keep record[0:52]; durable when it returns OK, else what was there stays."""
        return self.save_all({row: record})

    def save_all(self, records: Mapping[int, bytes | bytearray]) -> int:
        """As `save`, for rows of one class: all of them, or none."""
        (carrier_class,) = {_place_of(row)[0] for row in records}
        before = self._content(carrier_class)
        if before is None:
            return E_STORAGE
        content = bytearray(before)
        for row, record in records.items():
            at = _place_of(row)[1]
            content[at : at + RECORD_SIZE] = record[:RECORD_SIZE]
        path = self.path(carrier_class)
        try:
            private_files.replace(path, bytes(content))
            if private_files.read(path, len(content)) != content:
                self.failure = f"{path}: does not hold what was written"
                return E_STORAGE
        except DrupeletError as error:
            self.failure = str(error)
            return E_STORAGE
        before[:] = content
        return OK

    def drop(self, row: int) -> int:
        """Forget the record of `row`."""
        return self.save(row, _EMPTY)

    def revoke(self, buf: bytes | bytearray, at: int) -> int:
        """The peer says that keys of a device are not to be trusted any more."""
        device_id, kid = bytes(buf[at : at + ID_SIZE]), buf[at + ID_SIZE : at + ID_SIZE + 2]
        try:
            return self.revoke_other(device_id, int.from_bytes(kid))
        except DrupeletError as error:  # another process holds them, or the disk is ill
            self.failure = str(error)
            return E_STORAGE

    def mark_revoked(self, kid: int) -> int:
        """Wipe the keys of this peer with this base, 0 for all; what stays says so.

        A class is wiped in one step; after a cut in between the peer is refused in both.
        """
        code = OK
        for rows in ROWS_OF:
            wiped = {}
            for row in rows:
                record = bytearray(RECORD_SIZE)
                if self.load(row, record) == OK and kid in (0, int.from_bytes(record[2:4]) & ~3):
                    record[1] |= FLAG_REVOKED
                    record[_KEY] = bytes(32)
                    finish(record)
                    wiped[row] = record
            if wiped:
                code = self.save_all(wiped) or code
        return code

    def states(self) -> list[ChainState]:
        """The public part of every record."""
        record = bytearray(RECORD_SIZE)
        kept = []
        for row in range(CHAIN_ROWS):
            if self.load(row, record) == OK:
                kept.append(state_of(row, record))
        record[:] = bytes(RECORD_SIZE)
        return [state for state in kept if state is not None]


def class_of(carrier: str) -> int:
    """The class of the chains that a carrier's frames are sealed with: LIVE or BUNDLE."""
    return BUNDLE if carrier == "stick" else LIVE


def is_whole(states: list[ChainState], carrier_class: int) -> bool:
    """True when a class has both a chain to send on now and one to receive on.

    All chains of a peer are of one key id: with two, a cut left some of an older root.
    """
    kids = {state.kid & ~3 for state in states}
    ways = {
        state.receives
        for state in states
        if state.carrier_class == carrier_class and not state.waiting
    }
    return len(kids) == 1 and len(ways) == len((True, False))


def lost_keys(name: str, carrier_class: int) -> tuple[str, str]:
    """What to say of a peer with a class that is not whole, and the remedy."""
    return (
        f"{name}: the keys for {_CLASS_WORDS[carrier_class]} are damaged or gone",
        f"make new ones with `drupelet provision {name} --to ... --again`",
    )


def known_peers(folder: Path) -> list[bytes]:
    """The peers that have keys in a folder; raises PrivateError when others can get at it."""
    private_files.check(folder)
    if not folder.is_dir():
        return []
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted({bytes.fromhex(match[1]) for match in matches if match})


def look(folder: Path, peer_id: bytes) -> list[ChainState]:
    """What may be told of a peer's chains, also while another process uses them.

    Raises PrivateError or StorageError.
    """
    states = []
    private_files.check(folder)
    for carrier_class, name in enumerate(CLASS_NAMES):
        path = folder / f"{peer_id.hex()}.{name}"
        if not path.is_symlink() and not path.exists():
            continue
        size = FILE_SIZES[carrier_class]
        content = private_files.read(path, size).ljust(size, b"\0")
        for row in range(_ROWS_PER_CLASS):
            record = content[row * RECORD_SIZE : (row + 1) * RECORD_SIZE]
            states.append(state_of(carrier_class * _ROWS_PER_CLASS + row, record))
    return [state for state in states if state is not None]


def is_revoked(folder: Path, peer_id: bytes) -> bool:
    """Whether keys of a peer were revoked; raises PrivateError or StorageError."""
    return any(state.revoked for state in look(folder, peer_id))


def wipe(folder: Path, peer_id: bytes) -> bool:
    """Take a peer's keys away, with both locks held; False when there were none."""
    is_removed = False
    with contextlib.ExitStack() as held:
        for name in CLASS_NAMES:
            path = folder / f"{peer_id.hex()}.{name}"
            held.enter_context(private_files.locked(path.with_name(path.name + ".lock")))
        for name in CLASS_NAMES:
            is_removed |= private_files.remove(folder / f"{peer_id.hex()}.{name}")
    return is_removed
