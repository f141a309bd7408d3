"""A board's key port: one small file per peer with its records (docs/SPEC.md 11), eight of chains
and two of names.

A change writes the whole file anew beside the old one and renames it, so a power cut leaves one of
the two. Old chain keys stay in flash blocks that LittleFS has not reused yet: if somebody may have
read a board's flash, only a new root, provisioned by cable, makes it safe again.
"""

import binascii

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, E_STORAGE, OK, StorageError
from drupelet.base.memory import copy, equal, get_u16
from drupelet.seal.record import RECORD_SIZE, is_sound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.seal.seal import Seal
    from drupelet.store.files import Files

ROWS = const(10)
_CHAIN_ROWS = const(8)
_NO_FILE = const(-1)  # the result of `Files.size`
# The chains of one generation: two carrier classes, two directions.
_CHAINS = const(4)


def has_keys(ring: "list[BoardKeys]") -> bool:
    """Whether a board was provisioned: it has four chains of at least one peer, revoked or not.

    Raises StorageError if the flash fails, since a board that has keys must not accept new ones.
    """
    record = bytearray(RECORD_SIZE)
    for keys in ring:
        if not keys.is_readable():
            raise StorageError("the keys cannot be read: look at its flash")
        chain_count = sum([keys.load(row, record) == OK for row in range(_CHAIN_ROWS)])
        if chain_count >= _CHAINS:
            return True
    return False


class BoardKeys:
    """The key port of one peer, or of a topic; `ring` lists the key ports of all peers.

    The name of its file ends in `end`; that of one that will replace it, in `new_end`.
    """

    def __init__(
        self, files: "Files", own_id: "bytes | bytearray", peer_id: "bytes | bytearray",
        ring: "list[BoardKeys]", end: str = ".KEY", new_end: str = ".NEW",
    ) -> None:  # fmt: skip
        self.own_id = own_id
        self.peer_id = peer_id
        self.seals: "list[Seal]" = []
        self._files = files
        name = binascii.hexlify(peer_id).decode().upper()
        self._name = name + end
        self._part = name + new_end
        self._scratch = bytearray(RECORD_SIZE)
        self._ring = ring
        ring.append(self)

    def is_readable(self) -> bool:
        """False if there is, or may be, a file that the flash fails to read."""
        return self._read(0, self._scratch) >= _NO_FILE

    def _read(self, row: int, out: bytearray) -> int:
        """Read records from `row` on into `out`; return the bytes read, _NO_FILE, or a code."""
        files = self._files
        size = files.size(self._name)
        file = files.open(self._name, False) if size >= 0 else size
        if file < 0:
            return file
        count = files.read_into(file, row * RECORD_SIZE, out, 0, len(out))
        files.close(file)
        return count

    def load(self, row: int, out: bytearray) -> int:
        """Read the record of `row` into out[0:52]; OK, or E_STORAGE if there is none."""
        record = self._scratch
        if self._read(row, record) != RECORD_SIZE or not is_sound(record):
            return E_STORAGE
        copy(out, 0, record, 0, RECORD_SIZE)
        return OK

    def save(self, row: int, record: bytearray) -> int:
        """Store record[0:52] durably; OK or a code."""
        content = bytearray(ROWS * RECORD_SIZE)
        code = self._read(0, content)
        if code < _NO_FILE:
            return code  # a failed read must not cost the file's other records
        copy(content, row * RECORD_SIZE, record, 0, RECORD_SIZE)
        code = self._write(content)
        kept = self._scratch
        if code == OK and (
            self._read(row, kept) != RECORD_SIZE
            or not equal(kept, 0, record, 0, RECORD_SIZE)
            or (record[0] and not is_sound(kept))
        ):
            code = E_STORAGE
        return code

    def _write(self, content: bytearray) -> int:
        """Write all rows to a new file, which replaces the old one; OK or a code."""
        files = self._files
        if files.size(self._part) >= 0:
            files.remove(self._part)  # left by a power cut
        file = files.open(self._part, True)
        if file < 0:
            return file
        code = files.append(file, content, 0, len(content)) or files.flush(file)
        files.close(file)
        return code or files.rename(self._part, self._name)

    def drop(self, row: int) -> int:
        """Erase the record of `row`; OK or a code."""
        return self.save(row, bytearray(RECORD_SIZE))

    def revoke(self, buf: bytearray, at: int) -> int:
        """Revoke the keys of the device id [4] at buf[at] (base kid u16 after it); OK or a code.

        E_PEER: the device is not a peer of ours.
        """
        for keys in self._ring:
            if equal(keys.peer_id, 0, buf, at, 4):
                from boards.revoke import mark_revoked

                return mark_revoked(keys, ROWS, get_u16(buf, at + 4))
        return E_PEER
