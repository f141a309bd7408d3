"""An agent's home: one folder (mode 0700) with `drupelet.toml`, the store, a lock and a status.

What the keys of `drupelet.toml` mean stands in docs/cli.md, with examples in docs/field-guide.md.
Every mistake raises ConfigError with the file, the key and the remedy on one line.
"""

import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from drupelet.base.errors import CapacityError, StorageError
from drupelet.base.limits import DESCRIPTOR_SIZE_MAX, WAIT_MS_MAX
from drupelet_host.home import file_lock, private_files, toml_table
from drupelet_host.home.board_kinds import BOARD_HOST, BOARDS
from drupelet_host.home.broker_access import (
    BROKERS_MAX,
    BrokerSettings,
    key_of,
    read_table,
    render_table,
)
from drupelet_host.home.client_ids import PUBLIC_CLIENT_ID, TOPIC_SIZE_MAX, refusal
from drupelet_host.home.edit_lock import changing
from drupelet_host.home.toml_table import Table, quoted, shown
from drupelet_host.home.urls import broker_url, peer_url, shared_url
from drupelet_transports.common.url import carrier_of, parse_url

CONFIG_NAME = "drupelet.toml"
_LOCK_NAME = "agent.lock"
# A configuration longer than this is not one that a person wrote.
CONFIG_SIZE_MAX = 65536
# Rows in the node's peer table on a host.
PEERS_CONFIGURED_MAX = 32
# Shorter epochs would only busy the disk with commits; longer ones than a day serve nobody.
EPOCH_MS_MIN = 20
EPOCH_MS_MAX = 86_400_000
EPOCH_MS_DEFAULT = 1000
MODES = ("interactive", "batch", "auto")
FAMILY_BSP_NAME = "bsp"
FAMILY_MVDS_NAME = "mvds"
FAMILY_BSP_0_NAME = "bsp-0"
# The id families of the readings, and what their links may speak; the first if not given.
PROFILES_OF = {
    FAMILY_BSP_NAME: ("compact-1", "bsp-1"),
    FAMILY_MVDS_NAME: ("mvds-1", "mvds-5001", "mvds-nested"),
    FAMILY_BSP_0_NAME: ("bsp-0",),
}
# Less than a few of the shortest frames, with the carrier's framing, would never carry a body.
BUDGET_BYTES_MIN = 256
BUDGET_BYTES_MAX = 1 << 28
# Topics and channels of a home: each has keys and a carrier of its own.
SHARED_MAX = 8
PERIOD_MS_DEFAULT = 30_000
# The longest time that a channel derives from its period is ten of them (T_max of SDS-R), and no
# wait of a channel is longer than that of a clock that wraps: 7.4 hours.
CHANNEL_PERIODS_MAX = 10
CHANNEL_PERIOD_MS_MAX = WAIT_MS_MAX // CHANNEL_PERIODS_MAX
# Through these carriers sender keys are handed over.
_HANDING_CARRIERS = ("mqtt", "serial")
# What a notice of carriers has room for (docs/SPEC.md 15.5).
ANNOUNCED_MAX = 8
# Where an agent keeps its feed: in a folder, or in the store of an agent behind a broker.
FOLDER_PLACE = "folder:"
FEED_PERIOD_MS_DEFAULT = 10_000

ConfigError = toml_table.ConfigError


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
        A stick, on which nobody answers, carries bsp-1.
        """
        if self.carrier == "stick":
            return "bsp-1"
        is_board = self.board not in ("", BOARD_HOST)
        return self.profile or ("bsp-1" if is_board else "compact-1")

    @property
    def plain(self) -> bool:
        """True for a cable without keys (`?plain=1`); every other carrier is sealed."""
        return self.carrier == "serial" and parse_url(self.url).plain

    @property
    def carrier(self) -> str:
        """What the URL names: serial, mqtt (also over TLS), stick, ..."""
        return carrier_of(self.url)


@dataclass(frozen=True)
class Shared:
    """A topic of the readings, or an SDS channel: a carrier that all who listen there hear.

    peers: names of the listeners; none: all to whom sender keys can be handed. period_ms: a
    topic's epoch, a channel's time to repetition. bloom: whether a channel's frames have a filter.
    """

    name: str
    url: str
    peers: tuple[str, ...] = ()
    period_ms: int = EPOCH_MS_DEFAULT
    bloom: str = "omit"


@dataclass(frozen=True)
class FeedSettings:
    """The agent's remote log."""

    place: str = ""
    watch: bool = True
    period_ms: int = FEED_PERIOD_MS_DEFAULT
    serve: bool = False
    mail: bool = False


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
    topics: tuple[Shared, ...] = field(default=())
    channels: tuple[Shared, ...] = field(default=())
    feed: FeedSettings | None = None
    family: str = FAMILY_BSP_NAME
    announce: tuple[str, ...] = ()
    learn: bool = False
    brokers: tuple[BrokerSettings, ...] = ()

    def listeners(self, shared: Shared) -> list[Peer]:
        """The peers that listen to a topic or channel."""
        if not shared.peers:
            return [peer for peer in self.peers if can_listen(peer)]
        return [peer for peer in self.peers if peer.name in shared.peers]

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


