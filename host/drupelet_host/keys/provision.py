"""Gives two devices a root of their own: random, written to both, proved, forgotten.

A destination is the folder of a board's flash, the home of another host, or a serial line behind
which a board waits for its keys (docs/SPEC.md 8.2). A host on another machine is invited instead
(drupelet_host.keys.invite). Our own side is written first: a cut in
between leaves keys here that nobody else has, and `--again` makes new ones.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from drupelet.base.errors import E_PEER, E_STORAGE, OK, DrupeletError, StorageError
from drupelet.seal.record import (
    FLAG_ISSUER,
    FLAG_PACKS,
    FLAG_TAG16,
    RECORD_SIZE,
    challenge,
    install,
    is_sound,
)
from drupelet_host.home import board_settings, config, private_files
from drupelet_host.home.board_kinds import BOARD_HOST
from drupelet_host.keys import changes_to_tell, issued_pairs
from drupelet_host.keys.key_folder import (
    BUNDLE,
    CHAIN_ROWS,
    LIVE,
    ROWS,
    ROWS_OF,
    ChainState,
    HostKeys,
    KeysError,
    known_peers,
    look,
    state_of,
    wipe,
)
from drupelet_host.keys.secret import Secret
from drupelet_transports.common.transport import TransportError
from drupelet_transports.common.url import BOARD_LINES, parse_url

# The scheme of a folder that is a board's flash, whatever else is known of the device.
FLASH = "flash"
ROOT_SIZE = 32
NONCE_SIZE = 16
PROOF_SIZE = 16
# A key id is a multiple of 4 with 16 bits, and not 0.
_KIDS = 1 << 14
_KEY = slice(16, 48)
_EMPTY = bytes(RECORD_SIZE)


class Destination(Protocol):
    """One side that gets keys, and can prove what it keeps."""

    own_id: bytes
    peer_id: bytes
    packs: bool  # its program is known to read packed messages in bundles

    @property
    def failure(self) -> str:
        """Why the last save failed."""

    @property
    def steps(self) -> Sequence[Sequence[int]]:
        """The rows that are written together: a cut leaves all of them old, or all new."""

    def save(self, records: Mapping[int, bytes | bytearray]) -> int:
        """Keep the records of one step; OK, or a code: what was there stays."""

    def prove(self, row: int, nonce: bytes) -> bytes:
        """The challenge over what is kept now, read back from where it is kept."""

    def states(self) -> list[ChainState]:
        """What may be told of the keys that are there for the pair."""

    def kids(self) -> set[int]:
        """Key ids that are taken there."""

    def finish(self) -> None:
        """All is well: the device may go on."""


class RamKeys:
    """A key port in memory: what one side is going to hold."""

    def __init__(self, own_id: bytes, peer_id: bytes) -> None:
        self.own_id = own_id
        self.peer_id = peer_id
        self.records: dict[int, bytearray] = {}

    def load(self, row: int, out: bytearray) -> int:
        """As of a key port."""
        if row not in self.records:
            return E_STORAGE
        out[:RECORD_SIZE] = self.records[row]
        return OK

    def save(self, row: int, record: bytes | bytearray) -> int:
        """As of a key port."""
        self.records[row] = bytearray(record[:RECORD_SIZE])
        return OK

    def drop(self, row: int) -> int:
        """As of a key port."""
        self.records.pop(row, None)
        return OK

    def revoke(self, id: bytes | bytearray, at: int) -> int:  # noqa: ARG002 - nobody asks here
        """As of a key port."""
        return E_PEER

    def prove(self, row: int, nonce: bytes) -> bytes:
        """What the other side has to answer."""
        return proof(self.records[row], nonce)

    def wipe(self) -> None:
        """Overwrite everything."""
        for record in self.records.values():
            record[:] = bytes(RECORD_SIZE)
        self.records.clear()


def proof(record: bytes | bytearray, nonce: bytes) -> bytes:
    """What shows that a record is kept, without telling it; b"" for one that is not sound."""
    if not is_sound(record):
        return b""
    return bytes(challenge(bytes(record[_KEY]), nonce)[:PROOF_SIZE])


class HomeKeys:
    """The keys of a home, ours or another host's."""

    steps = ROWS_OF
    packs = True  # a home belongs to a host, which has this program or a later one

    def __init__(self, folder: Path, own_id: bytes, peer_id: bytes) -> None:
        self.own_id = own_id
        self.peer_id = peer_id
        private_files.make_folder(folder)
        self._keys = HostKeys(folder, own_id, peer_id)
        for carrier_class in (LIVE, BUNDLE):
            self._keys.open(carrier_class)
        # Key material: overwritten by `finish`.
        self._before = [bytearray(RECORD_SIZE) for _ in range(ROWS)]
        for row, record in enumerate(self._before):
            self._keys.load(row, record)

    @property
    def failure(self) -> str:
        """Why a save failed."""
        return self._keys.failure

    def save(self, records: Mapping[int, bytes | bytearray]) -> int:
        """As of a destination."""
        return self._keys.save_all(records)

    def prove(self, row: int, nonce: bytes) -> bytes:
        """Read the file anew."""
        self._keys.close()
        record = bytearray(RECORD_SIZE)
        for carrier_class in (LIVE, BUNDLE):
            self._keys.open(carrier_class)
        self._keys.load(row, record)
        return proof(record, nonce)

    def states(self) -> list[ChainState]:
        """As of a destination."""
        return self._keys.states()

    def kids(self) -> set[int]:
        """Key ids of all peers of the home."""
        return kids_of(self._keys.folder)

    def put_back(self) -> None:
        """Have what was there before: nobody else knows the new keys."""
        if any(any(record) for record in self._before):
            for rows in self.steps:
                self._keys.save_all({row: self._before[row] for row in rows})
        else:
            self._keys.close()
            wipe(self._keys.folder, self.peer_id)

    def forget_rotation(self) -> None:
        """A root that was under way renews keys that there are no more; revocations stay."""
        tell = changes_to_tell.load(self._keys.folder, self.peer_id)
        if tell.root is not None:
            tell.root = None
            tell.save()

    def finish(self) -> None:
        """Let go of the files."""
        self._keys.close()
        for record in self._before:
            record[:] = bytes(RECORD_SIZE)


