"""What a member says about itself, and `status.json`: what it said last.

A running agent is asked for it (drupelet_host.requests). The file is for `drupelet status` without
an agent and for the next start. An agent writes it when it begins, when its log has grown, and
when it stops; a stick visit without one at its end. With it stands how far the store had come: one
that has come less far later was put back (drupelet_host.store.restored).
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from drupelet_host.base import clock
from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.base.output import counted
from drupelet_host.home.toml_table import shown
from drupelet_host.member.report_shapes import MemberReport, PeerReport, SealReport, decoded

if TYPE_CHECKING:
    from drupelet_host.home.config import Config
    from drupelet_host.member.member import Member

# The `state` of a line to a peer.
UP = "up"
# The first connection to a broker is being made: nothing is wrong, and nothing is told.
CONNECTING = "connecting"
DOWN = "down"
REVOKED = "revoked"
# So many forged frames in a run are no noise of a line, ...
JAM_MANY = 32
# ... and without one for so long it is over.
JAM_QUIET_MS = 60_000
# A stick carries bsp-1 at once: nobody answers an offer, and its bytes cost nothing.
STICK_STATUS = {"profile": "bsp-1", "mode": "batch", "mode_now": "batch"}
# What `of_peer` always knows; the rest of a row is the agent's.
_OF_PEER = (
    "outstanding", "more_outstanding", "undeliverable", "pending", "foreign", "seals",
)  # fmt: skip


def last_status(path: Path) -> MemberReport:
    """What the agent last said about itself; an empty report when no agent ran yet."""
    try:
        return decoded(path.read_bytes())
    except OSError:
        return MemberReport()


def foreign_text(name: str, count: int, group: str) -> str:
    """What to say of messages that open under a peer's keys and belong to no group of ours."""
    return (
        f"{name}: {counted(count, 'message')} of no group of ours, dropped; `group`"
        f" (here {shown(group)}), `client` and `family` must be the same at both"
    )


def jams(
    said_ms: int, peers: Sequence[PeerReport], names: dict[str, str]
) -> list[tuple[str, str, str]]:
    """The links that somebody floods with forged frames: carrier, peer's name, and one line.

    names: by device id in hex.
    """
    rows = []
    for peer in peers:
        name = names.get(peer.id, peer.id)
        for kind, seal in peer.seals.items():
            if seal.forged_run < JAM_MANY or said_ms - seal.forged_last_ms > JAM_QUIET_MS:
                continue
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seal.forged_since_ms / 1000))
            run = seal.forged_run
            text = f"{name}, {kind}: somebody jams, {run} forged frames since {since} UTC"
            rows.append((kind, name, text))
    return rows


def leave(path: Path, report: MemberReport) -> str:
    """Leave word; one line about what went wrong, "": nothing did."""
    try:
        atomic_write(path, msgspec.json.encode(report), durable=False)
    except OSError as error:
        return f"{path}: not written ({error.strerror})"
    return ""


def of_member(member: "Member", peers: list[PeerReport], **more: Any) -> MemberReport:  # noqa: ANN401
    """What every member can say: when, how far the durable store is, counters; and the peers.

    more: other fields of the report.
    """
    node = member.node
    return MemberReport(
        said_ms=clock.wall_ms(),
        store=member.mark,
        counters={
            "delivered": node.delivered,
            "duplicates": node.duplicates,
            "refused": node.refused,
            "malformed": node.malformed,
            "pending": node.pending_count(),
            "exploded": member.vanishing.exploded,
            "commits": member.store.programs,
            "damaged": member.store.damaged,
        },
        peers=peers,
        **more,
    )


def of_peer(member: "Member", id: bytes, **more: Any) -> PeerReport:  # noqa: ANN401
    """What a member knows of a peer, whatever leads to it. more: other fields of the report."""
    node = member.node
    number = member.numbers[id]
    passed_over = member.undeliverable.count(number)
    is_coming = member.undeliverable.reads_segments(number)
    return PeerReport(
        id=id.hex(),
        outstanding=node.outstanding(number) + (passed_over if is_coming else 0),
        more_outstanding=member.has_more_outstanding(number),
        undeliverable=0 if is_coming else passed_over,
        pending=node.pending_count(number),
        foreign=member.foreign(id),
        seals={
            kind: SealReport(**counters) for kind, counters in member.sealing.status(id).items()
        },
        **more,
    )


def after_visit(member: "Member", config: "Config", heard: list[str]) -> MemberReport:
    """What a member that only visited a stick has to say: the rest is as it was said last.

    heard: the names of those of whom something new was there.
    """
    last = last_status(config.status_path)
    before = {row.id: row for row in last.peers}
    member.count_owed()
    peers = []
    for peer in config.peers:
        now = of_peer(member, peer.id)
        row = before.get(now.id, now)
        for name in _OF_PEER:
            setattr(row, name, getattr(now, name))
        for name, value in STICK_STATUS.items() if peer.carrier == "stick" else ():
            setattr(row, name, value)
        if peer.name in heard:
            row.heard_ms = clock.wall_ms()
        peers.append(row)
    home_status = of_member(member, peers)
    home_status.topics = last.topics
    home_status.channels = last.channels
    home_status.not_learned = last.not_learned
    home_status.feed = last.feed
    return home_status
