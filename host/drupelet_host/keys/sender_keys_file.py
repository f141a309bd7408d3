"""Where the sender keys of one topic or channel are kept: one file, for its owner only.

    keys/<id>.senders   0600  records of 52 bytes (docs/SPEC.md 12.8), row 0 ours; then 4 bytes for
                              each device that was shut out, and for each that our chain may have
                              reached; how many the latter are, in one byte

Whom our chain no longer reaches is written in one step with the chain that it does not get.
"""

from dataclasses import dataclass, field
from pathlib import Path

from drupelet.base.errors import E_STORAGE, OK, DrupeletError
from drupelet.seal.record import RECORD_SIZE, is_sound
from drupelet_host.home import private_files
from drupelet_host.home.config import PEERS_CONFIGURED_MAX

ROWS = PEERS_CONFIGURED_MAX + 1
_ID_SIZE = 4
_OWNER_AT = 12  # in a record
# Peers come and go; of those that were revoked longest ago nobody needs to know.
_OUT_MAX = 256


@dataclass
class SenderFile:
    """The key port of one topic (drupelet.channel.ports.SenderKeyPort)."""

    path: Path
    failure: str = ""  # why the last call failed
    out: list[bytes] = field(default_factory=list)  # ids of who was shut out
    heard: list[bytes] = field(default_factory=list)  # ids of whom our chain may have reached
    _records: bytearray = field(default_factory=lambda: bytearray(ROWS * RECORD_SIZE), repr=False)

    def open(self) -> None:
        """Read the file, if there is one. Raises PrivateError or StorageError."""
        private_files.make_folder(self.path.parent)
        if not self.path.is_symlink() and not self.path.exists():
            return
        size_max = ROWS * RECORD_SIZE
        content = private_files.read(self.path, size_max + (_OUT_MAX + ROWS) * _ID_SIZE + 1)
        self._records[:] = content[:size_max].ljust(size_max, b"\0")
        rest = content[size_max:]
        ids = [rest[at : at + _ID_SIZE] for at in range(0, len(rest) - 3, _ID_SIZE)]
        # What earlier versions wrote has no such byte.
        heard = min(rest[-1], len(ids)) if len(rest) % _ID_SIZE else 0
        self.out, self.heard = ids[: len(ids) - heard], ids[len(ids) - heard :]

    def readers(self) -> list[bytes]:
        """The ids of the others whose chains are here, or that may have ours."""
        rows = range(RECORD_SIZE, len(self._records), RECORD_SIZE)
        records = [self._records[at : at + RECORD_SIZE] for at in rows]
        ids = [
            bytes(record[_OWNER_AT : _OWNER_AT + _ID_SIZE])
            for record in records
            if is_sound(record)
        ]
        return ids + [id for id in self.heard if id not in ids]

    def load(self, row: int, out: bytearray) -> int:
        """Put the record of `row` into out[0:52]; OK, or E_STORAGE when there is none."""
        out[:RECORD_SIZE] = self._records[row * RECORD_SIZE : (row + 1) * RECORD_SIZE]
        return OK if is_sound(out) else E_STORAGE

    def save(self, row: int, record: bytes | bytearray) -> int:
        """Keep record[0:52]; durable when it returns OK, else what was there stays."""
        records = bytearray(self._records)
        records[row * RECORD_SIZE : (row + 1) * RECORD_SIZE] = record[:RECORD_SIZE]
        return self._replace(records)

    def keep(self) -> int:
        """Write whom our chain may reach, with what was there; OK or E_STORAGE."""
        return self._replace(self._records)

    def _replace(self, records: bytearray) -> int:
        out, heard = self.out[-_OUT_MAX:], self.heard[-ROWS:]
        content = bytes(records) + b"".join([*out, *heard, bytes([len(heard)])])
        try:
            private_files.replace(self.path, content)
        except DrupeletError as error:
            self.failure = str(error)
            return E_STORAGE
        self._records[:] = records
        return OK

    def drop(self, row: int) -> int:
        """Forget the record of `row`."""
        return self.save(row, bytes(RECORD_SIZE))