class FlashKeys:
    """A board's key file (docs/SPEC.md 8.2) in the folder that is its flash."""

    steps = (range(ROWS),)
    packs = False  # a board reads records

    def __init__(self, folder: Path, own_id: bytes, peer_id: bytes) -> None:
        self.own_id = own_id
        self.peer_id = peer_id
        self.path = folder / f"{peer_id.hex().upper()}.KEY"
        self.failure = ""

    def _content(self, path: Path) -> bytearray:
        try:
            with path.open("rb") as file:
                content = file.read(ROWS * RECORD_SIZE)
        except FileNotFoundError:
            content = b""
        except OSError as error:
            raise StorageError(f"{path}: cannot be read ({error.strerror})") from None
        return bytearray(content.ljust(ROWS * RECORD_SIZE, b"\0"))

    def save(self, records: Mapping[int, bytes | bytearray]) -> int:
        """As of a destination."""
        try:
            content = self._content(self.path)
            for row, record in records.items():
                content[row * RECORD_SIZE : (row + 1) * RECORD_SIZE] = record[:RECORD_SIZE]
            private_files.replace(self.path, bytes(content))
        except DrupeletError as error:
            self.failure = str(error)
            return E_STORAGE
        return OK

    def prove(self, row: int, nonce: bytes) -> bytes:
        """Read the file anew."""
        content = self._content(self.path)
        return proof(content[row * RECORD_SIZE : (row + 1) * RECORD_SIZE], nonce)

    def states(self) -> list[ChainState]:
        """As of a destination."""
        return self._states(self.path)

    def _states(self, path: Path) -> list[ChainState]:
        content = self._content(path)
        rows = [content[row * RECORD_SIZE :][:RECORD_SIZE] for row in range(CHAIN_ROWS)]
        states = [state_of(row, record) for row, record in enumerate(rows)]
        return [state for state in states if state is not None]

    def kids(self) -> set[int]:
        """Key ids of all peers of the board."""
        paths = self.path.parent.glob("*.KEY")
        return {state.kid & ~3 for path in paths for state in self._states(path)}

    def finish(self) -> None:
        """Nothing is open."""


