"""The host side: agent, durable store, keys, configuration and the `drupelet` command.

For programs: `from drupelet_host import open_home` (docs/library.md). Nothing is loaded before it
is used, because the command starts here, too.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drupelet.base.errors import CapacityError, DrupeletError, PeerError, StorageError
    from drupelet_host.api import (
        AgentStoppedError,
        ClosedError,
        Home,
        Message,
        RunningAgent,
        create_home,
        open_home,
    )
    from drupelet_host.home.config import ConfigError, LockedError
    from drupelet_host.readers.log_reader import ReaderBusyError

__all__ = [
    "AgentStoppedError",
    "CapacityError",
    "ClosedError",
    "ConfigError",
    "DrupeletError",
    "Home",
    "LockedError",
    "Message",
    "PeerError",
    "ReaderBusyError",
    "RunningAgent",
    "StorageError",
    "create_home",
    "open_home",
]
_MODULES = {
    "drupelet.base.errors": ("CapacityError", "DrupeletError", "PeerError", "StorageError"),
    "drupelet_host.home.config": ("ConfigError", "LockedError"),
    "drupelet_host.readers.log_reader": ("ReaderBusyError",),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = next((path for path, names in _MODULES.items() if name in names), f"{__name__}.api")
    return getattr(import_module(module), name)
