"""A board's keys: the records of a peer (docs/SPEC.md 11) in one small file, eight of chains and
two of names.

A change writes the whole file anew beside the old one and renames it: a power cut leaves the one
or the other. Old chain keys stay in blocks that LittleFS has not reused yet; only a new root,
provisioned by cable, heals a board that somebody had in hand.
"""

import binascii

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, E_STORAGE, OK, StorageError
from drupelet.base.memory import equal, get_u16
from drupelet.seal.record import RECORD_SIZE, is_sound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.seal.seal import Seal
    from drupelet.store.files import Files

ROWS = const(10)
_CHAIN_ROWS = const(8)
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
        file = self._open()
        if file < 0:
            return file == -1
        count = self._files.read_into(file, 0, self._scratch, 0, RECORD_SIZE)
        self._files.close(file)
        return count >= 0

    def _open(self) -> int:
        """Its descriptor; -1 when there is no file, another code when the flash does not say."""
        size = self._files.size(self._name)
        return self._files.open(self._name, False) if size >= 0 else size

    def load(self, row: int, out: bytearray) -> int:
        """Put the record of `row` into out[0:52]; OK, or E_STORAGE when there is none."""
        file = self._open()
        if file < 0:
            return E_STORAGE
        count = self._files.read_into(file, row * RECORD_SIZE, out, 0, RECORD_SIZE)
        self._files.close(file)
        return OK if count == RECORD_SIZE and is_sound(out) else E_STORAGE

    def save(self, row: int, record: bytearray) -> int:
        """Keep record[0:52]; durable when it returns OK."""
        files = self._files
        if files.size(self._part) >= 0:
            files.remove(self._part)  # of a save that was cut
        old = self._open()
        if old < -1:
            return old  # it holds other records, which a failed read must not cost
        new = files.open(self._part, True)
        code = self._copy(old, new, row, record) if new >= 0 else new
        if old >= 0:
            files.close(old)
        if new >= 0:
            files.close(new)
        if code == OK:
            code = files.rename(self._part, self._name)
        scratch = self._scratch
        if code == OK and self.load(row, scratch) != OK and record[0]:
            code = E_STORAGE
        if code == OK and not equal(scratch, 0, record, 0, RECORD_SIZE):
            code = E_STORAGE
        return code

    def _copy(self, old: int, new: int, row: int, record: bytearray) -> int:
        """Write all rows behind each other, `record` in the place of `row`."""
        files = self._files
        scratch = self._scratch
        for i in range(ROWS):
            code = OK
            if i == row:
                code = files.append(new, record, 0, RECORD_SIZE)
            else:
                count = 0
                if old >= 0:
                    count = files.read_into(old, i * RECORD_SIZE, scratch, 0, RECORD_SIZE)
                if count < 0:
                    return count
                if count != RECORD_SIZE:
                    for at in range(RECORD_SIZE):
                        scratch[at] = 0
                code = files.append(new, scratch, 0, RECORD_SIZE)
            if code != OK:
                return code
        return files.flush(new)

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