def has_keys(settings: config.Config, peer_id: bytes) -> bool:
    """True when this home has chains of a peer that was not revoked."""
    states = look(settings.keys_path, peer_id) if settings.keys_path.exists() else []
    return any(not state.revoked for state in states)


def kids_of(folder: Path) -> set[int]:
    """The bases of the key ids that a home's key folder has."""
    return {state.kid & ~3 for id in known_peers(folder) for state in look(folder, id)}


def destination(
    text: str, own_id: bytes, peer_id: bytes, board: str = "", group: str | None = None,
    configure: Callable[[], bytes] | None = None,
) -> Destination:  # fmt: skip
    """What `--to` names: a folder or a serial line; raises KeysError or TransportError.

    board: what the configuration says that the device is; an empty folder says nothing of it.
    group: that of a home, where it is known; between two groups nothing would ever arrive.
    configure: makes the configuration of a board behind a line that has none.
    """
    scheme, _, path = text.partition(":")
    if scheme == FLASH and path:
        return FlashKeys(_folder(path), own_id, peer_id)
    if re.match(r"[a-z]+:", text):
        from drupelet_host.keys.provision_serial import SerialKeys

        return SerialKeys(text, own_id, peer_id, configure=configure)
    folder = _folder(text)
    if (folder / config.CONFIG_NAME).exists():
        other = config.load(folder)
        if other.id != own_id:
            raise KeysError(f"{folder}: is the home of {other.id.hex()}, not of {own_id.hex()}")
        if group is not None and other.group != group:
            raise KeysError(
                f"{folder}: its group is {other.group!r}, ours is {group!r}: nothing would arrive;"
                " make `group` in drupelet.toml the same"
            )
        return HomeKeys(other.keys_path, own_id, peer_id)
    if board in ("", BOARD_HOST):
        raise KeysError(
            f"{folder}: is no home, and a host reads no board's keys; for a host elsewhere"
            f" `drupelet invite`, for a board's flash --to {FLASH}:{folder}"
        )
    return FlashKeys(folder, own_id, peer_id)


def _folder(text: str) -> Path:
    if not text or not Path(text).is_dir():
        raise KeysError(
            f"{text or '--to is empty'}: no such folder; give a home, the board's flash, or"
            " serial:///dev/..."
        )
    return Path(text)


def new_kid(taken: Iterable[int]) -> int:
    """A random key id that is not taken."""
    taken = set(taken)
    if len(taken) >= _KIDS // 2:
        raise KeysError("too many key ids are in use; revoke devices that are gone")
    while True:
        kid = int.from_bytes(os.urandom(2)) & ~3
        if kid and kid not in taken:
            return kid


