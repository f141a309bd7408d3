"""The checksum of a message's row: a bit that the disk turned over is noticed when it is read.

A body that changed would go to peers under an id of its own making: nobody else has that message.
"""

import sqlite3
import zlib
from collections.abc import Iterator

# What `row_checksum` takes of a row, then its checksum; which rows follows. A bit may have changed
# a value's type.
CONTENT = (
    "SELECT CAST(member_group AS INTEGER), CAST(source AS INTEGER), CAST(state AS INTEGER),"
    " CAST(id AS BLOB), CAST(timestamp AS BLOB), CAST(body AS BLOB), checksum FROM log"
)
_HANDLES = "SELECT handle FROM log WHERE handle > ? ORDER BY handle LIMIT 1000"


def row_checksum(
    group: int, source: int, state: int, id: bytes, timestamp: bytes, body: bytes
) -> int:  # fmt: skip
    """CRC-32 of a row: group, source and state as decimals with a space behind each, then bytes.

    The column `size` says of a deleted message who lacks it, and changes often: it is not covered.
    """
    head = b"%d %d %d " % (group, source, state)
    return zlib.crc32(body, zlib.crc32(timestamp, zlib.crc32(id, zlib.crc32(head))))


def damaged_rows(connection: sqlite3.Connection) -> Iterator[tuple[int, bytes]]:
    """Handle and id of each row of the log whose checksum does not fit, the oldest first."""
    after = 0
    while handles := connection.execute(_HANDLES, (after,)).fetchall():
        for (after,) in handles:
            row = connection.execute(CONTENT + " WHERE handle = ?", (after,)).fetchone()
            if row is not None and row_checksum(*row[:-1]) != row[-1]:
                yield after, row[3]
