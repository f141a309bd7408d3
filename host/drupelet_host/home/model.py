"""What `drupelet.toml` holds once it was read: a Config of Peers, Shared carriers and a feed."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from drupelet.base.limits import WAIT_MS_MAX
from drupelet_host.home.board_kinds import BOARD_HOST
from drupelet_host.home.broker_access import BrokerSettings
from drupelet_host.home.client_ids import EXPLODING_CLIENT_ID
from drupelet_host.home.toml_table import ConfigError
from drupelet_transports.common.url import carrier_of, parse_url

CONFIG_NAME = "drupelet.toml"
# A configuration longer than this is not one that a person wrote.
CONFIG_SIZE_MAX = 65536
# Rows in the node's peer table on a host.
PEERS_CONFIGURED_MAX = 32
# Shorter epochs would only busy the disk with commits; longer ones than a day serve nobody.
EPOCH_MS_MIN = 20
EPOCH_MS_MAX = 86_400_000
EPOCH_MS_DEFAULT = 1000
MODES = ("interactive", "batch", "auto")
FAMILY_BSP_NAME = "bsp"
FAMILY_MVDS_NAME = "mvds"
FAMILY_BSP_0_NAME = "bsp-0"
# The id families of the readings, and what their links may speak; the first if not given.
PROFILES_OF = {
    FAMILY_BSP_NAME: ("compact-1", "bsp-1"),
    FAMILY_MVDS_NAME: ("mvds-1", "mvds-5001", "mvds-nested"),
    FAMILY_BSP_0_NAME: ("bsp-0",),
}
# Less than a few of the shortest frames, with the carrier's framing, would never carry a body.
BUDGET_BYTES_MIN = 256
BUDGET_BYTES_MAX = 1 << 28
# Topics and channels of a home: each has keys and a carrier of its own.
SHARED_MAX = 8
PERIOD_MS_DEFAULT = 30_000
# The longest time that a channel derives from its period is ten of them (T_max of SDS-R), and no
# wait of a channel is longer than that of a clock that wraps: 7.4 hours.
CHANNEL_PERIODS_MAX = 10
CHANNEL_PERIOD_MS_MAX = WAIT_MS_MAX // CHANNEL_PERIODS_MAX
# How an SDS channel's frames look (docs/SPEC.md 12.1, 12.5).
DIALECT_SDS, DIALECT_NIM = "sds", "sds-nim"
DIALECTS = (DIALECT_SDS, DIALECT_NIM)
# Through these carriers sender keys are handed over.
_HANDING_CARRIERS = ("mqtt", "serial")
# What a notice of carriers has room for (docs/SPEC.md 15.5).
ANNOUNCED_MAX = 8
SHARE_PERIOD_MS_DEFAULT = 60_000
# Where an agent keeps its feed: in a folder, or in the store of an agent behind a broker.
FOLDER_PLACE = "folder:"
FEED_PERIOD_MS_DEFAULT = 10_000


@dataclass(frozen=True)
class Peer:
    """Another member that this one has a carrier to."""

    name: str
    id: bytes
    url: str
    mode: str = "interactive"
    epoch_ms: int = EPOCH_MS_DEFAULT
    board: str = ""
    profile: str = ""
    budget_bytes_per_epoch: int = 0

    @property
    def asked_profile(self) -> str:
        """What its links begin with: compact-1, but bsp-1 to what is said to be a board.

        compact-1 falls back to bsp-1 by itself; a board that has only that is spared the attempt.
        A stick, on which nobody answers, carries bsp-1.
        """
        if self.carrier == "stick":
            return "bsp-1"
        is_board = self.board not in ("", BOARD_HOST)
        return self.profile or ("bsp-1" if is_board else "compact-1")

    @property
    def plain(self) -> bool:
        """True for a cable without keys (`?plain=1`); every other carrier is sealed."""
        return self.carrier == "serial" and parse_url(self.url).plain

    @property
    def carrier(self) -> str:
        """What the URL names: serial, mqtt (also over TLS), stick, ..."""
        return carrier_of(self.url)


@dataclass(frozen=True)
class Shared:
    """A topic of the readings, or an SDS channel: a carrier that all who listen there hear.

    peers: names of the listeners; none: all to whom sender keys can be handed. period_ms: a
    topic's epoch, a channel's time to repetition. bloom: whether a channel's frames have a filter.
    dialect: of a channel; bridge: the name of the channel to which its messages are carried.
    """

    name: str
    url: str
    peers: tuple[str, ...] = ()
    period_ms: int = EPOCH_MS_DEFAULT
    bloom: str = "omit"
    dialect: str = DIALECT_SDS
    bridge: str = ""

    @property
    def is_cable(self) -> bool:
        """True for a channel over a cable to a program that is no member: it is not sealed."""
        return carrier_of(self.url) == "serial"


@dataclass(frozen=True)
class FeedSettings:
    """The agent's remote log."""

    place: str = ""
    watch: bool = True
    period_ms: int = FEED_PERIOD_MS_DEFAULT
    serve: bool = False
    mail: bool = False


@dataclass(frozen=True)
class Config:
    """One validated `drupelet.toml`."""

    home: Path
    name: str
    id: bytes
    group: str
    epoch_ms: int = EPOCH_MS_DEFAULT
    client: bytes | None = None
    peers: tuple[Peer, ...] = field(default=())
    topics: tuple[Shared, ...] = field(default=())
    channels: tuple[Shared, ...] = field(default=())
    feed: FeedSettings | None = None
    family: str = FAMILY_BSP_NAME
    announce: tuple[str, ...] = ()
    learn: bool = False
    brokers: tuple[BrokerSettings, ...] = ()
    # What becomes of the messages that this member writes, unless `put` says otherwise.
    explode_s: int = 0
    explode_read: bool = False
    ephemeral: bool = False
    # A public group is offered to so many peers at a time, drawn anew after a period; 0: to all.
    share_with: int = 0
    share_period_ms: int = SHARE_PERIOD_MS_DEFAULT

    @property
    def has_lifetimes(self) -> bool:
        """Whether the messages of the group say how long they stay."""
        return self.client == EXPLODING_CLIENT_ID

    @property
    def may_be_ephemeral(self) -> bool:
        """Whether the group can have ephemeral messages."""
        return self.has_lifetimes or self.family == FAMILY_MVDS_NAME

    def listeners(self, shared: Shared) -> list[Peer]:
        """The peers that listen to a topic or channel."""
        if shared.is_cable:
            return []
        if not shared.peers:
            return [peer for peer in self.peers if can_listen(peer)]
        return [peer for peer in self.peers if peer.name in shared.peers]

    @property
    def store_path(self) -> Path:
        """The SQLite file."""
        return self.home / "store.db"

    @property
    def keys_path(self) -> Path:
        """The folder of the keys, for its owner only."""
        return self.home / "keys"

    @property
    def status_path(self) -> Path:
        """What the agent last said about itself."""
        return self.home / "status.json"

    def names(self) -> dict[str, str]:
        """Every configured device id (hex) with its name, our own included."""
        return {self.id.hex(): self.name} | {peer.id.hex(): peer.name for peer in self.peers}


def can_listen(peer: Peer) -> bool:
    """Whether sender keys can be handed to a peer: through a sealed link of its own."""
    return peer.carrier in _HANDING_CARRIERS and not peer.plain


def default_home() -> Path:
    """`$XDG_STATE_HOME/drupelet`, by default `~/.local/state/drupelet`. Raises ConfigError."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError:  # a container with a user that nobody entered
        raise ConfigError("this user has no home folder; name one for us with --home") from None
    return base / "drupelet"