def provision(
    ours: Destination,
    theirs: Destination,
    tag_size: int,
    issuer: bool,
    put_back: Callable[[], None] | None = None,
) -> int:
    """Make new chains for a pair, write both sides, have both prove them; the key id.

    `issuer`: we may rotate and revoke the keys of `theirs` later. Raises KeysError; then `theirs`
    may hold keys that are of no use to anybody. When nothing was written to it, `put_back` gives
    our side what it had: a full stick must not end a link that works.
    """
    kid = new_kid(ours.kids() | theirs.kids())
    flags = FLAG_TAG16 if tag_size == 16 else 0
    flags |= FLAG_PACKS if ours.packs and theirs.packs else 0
    root = Secret(os.urandom(ROOT_SIZE))
    sides = []
    reached = False
    try:
        for side, more in ((ours, 0), (theirs, FLAG_ISSUER if issuer else 0)):
            chains = RamKeys(side.own_id, side.peer_id)
            sides.append((side, chains))
            assert install(chains, root.reveal(), kid, 0, flags | more) == OK
        del root
        for side, chains in sides:
            # What a rotation left goes, too: it would outlive the keys that it belongs to.
            for rows in side.steps:
                if side.save({row: chains.records.get(row, _EMPTY) for row in rows}) != OK:
                    raise KeysError(_not_written(side, reached or put_back is None))
                reached = reached or side is theirs
        for side, chains in sides:
            _challenge(side, chains)
        for side, _ in sides:
            if isinstance(side, HomeKeys):
                side.forget_rotation()
            side.finish()
    finally:
        for _, chains in sides:
            chains.wipe()
        if put_back is not None and not reached:
            put_back()
    return kid


def _not_written(side: Destination, changed: bool) -> str:
    left = "repeat with --again" if changed else "the keys from before, if any, still hold"
    return f"{side.own_id.hex()}: keys not written: {side.failure}; {left}"


def write_side(side: Destination, chains: RamKeys, steps: Iterable[Iterable[int]]) -> None:
    """Write these steps of one side alone, and have it prove them; raises KeysError."""
    for rows in steps:
        if side.save({row: chains.records.get(row, _EMPTY) for row in rows}) != OK:
            raise KeysError(_not_written(side, changed=False))
        _challenge(side, chains, rows)


def _challenge(side: Destination, chains: RamKeys, rows: Iterable[int] = range(ROWS)) -> None:
    """Have a side prove each of these records with a nonce of its own."""
    for row in sorted(chains.records.keys() & set(rows)):
        nonce = os.urandom(NONCE_SIZE)
        if side.prove(row, nonce) != chains.prove(row, nonce):
            raise KeysError(
                f"{side.own_id.hex()}: does not hold what was written to it; check its flash and"
                " repeat with --again"
            )


def peer_id_of(settings: config.Config, text: str) -> bytes:
    """The id of a peer of the configuration, or 8 hex digits; raises NotThereError."""
    for peer in settings.peers:
        if peer.name == text:
            return peer.id
    if re.fullmatch("[0-9a-f]{8}", text):
        return bytes.fromhex(text)
    names = ", ".join(peer.name for peer in settings.peers) or "none"
    raise config.NotThereError(
        f"{text}: no such peer, there are: {names}; add it with `drupelet peer add` or give its id"
    )


def _board_of(settings: config.Config, peer_id: bytes) -> str:
    return next((peer.board for peer in settings.peers if peer.id == peer_id), "")


def _configuration(settings: config.Config, peer_id: bytes, to: str, link: str) -> bytes:
    """The drupelet.json of a board that has none, as one line; raises KeysError."""
    peer = next((peer for peer in settings.peers if peer.id == peer_id), None)
    if peer is None or peer.board in ("", BOARD_HOST):
        raise KeysError(
            f"{to}: the board there has no drupelet.json, and no peer of kind board is"
            f" {peer_id.hex()}: `drupelet peer add` it with --board"
        )
    try:
        wrong = link and parse_url(link).scheme not in BOARD_LINES
    except TransportError as error:
        raise KeysError(str(error)) from None
    if wrong:
        raise KeysError(f"--link {link}: give console:, or a UART as in uart:1?tx=4&rx=5")
    if not link and peer.url.partition("?")[0] != to.partition("?")[0]:
        raise KeysError(
            f"{to}: the board there has no drupelet.json: say with --link, as in"
            f" uart:1?tx=4&rx=5, what its end of {peer.url} is"
        )
    board = board_settings.new_settings(
        settings, peer_id, peer.name, link or board_settings.CONSOLE, board=peer.board
    )
    return json.dumps(board | {"epoch_ms": peer.epoch_ms}).encode()


