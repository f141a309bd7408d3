"""The seals of one member: every peer and carrier class has its own, made when it is first used.

What cannot be sealed is refused here, with the remedy; there is no way around.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

from drupelet.base.errors import E_PEER, E_STORAGE, OK, DrupeletError
from drupelet.base.limits import (
    SEAL_FORGED_PER_SLICE_HOST,
    SEAL_OLD_HOST_MAX,
    SEAL_STEPS_HOST_MAX,
)
from drupelet.seal.issue import Issuer
from drupelet.seal.seal import Seal, SealContext
from drupelet_host.base import clock
from drupelet_host.base.aead import Aead
from drupelet_host.home.config import Config, Peer
from drupelet_host.keys import changes_to_tell
from drupelet_host.keys.key_folder import (
    BUNDLE,
    CLASS_NAMES,
    LIVE,
    HostKeys,
    KeysError,
    class_of,
    is_whole,
    known_peers,
    look,
    lost_keys,
)

_GEN_SIZE = 4
# Without a wrong tag for so long, whoever sent them has stopped.
FORGED_RUN_MS = 60_000


class RevokedError(KeysError):
    """The peer was revoked: nothing from it is taken, nothing for it is sealed."""


def _random_byte() -> int:
    return os.urandom(1)[0]


class Forged:
    """Frames with wrong tags that came through one seal: how many, and since when.

    A run of them is over after a minute without any; then the next one begins.
    """

    def __init__(self) -> None:
        self.total = 0
        self.since_ms = self.last_ms = 0  # wall clock of the run's first look, and of its last
        self._begun = 0  # what `total` was then

    def look(self, seal: Seal) -> None:
        """Take the seal's counter in, which has two bytes only, and begin it anew."""
        count, seal.forged = seal.forged, 0
        if not count:
            return
        now_ms = clock.wall_ms()
        if now_ms - self.last_ms > FORGED_RUN_MS:
            self.since_ms, self._begun = now_ms, self.total
        self.last_ms = now_ms
        self.total += count

    def status(self) -> dict[str, int]:
        """For the status."""
        return {
            "forged": self.total,
            "forged_run": self.total - self._begun if self.total else 0,
            "forged_since_ms": self.since_ms,
            "forged_last_ms": self.last_ms,
        }


