"""The demo's fleet gets keys as any other: random, new in every run, as `drupelet provision` does.

Broker and stick are sealed, as always, and so are the cables: nothing in the demo is plain.
"""

from pathlib import Path

from drupelet_host.home import config
from drupelet_host.keys import provision
from drupelet_tools.demo.plan import HOST, IDS, Folders

# The files that hold chain keys, of boards and of the host.
KEY_FILES = (".KEY", ".live", ".bundle")


def provision_fleet(folders: Folders, pairs: set[frozenset[str]]) -> None:
    """Give each pair of members a root of its own; the host's home and the flashes are there."""
    settings = config.load(folders.host)
    for pair in sorted(sorted(members) for members in pairs):
        first, second = pair
        if HOST in pair:
            board = first if second == HOST else second
            provision.provision_peer(settings, board, _flash(folders, board))
        else:
            to = (_flash(folders, first), _flash(folders, second))
            provision.provision_pair(settings, (IDS[first], IDS[second]), to)


def _flash(folders: Folders, board: str) -> str:
    """A board's folder as `drupelet provision --to` takes it."""
    return f"{provision.FLASH}:{folders.flash(board)}"


def kept_secrets(folders: Folders) -> list[bytes]:
    """Every chain key that lies in the demo's folders, for who looks whether one leaks."""
    secrets = []
    for path in sorted(folders.out.rglob("*")):
        if path.suffix in KEY_FILES:
            secrets += _keys(path)
    return secrets


def _keys(path: Path) -> list[bytes]:
    from drupelet.seal.record import RECORD_KEY_AT, RECORD_SIZE

    content = path.read_bytes()
    keys = [
        content[at + RECORD_KEY_AT : at + RECORD_KEY_AT + 32]
        for at in range(0, len(content), RECORD_SIZE)
    ]
    return [key for key in keys if any(key)]
