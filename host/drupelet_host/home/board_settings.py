"""The configuration that a new board gets: its `drupelet.json` (docs/boards.md)."""

import json
from collections.abc import Mapping
from typing import Any

from drupelet_host.home.config import Config
from drupelet_host.home.toml_table import ConfigError

CONSOLE = "console:"
# Tables that `small` has room for beside its code on 128 KB of heap (docs/bench.md).
_TABLES = {"peers_max": 4, "messages_max": 64, "offers_max": 64, "filter_size": 2048}
# More readings than a board takes in its life.
_READINGS_MAX = 1 << 29
_MODES = ("interactive", "batch")
# What kinds of boards can measure of their own supply: a Pico divides VSYS by three at pin 29.
_BATTERIES = {"rp2040": {"pin": 29, "times": 3}}


def peer_row(home: Config, link: str = CONSOLE) -> dict[str, str]:
    """The home as a peer of a board; link: the board's end of it."""
    return {"id": home.id.hex(), "url": link, "mode": "batch", "profile": "bsp-1"}


def new_settings(
    home: Config, own_id: bytes, name: str, link: str = CONSOLE, root: str = "", board: str = ""
) -> dict[str, Any]:
    """A member of the home's group that takes the chip's own readings and talks to the home.

    root: where the board's drive is mounted; board: its kind, as of a peer of the home.
    """
    battery = {"battery": _BATTERIES[board]} if board in _BATTERIES else {}
    return {
        "name": name, "id": own_id.hex(), "flash": f"{root}/log", "group": home.group,
        "epoch_ms": home.epoch_ms, "readings_max": _READINGS_MAX, **_TABLES, **battery,
        "telemetry_to": [home.id.hex()], "peers": [peer_row(home, link)],
    }  # fmt: skip


def check_modes(settings: Mapping[str, Any]) -> None:
    """Refuse a peer's mode that boards do not have. Raises ConfigError."""
    for peer in settings["peers"]:
        if peer.get("mode", _MODES[0]) not in _MODES:
            raise ConfigError(
                f"mode {peer['mode']!r} of peer {peer.get('id')}: a board knows"
                f" {' and '.join(_MODES)}: give one of them (docs/boards.md)"
            )


def text_of(settings: dict[str, Any]) -> bytes:
    """As it is written to the board: one text file that a person can change."""
    return (json.dumps(settings, indent=1) + "\n").encode()
