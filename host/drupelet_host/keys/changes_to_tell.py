"""What a peer is still to be told about keys: a new root, devices that were revoked.

    keys/a0000001.tell  0600 JSON: {"generation": 1, "root": "...", "revoked": {"d00000041230": 8},
                                    "told": [7, 0]}

It lies there from `drupelet rotate` or `revoke` until the peer is known to have it: the new root
is the one secret that a host keeps for longer than an instant, and only until the peer was heard
under it. A revoked device stands there, with the key id that it has with the peer (0000 for
whatever it has), and with how often the peer has yet to answer that it was told; `told` is the
epoch, by class, whose answer is waited for: a home that visits sticks by command is a new process
each time.
"""

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from drupelet.base.errors import OK, CapacityError, StorageError
from drupelet.base.limits import SEAL_REVOKE_SENDS, SEAL_REVOKED_MAX
from drupelet.seal.control import end_waiting
from drupelet.seal.issue import Issuer, rekey
from drupelet.seal.record import FLAG_TAG16, RECORD_SIZE
from drupelet.seal.seal import Seal
from drupelet_host.base.errors import DamagedError
from drupelet_host.home import private_files
from drupelet_host.keys import issued_pairs
from drupelet_host.keys.key_folder import (
    CLASS_NAMES,
    ID_SIZE,
    ChainState,
    HostKeys,
    KeysError,
    known_peers,
)
from drupelet_host.keys.secret import Secret

_SIZE_MAX = 4096
_ROOT_SIZE = 32
_GENERATION_MAX = 0xFFFF
_EPOCH_MAX = 0xFFFFFF
# Of a generation: two classes, two directions.
_CHAINS = 4
_KID_SIZE = 2


@dataclass
class Tell:
    """The file of one peer; `save` writes it or takes it away when nothing is left."""

    path: Path
    generation: int = 0
    root: Secret | None = None
    revoked: dict[bytes, int] = field(default_factory=dict)  # id and kid -> tellings left
    told: list[int] = field(default_factory=lambda: [0, 0])

    def save(self) -> None:
        """Raises StorageError."""
        if self.root is None and not self.revoked:
            private_files.remove(self.path)
            return
        content: dict[str, object] = {
            "revoked": {id.hex(): left for id, left in self.revoked.items()},
            "told": self.told,
        }
        if self.root is not None:
            content |= {"generation": self.generation, "root": self.root.reveal().hex()}
        private_files.replace(self.path, json.dumps(content).encode())


def load(folder: Path, peer_id: bytes) -> Tell:
    """What the peer is still to be told; raises PrivateError or StorageError."""
    path = folder / f"{peer_id.hex()}.tell"
    tell = Tell(path)
    if not path.is_symlink() and not path.exists():
        return tell
    content = private_files.read(path, _SIZE_MAX)
    if not any(content):
        return tell  # a cut while it was taken away
    with contextlib.suppress(KeyError, TypeError, ValueError):
        fields = json.loads(content)
        tell.revoked = _revoked(fields["revoked"])
        tell.told = _told(fields.get("told", tell.told))
        if "root" in fields:
            tell.generation = int(fields["generation"])
            tell.root = Secret(bytes.fromhex(fields["root"]))
            if len(tell.root) != _ROOT_SIZE:
                raise ValueError("no root")
        return tell
    raise DamagedError(f"{path}: is damaged; remove it and run the command again")


def _revoked(value: object) -> dict[bytes, int]:
    """Device id and kid -> tellings left; raises ValueError or TypeError for other forms."""
    if isinstance(value, list):  # as the first versions wrote it: ids without a count
        value = dict.fromkeys(value, SEAL_REVOKE_SENDS)
    if not isinstance(value, dict) or len(value) > SEAL_REVOKED_MAX:
        raise ValueError("no revocations")
    revoked = {}
    for id, left in value.items():
        device_id = bytes.fromhex(id)
        if len(device_id) == ID_SIZE:  # before key ids were told
            device_id += bytes(_KID_SIZE)
        if len(device_id) != ID_SIZE + _KID_SIZE or left not in range(1, SEAL_REVOKE_SENDS + 1):
            raise ValueError("no device id, or no number of tellings")
        revoked[device_id] = int(left)
    return revoked


def _told(value: object) -> list[int]:
    """An epoch for each class; raises ValueError for what is none."""
    if not isinstance(value, list) or len(value) != len(CLASS_NAMES):
        raise ValueError("no epochs")
    if any(type(epoch) is not int or not 0 <= epoch <= _EPOCH_MAX for epoch in value):
        raise ValueError("no epochs")
    return value


