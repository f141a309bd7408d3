"""What may be told of a home's keys: who has some, of which generation, how far the chains are."""

from typing import Annotated, TypedDict

from msgspec import Meta

from drupelet.base.limits import SEAL_JUMP
from drupelet_host.home.config import Config, Peer
from drupelet_host.keys.invite import INVITED, pairings
from drupelet_host.keys.key_folder import (
    CLASS_NAMES,
    ChainState,
    class_of,
    is_whole,
    known_peers,
    look,
)

# A chain in which the peer has not been heard for so many epochs of ours.
UNANSWERED_MANY = 8
# A note: a cut left some of its keys.
HALF_REVOKED = "was revoked, but not to the end: repeat `drupelet revoke`"


class ChainEpochs(TypedDict):
    """How far the epochs of one carrier class went."""

    out_epoch: Annotated[int, Meta(description="ours")]
    in_epoch: Annotated[int, Meta(description="the peer's, as we know it")]
    answered: Annotated[int, Meta(description="the last of ours that the peer answered")]
    unanswered: Annotated[int, Meta(description="epochs that we began since then")]
    tag_size: Annotated[int, Meta(description="bytes of a frame's tag")]


class PeerKeys(TypedDict):
    """A peer and its keys; no key is shown."""

    name: Annotated[str, Meta(description="as drupelet.toml has it")]
    id: Annotated[str, Meta(description="8 hex digits")]
    carrier: Annotated[str, Meta(description="serial, mqtt, stick or -")]
    keys: Annotated[
        str, Meta(description="sealed, plain cable, none, damaged, revoked, or as `pairing`")
    ]
    pairing: Annotated[str, Meta(description="how far a pairing came; empty: none waits")]
    kid: Annotated[str, Meta(description="number of the pair's keys, hex digits; empty: none")]
    generation: Annotated[int, Meta(description="of the root that we seal under")]
    classes: Annotated[
        dict[str, ChainEpochs],
        Meta(description="by carrier class: `live` is of cables and brokers, `bundle` of sticks"),
    ]
    note: Annotated[str, Meta(description="what is to be known besides; empty: nothing")]


def peer_rows(settings: Config) -> list[PeerKeys]:
    """One row per peer of the configuration, and per peer that only has keys."""
    keyed = known_peers(settings.keys_path)
    known = {peer.id for peer in settings.peers}
    rows = [_row(settings, peer, peer.id in keyed) for peer in settings.peers]
    states = {pairing.name: pairing.state for pairing in pairings(settings)}
    for row in rows:
        if state := states.get(row["name"]):
            row["pairing"] = state
            row["keys"] = state if row["keys"] == "none" else row["keys"]
            row["note"] = row["note"] or ("" if row["keys"] == state else f"new keys: {state}")
    return rows + [
        _row(settings, Peer(id.hex(), id, "-"), True) | {"note": "not in drupelet.toml"}
        for id in keyed
        if id not in known
    ]


def waiting_rows(settings: Config) -> list[PeerKeys]:
    """As `peer_rows`, of who was invited, or invited us, and is no peer yet."""
    known = {peer.name for peer in settings.peers}
    return [
        {
            "name": pairing.name, "id": pairing.peer_id.hex(), "carrier": "-",
            "keys": pairing.state, "pairing": pairing.state, "kid": "", "generation": 0,
            "classes": {}, "note": "not in drupelet.toml yet",
        }
        for pairing in pairings(settings)
        if pairing.name not in known
    ]  # fmt: skip


def pairing_remedy(row: PeerKeys) -> str:
    """What brings a pairing that waits to its end."""
    if row["pairing"] == INVITED:
        return "`drupelet join` the invitation there, then its reply here"
    return f"`drupelet confirm {row['name']}` with the four words of its end"


def _row(settings: Config, peer: Peer, keyed: bool) -> PeerKeys:
    states = look(settings.keys_path, peer.id)
    now = [state for state in states if not state.waiting]
    return {
        "name": peer.name,
        "id": peer.id.hex(),
        "carrier": peer.carrier if peer.url != "-" else "-",
        "keys": _kind(peer, states, keyed),
        "pairing": "",
        "kid": f"{now[0].kid & ~3:04x}" if now else "",
        "generation": max((s.generation for s in now if not s.receives), default=0),
        "classes": {
            name: chain
            for number, name in enumerate(CLASS_NAMES)
            if (chain := _chain([state for state in now if state.carrier_class == number]))
        },
        "note": _note(states),
    }


def _kind(peer: Peer, states: list[ChainState], keyed: bool) -> str:
    """keyed: there are key files, whatever is in them."""
    revoked = sum(state.revoked for state in states)
    if revoked:
        # A cut left the rest: to be revoked again, so that it is wiped and the others are told.
        return "revoked" if revoked == len(states) else "damaged"
    if peer.plain:
        return "plain cable"
    if not keyed:
        return "none"
    needs = peer.url != "-"  # who is no peer is sealed with nothing
    return "damaged" if needs and not is_whole(states, class_of(peer.carrier)) else "sealed"


def _chain(states: list[ChainState]) -> ChainEpochs | None:
    sends = [state for state in states if not state.receives]
    receives = [state for state in states if state.receives]
    if not sends or not receives:
        return None
    send = max(sends, key=lambda state: state.generation)
    receive = min(receives, key=lambda state: state.generation)
    return {
        "out_epoch": send.epoch,
        "in_epoch": receive.epoch,
        "answered": send.extra,
        "unanswered": _unanswered(send),
        "tag_size": send.tag_size,
    }


def _unanswered(send: ChainState) -> int:
    """Epochs that were begun since the last answer, without the two jumps (SPEC 11.4)."""
    epochs = max(0, send.epoch - send.extra)
    return epochs - SEAL_JUMP * min(2, epochs // SEAL_JUMP)


def _note(states: list[ChainState]) -> str:
    if 0 < sum(state.revoked for state in states) < len(states):
        return HALF_REVOKED
    if any(state.waiting for state in states):
        return "rotating: the peer was not heard under the new keys yet"
    if any(state.issuer for state in states):
        return "the peer made these keys"
    return ""
