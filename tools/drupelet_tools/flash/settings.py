"""The configuration that a board gets, `drupelet.json`, and what of it stays over an update."""

import os
import re
from dataclasses import dataclass
from typing import Any

from drupelet_host.home.board_settings import CONSOLE, new_settings, peer_row
from drupelet_host.home.config import Config
from drupelet_tools.flash.errors import FlashError
from drupelet_transports.common.transport import TransportError
from drupelet_transports.common.url import BOARD_LINES, parse_url

PATH = "drupelet.json"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,32}")
_ID = re.compile("[0-9a-f]{8}")


@dataclass(frozen=True)
class Wish:
    """What the command line says of the board; "" for what it leaves open."""

    name: str = ""
    group: str = ""
    link: str = ""


def name_of(settings: dict[str, Any]) -> str:
    """The board's name, which is its peer's name at the host."""
    return str(settings["name"])


def check_wish(wish: Wish, at: str) -> None:
    """Refuse what no board could have, before one is touched; raises FlashError."""
    if wish.name and not _NAME.fullmatch(wish.name):
        raise FlashError(f"--name {wish.name}: give 1 to 32 letters, digits, . _ or -")
    try:
        schemes = [(parse_url(text).scheme if text else "") for text in (wish.link, at)]
    except TransportError as error:
        raise FlashError(str(error)) from None
    if schemes[0] not in ("", *BOARD_LINES):
        raise FlashError(f"--link {wish.link}: give console:, or a UART as in uart:1?tx=4&rx=5")
    if schemes[1] not in ("", "serial"):
        raise FlashError(f"--at {at}: give the serial port here, as in serial:///dev/ttyUSB0")
    check_end(wish.link or CONSOLE, at)


def check_end(link: str, at: str) -> None:
    """Refuse a link over another line than the cable whose end here nobody named."""
    if not link.startswith(CONSOLE) and not at:
        raise FlashError(
            f"the board's link is {link}, which is another line than this cable: say with --at"
            " serial:///dev/... where it ends here"
        )


def settings_for(
    device: str, present: dict[str, Any] | None, wish: Wish, home: Config, root: str, board: str
) -> dict[str, Any]:
    """What the board should have: what it has, or new; raises FlashError where they differ.

    Keys and the log belong to the board's id and group: neither changes over an update. root,
    board: as of `new_settings`.
    """
    if wish.group and wish.group != home.group:
        raise FlashError(
            f"--group {wish.group}: the home {home.home} is of group {home.group}: leave --group"
            " out, or name another home with --home"
        )
    if present is None:
        own_id = os.urandom(4)
        name = wish.name or f"board-{own_id.hex()[:4]}"
        return new_settings(home, own_id, name, wish.link or CONSOLE, root, board)
    _check(device, present)
    for key, wished in (("name", wish.name), ("group", home.group)):
        if wished and present[key] != wished:
            raise FlashError(
                f"{device}: its {PATH} says {key} {present[key]!r}, not {wished!r}: delete that"
                " file from the board to make it another member, then repeat"
            )
    own = home.id.hex()
    rows = [row for row in present["peers"] if row.get("id") == own]
    if not rows:
        link = wish.link or CONSOLE
        taken = [row["id"] for row in present["peers"] if row["url"].startswith(CONSOLE)]
        if taken and link == CONSOLE:
            raise FlashError(
                f"{device}: its console is its line to {taken[0]}: name another one with --link"
                f" and --at, or delete {PATH} from the board to have it join this home alone"
            )
        return {**present, "peers": [*present["peers"], peer_row(home, link)]}
    if wish.link and rows[0].get("url") != wish.link:
        others = [row for row in present["peers"] if row.get("id") != own]
        return {**present, "peers": [*others, {**rows[0], "url": wish.link}]}
    return present


def _check(device: str, present: dict[str, Any]) -> None:
    peers = present.get("peers")
    texts = all(isinstance(present.get(key), str) for key in ("name", "id", "group", "flash"))
    named = texts and _NAME.fullmatch(present["name"]) and _ID.fullmatch(present["id"])
    linked = isinstance(peers, list) and all(map(_is_peer, peers))
    if not named or not linked or not isinstance(present.get("epoch_ms"), int):
        raise FlashError(
            f"{device}: its {PATH} lacks a key or has one wrong (name, id, group, flash, epoch_ms,"
            " peers with id and url): repair it, or delete it from the board and repeat"
        )


def _is_peer(row: object) -> bool:
    return isinstance(row, dict) and all(isinstance(row.get(key), str) for key in ("id", "url"))


def link_of(settings: dict[str, Any], home: Config) -> str:
    """The board's own URL of its link to this home."""
    return next(str(row["url"]) for row in settings["peers"] if row.get("id") == home.id.hex())
