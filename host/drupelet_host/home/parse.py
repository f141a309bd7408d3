"""Reads `drupelet.toml` into a Config; a mistake is a ConfigError: one line with the remedy."""

import re
import stat
import tomllib
from pathlib import Path

from drupelet.base.limits import DESCRIPTOR_SIZE_MAX
from drupelet_host.home.board_kinds import BOARD_HOST, BOARDS
from drupelet_host.home.broker_access import BROKERS_MAX, key_of, read_table
from drupelet_host.home.client_ids import CLIENT_IDS, PUBLIC_CLIENT_ID, TOPIC_SIZE_MAX, refusal
from drupelet_host.home.lifetime import lifetime_s
from drupelet_host.home.model import (
    ANNOUNCED_MAX,
    BUDGET_BYTES_MAX,
    BUDGET_BYTES_MIN,
    CHANNEL_PERIOD_MS_MAX,
    CONFIG_NAME,
    CONFIG_SIZE_MAX,
    DIALECT_NIM,
    DIALECTS,
    EPOCH_MS_DEFAULT,
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    FAMILY_BSP_0_NAME,
    FAMILY_BSP_NAME,
    FAMILY_MVDS_NAME,
    FEED_PERIOD_MS_DEFAULT,
    FOLDER_PLACE,
    MODES,
    PEERS_CONFIGURED_MAX,
    PERIOD_MS_DEFAULT,
    PROFILES_OF,
    SHARE_PERIOD_MS_DEFAULT,
    SHARED_MAX,
    Config,
    FeedSettings,
    Peer,
    Shared,
    can_listen,
)
from drupelet_host.home.toml_table import ConfigError, Table, shown
from drupelet_host.home.urls import broker_url, channel_url, peer_url, shared_url
from drupelet_transports.common.url import carrier_of


def load(home: Path) -> Config:
    """Read and validate the configuration of a home; raises ConfigError."""
    path = home / CONFIG_NAME
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise ConfigError(f"{path}: is no ordinary file; move it away")
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
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise ConfigError(f"{path}: not valid TOML ({error}); mend that line") from error
    return parse(home, Table(path, "", values))


def parse(home: Path, table: Table) -> Config:
    """A Config of the table that is the whole file; raises ConfigError."""
    epoch_ms = table.number("epoch_ms", EPOCH_MS_DEFAULT, EPOCH_MS_MIN, EPOCH_MS_MAX)
    client = table.text("client", "readings")
    if client in CLIENT_IDS:
        client = CLIENT_IDS[client].hex()
    if client != "readings" and not re.fullmatch("[0-9a-f]{64}", client):
        raise table.wrong(
            "client", 'must be "readings", "public", "exploding" or 64 hex digits (32 bytes)'
        )
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
        explode_s=_explode_s(table),
        explode_read=table.switch("explode_read", False),
        ephemeral=table.switch("ephemeral", False),
        share_with=table.number("share_with", 0, 0, PEERS_CONFIGURED_MAX),
        share_period_ms=table.number(
            "share_period_ms", SHARE_PERIOD_MS_DEFAULT, EPOCH_MS_MIN, EPOCH_MS_MAX
        ),
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
    _check_lifetimes(table, config)
    if config.share_with and config.client != PUBLIC_CLIENT_ID:
        raise table.wrong(
            "share_with", 'needs client = "public": other groups are shared with all; leave it out'
        )
    for key, rows in (("topics", config.topics), ("channels", config.channels)):
        _check_shared(table, key, rows, config)
    _check_bridges(table, config.channels)
    return config


def _check_family(table: Table, config: Config) -> None:
    if config.topics:
        raise table.wrong("topics", f'carry groups of family "{FAMILY_BSP_NAME}" only')
    if config.family == FAMILY_BSP_0_NAME and config.client is not None:
        raise table.wrong("client", f'family "{config.family}" has its own; leave it out')
    for peer in config.peers:
        if peer.carrier == "stick":
            raise table.wrong("peers", f'{peer.name}: sticks carry family "bsp" only')


def _explode_s(table: Table) -> int:
    if not table.has("explode"):
        return 0
    try:
        return lifetime_s(table.text("explode"))
    except ValueError as error:
        raise table.wrong("explode", str(error)) from None


def _check_lifetimes(table: Table, config: Config) -> None:
    for key, is_set in (("explode", config.explode_s), ("explode_read", config.explode_read)):
        if is_set and not config.has_lifetimes:
            raise table.wrong(
                key,
                'needs client = "exploding", at every member and before there are messages; or'
                " leave it out",
            )
    if config.ephemeral and not config.may_be_ephemeral:
        raise table.wrong(
            "ephemeral",
            f'needs client = "exploding" or family = "{FAMILY_MVDS_NAME}", at every member and'
            " before there are messages; or leave it out",
        )
    if not config.has_lifetimes:
        return
    if config.family != FAMILY_BSP_NAME:
        raise table.wrong("client", f'"exploding" is of family "{FAMILY_BSP_NAME}" only')
    for peer in config.peers:
        if peer.board not in ("", BOARD_HOST):
            raise table.wrong(
                "peers", f"{peer.name}: no board is in a group of exploding messages; remove it"
            )


def _shared(
    table: Table, key: str, period: str, default_ms: int, high_ms: int
) -> tuple[Shared, ...]:
    rows = []
    for part in table.rows(key, SHARED_MAX):
        name, peers = part.name("name"), part.names("peers")
        period_ms = part.number(period, default_ms, EPOCH_MS_MIN, high_ms)
        if key == "channels":
            bloom = part.choice("bloom", ("omit", "small"))
            dialect = part.choice("dialect", DIALECTS)
            bridge = part.name("bridge") if part.has("bridge") else ""
            row = Shared(name, channel_url(part), peers, period_ms, bloom, dialect, bridge)
            _check_channel(part, row)
        else:
            row = Shared(name, shared_url(part), peers, period_ms)
        rows.append(row)
        part.end()
    return tuple(rows)


def _check_channel(part: Table, row: Shared) -> None:
    if row.dialect == DIALECT_NIM and row.bloom != "omit":
        raise part.wrong("bloom", f'frames of "{DIALECT_NIM}" always have a filter; leave it out')
    if row.is_cable and row.peers:
        raise part.wrong("peers", "whoever is at the cable listens, and no peer; leave it out")


def _check_bridges(table: Table, rows: tuple[Shared, ...]) -> None:
    """Each bridge is between two channels of this home, one of each dialect, and no channel is in
    two: a message would come back to where it was."""
    known = {row.name: row for row in rows}
    bridged: set[str] = set()
    for row in rows:
        if not row.bridge:
            continue
        other = known.get(row.bridge)
        if other is None:
            raise table.wrong(
                "channels", f"{row.name}: bridge: no channel {row.bridge!r}; add its [[channels]]"
            )
        if other.dialect == row.dialect:
            raise table.wrong(
                "channels",
                f'{row.name}: bridge: {other.name} has dialect "{row.dialect}", too; a bridge is'
                f' between one of "{DIALECTS[0]}" and one of "{DIALECTS[1]}"',
            )
        for name in (row.name, other.name):
            if name in bridged:
                raise table.wrong(
                    "channels",
                    f"{row.name}: bridge: {name} is in a bridge already; name it at one end only",
                )
            bridged.add(name)


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
                f'{asked} is of another family; write family = "{other}" at the top of'
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
