"""A store that was put back to an older state: noticed at the start, so that the peers are told.

A backup that is copied back brings an older store, and the peers think that we hold what it has
lost. It gets a new `store_gen` then (docs/SPEC.md 3.5), and a mark for each peer until a sketch or
a list has settled with it what is missing. What cannot be noticed, a whole disk that was set back,
the owner says: `drupelet agent --restored`.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drupelet.base.errors import OK, StorageError
from drupelet.base.limits import SEAL_JUMP_AFTER
from drupelet_host.store import database
from drupelet_host.store.sqlite_store import SqliteStore

if TYPE_CHECKING:
    from drupelet.seal.seal import Seal

# Keys of the table `meta` (docs/SPEC.md 8); the last two with the peer's id in hex behind them.
PLACE = "place"
LOST = "lost."
PEER_GEN = "peer_gen."
# No file has this number: the store counts as put back at the next start.
NOWHERE = 1
_STORE_GEN_SIZE = 4


def mark(store: SqliteStore) -> dict[str, int]:
    """How far a store has come; a store that has come less far later was put back."""
    row = store.connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'log'").fetchone()
    return {
        "gen": store.store_gen,
        "boot": database.meta_int(store.connection, "boot", 0),
        "handle": int(row[0]) if row else 0,
    }


def _last_mark(path: Path) -> dict[str, int]:
    try:
        status: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    mark = status.get("store") if isinstance(status, dict) else None
    if not isinstance(mark, dict) or not all(isinstance(n, int) for n in mark.values()):
        return {}
    return mark if mark.keys() >= {"gen", "boot", "handle"} else {}


def _place(store: SqliteStore) -> int:
    """The number of the store's file on its file system: a copy has another one."""
    return store.path.stat().st_ino & 0x7FFF_FFFF_FFFF_FFFF


def _was_put_back(store: SqliteStore, last: dict[str, int]) -> bool:
    """True when the agent's last word, or the file's number, is not this store's."""
    place = database.meta_int(store.connection, PLACE, 0)
    if place and place != _place(store):
        return True  # a copy
    now = mark(store)
    # The boot number has 16 bits; the number of a new store tells by itself.
    return bool(last) and (
        last["gen"] != now["gen"] or last["boot"] > now["boot"] or last["handle"] > now["handle"]
    )


def notice(
    store: SqliteStore, status_path: Path, peers: Iterable[bytes], restored: bool = False
) -> bool:
    """Look whether an open store was put back, before its boot is counted; True if it was.

    `restored`: the owner says so. What is written is durable with the next barrier; that it was
    put back, at once. Raises StorageError.
    """
    last = _last_mark(status_path)
    if not restored and not _was_put_back(store, last):
        put(store, PLACE, _place(store))
        return False
    before = store.store_gen
    while store.store_gen & 0xFFFF in (0, before & 0xFFFF):
        store.store_gen = int.from_bytes(os.urandom(_STORE_GEN_SIZE))
    put(store, "store_gen", store.store_gen)
    put(store, PLACE, _place(store))
    boot = database.meta_int(store.connection, "boot", 0)
    put(store, "boot", max(boot, last.get("boot", 0)))  # black boxes are not numbered twice
    for id in peers:
        put(store, LOST + id.hex(), 1)
    # Only now: while the disk is full, the next start must find the same evidence.
    if store.barrier() != OK:
        raise StorageError(store.failure)
    status_path.unlink(missing_ok=True)  # it speaks of another store
    return True


class Hold:
    """After a loss nothing but our status leaves over a live link, until the peer has answered.

    It may have seen later epochs than we know of. Who hears nothing goes on all the same after as
    many epochs as on a link that leads one way (docs/SPEC.md 11.4).
    """

    def __init__(self, seal: "Seal") -> None:
        self._seal = seal
        self._last_epoch = seal.out_epoch + SEAL_JUMP_AFTER

    def is_over(self) -> bool:
        """True from the peer's confirmation on; until then our status is due."""
        seal = self._seal
        if seal.confirmed or seal.out_epoch >= self._last_epoch:
            return True
        seal.urgent = True
        return False


def put(store: SqliteStore, key: str, value: int) -> None:
    """Keep one number, if it is not kept yet."""
    if database.meta_int(store.connection, key, -1) != value:
        store.write("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)


def drop(store: SqliteStore, key: str) -> None:
    """Forget one number."""
    store.write("DELETE FROM meta WHERE key = ?", key)