def provision_peer(
    settings: config.Config, name: str, to: str, tag_size: int = 8, again: bool = False,
    link: str = "",
) -> int:  # fmt: skip
    """Pair this home with a peer; the key id.

    link: the board's own end of the link, for one that has no configuration yet; "": `to`.
    """
    peer_id = peer_id_of(settings, name)
    if peer_id == settings.id:
        raise KeysError(f"{name}: is this home itself")
    if has_keys(settings, peer_id) and not again:
        raise KeysError(
            f"{name}: has keys already; `drupelet rotate {name}` renews them from afar, --again"
            " replaces them by cable"
        )
    theirs = destination(
        to, peer_id, settings.id, _board_of(settings, peer_id), settings.group,
        partial(_configuration, settings, peer_id, to, link),
    )  # fmt: skip
    with ExitStack() as undo:
        undo.callback(_close, theirs)
        ours = HomeKeys(settings.keys_path, settings.id, peer_id)
        undo.callback(_close, ours)
        if not again:
            _refuse_held(settings, theirs, ours, to)
        return provision(ours, theirs, tag_size, True, ours.put_back)


def revocation_waits(settings: config.Config, name: str) -> list[str]:
    """The names of peers that are still to be told that a device was revoked.

    It wipes the keys that they have with it by then, old ones and others alike.
    """
    names = settings.names()
    waiting = changes_to_tell.waiting(settings.keys_path, peer_id_of(settings, name))
    return [names.get(id.hex(), id.hex()) for id in waiting]


def provision_pair(
    settings: config.Config,
    names: tuple[str, str],
    to: tuple[str, str],
    tag_size: int = 8,
    again: bool = False,
) -> int:
    """Pair two other devices with each other; this home keeps but the key id, which it returns."""
    first, second = (peer_id_of(settings, name) for name in names)
    if first == second:
        raise KeysError(f"{names[0]}: cannot be paired with itself")
    with ExitStack() as undo:
        one = destination(to[0], first, second, _board_of(settings, first))
        undo.callback(_close, one)
        other = destination(to[1], second, first, _board_of(settings, second))
        undo.callback(_close, other)
        if not again:
            _refuse_held(settings, one, other, to[0])
            _refuse_held(settings, other, one, to[1])
        issued_pairs.keep(settings.keys_path, first, second, 0)  # should we be stopped in between
        kid = provision(one, other, tag_size, issuer=False)
        issued_pairs.keep(settings.keys_path, first, second, kid)
    # A revocation of the one that the other was not told of yet was of the keys before these.
    changes_to_tell.withdraw(settings.keys_path, first, second)
    changes_to_tell.withdraw(settings.keys_path, second, first)
    return kid


def _refuse_held(
    settings: config.Config, side: Destination, other: Destination, place: str
) -> None:
    """Raise KeysError for a destination whose keys hold: who uses them would be cut off.

    What the other side knows to be revoked holds no more, whether or not this one has heard of it.
    """
    void = {state.kid & ~3 for state in other.states() if state.revoked}
    held = {state.kid & ~3 for state in side.states() if not state.revoked} - void
    if not held:
        return
    names, folder = settings.names(), settings.keys_path
    for id in known_peers(folder):
        if id != side.own_id and held & {state.kid & ~3 for state in look(folder, id)}:
            raise KeysError(
                f"{place}: holds the keys of {names.get(id.hex(), id.hex())}; name the folder of"
                f" {names.get(side.own_id.hex(), side.own_id.hex())}, or --again replaces them"
            )
    with_whom = names.get(other.own_id.hex(), other.own_id.hex())
    raise KeysError(f"{place}: has keys with {with_whom} already; --again replaces them")


def _close(side: Destination) -> None:
    close: Callable[[], None] = getattr(side, "close", side.finish)
    with suppress(DrupeletError):
        close()
