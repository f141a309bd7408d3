"""An agent's home: one folder (mode 0700) with `drupelet.toml`, the store, a lock and a status.

    name = "orchard-host"
    id = "0a0b0c0d"              # 4 bytes, unique among the members
    group = "orchard"            # the group's descriptor: the same text at every member
    epoch_ms = 1000              # default of every peer below

    [[peers]]
    name = "board-a"
    id = "a0000001"
    url = "serial:///dev/ttyACM0?baud=115200"   # sealed; "&plain=1": a cable without keys
    mode = "interactive"         # or "batch", or "auto": by what the link measures
    profile = "bsp-1"            # or "compact-1"; what boards and hosts speak, if not given
    budget_bytes_per_epoch = 0   # 0: no bound

Every mistake raises ConfigError with the file, the key and the remedy on one line.
"""

import fcntl
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from drupelet.errors import CapacityError, DrupeletError, StorageError
from drupelet.limits import DESCRIPTOR_SIZE_MAX
from drupelet_transports.url import parse_url

CONFIG_NAME = "drupelet.toml"
# A configuration longer than this is not one that a person wrote.
CONFIG_SIZE_MAX = 65536
# Rows in the node's peer table on a host.
PEERS_CONFIGURED_MAX = 32
NAME_SIZE_MAX = 32
# Shorter epochs would only busy the disk with commits; longer ones than a day serve nobody.
EPOCH_MS_MIN = 20
EPOCH_MS_MAX = 86_400_000
EPOCH_MS_DEFAULT = 1000
MODES = ("interactive", "batch", "auto")
PROFILES = ("compact-1", "bsp-1")
# The core speaks these too, but a home has one group, and a group is of one family for life.
PROFILES_OF_OTHER_GROUPS = ("bsp-0", "mvds-1", "mvds-5001", "mvds-nested")
# Less than a few of the shortest frames, with the carrier's framing, would never carry a body.
BUDGET_BYTES_MIN = 256
BUDGET_BYTES_MAX = 1 << 28
# What `board` says of a peer that is a host.
BOARD_HOST = "host"

_ID = re.compile(r"[0-9a-f]{8}")
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_SIZE_MAX - 1}}}")


class ConfigError(DrupeletError):
    """The configuration is missing or wrong; the text names the file, the key and the remedy."""


class LockedError(CapacityError):
    """An agent already owns the home."""


@dataclass(frozen=True)
class Peer:
    """Another member that this one has a carrier to."""

    name: str
    id: bytes
    url: str
    mode: str = "interactive"
    epoch_ms: int = EPOCH_MS_DEFAULT
    board: str = ""
    profile: str = ""
    budget_bytes_per_epoch: int = 0

    @property
    def asked_profile(self) -> str:
        """What its links begin with: compact-1, but bsp-1 to what is said to be a board.

        compact-1 falls back to bsp-1 by itself; a board that has only that is spared the attempt.
        """
        is_board = self.board not in ("", BOARD_HOST)
        return self.profile or ("bsp-1" if is_board else "compact-1")

    @property
    def plain(self) -> bool:
        """True for a cable without keys (`?plain=1`); every other carrier is sealed."""
        return self.carrier == "serial" and parse_url(self.url).plain

    @property
    def carrier(self) -> str:
        """The scheme of the URL: serial, mqtt, stick, ..."""
        return self.url.partition(":")[0]


@dataclass(frozen=True)
class Config:
    """One validated `drupelet.toml`."""

    home: Path
    name: str
    id: bytes
    group: str
    epoch_ms: int = EPOCH_MS_DEFAULT
    client: bytes | None = None
    peers: tuple[Peer, ...] = field(default=())

    @property
    def store_path(self) -> Path:
        """The SQLite file."""
        return self.home / "store.db"

    @property
    def keys_path(self) -> Path:
        """The folder of the keys, for its owner only."""
        return self.home / "keys"

    @property
    def status_path(self) -> Path:
        """What the agent last said about itself."""
        return self.home / "status.json"

    def names(self) -> dict[str, str]:
        """Every configured device id (hex) with its name, our own included."""
        return {self.id.hex(): self.name} | {peer.id.hex(): peer.name for peer in self.peers}


