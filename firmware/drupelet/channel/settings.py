"""Settings of a channel: what its participants agree on, and the sizes of the tables."""

from drupelet.base.limits import (
    CHANNEL_ASKED_MAX,
    CHANNEL_CAUSAL,
    CHANNEL_HEADS_MAX,
    CHANNEL_IDS_MAX,
    CHANNEL_IN_MAX,
    CHANNEL_OUT_MAX,
    CHANNEL_WANTED_MAX,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.channel.ports import HintPort, TimesPort


class Settings:
    """The settings of one channel; change them before it is opened, it keeps reading them.

    period_ms: an unacknowledged message is resent after one period, a possibly acknowledged one
    after `possibly_periods`. sync_ms: a sync message is sent after one to two times this without
    another frame. t_min_ms, t_max_ms, response_groups: the global state of SDS-R, the same for all
    participants. lost_ms: a dependency missing for so long is irretrievably lost; 0: never. All
    waits, and twice lost_ms, are at most 2^28 ms.
    bloom_...: how many ids the filter holds at its error rate, bits per id, hashes (docs/SPEC.md
    12.2), the same for all. send_bloom: use it only if no participant loses messages because of
    filters (docs/DESIGN.md 14).
    causal: entries in our messages' causal history; heads_max: extra entries, for messages that
    were received again and for messages on which nothing depends yet.
    ask_into: writes a frame with a repair request, in a dialect without sync messages.
    """

    period_ms = 30_000
    possibly_periods = 4
    sync_ms = 60_000
    t_min_ms = 30_000
    t_max_ms = 300_000
    response_groups = 1
    lost_ms = 86_400_000
    repair = True
    send_bloom = False
    bloom_capacity = 100
    bloom_bits = 10
    bloom_hashes = 7
    send_sync = True
    ask_into: "Callable[[bytearray, int], int] | None" = None
    hints: "HintPort | None" = None
    causal = CHANNEL_CAUSAL
    heads_max = CHANNEL_HEADS_MAX
    unit_ms = 1  # of a Lamport value
    outgoing_max = CHANNEL_OUT_MAX
    incoming_max = CHANNEL_IN_MAX
    ids_max = CHANNEL_IDS_MAX
    wanted_max = CHANNEL_WANTED_MAX
    asked_max = CHANNEL_ASKED_MAX
    identity: "TimesPort | None" = None  # None: dialect `sds`


def response_groups(participants: int) -> int:
    """Return the number of response groups for a channel (specs/sds.md "SDS-R global state")."""
    return participants // 128 + 1
