"""What a member says about itself: the shapes of an agent's answer, and of `status.json`.

`drupelet status --json` shows it beside what the store knows (view/status_shapes.py). A number is
None, and a text empty, where nobody knows it. docs/json.md is made of the descriptions here.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

# What JSON carries without loss.
_NUMBER_MAX = 1 << 53
Count = Annotated[int, Meta(ge=0, lt=_NUMBER_MAX)]


class SealReport(msgspec.Struct):
    """The seal of one peer's frames on live carriers, or on sticks: counters, never a key."""

    generation: Annotated[Count, Meta(description="number of the root; `rotate` adds one")] = 0
    out_epoch: Annotated[Count, Meta(description="key epoch of what we send")] = 0
    in_epoch: Annotated[Count, Meta(description="key epoch of what the peer sends")] = 0
    answered: Annotated[Count, Meta(description="our last epoch that the peer answered")] = 0
    confirmed: Annotated[bool, Meta(description="the peer has our present epoch open")] = False
    forged: Annotated[Count, Meta(description="frames that were not the peer's")] = 0
    forged_run: Annotated[Count, Meta(description="of them since `forged_since_ms`")] = 0
    forged_since_ms: Annotated[Count, Meta(description="when the present run of them began")] = 0
    forged_last_ms: Annotated[Count, Meta(description="when the last of them came")] = 0
    replayed: Annotated[Count, Meta(description="frames that came again")] = 0
    closed_epoch: Annotated[Count, Meta(description="frames of an epoch that is closed")] = 0
    unknown: Annotated[Count, Meta(description="frames of kinds of a later release")] = 0
    clones: Annotated[Count, Meta(description="frames of a second device with its keys")] = 0
    muted: Annotated[bool, Meta(description="flooded, so not listened to any more")] = False
    revoked: Annotated[bool, Meta(description="refused for good")] = False


class PeerReport(msgspec.Struct):
    """What a member knows of a peer."""

    id: Annotated[str, Meta(description="8 hex digits")]
    seals: Annotated[
        dict[str, SealReport],
        Meta(description="by carrier class: `live` is of cables and brokers, `bundle` of sticks"),
    ]
    outstanding: Annotated[
        Count | None, Meta(description="messages that it is not known to hold")
    ] = None
    more_outstanding: Annotated[bool, Meta(description="the log holds more than those")] = False
    undeliverable: Annotated[Count, Meta(description="messages too long for its carrier")] = 0
    pending: Annotated[Count, Meta(description="messages of it that wait for a parent")] = 0
    foreign: Annotated[Count, Meta(description="messages of it that are of no group of ours")] = 0
    state: Annotated[
        str, Meta(description="of the carrier: up, connecting, down, revoked, by stick")
    ] = "unknown"
    reason: Annotated[str, Meta(description="why the carrier is down")] = ""
    heard_ms: Annotated[Count, Meta(description="when it was last heard; 0: never")] = 0
    owed_since_ms: Annotated[Count, Meta(description="since when it lacks something")] = 0
    profile: Annotated[str | None, Meta(description="what is spoken; ?: not confirmed")] = None
    mode: Annotated[str | None, Meta(description="as configured")] = None
    mode_now: Annotated[str | None, Meta(description="interactive or batch")] = None
    duplicates: Annotated[Count | None, Meta(description="messages of it that came again")] = None
    round_trip_ms: Annotated[
        Count | None, Meta(description="how long it takes to acknowledge, at most")
    ] = None
    recovering: Annotated[bool, Meta(description="one of the two lost its store")] = False


class SharedReport(msgspec.Struct):
    """A topic on its carrier."""

    name: Annotated[str, Meta(description="as drupelet.toml has it")]
    url: Annotated[str, Meta(description="how its listeners are reached")]
    state: Annotated[str, Meta(description="of the carrier, as of a peer")]
    reason: Annotated[str, Meta(description="why the carrier is down")]
    told: Annotated[list[str], Meta(description="ids of the listeners that have our key")]
    listeners: Annotated[list[str], Meta(description="ids of all listeners")]
    heard_ms: Annotated[Count, Meta(description="when anybody was last heard; 0: never")] = 0
    forged: Annotated[Count, Meta(description="frames of nobody who has the key")] = 0
    replayed: Annotated[Count, Meta(description="frames that came again")] = 0
    unknown: Annotated[Count, Meta(description="frames of a sender whose key we lack")] = 0
    closed: Annotated[Count, Meta(description="frames of an epoch that is closed")] = 0
    clones: Annotated[Count, Meta(description="frames of a second device with its keys")] = 0


class ChannelReport(SharedReport):
    """A channel on its carrier: as a topic, and what the channel holds."""

    log: Annotated[Count, Meta(description="messages in its log")] = 0
    waiting: Annotated[Count, Meta(description="messages that wait for what they follow")] = 0
    unacknowledged: Annotated[Count, Meta(description="of ours that nobody acknowledged")] = 0
    malformed: Annotated[Count, Meta(description="frames that are no message")] = 0
    foreign: Annotated[Count, Meta(description="messages of another channel")] = 0
    repaired: Annotated[Count, Meta(description="messages that were asked for and came")] = 0
    recalled: Annotated[Count, Meta(description="messages of ours that came back")] = 0
    carried: Annotated[Count, Meta(description="messages that its bridge carried")] = 0
    not_carried: Annotated[Count, Meta(description="messages that its bridge left out")] = 0
    to_carry: Annotated[Count, Meta(description="messages that wait to be carried here")] = 0


class FeedReport(msgspec.Struct):
    """The remote log."""

    place: Annotated[str, Meta(description="of ours; empty if there is none")]
    reason: Annotated[str, Meta(description="what is wrong")]
    pushed: Annotated[Count, Meta(description="messages uploaded since the start")]
    pulled: Annotated[Count, Meta(description="messages taken in since the start")]
    watched: Annotated[Count, Meta(description="feeds of others that are read")] = 0
    failures: Annotated[Count, Meta(description="readings of a feed that failed")] = 0


class NotLearned(msgspec.Struct):
    """A member that announced itself and was not taken as a peer."""

    id: Annotated[str, Meta(description="8 hex digits")]
    reason: Annotated[str, Meta(description="what is missing")]


class MemberReport(msgspec.Struct):
    """What a member said of itself; all empty where none did."""

    said_ms: Annotated[Count, Meta(description="when")] = 0
    store: Annotated[dict[str, int], Meta(description="how far the store is")] = field(
        default_factory=dict
    )
    counters: Annotated[dict[str, Count], Meta(description="since its start")] = field(
        default_factory=dict
    )
    peers: list[PeerReport] = field(default_factory=list)
    topics: list[SharedReport] = field(default_factory=list)
    channels: list[ChannelReport] = field(default_factory=list)
    not_learned: list[NotLearned] = field(default_factory=list)
    shares_with: list[str] | None = None
    feed: FeedReport | None = None


_decoder = msgspec.json.Decoder(MemberReport)


def decoded(content: bytes) -> MemberReport:
    """A report from JSON; an empty one for what no member of this release writes.

    It only informs, and the next one is sound.
    """
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return MemberReport()


def converted(value: dict[str, Any]) -> MemberReport:
    """As `decoded`, from an answer of an agent."""
    try:
        return msgspec.convert(value, MemberReport)
    except msgspec.MsgspecError:
        return MemberReport()
