"""Opens a channel: loads what it is made of, the deepest modules first, so that a board with a
small stack can import them, and only when it has a channel."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.channel import Channel
    from drupelet.channel_ports import KeeperPort
    from drupelet.channel_settings import Settings


def open_channel(
    id: bytes, participant: bytes, keeper: "KeeperPort", random_byte: "Callable[[], int]",
    settings: "Settings | None" = None, now_ms: int = 0,
) -> "Channel":  # fmt: skip
    """Make a channel of dialect `sds` with a filter of the settings, and restore its log.

    id: at most 66 bytes of UTF-8; participant: 1 to 66, unique in the channel.
    """
    from drupelet.wire.bloom import Bloom  # isort: skip
    from drupelet.channel_rows import KeyRows  # noqa: F401  # isort: skip
    from drupelet.channel_log import LocalLog  # noqa: F401  # isort: skip
    from drupelet.channel_out import Outlet  # noqa: F401  # isort: skip
    from drupelet.channel import Channel, Settings  # isort: skip

    settings = settings or Settings()
    bloom = Bloom(settings.bloom_capacity, settings.bloom_bits, settings.bloom_hashes)
    channel = Channel(id, participant, keeper, bloom, random_byte, settings, now_ms)
    channel.restore(now_ms)
    return channel
