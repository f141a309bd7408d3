"""Keys of simulated devices: provisioned before the first boot, and kept."""

from drupelet.base.errors import E_PEER, E_STORAGE, OK
from drupelet.seal.record import FLAG_ISSUER, install
from drupelet_tools.sim.flash import SimFiles

_FIRST_KID = 0x0100


class Keys:
    """The key port of a device for one peer; atomic and durable, as a file or a slot is.

    A write is a step of the device's `files`; None: of nobody's.
    """

    def __init__(self, own_id: bytes, peer_id: bytes, kid: int, files: SimFiles | None) -> None:
        self.own_id = own_id
        self.peer_id = peer_id
        self.kid = kid
        self.records: dict[int, bytes] = {}
        self._files = files

    def load(self, row: int, out: bytearray) -> int:
        """The record of a row into out[0:52]."""
        if row not in self.records:
            return E_STORAGE
        out[:52] = self.records[row]
        return OK

    def save(self, row: int, record: bytearray) -> int:
        """Keep a record; a power cut leaves the old one or the new one."""
        files = self._files
        if files is None or files.begin_step():
            self.records[row] = bytes(record[:52])
        if files is not None:
            files.end_step()
        return OK

    def drop(self, row: int) -> int:
        """Forget a row."""
        self.records.pop(row, None)
        return OK

    def revoke(self, id: bytearray, at: int) -> int:  # noqa: ARG002 - nobody is revoked here
        """No such device."""
        return E_PEER

    def copied(self) -> "Keys":
        """The same keys in the hands of somebody else."""
        other = Keys(self.own_id, self.peer_id, self.kid, None)
        other.records = dict(self.records)
        return other


def provision(
    a: tuple[bytes, SimFiles], b: tuple[bytes, SimFiles], number: int, root: bytes
) -> tuple[Keys, Keys]:
    """Give two devices (id and files) the keys of a link; `a` may give `b` new ones later."""
    kid = _FIRST_KID + 4 * number
    ours, theirs = Keys(a[0], b[0], kid, a[1]), Keys(b[0], a[0], kid, b[1])
    for keys, flags in ((ours, 0), (theirs, FLAG_ISSUER)):
        code = install(keys, root, kid, 0, flags)
        assert code == OK
    return ours, theirs
