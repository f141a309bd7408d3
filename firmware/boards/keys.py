"""A board's keys: the records of a peer (docs/SPEC.md 11) in one small file, eight of chains and
two of names.

A change writes the whole file anew beside the old one and renames it: a power cut leaves the one
or the other. Old chain keys stay in blocks that LittleFS has not reused yet; only a new root,
provisioned by cable, heals a board that somebody had in hand.
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
_NO_FILE = const(-1)  # as of `Files.size`
# Of one generation: two classes, two directions.
_CHAINS = const(4)


def has_keys(ring: "list[BoardKeys]") -> bool:
    """Whether a board was provisioned: all four chains of one peer at least, revoked or not.

    Raises StorageError when the flash does not say: who has keys takes none from whoever asks.
    """
    record = bytearray(RECORD_SIZE)
    for keys in ring:
        if not keys.is_readable():
            raise StorageError("the keys cannot be read: look at its flash")
        found = 0
        for row in range(_CHAIN_ROWS):
            found += keys.load(row, record) == OK
        if found >= _CHAINS:
            return True
    return False


class BoardKeys:
    """The key port of one peer; `ring` holds those of all peers of the board."""

    def __init__(
        self, files: "Files", own_id: "bytes | bytearray", peer_id: "bytes | bytearray",
        ring: "list[BoardKeys]",
    ) -> None:  # fmt: skip
        self.own_id = own_id
        self.peer_id = peer_id
        self.seals: "list[Seal]" = []
        self._files = files
        name = binascii.hexlify(peer_id).decode().upper()
        self._name = name + ".KEY"
        self._part = name + ".NEW"
        self._scratch = bytearray(RECORD_SIZE)
        self._ring = ring
        ring.append(self)

    def is_readable(self) -> bool:
        """False when there is a file, or may be one, and the flash does not give it."""
        return self._read(0, self._scratch) >= _NO_FILE

    def _read(self, row: int, out: bytearray) -> int:
        """Read from `row` on until `out` is full; the bytes, _NO_FILE, or a code of the flash."""
        files = self._files
        size = files.size(self._name)
        file = files.open(self._name, False) if size >= 0 else size
        if file < 0:
            return file
        count = files.read_into(file, row * RECORD_SIZE, out, 0, len(out))
        files.close(file)
        return count

    def load(self, row: int, out: bytearray) -> int:
        """Put the record of `row` into out[0:52]; OK, or E_STORAGE when there is none."""
        record = self._scratch
        if self._read(row, record) != RECORD_SIZE or not is_sound(record):
            return E_STORAGE
        copy(out, 0, record, 0, RECORD_SIZE)
        return OK

    def save(self, row: int, record: bytearray) -> int:
        """Keep record[0:52]; durable when it returns OK."""
        content = bytearray(ROWS * RECORD_SIZE)
        code = self._read(0, content)
        if code < _NO_FILE:
            return code  # it holds other records, which a failed read must not cost
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
        """Put all rows into a new file, and that in the place of the old one."""
        files = self._files
        if files.size(self._part) >= 0:
            files.remove(self._part)  # of a save that was cut
        file = files.open(self._part, True)
        if file < 0:
            return file
        code = files.append(file, content, 0, len(content))
        if code == OK:
            code = files.flush(file)
        files.close(file)
        return files.rename(self._part, self._name) if code == OK else code

    def drop(self, row: int) -> int:
        """Forget the record of `row`."""
        return self.save(row, bytearray(RECORD_SIZE))

    def revoke(self, buf: bytearray, at: int) -> int:
        """A peer that may says that keys of a device are not to be trusted any more."""
        for keys in self._ring:
            if equal(keys.peer_id, 0, buf, at, 4):
                from boards.revoke import mark_revoked

                return mark_revoked(keys, ROWS, get_u16(buf, at + 4))
        return E_PEER
