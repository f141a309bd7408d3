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

    def __init__(self) -> None:
        self.period_ms = 30_000
        self.possibly_periods = 4
        self.sync_ms = 60_000
        self.t_min_ms = 30_000
        self.t_max_ms = 300_000
        self.response_groups = 1
        self.lost_ms = 86_400_000
        self.repair = True
        self.send_bloom = False
        self.bloom_capacity = 100
        self.bloom_bits = 10
        self.bloom_hashes = 7
        self.send_sync = True
        self.ask_into: "Callable[[bytearray, int], int] | None" = None
        self.hints: "HintPort | None" = None
        self.causal = CHANNEL_CAUSAL
        self.heads_max = CHANNEL_HEADS_MAX
        self.unit_ms = 1  # of a Lamport value
        self.outgoing_max = CHANNEL_OUT_MAX
        self.incoming_max = CHANNEL_IN_MAX
        self.ids_max = CHANNEL_IDS_MAX
        self.wanted_max = CHANNEL_WANTED_MAX
        self.asked_max = CHANNEL_ASKED_MAX
        self.identity: "TimesPort | None" = None  # None: dialect `sds`


def response_groups(participants: int) -> int:
    """How many response groups so many participants make (specs/sds.md "SDS-R global state")."""
    return participants // 128 + 1