class Sealing:
    """Opens chains under their locks and keeps them; `close` lets go of all."""

    def __init__(self, settings: Config, store_gen: int) -> None:
        self._settings = settings
        self._context = SealContext(
            Aead(), _random_byte, store_gen.to_bytes(_GEN_SIZE), SEAL_STEPS_HOST_MAX,
            SEAL_OLD_HOST_MAX, SEAL_FORGED_PER_SLICE_HOST,
        )  # fmt: skip
        self._keys: dict[bytes, HostKeys] = {}
        self._seals: dict[tuple[bytes, int], Seal] = {}
        self._issuers: dict[tuple[bytes, int], Issuer] = {}
        self._forged: dict[tuple[bytes, int], Forged] = {}
        self.anew = False  # our store is empty: whoever knew another one should hear of it
        self.on_revoked: Callable[[bytes], None] = lambda _: None  # told who is, at once

    def live(self, peer: Peer) -> Seal:
        """The seal of serial lines and MQTT.

        Raises KeysError, PrivateError, BusyError or StorageError: this peer's files are at fault.
        """
        return self._seal(peer, LIVE)

    def bundle(self, peer: Peer) -> Seal:
        """The seal of sticks; raises as `live`."""
        return self._seal(peer, BUNDLE)

    def _seal(self, peer: Peer, carrier_class: int) -> Seal:
        seal = self._seals.get((peer.id, carrier_class))
        if seal is not None and not seal.closed:
            return seal
        code = E_STORAGE
        keyed = peer.id in known_peers(self._settings.keys_path)
        if keyed:
            keys = self._port(peer.id)
            keys.open(carrier_class)
            seal = Seal(self._context, keys, carrier_class)
            code = seal.load()
            states = look(self._settings.keys_path, peer.id)
            if any(state.revoked for state in states):
                code = E_PEER  # also when a cut left this class as it was
            elif code == OK and not is_whole(states, carrier_class):
                code = E_STORAGE
        if code == E_PEER:
            raise RevokedError(
                f"{peer.name}: was revoked; take it out with `drupelet peer remove {peer.name}`,"
                " or give it new keys by cable with `drupelet provision`"
            )
        if code != OK and keyed:
            raise KeysError("; ".join(lost_keys(peer.name, carrier_class)))
        if code != OK:
            plain = (
                ", or write plain=1 into the URL of its cable" if peer.carrier == "serial" else ""
            )
            raise KeysError(
                f"{peer.name}: no keys, and {peer.carrier} goes sealed only; make them with"
                f" `drupelet provision {peer.name} --to ...`{plain}"
            )
        assert seal is not None
        seal.anew = self.anew
        self._seals[peer.id, carrier_class] = seal
        try:
            self._instruct(peer.id)
        except DrupeletError:
            del self._seals[peer.id, carrier_class]  # the next try says so, too
            raise
        return seal

    # --- what peers are to be told ---

    def issuer(self, peer_id: bytes, carrier_class: int) -> Issuer | None:
        """What a peer is to be told through one of its seals; None for nothing."""
        return self._issuers.get((peer_id, carrier_class))

    def rotate(self, peer: Peer) -> int:
        """Begin a new generation of a peer's keys; its number. Raises KeysError and such."""
        folder, carrier_class = self._settings.keys_path, class_of(peer.carrier)
        keyed = peer.url and peer.id in known_peers(folder)
        if keyed and not is_whole(look(folder, peer.id), carrier_class):
            # Over chains that are not there the peer could not be told.
            raise KeysError("; ".join(lost_keys(peer.name, carrier_class)))
        generation = changes_to_tell.begin_rotation(folder, self._port(peer.id))
        self._instruct(peer.id)
        return generation

    def tell_revoked(self, device_id: bytes) -> dict[bytes, str]:
        """Have every other peer told that a device was revoked; by peer, why it cannot be, or ''.

        One that cannot be told keeps none of the others from hearing of it.
        """
        reasons = {}
        for peer_id in known_peers(self._settings.keys_path):
            if peer_id == device_id:
                continue
            try:
                if self._tell_revoked(peer_id, device_id):
                    reasons[peer_id] = ""
            except DrupeletError as error:
                reasons[peer_id] = str(error)
        return reasons

    def _tell_revoked(self, peer_id: bytes, device_id: bytes) -> bool:
        """False for a peer that need not be told, or that would not take it from us."""
        folder = self._settings.keys_path
        if any(state.revoked or state.issuer for state in look(folder, peer_id)):
            return False
        changes_to_tell.add_revoked(folder, peer_id, device_id)
        self._instruct(peer_id)
        return True

    def _instruct(self, peer_id: bytes) -> None:
        """Give the peer's open seals what is in its file."""
        tell = changes_to_tell.load(self._settings.keys_path, peer_id)
        changes_to_tell.prepare(tell, self._port(peer_id))
        for carrier_class in (LIVE, BUNDLE):
            seal = self._seals.get((peer_id, carrier_class))
            issuer = (
                changes_to_tell.instruct(tell, seal, carrier_class) if seal is not None else None
            )
            if issuer is None:
                self._issuers.pop((peer_id, carrier_class), None)
            else:
                assert seal is not None
                self._issuers[peer_id, carrier_class] = issuer
                seal.urgent = True  # told soon, also when there is nothing else to say

    def tick(self) -> None:
        """Once per epoch: forget what peers have been told, count what others forged.

        A file that cannot be read or written is its peer's alone, and looked at again the next
        time; `drupelet doctor` names it.
        """
        for key, seal in self._seals.items():
            self._forged.setdefault(key, Forged()).look(seal)
        for (peer_id, carrier_class), issuer in list(self._issuers.items()):
            with contextlib.suppress(DrupeletError):
                tell = changes_to_tell.load(self._settings.keys_path, peer_id)
                if changes_to_tell.settle(tell, issuer, carrier_class):
                    for other in (LIVE, BUNDLE):
                        self._issuers.pop((peer_id, other), None)

    # --- ports ---

    def _port(self, peer_id: bytes) -> HostKeys:
        if peer_id not in self._keys:
            self._keys[peer_id] = HostKeys(
                self._settings.keys_path, self._settings.id, peer_id, self.revoke
            )
        return self._keys[peer_id]

    def revoke(self, peer_id: bytes, kid: int = 0) -> int:
        """Wipe a peer's keys of this base, 0 for all, and close its seals; E_PEER: it has none.

        Raises BusyError or StorageError only where another process holds its chains.
        """
        if peer_id == self._settings.id or peer_id not in known_peers(self._settings.keys_path):
            return E_PEER
        keys = self._port(peer_id)
        for carrier_class in (LIVE, BUNDLE):
            keys.open(carrier_class)
        if kid and all(state.kid & ~3 != kid for state in keys.states()):
            return OK  # said of keys that it has no more
        code = keys.mark_revoked(kid)
        for carrier_class in (LIVE, BUNDLE):
            seal = self._seals.get((peer_id, carrier_class))
            if seal is not None:
                seal.close()
        self.on_revoked(peer_id)
        return code

    def seals(self) -> dict[tuple[bytes, int], Seal]:
        """What is open, by peer and class."""
        return dict(self._seals)

    def status(self, peer_id: bytes) -> dict[str, Any]:
        """What may be told of a peer's open seals, by class."""
        return {
            CLASS_NAMES[carrier_class]: seal_status(
                seal, self._forged.get((id, carrier_class), Forged())
            )
            for (id, carrier_class), seal in self._seals.items()
            if id == peer_id
        }

    def forget(self, peer_id: bytes) -> None:
        """Let go of one peer's chains."""
        for carrier_class in (LIVE, BUNDLE):
            self._seals.pop((peer_id, carrier_class), None)
            self._issuers.pop((peer_id, carrier_class), None)
        keys = self._keys.pop(peer_id, None)
        if keys is not None:
            keys.close()

    def close(self) -> None:
        """Let go of everything."""
        for peer_id in list(self._keys):
            self.forget(peer_id)


def seal_status(seal: Seal, forged: Forged) -> dict[str, Any]:
    """A seal's counters: numbers only, never keys."""
    return {
        "generation": seal.generation,
        "out_epoch": seal.out_epoch,
        "in_epoch": seal.in_epoch,
        "answered": seal.answered,
        "confirmed": seal.confirmed,
        **forged.status(),
        "replayed": seal.replayed,
        "closed_epoch": seal.closed_epoch,
        "unknown": seal.unknown,
        "clones": seal.clones,
        "muted": seal.muted,
        "revoked": seal.closed,
    }
