"""Writes `drupelet.toml`: a new one, or one more or one less peer in one that a person keeps.

tomlkit leaves comments, order and spelling as they are. It takes a while to load, so only the
commands that write load this module.
"""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, Comment, Item, Table, Whitespace

from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.base.duration import duration_text
from drupelet_host.home import private_files, toml_table
from drupelet_host.home.broker_access import BrokerSettings
from drupelet_host.home.client_ids import CLIENT_IDS
from drupelet_host.home.edit_lock import changing
from drupelet_host.home.model import (
    CONFIG_NAME,
    CONFIG_SIZE_MAX,
    DIALECT_SDS,
    FAMILY_BSP_NAME,
    MODES,
    PROFILES_OF,
    Config,
    FeedSettings,
    Peer,
    Shared,
)
from drupelet_host.home.parse import load, parse
from drupelet_host.home.toml_table import ConfigError, NotThereError

_CLIENT_NAMES = {id: name for name, id in CLIENT_IDS.items()}


def render(config: Config) -> str:
    """The configuration as a commented TOML text that `load` reads back."""
    document = tomlkit.document()
    _add(document, "name", config.name)
    _add(document, "id", config.id.hex(), "4 bytes, unique among the members")
    _add(document, "group", config.group, "the same text at every member")
    _add(document, "epoch_ms", config.epoch_ms, "default of every peer")
    if config.client is not None:
        _add(document, "client", _CLIENT_NAMES.get(config.client, config.client.hex()))
    if config.family != FAMILY_BSP_NAME:
        _add(document, "family", config.family)
    if config.announce:
        _add(document, "announce", list(config.announce))
    for key in ("learn", "explode_read", "ephemeral"):
        if getattr(config, key):
            _add(document, key, True)
    if config.share_with:
        _add(document, "share_with", config.share_with)
        _add(document, "share_period_ms", config.share_period_ms)
    if config.explode_s:
        _add(document, "explode", duration_text(config.explode_s))
    parts: list[tuple[str, list[Table]]] = [
        ("peers", [_peer(peer) for peer in config.peers]),
        ("topics", [_shared(row, "epoch_ms") for row in config.topics]),
        ("channels", [_shared(row, "period_ms") for row in config.channels]),
        ("brokers", [_broker(row) for row in config.brokers]),
    ]
    for key, tables in parts:
        if tables:
            rows = tomlkit.aot()
            for table in tables:
                rows.append(table)
            document.append(key, rows)
    if config.feed is not None:
        document.append("feed", _feed(config.feed))
    return tomlkit.dumps(document)


def _add(table: Any, key: str, value: object, comment: str = "") -> None:  # noqa: ANN401
    item = tomlkit.item(value)
    if comment:
        item.comment(comment)
        item.trivia.comment_ws = "  "
    table.add(key, item)


def _table() -> Table:
    table = tomlkit.table()
    table.trivia.indent = "\n"  # an empty line before its head
    return table


def _peer(peer: Peer) -> Table:
    table = _table()
    others = ", ".join(f'"{mode}"' for mode in MODES if mode != peer.mode)
    _add(table, "name", peer.name)
    _add(table, "id", peer.id.hex())
    _add(table, "url", peer.url)
    _add(table, "mode", peer.mode, f"or {others}")
    _add(table, "epoch_ms", peer.epoch_ms)
    for key in ("board", "profile", "budget_bytes_per_epoch"):
        if value := getattr(peer, key):
            _add(table, key, value)
    return table


def _shared(row: Shared, period: str) -> Table:
    table = _table()
    _add(table, "name", row.name)
    _add(table, "url", row.url)
    if row.peers:
        _add(table, "peers", list(row.peers))
    if row.bloom == "small":
        _add(table, "bloom", row.bloom)
    if row.dialect != DIALECT_SDS:
        _add(table, "dialect", row.dialect)
    if row.bridge:
        _add(table, "bridge", row.bridge)
    _add(table, period, row.period_ms)
    return table


def _broker(broker: BrokerSettings) -> Table:
    table = _table()
    _add(table, "url", broker.url)
    for key, path in broker.files():
        _add(table, key, str(path))
    return table


def _feed(feed: FeedSettings) -> Table:
    table = _table()
    if feed.place:
        _add(table, "place", feed.place)
    for key in ("serve", "mail"):
        if getattr(feed, key):
            _add(table, key, True)
    _add(table, "watch", feed.watch)
    _add(table, "period_ms", feed.period_ms)
    return table


