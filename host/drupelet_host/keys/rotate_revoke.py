"""Rotating and revoking, by the running agent or by a command that owns the home alone."""

from typing import Any

from drupelet.base.errors import E_PEER, OK, StorageError
from drupelet_host.home.config import Config, Peer
from drupelet_host.keys.key_folder import KeysError
from drupelet_host.keys.provision import peer_id_of
from drupelet_host.keys.sealing import Sealing


def rotate(settings: Config, sealing: Sealing, name: str) -> dict[str, Any]:
    """Begin a new generation of a peer's keys; raises KeysError and such."""
    peer_id = peer_id_of(settings, name)
    peer = next((peer for peer in settings.peers if peer.id == peer_id), None)
    generation = sealing.rotate(peer or Peer(name, peer_id, ""))
    return {"peer": name, "id": peer_id.hex(), "generation": generation}


def revoke(settings: Config, sealing: Sealing, name: str) -> dict[str, Any]:
    """Wipe a peer's keys and have the other peers told; raises KeysError and such.

    `told` has the names of those who will be; `untold`, by name, why another one cannot be.
    """
    peer_id = peer_id_of(settings, name)
    code = sealing.revoke(peer_id)
    if code == E_PEER:
        raise KeysError(f"{name}: has no keys here; `drupelet peers` shows who has")
    if code != OK:
        raise StorageError(f"{name}: its keys could not be wiped; look at the disk, then repeat")
    names = settings.names()
    reasons = {names.get(id.hex(), id.hex()): why for id, why in
             sealing.tell_revoked(peer_id).items()}  # fmt: skip
    return {
        "peer": name, "id": peer_id.hex(), "told": [of for of, why in reasons.items() if not why],
        "untold": {of: why for of, why in reasons.items() if why},
    }  # fmt: skip
