# host only: boards do not issue keys
"""New roots and revocations, from the host that provisioned a device (docs/SPEC.md 11.7).

A REKEY is told in every epoch until the peer is heard in the new generation, a REVOKE a fixed
number of times: both get through a link, or a row of sticks, that leads one way only.
"""

from drupelet.errors import CapacityError
from drupelet.limits import SEAL_CONTROL_MS, SEAL_REVOKE_SENDS, SEAL_REVOKED_MAX
from drupelet.schedule import elapsed_ms
from drupelet.seal_control import REKEY, REVOKE
from drupelet.seal_record import FLAG_WAITING, install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.ports import KeyPort
    from drupelet.seal import Seal

_DEVICE_ID_SIZE = 4
_GENERATION_MAX = 0xFFFF


def rekey(keys: "KeyPort", root: bytes, kid: int, generation: int, flags: int) -> int:
    """Prepare for a new root at the issuer's end: OK, or the key port's code (call it again).

    What the device sends under the new root is understood from now on; the send chains wait until
    it was heard so. Keep `root` (in a file of the key folder) until `Issuer.rekeyed`.
    """
    assert 0 < generation <= _GENERATION_MAX
    return install(keys, root, kid, generation, flags | FLAG_WAITING)


class Issuer:
    """What one seal's peer is still to be told; `Sealed.issuer` and `IssuingVisit` ask for it."""

    def __init__(self, seal: "Seal") -> None:
        self._seal = seal
        self._generation = 0
        self._rekey = b""
        self._revoked: list[list[object]] = []
        self._epoch = -1
        self._told_ms = 0
        self._queue: list[bytes] = []

    def rekey(self, root: bytes, generation: int) -> None:
        """Tell the peer this root, after `rekey` above."""
        self._generation = generation
        self._rekey = bytes((REKEY,)) + generation.to_bytes(2) + root
        self._epoch = -1

    @property
    def rekeyed(self) -> bool:
        """True when no REKEY is under way: forget the root."""
        if self._rekey and self._seal.generation_in >= self._generation:
            self._rekey = b""
        return not self._rekey

    def revoke(self, device_id: bytes) -> None:
        """Tell the peer that this device is not to be trusted. Raises CapacityError."""
        assert len(device_id) == _DEVICE_ID_SIZE
        if len(self._revoked) >= SEAL_REVOKED_MAX:
            raise CapacityError(
                f"{SEAL_REVOKED_MAX} revocations are under way: wait for a contact"
            )
        self._revoked.append([bytes((REVOKE,)) + device_id, SEAL_REVOKE_SENDS])
        self._epoch = -1

    @property
    def revoking(self) -> int:
        """Revocations that the peer was not told often enough yet."""
        return len(self._revoked)

    def due(self, now_ms: int) -> bytes:
        """The next control frame's plaintext, b"" for none; told once per epoch of ours."""
        seal = self._seal
        if seal.out_epoch != self._epoch or elapsed_ms(now_ms, self._told_ms) >= SEAL_CONTROL_MS:
            self._epoch = seal.out_epoch
            self._told_ms = now_ms
            self._queue = [] if self.rekeyed else [self._rekey]
            for entry in self._revoked:
                self._queue.append(entry[0])  # type: ignore[arg-type]
                entry[1] -= 1  # type: ignore[operator]
            self._revoked = [entry for entry in self._revoked if entry[1]]
        return self._queue.pop(0) if self._queue else b""
