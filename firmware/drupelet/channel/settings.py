"""What a channel's participants agree on, and how large one's tables are."""

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
    """Change what differs before the channel is opened; it is read while the channel lives.

    period_ms: an unacknowledged message goes out again after one, a possibly acknowledged one
    after `possibly_periods`. sync_ms: a sync message after one to two of these without any other.
    t_min_ms, t_max_ms, response_groups: SDS-R's global state, the same for all. lost_ms: what
    does not come for so long is irretrievably lost; 0: never. All waits, and twice lost_ms, are
    at most 2^28 ms.
    bloom_...: ids that the filter holds at its error rate, bits for each, hashes (docs/SPEC.md
    12.2), the same for all. send_bloom: only where no peer loses messages for a filter.
    causal: entries in our messages' causal history; heads_max: more of them, for what came again
    and for what nothing depends on yet.
    ask_into: of a dialect without sync messages, writes a frame with a repair request.
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
    """How many response groups so many participants make (specs/sds.md "SDS-R global state")."""
    return participants // 128 + 1