def can_listen(peer: Peer) -> bool:
    """Whether sender keys can be handed to a peer: through a sealed link of its own."""
    return peer.carrier in _HANDING_CARRIERS and not peer.plain


def default_home() -> Path:
    """`$XDG_STATE_HOME/drupelet`, by default `~/.local/state/drupelet`. Raises ConfigError."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError:  # a container with a user that nobody entered
        raise ConfigError("this user has no home folder; name one for us with --home") from None
    return base / "drupelet"


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
        values = tomllib.loads(text.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); mend that line") from error
    return _config(home, Table(path, "", values))


def _config(home: Path, table: Table) -> Config:
    epoch_ms = table.number("epoch_ms", EPOCH_MS_DEFAULT, EPOCH_MS_MIN, EPOCH_MS_MAX)
    client = table.text("client", "readings")
    if client == "public":
        client = PUBLIC_CLIENT_ID.hex()
    if client != "readings" and not re.fullmatch("[0-9a-f]{64}", client):
        raise table.wrong("client", 'must be "readings", "public" or 64 hex digits (32 bytes)')
    if client != "readings" and (reason := refusal(bytes.fromhex(client))):
        raise table.wrong("client", reason)
    family = table.choice("family", tuple(PROFILES_OF))
    config = Config(
        home=home,
        family=family,
        name=table.name("name"),
        id=table.id("id"),
        group=table.text("group"),
        epoch_ms=epoch_ms,
        client=None if client == "readings" else bytes.fromhex(client),
        peers=_peers(table, epoch_ms, family),
        topics=_shared(table, "topics", "epoch_ms", epoch_ms, EPOCH_MS_MAX),
        channels=_shared(table, "channels", "period_ms", PERIOD_MS_DEFAULT, CHANNEL_PERIOD_MS_MAX),
        feed=_feed(table),
        announce=_announce(table),
        learn=table.switch("learn", False),
        brokers=tuple(
            read_table(part, home) for part in table.rows("brokers", BROKERS_MAX, "broker")
        ),
    )
    size_max = TOPIC_SIZE_MAX if config.client == PUBLIC_CLIENT_ID else DESCRIPTOR_SIZE_MAX
    if len(config.group.encode()) > size_max:
        raise table.wrong("group", f"must be at most {size_max} bytes")
    table.end()
    _check_unique(table, config)
    if family != FAMILY_BSP_NAME:
        _check_family(table, config)
    for key, rows in (("topics", config.topics), ("channels", config.channels)):
        _check_shared(table, key, rows, config)
    return config


def _check_family(table: Table, config: Config) -> None:
    if config.topics:
        raise table.wrong("topics", f"carry groups of family {quoted(FAMILY_BSP_NAME)} only")
    if config.family == FAMILY_BSP_0_NAME and config.client is not None:
        raise table.wrong("client", f"family {quoted(config.family)} has its own; leave it out")
    for peer in config.peers:
        if peer.carrier == "stick":
            raise table.wrong("peers", f'{peer.name}: sticks carry family "bsp" only')


def _shared(
    table: Table, key: str, period: str, default_ms: int, high_ms: int
) -> tuple[Shared, ...]:
    rows = []
    for part in table.rows(key, SHARED_MAX):
        name, url, peers = part.name("name"), shared_url(part), part.names("peers")
        period_ms = part.number(period, default_ms, EPOCH_MS_MIN, high_ms)
        bloom = part.choice("bloom", ("omit", "small")) if key == "channels" else "omit"
        rows.append(Shared(name, url, peers, period_ms, bloom))
        part.end()
    return tuple(rows)


def _announce(table: Table) -> tuple[str, ...]:
    urls = table.names("announce")
    if len(urls) > ANNOUNCED_MAX:
        raise table.wrong("announce", f"at most {ANNOUNCED_MAX}, here are {len(urls)}")
    for url in urls:
        broker_url(table, "announce", url)
    return urls


def _feed(table: Table) -> FeedSettings | None:
    values = table.take("feed")
    if values is None:
        return None
    if not isinstance(values, dict):
        raise table.wrong("feed", "must be a table that begins with [feed]")
    part = Table(table.path, "feed: ", values)
    place = part.text("place") if part.has("place") else ""
    if carrier_of(place) == "mqtt":
        broker_url(part, "place", place)
    elif place and not place.startswith(FOLDER_PLACE + "/"):
        forms = '"folder:/media/log" or "mqtt://host:1883/prefix"'
        raise part.wrong("place", f"must be as {forms}, not {shown(place)}")
    settings = FeedSettings(
        place,
        part.switch("watch", True),
        part.number("period_ms", FEED_PERIOD_MS_DEFAULT, EPOCH_MS_MIN, EPOCH_MS_MAX),
        part.switch("serve", False),
        part.switch("mail", False),
    )
    for key in ("serve", "mail"):
        if getattr(settings, key) and carrier_of(place) != "mqtt":
            raise part.wrong(key, 'needs a broker where others ask: place = "mqtt://..."')
    part.end()
    return settings


def _check_shared(table: Table, key: str, rows: tuple[Shared, ...], config: Config) -> None:
    if len({row.name for row in rows}) != len(rows):
        raise table.wrong(key, "a name is used twice; rename one")
    known = {peer.name: peer for peer in config.peers}
    for row in rows:
        for name in row.peers:
            if name not in known:
                raise table.wrong(key, f"{row.name}: no peer {name!r}; add its [[peers]] table")
            if not can_listen(known[name]):
                raise table.wrong(
                    key,
                    f"{row.name}: {name} needs a sealed serial: or mqtt: URL of its own, to be"
                    " handed keys over it",
                )


def _peers(table: Table, epoch_ms: int, family: str) -> tuple[Peer, ...]:
    peers = []
    for part in table.rows("peers", PEERS_CONFIGURED_MAX, "peer"):
        peers.append(
            Peer(
                name=part.name("name"),
                id=part.id("id"),
                url=peer_url(part),
                mode=part.choice("mode", MODES),
                epoch_ms=part.number("epoch_ms", epoch_ms, EPOCH_MS_MIN, EPOCH_MS_MAX),
                board=part.choice("board", BOARDS) if part.has("board") else "",
                profile=_profile(part, family),
                budget_bytes_per_epoch=_budget(part),
            )
        )
        part.end()
    return tuple(peers)


def _profile(part: Table, family: str) -> str:
    choices = PROFILES_OF[family]
    if not part.has("profile"):
        return "" if family == FAMILY_BSP_NAME else choices[0]
    asked = part.values["profile"]
    for other, profiles in PROFILES_OF.items():
        if asked in profiles and asked not in choices:
            raise part.wrong(
                "profile",
                f"{asked} is of another family; write family = {quoted(other)} at the top of"
                f" every member's file, or use {' or '.join(choices)}",
            )
    return part.choice("profile", choices)


def _budget(part: Table) -> int:
    key = "budget_bytes_per_epoch"
    if not part.has(key) or part.values[key] == 0:
        part.take(key)
        return 0
    return part.number(key, 0, BUDGET_BYTES_MIN, BUDGET_BYTES_MAX)


def _check_unique(table: Table, config: Config) -> None:
    names, ids = {config.name}, {config.id}
    for peer in config.peers:
        if peer.name in names:
            raise table.wrong("peers", f"the name {peer.name!r} is used twice; rename one")
        if peer.id in ids:
            raise table.wrong("peers", f"the id {peer.id.hex()} is used twice; give each its own")
        names.add(peer.name)
        ids.add(peer.id)
    if len({key_of(broker.parsed) for broker in config.brokers}) != len(config.brokers):
        raise table.wrong("brokers", "one of them has two tables; make it one")


def render(config: Config) -> str:
    """The configuration as a commented TOML text that `load` reads back."""
    lines = [
        f"name = {quoted(config.name)}",
        f'id = "{config.id.hex()}"  # 4 bytes, unique among the members',
        f"group = {quoted(config.group)}  # the same text at every member",
        f"epoch_ms = {config.epoch_ms}  # default of every peer",
    ]
    if config.client is not None:
        lines.append(f'client = "{config.client.hex()}"')
    if config.family != FAMILY_BSP_NAME:
        lines.append(f"family = {quoted(config.family)}")
    if config.announce:
        lines.append(f"announce = [{', '.join(map(quoted, config.announce))}]")
    if config.learn:
        lines.append("learn = true")
    tables = [render_peer(peer) for peer in config.peers]
    tables += [_render_shared(row, "topics", "epoch_ms") for row in config.topics]
    tables += [_render_shared(row, "channels", "period_ms") for row in config.channels]
    tables += ["\n[[brokers]]\n" + render_table(row) for row in config.brokers]
    if config.feed is not None:
        tables.append(_render_feed(config.feed))
    return "\n".join(lines) + "\n" + "".join(tables)


def _render_feed(feed: FeedSettings) -> str:
    place = [f"place = {quoted(feed.place)}"] if feed.place else []
    watch = "watch = " + ("true" if feed.watch else "false")
    roles = [f"{key} = true" for key in ("serve", "mail") if getattr(feed, key)]
    return "\n".join(["", "[feed]", *place, *roles, watch, f"period_ms = {feed.period_ms}"]) + "\n"


def _render_shared(row: Shared, key: str, period: str) -> str:
    lines = ["", f"[[{key}]]", f'name = "{row.name}"', f"url = {quoted(row.url)}"]
    if row.peers:
        lines.append("peers = [" + ", ".join(quoted(name) for name in row.peers) + "]")
    lines += ['bloom = "small"'] if row.bloom == "small" else []
    return "\n".join([*lines, f"{period} = {row.period_ms}"]) + "\n"


def render_peer(peer: Peer) -> str:
    """One [[peers]] table, after an empty line."""
    others = ", ".join(f'"{mode}"' for mode in MODES if mode != peer.mode)
    lines = [
        "",
        "[[peers]]",
        f"name = {quoted(peer.name)}",
        f'id = "{peer.id.hex()}"',
        f"url = {quoted(peer.url)}",
        f'mode = "{peer.mode}"  # or {others}',
        f"epoch_ms = {peer.epoch_ms}",
    ]
    if peer.board:
        lines.append(f"board = {quoted(peer.board)}")
    if peer.profile:
        lines.append(f'profile = "{peer.profile}"')
    if peer.budget_bytes_per_epoch:
        lines.append(f"budget_bytes_per_epoch = {peer.budget_bytes_per_epoch}")
    return "\n".join(lines) + "\n"


def add_peer(home: Path, peer: Peer) -> None:
    """Write one more peer behind the others; raises ConfigError and leaves the file as it was."""
    with changing(home):
        before = load(home)
        if before.family != FAMILY_BSP_NAME:
            peer = replace(peer, profile=peer.profile or PROFILES_OF[before.family][0])
        text = _text(home).rstrip("\n") + "\n" + render_peer(peer)
        _rewrite(home, text, replace(before, peers=(*before.peers, peer)))


def remove_peer(home: Path, name: str) -> Peer:
    """Take a peer's table out of the file; raises ConfigError and leaves the file as it was."""
    with changing(home):
        return _remove_peer(home, name)


