"""Opens a channel: loads what it is made of, the deepest modules first, so that a board with a
small stack can import them, and only when it has a channel."""

from drupelet.base.errors import CapacityError
from drupelet.base.limits import WAIT_MS_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.channel.channel import Channel
    from drupelet.channel.ports import KeeperPort
    from drupelet.channel.settings import Settings


def open_channel(
    id: bytes, participant: bytes, keeper: "KeeperPort", random_byte: "Callable[[], int]",
    settings: "Settings | None" = None, now_ms: int = 0,
) -> "Channel":  # fmt: skip
    """Make a channel of dialect `sds` with a filter of the settings, and restore its log.

    id: at most 66 bytes of UTF-8; participant: 1 to 66, unique in the channel. Raises
    CapacityError for settings with longer waits than there are.
    """
    from drupelet.wire.sds.bloom import Bloom  # isort: skip
    from drupelet.channel.rows import KeyRows  # noqa: F401  # isort: skip
    from drupelet.channel.log import LocalLog  # noqa: F401  # isort: skip
    from drupelet.channel.outlet import Outlet  # noqa: F401  # isort: skip
    from drupelet.channel.channel import Channel, Settings  # isort: skip

    settings = settings or Settings()
    wait_ms = max(settings.period_ms * settings.possibly_periods, 2 * settings.sync_ms)
    wait_ms = max(wait_ms, 2 * settings.lost_ms, settings.t_max_ms)
    if wait_ms > WAIT_MS_MAX or not 0 < settings.t_min_ms < settings.t_max_ms:
        raise CapacityError("a channel's T_max is above T_min, and no wait above 2^28 ms")
    bloom = Bloom(settings.bloom_capacity, settings.bloom_bits, settings.bloom_hashes)
    channel = Channel(id, participant, keeper, bloom, random_byte, settings, now_ms)
    channel.restore(now_ms)
    # A new participant, or one that lost its log.
    channel.recovering = channel.recovering or not keeper.next(0)
    return channel