def default_home() -> Path:
    """`$XDG_STATE_HOME/drupelet`, by default `~/.local/state/drupelet`."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "drupelet"


class _Table:
    """One TOML table being taken apart; remembers which keys nobody asked for."""

    def __init__(self, path: Path, where: str, values: dict[str, object]) -> None:
        self.path = path
        self.where = where
        self.values = dict(values)

    def wrong(self, key: str, remedy: str) -> ConfigError:
        return ConfigError(f"{self.path}: {self.where}{key}: {remedy}")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.pop(key, default)
        if value is None:
            raise self.wrong(key, "missing; add it")
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "must be a text in quotes")
        return value

    def name(self, key: str) -> str:
        value = self.text(key)
        if not _NAME.fullmatch(value):
            raise self.wrong(
                key, f"use 1 to {NAME_SIZE_MAX} letters, digits, '.', '-' or '_', not {value!r}"
            )
        return value

    def id(self, key: str) -> bytes:
        value = self.text(key).lower()
        if not _ID.fullmatch(value):
            raise self.wrong(key, f"must be 8 hex digits (4 bytes), not {value!r}")
        return bytes.fromhex(value)

    def number(self, key: str, default: int, low: int, high: int) -> int:
        value = self.values.pop(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.wrong(key, f"must be a whole number from {low} to {high}, not {value!r}")
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self.text(key, choices[0])
        if value not in choices:
            raise self.wrong(key, f"must be one of {', '.join(choices)}, not {value!r}")
        return value

    def end(self) -> None:
        for key in self.values:
            raise self.wrong(key, "unknown key; see docs/cli.md for those there are")


def load(home: Path) -> Config:
    """Read and validate the configuration of a home; raises ConfigError."""
    path = home / CONFIG_NAME
    try:
        with path.open("rb") as file:
            text = file.read(CONFIG_SIZE_MAX + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; make a home with `drupelet init` or name one with --home"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    if len(text) > CONFIG_SIZE_MAX:
        raise ConfigError(f"{path}: longer than {CONFIG_SIZE_MAX} bytes; is this the right file?")
    try:
        values = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); mend that line") from error
    return _config(home, _Table(path, "", values))


def _config(home: Path, table: _Table) -> Config:
    epoch_ms = table.number("epoch_ms", EPOCH_MS_DEFAULT, EPOCH_MS_MIN, EPOCH_MS_MAX)
    client = table.text("client", "readings")
    if client != "readings" and not re.fullmatch("[0-9a-f]{64}", client):
        raise table.wrong("client", 'must be "readings" or 64 hex digits (32 bytes)')
    config = Config(
        home=home,
        name=table.name("name"),
        id=table.id("id"),
        group=table.text("group"),
        epoch_ms=epoch_ms,
        client=None if client == "readings" else bytes.fromhex(client),
        peers=_peers(table, epoch_ms),
    )
    if len(config.group.encode()) > DESCRIPTOR_SIZE_MAX:
        raise table.wrong("group", f"must be at most {DESCRIPTOR_SIZE_MAX} bytes")
    table.end()
    _check_unique(table, config)
    return config


def _peers(table: _Table, epoch_ms: int) -> tuple[Peer, ...]:
    rows = table.values.pop("peers", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise table.wrong("peers", "must be tables that begin with [[peers]]")
    if len(rows) > PEERS_CONFIGURED_MAX:
        raise table.wrong("peers", f"at most {PEERS_CONFIGURED_MAX}, here are {len(rows)}")
    peers = []
    for count, row in enumerate(rows, start=1):
        part = _Table(table.path, f"peer {count}: ", row)
        peers.append(
            Peer(
                name=part.name("name"),
                id=part.id("id"),
                url=part.text("url"),
                mode=part.choice("mode", MODES),
                epoch_ms=part.number("epoch_ms", epoch_ms, EPOCH_MS_MIN, EPOCH_MS_MAX),
                board=part.text("board", "") if "board" in row else "",
                profile=_profile(part),
                budget_bytes_per_epoch=_budget(part),
            )
        )
        part.end()
    return tuple(peers)


def _profile(part: _Table) -> str:
    if "profile" not in part.values:
        return ""
    asked = part.values["profile"]
    if asked in PROFILES_OF_OTHER_GROUPS:
        raise part.wrong(
            "profile",
            f"{asked} needs a group of its own kind, this home's is of bsp; use"
            f" {' or '.join(PROFILES)}",
        )
    return part.choice("profile", PROFILES)


def _budget(part: _Table) -> int:
    key = "budget_bytes_per_epoch"
    if part.values.get(key) == 0:
        del part.values[key]
    if key not in part.values:
        return 0
    return part.number(key, 0, BUDGET_BYTES_MIN, BUDGET_BYTES_MAX)


def _check_unique(table: _Table, config: Config) -> None:
    names, ids = {config.name}, {config.id}
    for peer in config.peers:
        if peer.name in names:
            raise table.wrong("peers", f"the name {peer.name!r} is used twice; rename one")
        if peer.id in ids:
            raise table.wrong("peers", f"the id {peer.id.hex()} is used twice; give each its own")
        names.add(peer.name)
        ids.add(peer.id)


def render(config: Config) -> str:
    """The configuration as a commented TOML text that `load` reads back."""
    lines = [
        f'name = "{config.name}"',
        f'id = "{config.id.hex()}"  # 4 bytes, unique among the members',
        f"group = {_quoted(config.group)}  # the same text at every member",
        f"epoch_ms = {config.epoch_ms}  # default of every peer",
    ]
    if config.client is not None:
        lines.append(f'client = "{config.client.hex()}"')
    return "\n".join(lines) + "\n" + "".join(render_peer(peer) for peer in config.peers)


def render_peer(peer: Peer) -> str:
    """One [[peers]] table, after an empty line."""
    others = ", ".join(f'"{mode}"' for mode in MODES if mode != peer.mode)
    lines = [
        "",
        "[[peers]]",
        f'name = "{peer.name}"',
        f'id = "{peer.id.hex()}"',
        f"url = {_quoted(peer.url)}",
        f'mode = "{peer.mode}"  # or {others}',
        f"epoch_ms = {peer.epoch_ms}",
    ]
    if peer.board:
        lines.append(f"board = {_quoted(peer.board)}")
    if peer.profile:
        lines.append(f'profile = "{peer.profile}"')
    if peer.budget_bytes_per_epoch:
        lines.append(f"budget_bytes_per_epoch = {peer.budget_bytes_per_epoch}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
    )


def add_peer(home: Path, peer: Peer) -> None:
    """Write one more peer behind the others; raises ConfigError and leaves the file as it was."""
    before = load(home)
    text = _text(home).rstrip("\n") + "\n" + render_peer(peer)
    _rewrite(home, text, replace(before, peers=(*before.peers, peer)))


def remove_peer(home: Path, name: str) -> Peer:
    """Take a peer's table out of the file; raises ConfigError and leaves the file as it was."""
    before = load(home)
    index = next((row for row, peer in enumerate(before.peers) if peer.name == name), -1)
    if index < 0:
        names = ", ".join(peer.name for peer in before.peers) or "none"
        raise ConfigError(f"{home / CONFIG_NAME}: no peer {name!r}; there are: {names}")
    parts = re.split(r"^(?=\s*\[)", _text(home), flags=re.M)
    heads = [row for row, part in enumerate(parts) if re.match(r"\s*\[\[\s*peers\s*\]\]", part)]
    if index < len(heads):
        # A comment at its end speaks of the next table.
        tail = re.search(r"(?:[ \t]*(?:#.*)?\n)*\Z", parts[heads[index]])
        parts[heads[index]] = tail.group() if tail else ""
    peers = before.peers[:index] + before.peers[index + 1 :]
    _rewrite(home, "".join(parts), replace(before, peers=peers))
    return before.peers[index]