def _remove_peer(home: Path, name: str) -> Peer:
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
        parsed = _config(home, Table(path, "", tomllib.loads(text)))
    except tomllib.TOMLDecodeError:
        parsed = None
    if parsed != expected:
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
    """Make the home (0700) and its configuration; refuses to replace one. Returns its path.

    What `load` would refuse is refused before anything is made, and so is a folder that is there
    and that others can read: they could read every message.
    """
    path, text = config.home / CONFIG_NAME, render(config)
    _config(config.home, Table(path, "", tomllib.loads(text)))
    if len(text.encode()) > CONFIG_SIZE_MAX:
        raise ConfigError(f"{path}: would be longer than {CONFIG_SIZE_MAX} bytes; say less")
    if path.exists() or config.home.is_file():
        what = path if config.home.is_dir() else config.home
        raise ConfigError(f"{what}: is there already; choose another --home")
    is_begun = False
    try:
        config.home.parent.mkdir(parents=True, exist_ok=True)
        private_files.make_folder(config.home)
        with path.open("x", encoding="utf-8") as file:
            is_begun = True
            file.write(text)
    except OSError as error:
        if is_begun:  # a piece of it would be in the way of the next try
            path.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be made ({error.strerror})") from error
    return path


@contextmanager
def lock(home: Path) -> Iterator[None]:
    """Own the home; raises LockedError when another agent does (freed by the kernel on exit)."""
    path = home / _LOCK_NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"{path}: cannot be opened ({error.strerror})") from error
    try:
        if not file_lock.take(fd):
            raise LockedError(
                f"{home}: an agent already owns this home; stop it or choose another --home"
            )
        yield
    finally:
        os.close(fd)


def locked(home: Path) -> bool:
    """True while an agent runs on this home; a look that keeps none from starting."""
    path = home / _LOCK_NAME
    try:
        return file_lock.is_taken(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be looked at ({error.strerror})") from error
