"""The configuration of a home as other rooms use it: `drupelet.toml` read, written and locked.

A home is one folder (mode 0700) with `drupelet.toml`, the store, a lock and a status. What the
keys mean stands in docs/configuration.md, with examples in docs/field-guide.md. Every mistake
raises ConfigError with the file, the key and the remedy on one line.
"""

from pathlib import Path

from drupelet_host.home.lock import LockedError, lock, locked
from drupelet_host.home.model import (
    BUDGET_BYTES_MIN,
    CHANNEL_PERIOD_MS_MAX,
    CHANNEL_PERIODS_MAX,
    CONFIG_NAME,
    CONFIG_SIZE_MAX,
    DIALECT_NIM,
    FAMILY_BSP_0_NAME,
    FAMILY_BSP_NAME,
    FAMILY_MVDS_NAME,
    FOLDER_PLACE,
    MODES,
    PEERS_CONFIGURED_MAX,
    PROFILES_OF,
    Config,
    FeedSettings,
    Peer,
    Shared,
    can_listen,
    default_home,
)
from drupelet_host.home.parse import load
from drupelet_host.home.toml_table import ConfigError, NotThereError

__all__ = [
    "BUDGET_BYTES_MIN",
    "CHANNEL_PERIODS_MAX",
    "CHANNEL_PERIOD_MS_MAX",
    "CONFIG_NAME",
    "CONFIG_SIZE_MAX",
    "DIALECT_NIM",
    "FAMILY_BSP_0_NAME",
    "FAMILY_BSP_NAME",
    "FAMILY_MVDS_NAME",
    "FOLDER_PLACE",
    "MODES",
    "PEERS_CONFIGURED_MAX",
    "PROFILES_OF",
    "Config",
    "ConfigError",
    "FeedSettings",
    "LockedError",
    "NotThereError",
    "Peer",
    "Shared",
    "add_peer",
    "can_listen",
    "create",
    "default_home",
    "load",
    "lock",
    "locked",
    "remove_peer",
    "render",
]


# home.edit loads tomlkit, which commands that only read do not wait for.
def create(config: Config) -> Path:
    """Make the home (0700) and its configuration; refuses to replace one. Returns its path."""
    from drupelet_host.home import edit

    return edit.create(config)


def render(config: Config) -> str:
    """The configuration as a commented TOML text that `load` reads back."""
    from drupelet_host.home import edit

    return edit.render(config)


def add_peer(home: Path, peer: Peer) -> None:
    """Write one more peer behind the others; raises ConfigError and leaves the file as it was."""
    from drupelet_host.home import edit

    edit.add_peer(home, peer)


def remove_peer(home: Path, name: str) -> Peer:
    """Take a peer's table out of the file; raises ConfigError and leaves the file as it was."""
    from drupelet_host.home import edit

    return edit.remove_peer(home, name)
