"""What a member says about itself, and `status.json`: what it said last.

A running agent is asked for it (drupelet_host.requests). The file is for `drupelet status` without
an agent and for the next start. An agent writes it when it begins, when its log has grown, and
when it stops; a stick visit without one at its end. With it stands how far the store had come: one
that has come less far later was put back (drupelet_host.store.restored).
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drupelet_host.base import clock
from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.home.toml_table import shown

if TYPE_CHECKING:
    from drupelet_host.home.config import Config
    from drupelet_host.member.member import Member

# The `state` of a line to a peer.
UP = "up"
# The first connection to a broker is being made: nothing is wrong, and nothing is told.
CONNECTING = "connecting"
DOWN = "down"
REVOKED = "revoked"
# The tables of `status.json`, and what is read of each row; the rest may lack.
_SHARED: dict[str, type] = {
    "name": str,
    "url": str,
    "state": str,
    "reason": str,
    "told": list,
    "listeners": list,
}
_STATUS_ROWS: dict[str, dict[str, type]] = {
    "peers": {"id": str, "seals": dict},
    "topics": _SHARED,
    "channels": _SHARED,
    "not_learned": {"id": str, "reason": str},
}
_PEER_MAY: dict[str, type] = {
    "state": str, "reason": str, "profile": str, "mode": str, "mode_now": str, "recovering": bool,
    "heard_ms": int, "owed_since_ms": int, "outstanding": int, "more_outstanding": bool,
    "undeliverable": int, "pending": int, "duplicates": int, "round_trip_ms": int, "foreign": int,
}  # fmt: skip
_STATUS_FEED: dict[str, type] = {"place": str, "reason": str, "pushed": int, "pulled": int}
_NUMBER_MAX = 1 << 53
# So many forged frames in a run are no noise of a line, ...
JAM_MANY = 32
# ... and without one for so long it is over.
JAM_QUIET_MS = 60_000
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
    return checked_status(value)


def checked_status(value: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON has
    """The value if it is a status as a member of this release says it, else {}."""
    return value if isinstance(value, dict) and _is_status(value) else {}


def _fits(row: Any, needed: dict[str, type]) -> bool:  # noqa: ANN401 - whatever JSON has
    if not isinstance(row, dict):
        return False
    for name, kind in needed.items():
        value = row.get(name)
        if not isinstance(value, kind):
            return False
        if isinstance(value, int) and not 0 <= value < _NUMBER_MAX:
            return False
    return True


def _is_peer(row: dict[str, Any]) -> bool:
    may = {name: kind for name, kind in _PEER_MAY.items() if row.get(name) is not None}
    seals = row["seals"]
    return (
        _fits(row, may)
        and _fits(seals, dict.fromkeys(seals, dict))
        and all(isinstance(number, int) for seal in seals.values() for number in seal.values())
    )


def _is_status(value: dict[str, Any]) -> bool:
    tables = {name: value.get(name, []) for name in _STATUS_ROWS}
    feed = value.get("feed")
    head = {"said_ms": value.get("said_ms", 0), "counters": value.get("counters", {})}
    return (
        _fits(head, {"said_ms": int, "counters": dict})
        and _fits(tables, dict.fromkeys(tables, list))
        and all(_fits(row, _STATUS_ROWS[name]) for name in tables for row in tables[name])
        and all(map(_is_peer, tables["peers"]))
        and (feed is None or _fits(feed, _STATUS_FEED))
    )


def foreign_text(name: str, count: int, group: str) -> str:
    """What to say of messages that open under a peer's keys and belong to no group of ours."""
    return (
        f"{name}: {count} messages of it belong to no group of ours, so they are dropped; `group`"
        f" (here {shown(group)}), `client` and `family` must be the same at both"
    )


def jams(report: dict[str, Any], names: dict[str, str]) -> list[tuple[str, str, str]]:
    """The links that somebody floods with forged frames: carrier, peer's name, and one line.

    From `last_status`, or what `drupelet status` shows; names: by device id in hex.
    """
    rows = []
    for peer in report.get("peers", []):
        name = names.get(peer["id"], peer["id"])
        for kind, seal in peer["seals"].items():
            run, last_ms = seal.get("forged_run", 0), seal.get("forged_last_ms", 0)
            if run < JAM_MANY or report.get("said_ms", 0) - last_ms > JAM_QUIET_MS:
                continue
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seal["forged_since_ms"] / 1000))
            text = f"{name}, {kind}: somebody jams, {run} forged frames since {since} UTC"
            rows.append((kind, name, text))
    return rows


def leave(path: Path, report: dict[str, Any]) -> str:
    """Leave word; one line about what went wrong, "": nothing did."""
    try:
        atomic_write(path, json.dumps(report), durable=False)
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
            "exploded": member.vanishing.exploded,
            "commits": member.store.programs,
            "damaged": member.store.damaged,
        },
        "peers": peers,
    }


def of_peer(member: "Member", id: bytes) -> dict[str, Any]:
    """What a member knows of a peer, whatever leads to it."""
    node = member.node
    number = member.numbers[id]
    passed_over = member.undeliverable.count(number)
    is_coming = member.undeliverable.reads_segments(number)
    return {
        "id": id.hex(),
        "outstanding": node.outstanding(number) + (passed_over if is_coming else 0),
        "more_outstanding": member.has_more_outstanding(number),
        "undeliverable": 0 if is_coming else passed_over,
        "pending": node.pending_count(number),
        "foreign": member.foreign(id),
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