def _text(home: Path) -> str:
    return (home / CONFIG_NAME).read_text(encoding="utf-8")


def _rewrite(home: Path, text: str, expected: Config) -> None:
    """Replace the file in one step, if the text says what is expected."""
    path = home / CONFIG_NAME
    try:
        made = _config(home, _Table(path, "", tomllib.loads(text)))
    except tomllib.TOMLDecodeError:
        made = None
    if made != expected:
        raise ConfigError(f"{path}: cannot be changed by the command; edit it and restart")
    part = path.with_name(path.name + ".tmp")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error


def create(config: Config) -> Path:
    """Make the home (0700) and its configuration; refuses to replace one. Returns its path."""
    path = config.home / CONFIG_NAME
    try:
        config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(render(config))
    except FileExistsError:
        raise ConfigError(f"{path}: is there already; choose another --home") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made ({error.strerror})") from error
    return path


@contextmanager
def lock(home: Path) -> Iterator[None]:
    """Own the home; raises LockedError when another agent does (freed by the kernel on exit)."""
    path = home / "agent.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened ({error.strerror})") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                f"{home}: an agent already owns this home; stop it or choose another --home"
            ) from None
        yield
    finally:
        os.close(fd)


def locked(home: Path) -> bool:
    """True while an agent runs on this home."""
    try:
        with lock(home):
            return False
    except LockedError:
        return True
