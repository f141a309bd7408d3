"""Makes the board a peer of this home, and gives the two keys over the cable they share."""

from typing import Any

from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.keys.provision import HomeKeys, has_keys, provision
from drupelet_host.keys.provision_serial import SerialKeys
from drupelet_tools.flash import settings
from drupelet_tools.flash.deliver import files_on
from drupelet_tools.flash.errors import FlashError
from drupelet_tools.flash.probe import Facts
from drupelet_tools.flash.repl import BoardRepl
from drupelet_tools.flash.target import SOCKET

# The folder of firmware/boards -> `board` of a peer (drupelet_host/home/board_kinds.py).
_BOARDS = {"rp2": "rp2040", "esp32": "esp32"}
_BOARD_UNKNOWN = "board"
_TAG_SIZE = 8
_KEY_FILE = ".KEY"
# A node comes up within this, its code imported file by file on a slow chip.
_BOOT_S_MAX = 60.0


def url_of(device: str) -> str:
    """The carrier URL of the cable to the board."""
    if device.startswith(SOCKET):
        return "serial://" + device.removeprefix(SOCKET)
    return "serial://" + device


def kind_of(facts: Facts) -> str:
    """The board's kind, as the home has it."""
    if "Pico W" in facts.machine:
        return "pico-w"
    return _BOARDS.get(facts.port, _BOARD_UNKNOWN)


def know(home: Config, device: str, facts: Facts, wanted: dict[str, Any], at: str) -> Peer:
    """The board as a peer of the home, added or moved to this port."""
    id = bytes.fromhex(wanted["id"])
    name = settings.name_of(wanted)
    url = at or url_of(device)
    known = next((peer for peer in home.peers if peer.id == id), None)
    peer = Peer(name, id, url, "batch", int(wanted["epoch_ms"]), kind_of(facts))
    if known is not None:
        if known.url == url:
            return known
        peer = Peer(
            known.name, id, url, known.mode, known.epoch_ms, known.board, known.profile,
            known.budget_bytes_per_epoch,
        )  # fmt: skip
        config.remove_peer(home.home, known.name)
    config.add_peer(home.home, peer)
    return peer


def _key_files(repl: BoardRepl, wanted: dict[str, Any]) -> dict[str, str]:
    """Peer id, as hex digits -> its key file on the board, whether or not it is whole."""
    folder = str(wanted["flash"]).rstrip("/")
    return {
        path.rpartition("/")[2].removesuffix(_KEY_FILE).lower(): path
        for path in files_on(repl, (folder,))
        if path.endswith(_KEY_FILE)
    }


def check(repl: BoardRepl, home: Config, wanted: dict[str, Any], again: bool) -> None:
    """Refuse, before anything is written, what would cost keys that hold; raises FlashError.

    A board takes keys over its cable only while it has none at all.
    """
    present = _key_files(repl, wanted)
    others = sorted(present.keys() - {home.id.hex()})
    own = home.id.hex() in present
    ours = has_keys(home, bytes.fromhex(wanted["id"]))
    if not again and present and not (own and ours):
        whom = "this home" if own else f"{', '.join(others)} and none for this home"
        raise FlashError(
            f"{settings.name_of(wanted)}: has keys for {whom}: --again makes new ones for this"
            " home, and takes all others from the board"
        )


def exchange(
    repl: BoardRepl, home: Config, peer: Peer, wanted: dict[str, Any], again: bool
) -> bool:
    """Start the node, and give both sides keys if they have none; whether that was needed."""
    present = _key_files(repl, wanted)
    arguments = (str(wanted["flash"]), str(wanted["id"]), [home.id.hex()])
    whole = bool(repl.call("keys", f"keyed{arguments!r}"))
    if whole and has_keys(home, peer.id) and not again:
        repl.start()
        return False
    if not again and (others := sorted(present.keys() - {home.id.hex()})):
        raise FlashError(
            f"{peer.name}: its keys for this home are not whole, those for {', '.join(others)} may"
            " be: --again makes new ones for this home, and takes all others from the board"
        )
    # What was cut while it was written is made anew.
    for path in present.values():
        repl.call("files", f"remove({path!r})")
    repl.start()
    keys = SerialKeys(peer.url, peer.id, home.id, repl.port, _BOOT_S_MAX)
    own = HomeKeys(home.keys_path, home.id, peer.id)
    try:
        provision(own, keys, _TAG_SIZE, True, own.put_back)
    finally:
        own.finish()
    return True
