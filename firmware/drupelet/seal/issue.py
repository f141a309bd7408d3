# host only: boards do not issue keys
"""New roots and revocations, from the host that provisioned a device (docs/SPEC.md 11.7).

A REKEY goes out in every epoch until the peer is heard in the new generation, a REVOKE until the
peer has answered a fixed number of epochs in which it went out: who was away hears it later.
"""

from drupelet.base.errors import CapacityError
from drupelet.base.limits import SEAL_CONTROL_MS, SEAL_REVOKE_SENDS, SEAL_REVOKED_MAX
from drupelet.base.time_ms import elapsed_ms
from drupelet.seal.control import REKEY, REVOKE, catch_up
from drupelet.seal.record import FLAG_WAITING, RENEW, URGENT, install

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.base.ports import KeyPort
    from drupelet.seal.seal import Seal

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
        # The first epoch of ours in which all was told and that waits for its answer; 0 none.
        self.waiting_epoch = 0
        self._waiting_before = 0
        self._generation = 0
        self._rekey = b""
        self._revoked: dict[bytes, int] = {}
        self._epoch = -1
        self._queued_ms = 0
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
        """Tell the peer, in so many epochs that it answers, that keys are not to be trusted.

        kid: the base of those that it has with the device, 0 for all. Raises CapacityError.
        """
        revoked = device_id + kid.to_bytes(2)
        assert len(revoked) == _REVOKED_SIZE and sends > 0
        if len(self._revoked) >= SEAL_REVOKED_MAX:
            raise CapacityError(
                f"{SEAL_REVOKED_MAX} revocations are under way: wait for a contact"
            )
        self._revoked[revoked] = sends
        self._epoch = -1
        self.waiting_epoch = 0

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
        self.settle()
        seal.prepare()  # who seals the text hears of it if that failed
        if seal.out_epoch != self._epoch or elapsed_ms(now_ms, self._queued_ms) >= SEAL_CONTROL_MS:
            self._epoch = seal.out_epoch
            self._queued_ms = now_ms
            self._queue = [] if self.rekeyed else [self._rekey]
            self._queue += [bytes((REVOKE,)) + revoked for revoked in self._revoked]
            self._waiting_before = self.waiting_epoch
            if not self.waiting_epoch and seal.out_epoch > seal.answered:
                self.waiting_epoch = seal.out_epoch
        return self._queue.pop(0) if self._queue else b""

    def take_back(self) -> None:
        """What `due` gave did not leave, as on a stick that is full: it counts as not told."""
        self.waiting_epoch = self._waiting_before

    def settle(self) -> None:
        """Count what the peer has answered since it was told."""
        seal = self._seal
        if self.waiting_epoch > seal.out_epoch:
            self.waiting_epoch = 0  # the chain is a new one
        elif 0 < self.waiting_epoch <= seal.answered:
            self.waiting_epoch = 0
            self._revoked = {id: left - 1 for id, left in self._revoked.items() if left > 1}
        if self._revoked and not self.waiting_epoch and seal.out_epoch <= seal.answered:
            # An answer to this epoch may be of before: another one shows that the peer is there.
            seal.flags |= RENEW | URGENT