def begin_rotation(folder: Path, keys: HostKeys) -> int:
    """Make a new root for a peer; the generation. Raises KeysError or StorageError."""
    states = keys.states() if keys.peer_id in known_peers(folder) else []
    if not states:
        raise KeysError(f"{keys.peer_id.hex()}: has no keys; see `drupelet provision`")
    if any(state.revoked for state in states):
        raise KeysError(f"{keys.peer_id.hex()}: was revoked; only new keys by cable heal that")
    if any(state.issuer for state in states):
        raise KeysError(
            f"{keys.peer_id.hex()}: it made these keys, so it rotates them; ask its owner"
        )
    tell = load(folder, keys.peer_id)
    if tell.root is not None:
        raise KeysError(
            f"{keys.peer_id.hex()}: a rotation is under way; the peer was not heard since"
        )
    prepare(tell, keys)
    states = keys.states()
    if any(state.waiting for state in states):
        raise KeysError(
            f"{keys.peer_id.hex()}: a rotation is under way, but its root is gone; make new keys"
            " by cable"
        )
    generation = max(state.generation for state in states) + 1
    if generation > _GENERATION_MAX:
        raise KeysError(f"{keys.peer_id.hex()}: rotated too often; make new keys by cable")
    tell.generation = generation
    tell.root = Secret(os.urandom(_ROOT_SIZE))
    tell.save()
    prepare(tell, keys)
    return generation


def prepare(tell: Tell, keys: HostKeys) -> None:
    """Install the chains of a rotation that is under way, or end one, if a cut left them so."""
    states = keys.states()
    if tell.root is None:
        _end(states, keys)
        return
    done = [state for state in states if state.generation == tell.generation]
    if len(done) == _CHAINS:
        return
    state = next((state for state in states if state.generation != tell.generation), None)
    if state is None:
        return  # the peer has been heard in it: there is nothing to prepare
    flags = FLAG_TAG16 if state.tag_size == 16 else 0
    if rekey(keys, tell.root.reveal(), state.kid & ~3, tell.generation, flags) != OK:
        raise StorageError(keys.failure)


def _end(states: list[ChainState], keys: HostKeys) -> None:
    """Use what waits although the peer was heard in it: one class has no older chain of its."""
    for generation in {state.generation for state in states if state.waiting}:
        for carrier_class in range(len(CLASS_NAMES)):
            heard = {
                state.generation
                for state in states
                if state.receives and state.carrier_class == carrier_class
            }
            if heard == {generation}:
                end_waiting(keys, bytearray(RECORD_SIZE), generation)


def add_revoked(folder: Path, peer_id: bytes, device_id: bytes) -> None:
    """Have a peer told that the keys which it has with a device now were revoked.

    Raises CapacityError.
    """
    tell = load(folder, peer_id)
    revoked = device_id + issued_pairs.kid_of(folder, peer_id, device_id).to_bytes(_KID_SIZE)
    if revoked in tell.revoked:
        return
    if len(tell.revoked) >= SEAL_REVOKED_MAX:
        raise CapacityError(
            f"{peer_id.hex()}: {SEAL_REVOKED_MAX} revocations wait for it already: meet it first"
        )
    tell.revoked[revoked] = SEAL_REVOKE_SENDS
    tell.told = [0, 0]  # what was told until now did not speak of it
    tell.save()


def waiting(folder: Path, device_id: bytes) -> list[bytes]:
    """The peers that are still to be told that a device was revoked."""
    return [id for id in known_peers(folder) if _of(load(folder, id), device_id)]


def withdraw(folder: Path, peer_id: bytes, device_id: bytes) -> None:
    """A device has new keys with a peer, which a revocation of the old ones would wipe."""
    tell = load(folder, peer_id)
    void = _of(tell, device_id)
    for revoked in void:
        del tell.revoked[revoked]
    if void:
        tell.save()


def _of(tell: Tell, device_id: bytes) -> list[bytes]:
    """What there is to tell of a device."""
    return [revoked for revoked in tell.revoked if revoked[:ID_SIZE] == device_id]


def instruct(tell: Tell, seal: Seal, carrier_class: int) -> Issuer | None:
    """What a seal's peer is to be told through it; None for nothing."""
    if tell.root is None and not tell.revoked:
        return None
    issuer = Issuer(seal)
    if tell.root is not None:
        issuer.rekey(tell.root.reveal(), tell.generation)
    for revoked, left in tell.revoked.items():
        issuer.revoke(revoked[:ID_SIZE], int.from_bytes(revoked[ID_SIZE:]), left)
    issuer.waiting_epoch = tell.told[carrier_class]
    return issuer


def settle(tell: Tell, issuer: Issuer, carrier_class: int) -> bool:
    """Take out what the peer has answered to; True when nothing is left."""
    issuer.settle()
    root_done = tell.root is not None and issuer.rekeyed
    if root_done:
        tell.root = None
    left = issuer.revoked
    for revoked in left.keys() - tell.revoked.keys():
        issuer.withdraw(revoked)  # by a command beside us, or told often enough over the other
    kept = {id: min(n, left[id]) for id, n in tell.revoked.items() if id in left}
    if root_done or kept != tell.revoked or issuer.waiting_epoch != tell.told[carrier_class]:
        tell.revoked = kept
        tell.told[carrier_class] = issuer.waiting_epoch
        tell.save()
    return tell.root is None and not tell.revoked
