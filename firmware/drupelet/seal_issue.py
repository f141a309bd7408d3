# host only: boards do not issue keys
"""New roots and revocations, from the host that provisioned a device (docs/SPEC.md 11.7).

A REKEY is told in every epoch until the peer is heard in the new generation, a REVOKE a fixed
number of times: both get through a link, or a row of sticks, that leads one way only.
"""

from drupelet.errors import CapacityError
from drupelet.limits import SEAL_CONTROL_MS, SEAL_REVOKE_SENDS, SEAL_REVOKED_MAX
from drupelet.schedule import elapsed_ms
from drupelet.seal_control import REKEY, REVOKE, catch_up
from drupelet.seal_record import FLAG_WAITING, install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.ports import KeyPort
    from drupelet.seal import Seal

# What a REVOKE names: device id [4], kid u16.
_REVOKED_SIZE = 6
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
        self._revoked: dict[bytes, int] = {}
        self._epoch = -1
        self._told_ms = 0
        self._queue: list[bytes] = []

    def rekey(self, root: bytes, generation: int) -> None:
        """Tell the peer this root, after `rekey` above."""
        catch_up(self._seal, generation)
        self._generation = generation
        self._rekey = bytes((REKEY,)) + generation.to_bytes(2) + root
        self._epoch = -1

    @property
    def rekeyed(self) -> bool:
        """True when no REKEY is under way: forget the root."""
        if self._rekey and self._seal.generation_in >= self._generation:
            self._rekey = b""
        return not self._rekey

    def revoke(self, device_id: bytes, kid: int = 0, sends: int = SEAL_REVOKE_SENDS) -> None:
        """Tell the peer so often that the keys which it has with a device are not to be trusted.

        kid: their base, 0 for all of them. Raises CapacityError.
        """
        revoked = device_id + kid.to_bytes(2)
        assert len(revoked) == _REVOKED_SIZE and sends > 0
        if len(self._revoked) >= SEAL_REVOKED_MAX:
            raise CapacityError(
                f"{SEAL_REVOKED_MAX} revocations are under way: wait for a contact"
            )
        self._revoked[revoked] = sends
        self._epoch = -1

    def withdraw(self, revoked: bytes) -> None:
        """The device has new keys with the peer: tell no more that the old ones were revoked."""
        self._revoked.pop(revoked, None)
        self._queue = [text for text in self._queue if text[1:] != revoked]

    @property
    def revoked(self) -> dict[bytes, int]:
        """Device id and kid -> how often the peer is still to be told that they were revoked."""
        return dict(self._revoked)

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
            self._queue += [bytes((REVOKE,)) + revoked for revoked in self._revoked]
        if not self._queue:
            return b""
        text = self._queue.pop(0)
        self._count(text, -1)
        return text

    def take_back(self, text: bytes) -> None:
        """What `due` gave did not leave, as on a stick that is full: it counts as not told."""
        self._count(text, 1)

    def _count(self, text: bytes, more: int) -> None:
        if text[0] == REVOKE:
            left = self._revoked.pop(text[1:], 0) + more
            if left > 0:
                self._revoked[text[1:]] = left
