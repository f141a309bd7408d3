# host only: boards do not issue keys
"""New roots and revocations, sent by the host that provisioned a device (docs/SPEC.md 11.7).

A REKEY is sent in every epoch until the peer is heard in the new generation, a REVOKE until the
peer has answered a fixed number of epochs in which it was sent, so absent peers get them later.
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

# The content of a REVOKE: device id [4], kid u16.
_REVOKED_SIZE = 6
_GENERATION_MAX = 0xFFFF


def rekey(keys: "KeyPort", root: bytes, kid: int, generation: int, flags: int) -> int:
    """Begin the chains of a new root at the issuer; OK, or the key port's code: call it again.

    From now on frames under the new root are accepted; the send chains wait until the device has
    sent one. Keep `root` (in a file of the key folder) until `Issuer.rekeyed`.
    """
    assert 0 < generation <= _GENERATION_MAX
    return install(keys, root, kid, generation, flags | FLAG_WAITING)


class Issuer:
    """Control frames that one seal's peer must still receive; `Sealed.issuer` and `IssuingVisit`
    call `due` for them.
    """

    def __init__(self, seal: "Seal") -> None:
        self._seal = seal
        # Our first epoch in which all control frames were sent and that is unanswered; 0: none.
        self.waiting_epoch = 0
        self._waiting_before = 0
        self._generation = 0
        self._rekey = b""
        self._revoked: dict[bytes, int] = {}
        self._epoch = -1
        self._queued_ms = 0
        self._queue: list[bytes] = []

    def rekey(self, root: bytes, generation: int) -> None:
        """Queue a REKEY with this root; call the function `rekey` first."""
        catch_up(self._seal, generation)
        self._generation = generation
        self._rekey = bytes((REKEY,)) + generation.to_bytes(2) + root
        self._epoch = -1

    @property
    def rekeyed(self) -> bool:
        """True if no REKEY is outstanding, so that the caller can delete the root."""
        if self._rekey and self._seal.generation_in >= self._generation:
            self._rekey = b""
        return not self._rekey

    def revoke(self, device_id: bytes, kid: int = 0, sends: int = SEAL_REVOKE_SENDS) -> None:
        """Queue a REVOKE of a device's keys until the peer has answered it in `sends` epochs.

        kid: the base kid of the keys that the peer shares with the device, 0: all. Raises
        CapacityError.
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
        """Cancel a REVOKE: the device has new keys with the peer."""
        self._revoked.pop(revoked, None)
        self._queue = [text for text in self._queue if text[1:] != revoked]

    @property
    def revoked(self) -> dict[bytes, int]:
        """Device id and kid -> in how many more epochs the REVOKE is to be answered."""
        return dict(self._revoked)

    @property
    def revoking(self) -> int:
        """The number of outstanding revocations."""
        return len(self._revoked)

    def due(self, now_ms: int) -> bytes:
        """Return the plaintext of the next control frame, b"" if none is due.

        Each control frame is due once per epoch of ours, and again after SEAL_CONTROL_MS.
        """
        seal = self._seal
        self.settle()
        seal.prepare()  # its code is ignored: sealing the frame returns it again
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
        """Count the frames of `due` as not sent, for example because a stick was full."""
        self.waiting_epoch = self._waiting_before

    def settle(self) -> None:
        """Count an epoch with control frames that the peer has answered by now."""
        seal = self._seal
        if self.waiting_epoch > seal.out_epoch:
            self.waiting_epoch = 0  # our chain is a new one, whose epochs begin at 1
        elif 0 < self.waiting_epoch <= seal.answered:
            self.waiting_epoch = 0
            self._revoked = {id: left - 1 for id, left in self._revoked.items() if left > 1}
        if self._revoked and not self.waiting_epoch and seal.out_epoch <= seal.answered:
            # The answer to this epoch may be older than the REVOKE: open another epoch.
            seal.flags |= RENEW | URGENT
