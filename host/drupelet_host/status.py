"""`status.json`: what a member last said about itself, for `drupelet status` and its next start.

An agent says it once per epoch, a stick visit without one at its end. With it stands how far the
store had come: one that has come less far later was put back (drupelet_host.restored).
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drupelet_host import clock

if TYPE_CHECKING:
    from drupelet_host.config import Config
    from drupelet_host.member import Member

# The tables of `status.json`, and what is read of each row.
_STATUS_ROWS: dict[str, set[str]] = {
    "peers": {"id", "seals"},
    "topics": {"name", "url", "state", "reason", "told", "listeners"},
    "channels": {"name", "url", "state", "reason", "told", "listeners"},
    "not_learned": {"id", "reason"},
}
_STATUS_FEED = {"place", "reason", "pushed", "pulled"}
# A stick carries bsp-1 at once: nobody answers an offer, and its bytes cost nothing.
STICK_STATUS = {"profile": "bsp-1", "mode": "batch", "mode_now": "batch"}


def last_status(path: Path) -> dict[str, Any]:
    """What the agent last said about itself; {} when no agent ran yet, or it was cut.

    The same for what no agent of this release writes: it only informs, and the next one is sound.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) and _is_status(value) else {}


def _is_status(value: dict[str, Any]) -> bool:
    if not isinstance(value.get("said_ms", 0), int):
        return False
    if not isinstance(value.get("counters", {}), dict):
        return False
    for key, needed in _STATUS_ROWS.items():
        rows = value.get(key, [])
        if not isinstance(rows, list):
            return False
        if not all(isinstance(row, dict) and needed <= set(row) for row in rows):
            return False
    feed = value.get("feed")
    if feed is not None and not (isinstance(feed, dict) and set(feed) >= _STATUS_FEED):
        return False
    return all(
        isinstance(row["id"], str)
        and isinstance(row["seals"], dict)
        and isinstance(row.get("heard_ms", 0), int)
        for row in value.get("peers", [])
    )


def leave(path: Path, said: dict[str, Any]) -> str:
    """Leave word; one line about what went wrong, "": nothing did."""
    part = path.with_name(path.name + ".tmp")
    try:
        part.write_text(json.dumps(said), encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        return f"{path}: not written ({error.strerror})"
    return ""


def of_member(member: "Member", peers: list[dict[str, Any]]) -> dict[str, Any]:
    """What every member can say: when, how far the durable store is, counters; and the peers."""
    node = member.node
    return {
        "said_ms": clock.wall_ms(),
        "store": member.mark,
        "counters": {
            "delivered": node.delivered,
            "duplicates": node.duplicates,
            "refused": node.refused,
            "malformed": node.malformed,
            "pending": node.pending_count(),
            "commits": member.store.programs,
        },
        "peers": peers,
    }


def of_peer(member: "Member", id: bytes) -> dict[str, Any]:
    """What a member knows of a peer, whatever leads to it."""
    return {
        "id": id.hex(),
        "outstanding": member.node.outstanding(member.numbers[id]),
        "seals": member.sealing.status(id),
    }


def after_visit(member: "Member", config: "Config", heard: list[str]) -> dict[str, Any]:
    """What a member that only visited a stick has to say: the rest is as it was said last.

    heard: the names of those of whom something new was there.
    """
    last = last_status(config.status_path)
    before = {row["id"]: row for row in last.get("peers", [])}
    member.count_owed()
    peers = []
    for peer in config.peers:
        row = before.get(peer.id.hex(), {}) | of_peer(member, peer.id)
        row |= STICK_STATUS if peer.carrier == "stick" else {}
        row |= {"heard_ms": clock.wall_ms()} if peer.name in heard else {}
        peers.append(row)
    return last | of_member(member, peers)
