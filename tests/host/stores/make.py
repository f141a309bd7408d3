"""Write the databases of this release as SQL text, for the tests of upgrades.

    python tests/host/stores/make.py FOLDER

Run once for each released version of a database, with that release's code, and keep the text as
`store-VERSION.sql` and `channels-VERSION.sql`. The store has messages in every state.
"""

import sqlite3
import sys
import tempfile
from pathlib import Path

from drupelet_host.store import outbox
from drupelet_host.store.channel_database import ChannelDatabase
from drupelet_host.store.sqlite_store import SqliteStore

SETTINGS = ("application_id", "user_version")
GROUP = 1
PEER = 1
DELIVERED, PENDING, INVALID, PRIVATE = 1, 2, 4, 5


def id_of(number: int) -> bytes:
    """A message id that tells its number."""
    return bytes([number]) * 32


def body_of(number: int) -> bytes:
    """A body that tells its number; the third one is long."""
    return b"\x00body %d" % number + bytes(range(256)) * (5 if number == 3 else 0)


def put(store: SqliteStore, number: int, state: int, source: int = 0) -> int:
    """Put the message of a number; its handle."""
    body = body_of(number)
    stamp = (1_700_000_000_000 + number).to_bytes(8)
    return store.put(
        GROUP, source, id_of(number), 0, stamp, 0, body, 0, len(body), state
    )  # fmt: skip


def fill(store: SqliteStore) -> None:
    """Messages in every state, and a row or more in every table."""
    store.write("UPDATE meta SET value = 77 WHERE key = 'store_gen'")
    store.next_boot()
    store.member(1, id_of(200), 0, 32)
    store.member(2, b"\xb0\x00\x00\x02", 0, 4)
    # Two that make room, one of them invalid.
    put(store, 100, DELIVERED)
    put(store, 101, INVALID)
    store.settled_handle = store.find(id_of(101), 0) + 1
    assert store.reclaim() == 0
    store.unsettle()
    for number in (1, 2, 3):
        put(store, number, DELIVERED, source=PEER if number == 2 else 0)
    put(store, 4, PENDING, source=PEER)
    edges = b"\x01" + id_of(1)
    assert store.entomb(put(store, 5, DELIVERED), edges, len(edges), missing=2) == 0
    put(store, 6, INVALID, source=PEER)
    put(store, 7, PRIVATE)
    assert store.entomb(put(store, 8, PENDING, source=PEER), edges, len(edges)) == 0
    assert store.entomb(put(store, 9, PRIVATE), edges, len(edges)) == 0
    assert store.promote(put(store, 10, PENDING, source=PEER), DELIVERED) > 0
    assert store.note(id_of(102), 0)
    spool = store.spool
    spool.part_open(0, b"part key", 0, 0)
    spool.part_append(0, id_of(201) + b"a descriptor", 0, 44)
    assert store.descriptor_put(0, GROUP) == 0
    spool.part_open(2, b"part two", 0, 500)
    spool.part_append(2, b"what came of it", 0, 15)
    store.save(b"wake state", 10)
    assert store.barrier() == 0
    outbox.post(store.connection, b"a letter", wall_ms=1_700_000_000_500)
    outbox.ask(store.connection, "stick", "/media/usb")


def fill_channels(database: ChannelDatabase) -> None:
    """A message that is in the log and one that waits."""
    for number, logged in ((1, 1), (2, 0)):
        database.write(
            "INSERT INTO messages (channel, id, lamport, frame, logged, held)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (b"orchard", b"m%d" % number, number.to_bytes(8), b"frame %d" % number, logged, 5),
        )
    database.write("INSERT INTO hints VALUES (?, ?, ?)", (b"orchard", b"hint", b"m1"))
    database.commit()


def text_of(path: Path) -> str:
    """A database as SQL, with the numbers of its header."""
    connection = sqlite3.connect(path)
    try:
        lines = [
            f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in SETTINGS
        ]
        return "\n".join([*lines, *connection.iterdump()]) + "\n"
    finally:
        connection.close()


def main(folder: Path) -> None:
    """Make both and write their text."""
    with tempfile.TemporaryDirectory() as name:
        store = SqliteStore(Path(name) / "store.db")
        store.open()
        fill(store)
        version = store.connection.execute("PRAGMA user_version").fetchone()[0]
        store.close()
        (folder / f"store-{version}.sql").write_text(text_of(store.path), encoding="utf-8")
        channels = ChannelDatabase(Path(name) / "channels.db")
        fill_channels(channels)
        version = channels.connection.execute("PRAGMA user_version").fetchone()[0]
        channels.close()
        path = folder / f"channels-{version}.sql"
        path.write_text(text_of(Path(name) / "channels.db"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
