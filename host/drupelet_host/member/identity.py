"""Whose store it is: the id and the group that it was begun with.

Whoever edits `id` or `group` in drupelet.toml afterwards would be silent for ever: keys are made
for two ids, and messages belong to one group. So the home does not start, and says what to do.
"""

import sqlite3
from typing import TYPE_CHECKING

from drupelet.base.errors import OK, StorageError
from drupelet_host.home.config import CONFIG_NAME, Config
from drupelet_host.home.toml_table import ConfigError, shown
from drupelet_host.keys.key_folder import known_peers
from drupelet_host.member import family

if TYPE_CHECKING:
    from drupelet_host.store.sqlite_store import SqliteStore

# Keys of the table `meta` (docs/SPEC.md 8).
_ID = "id"
_GROUP = "group"
_GROUP_ID = "group_id"


def problem(connection: sqlite3.Connection, settings: Config) -> str:
    """What of the configuration no longer fits the store, with the remedy; '' when all does.

    A store without readings fits every group, one without messages every id until there are keys.
    """
    rows = connection.execute(
        "SELECT key, value FROM meta WHERE key IN (?, ?, ?)", (_ID, _GROUP, _GROUP_ID)
    )
    stored = {key: bytes(value) for key, value in rows}
    if stored.keys() < {_ID, _GROUP, _GROUP_ID}:
        return ""
    path = settings.home / CONFIG_NAME
    other = "or make another home with `drupelet init --home ...`"
    is_used = _has_rows(connection, "SELECT 1 FROM log") or known_peers(settings.keys_path)
    if stored[_ID] != settings.id and is_used:
        return (
            f"{path}: id is {settings.id.hex()}, but store and keys of this home are those of"
            f' {stored[_ID].hex()}; put id = "{stored[_ID].hex()}" back, {other}'
        )
    readings = "SELECT 1 FROM log JOIN members ON member_group = number AND key = ?"
    is_other = stored[_GROUP_ID] != family.group_id(settings)
    if is_other and _has_rows(connection, readings, stored[_GROUP_ID]):
        group = stored[_GROUP].decode()
        if group == settings.group:
            what = "client was changed since the store of this home was begun"
        else:
            what = f"group is {shown(settings.group)}, but the store of this home is of"
            what += f" {shown(group)}"
        return f"{path}: {what}; put it back, {other}"
    return ""


def _has_rows(connection: sqlite3.Connection, query: str, *values: object) -> bool:
    return connection.execute(query + " LIMIT 1", values).fetchone() is not None


def settle(store: "SqliteStore", settings: Config) -> None:
    """Note whose store it is; raises ConfigError when the configuration no longer fits it.

    What is noted is durable when this returns, else StorageError.
    """
    if wrong := problem(store.connection, settings):
        raise ConfigError(wrong)
    now = {
        _ID: settings.id,
        _GROUP: settings.group.encode(),
        _GROUP_ID: family.group_id(settings),
    }
    for key, value in now.items():
        store.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)
    if store.barrier() != OK:
        raise StorageError(store.failure)
