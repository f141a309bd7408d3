"""What `drupelet status --json` prints, and what the page and the metrics are made of.

docs/json.md is made of the descriptions here and in member/report_shapes.py.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from drupelet_host.member.report_shapes import (
    ChannelReport,
    FeedReport,
    NotLearned,
    PeerReport,
    SharedReport,
)


class PeerStatus(PeerReport, kw_only=True):
    """A peer of the configuration: `state` is stopped while no agent runs."""

    name: Annotated[str, Meta(description="as drupelet.toml has it")]
    url: Annotated[str, Meta(description="how it is reached")]
    profile: Annotated[str, Meta(description="what is spoken; ?: not confirmed")]
    mode: Annotated[str, Meta(description="as configured")]


class Status(msgspec.Struct):
    """A home."""

    name: Annotated[str, Meta(description="this member's")]
    id: Annotated[str, Meta(description="8 hex digits")]
    group: Annotated[str, Meta(description="the same text at every member")]
    home: Annotated[str, Meta(description="its folder")]
    running: Annotated[bool, Meta(description="an agent runs on it")]
    store_gen: Annotated[int, Meta(description="number of the store; a new store has another")]
    boot: Annotated[int, Meta(description="how often a member began with this store")]
    lifetime: Annotated[
        str, Meta(description="of what this member writes, in words; empty: it stays")
    ]
    ephemeral: Annotated[bool, Meta(description="what this member writes is for now alone")]
    delivered: Annotated[int, Meta(description="readings in the log")]
    telemetry: Annotated[int, Meta(description="black-box segments in the log")]
    pending: Annotated[int, Meta(description="messages that wait for a parent")]
    outbox: Annotated[int, Meta(description="messages that wait for the agent")]
    store_bytes: Annotated[int, Meta(description="size of the store on disk")]
    said_ms: Annotated[int, Meta(description="when the agent said the rest; 0: never")]
    counters: Annotated[dict[str, int], Meta(description="of the agent, since its start")]
    peers: Annotated[list[PeerStatus], Meta(description="of drupelet.toml, in its order")]
    topics: Annotated[list[SharedReport], Meta(description="as the agent said last")]
    channels: Annotated[list[ChannelReport], Meta(description="as the agent said last")]
    shares_with: Annotated[
        list[str] | None,
        Meta(description="peers to whom the log is offered in this period; null: to all"),
    ]
    feed: Annotated[FeedReport | None, Meta(description="the remote log; null: none")]
    not_learned: Annotated[
        list[NotLearned], Meta(description="members that could not be taken as peers")
    ]