def add_peer(home: Path, peer: Peer) -> None:
    """Write one more peer behind the others; raises ConfigError and leaves the file as it was."""
    with changing(home):
        before = load(home)
        if before.family != FAMILY_BSP_NAME:
            peer = replace(peer, profile=peer.profile or PROFILES_OF[before.family][0])
        _edit(
            home,
            lambda document: _append_peer(document, peer),
            replace(before, peers=(*before.peers, peer)),
        )


def remove_peer(home: Path, name: str) -> Peer:
    """Take a peer's table out of the file; raises ConfigError and leaves the file as it was."""
    with changing(home):
        before = load(home)
        index = next((row for row, peer in enumerate(before.peers) if peer.name == name), -1)
        if index < 0:
            names = ", ".join(peer.name for peer in before.peers) or "none"
            raise NotThereError(f"{home / CONFIG_NAME}: no peer {name!r}; there are: {names}")
        peers = before.peers[:index] + before.peers[index + 1 :]
        _edit(
            home,
            lambda document: _delete_peer(document, index),
            replace(before, peers=peers),
        )
        return before.peers[index]


def _append_peer(document: tomlkit.TOMLDocument, peer: Peer) -> None:
    rows = document.get("peers")
    table = _peer(peer)
    if rows is None:
        rows = tomlkit.aot()
        rows.append(table)
        document.append("peers", rows)
    elif isinstance(rows, Array):  # peers = [{ ... }]
        inline = tomlkit.inline_table()
        inline.update(table.unwrap())
        rows.append(inline)
    else:
        # Comments at the end of the last table speak of the one that follows it, if one does.
        keys = [key.key for key, _ in document.body if key]
        if isinstance(rows, AoT) and keys[-1] != "peers":
            last = rows[-1].value.body
            tail = _tail(rows[-1])
            del last[len(last) - len(tail) :]
            for item in tail:
                table.value.append(None, item)
        rows.append(table)


def _delete_peer(document: tomlkit.TOMLDocument, index: int) -> None:
    rows: Any = document["peers"]
    if not isinstance(rows, AoT):
        del rows[index]
        if not rows:
            del document["peers"]
        return
    # Comments at its end speak of the next table, so they stay: behind the table before it.
    kept = _tail(rows[index])
    if index:
        for item in kept:
            rows[index - 1].value.append(None, item)
        del rows[index]
        return
    place = next(row for row, (key, _) in enumerate(document.body) if key and key.key == "peers")
    del rows[index]
    if not rows:
        del document["peers"]
    document.body[place:place] = [(None, item) for item in kept]


def _tail(table: Table) -> list[Item]:
    """The comments and empty lines at the end of a table."""
    items: list[Item] = []
    for key, item in reversed(table.value.body):
        if key is not None or not isinstance(item, Comment | Whitespace):
            break
        items.insert(0, item)
    return items


def _edit(home: Path, change: Callable[[tomlkit.TOMLDocument], None], expected: Config) -> None:
    """Replace the file in one step, if the new text says what is expected."""
    path = home / CONFIG_NAME
    try:
        document = tomlkit.parse(path.read_text(encoding="utf-8"))
        change(document)
        text = tomlkit.dumps(document)
        parsed = parse(home, toml_table.Table(path, "", tomllib.loads(text)))
    except (TOMLKitError, ValueError):
        parsed = None
    if parsed != expected:
        raise ConfigError(f"{path}: cannot be changed by the command; edit it and restart")
    try:
        atomic_write(path, text, durable=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error


def create(config: Config) -> Path:
    """Make the home (0700) and its configuration; refuses to replace one. Returns its path.

    What `load` would refuse is refused before anything is made, and so is a folder that is there
    and that others can read: they could read every message.
    """
    path, text = config.home / CONFIG_NAME, render(config)
    parse(config.home, toml_table.Table(path, "", tomllib.loads(text)))
    if len(text.encode()) > CONFIG_SIZE_MAX:
        raise ConfigError(f"{path}: would be longer than {CONFIG_SIZE_MAX} bytes; say less")
    if path.exists() or config.home.is_file():
        what = path if config.home.is_dir() else config.home
        raise ConfigError(f"{what}: is there already; choose another --home")
    is_created = False
    try:
        config.home.parent.mkdir(parents=True, exist_ok=True)
        private_files.make_folder(config.home)
        with path.open("x", encoding="utf-8") as file:
            is_created = True
            file.write(text)
    except OSError as error:
        if is_created:  # a piece of it would be in the way of the next try
            path.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be made ({error.strerror})") from error
    return path
