"""Every key of `drupelet.toml`: type, unit, default and bounds, as home.parse reads them.

docs/configuration.md is made from it; tests/host/test_schema.py tries each row on the parser.
"""

from dataclasses import dataclass

from drupelet.base.limits import DESCRIPTOR_SIZE_MAX
from drupelet_host.home.board_kinds import BOARDS
from drupelet_host.home.model import (
    BUDGET_BYTES_MAX,
    BUDGET_BYTES_MIN,
    CHANNEL_PERIOD_MS_MAX,
    DIALECT_SDS,
    DIALECTS,
    EPOCH_MS_DEFAULT,
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    FEED_PERIOD_MS_DEFAULT,
    MODES,
    PEERS_CONFIGURED_MAX,
    PERIOD_MS_DEFAULT,
    PROFILES_OF,
    SHARE_PERIOD_MS_DEFAULT,
)
from drupelet_host.home.toml_table import NAME_SIZE_MAX

TEXT, NAME, ID, URL, PATH = "text", "name", "device id", "URL", "path"
NUMBER, SWITCH, LIST = "whole number", "true or false", "list of texts"
# In place of a default: the key must be there.
REQUIRED = "(required)"
# Names of tables; "" is the top of the file.
PEERS, TOPICS, CHANNELS, BROKERS, FEED = (
    "[[peers]]", "[[topics]]", "[[channels]]", "[[brokers]]", "[feed]",
)  # fmt: skip
TABLES = {
    "": "At the top of the file, before any table.",
    PEERS: "One table for each member that this one has a carrier to.",
    TOPICS: "A carrier of the readings that all who listen there hear at once; family `bsp` only.",
    CHANNELS: "An SDS channel: `drupelet channel`.",
    BROKERS: "How this host gets into a broker that does not let everybody in.",
    FEED: "A remote log or a mailbox, which help members that seldom meet.",
}


@dataclass(frozen=True)
class Key:
    """One key. default: what holds without it, as a person reads it. low, high: of a number."""

    table: str
    name: str
    kind: str
    default: object
    text: str
    unit: str = ""
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()


_NAMES = f"1 to {NAME_SIZE_MAX} letters, digits, `.`, `-`, `_`; begins with a letter or digit"
_ALL_PROFILES = tuple(profile for profiles in PROFILES_OF.values() for profile in profiles)
_LISTENERS = "names of the peers that listen; if not given, all with sealed cables or brokers"
_SHARED_URL = "`udp://239.0.0.1:7447` or `mqtt://host:1883/prefix`"

KEYS = (
    Key("", "name", NAME, REQUIRED, f"this member's name: {_NAMES}"),
    Key("", "id", ID, REQUIRED, "8 hex digits, unique among the members"),
    Key("", "group", TEXT, REQUIRED, "the group's descriptor: the same text at every member, at"
        f" most {DESCRIPTOR_SIZE_MAX} bytes"),
    Key("", "epoch_ms", NUMBER, EPOCH_MS_DEFAULT, "default of every peer", "ms",
        EPOCH_MS_MIN, EPOCH_MS_MAX),
    Key("", "client", TEXT, "readings", '`"readings"`; `"public"`: `group` is a topic, and whoever'
        ' says the same is in (`drupelet group topic` shows its id); `"exploding"`: messages may'
        " explode, the same at every member; or 64 hex digits of another client's id"),
    Key("", "family", TEXT, "bsp", "whose messages these are, for life; `bsp-0` is Briar's. Topics"
        " and sticks carry `bsp` only", choices=tuple(PROFILES_OF)),
    Key("", "announce", LIST, (), "URLs of brokers by which members reach this host; they are"
        " told"),
    Key("", "learn", SWITCH, False, "members that announce themselves become peers, if the two"
        " have keys"),
    Key("", "explode", TEXT, "never", "what this member writes is deleted everywhere after this"
        " time, as 90s, 30min, 12h, 7d; `put --explode` says otherwise for one message. Needs"
        ' `client = "exploding"`'),
    Key("", "explode_read", SWITCH, False, "what this member writes is deleted once it was read"
        ' and everybody has it. Needs `client = "exploding"`'),
    Key("", "ephemeral", SWITCH, False, "what this member writes is for those who are there now,"
        ' and for no log. Needs `client = "exploding"` or family `mvds`'),
    Key("", "share_with", NUMBER, 0, 'of a group with `client = "public"`: messages are offered to'
        " so many peers at a time, drawn at random; to the others what they ask for. With 2 or"
        " more a message soon reaches all; 0: to all. A topic reaches all in any case", "peers",
        0, PEERS_CONFIGURED_MAX),
    Key("", "share_period_ms", NUMBER, SHARE_PERIOD_MS_DEFAULT, "after this the peers of"
        " `share_with` are drawn anew", "ms", EPOCH_MS_MIN, EPOCH_MS_MAX),
    Key(PEERS, "name", NAME, REQUIRED, "of the peer"),
    Key(PEERS, "id", ID, REQUIRED, "of the peer"),
    Key(PEERS, "url", URL, REQUIRED, "`serial:///dev/ttyACM0?baud=115200`,"
        " `mqtt://localhost:1883/prefix`, `mqtts://broker.example:8883/prefix` (TLS),"
        " `stick:///media/usb` (visited when it is mounted) or `stick:` (visited by"
        " `drupelet stick`)"),
    Key(PEERS, "mode", TEXT, MODES[0], "`interactive`: offer, then send what is asked for;"
        " `batch`: send at once; `auto`: whichever costs fewer bytes by what the link measures",
        choices=MODES),
    Key(PEERS, "epoch_ms", NUMBER, "`epoch_ms` of the file", "one payload leaves for this peer in"
        " each slice of time of this length", "ms", EPOCH_MS_MIN, EPOCH_MS_MAX),
    Key(PEERS, "board", TEXT, "no board", "what it runs on, for the telemetry report; `host` is no"
        " board, `board` one without a table", choices=BOARDS),
    Key(PEERS, "profile", TEXT, "`bsp-1` where `board` names a board, else the first of the"
        " family", "what its links speak. `compact-1` falls back to `bsp-1` where the peer knows"
        " no more; sticks carry `bsp-1`. Family `bsp` has `compact-1` and `bsp-1`, `mvds` has"
        " `mvds-1`, `mvds-5001` and `mvds-nested`, `bsp-0` has itself", choices=_ALL_PROFILES),
    Key(PEERS, "budget_bytes_per_epoch", NUMBER, 0, "at most so many bytes leave in an epoch, the"
        " carrier's framing included; 0: no bound. Not for sticks", "bytes",
        BUDGET_BYTES_MIN, BUDGET_BYTES_MAX),
    Key(TOPICS, "name", NAME, REQUIRED, "of the topic"),
    Key(TOPICS, "url", URL, REQUIRED, _SHARED_URL),
    Key(TOPICS, "peers", LIST, (), _LISTENERS),
    Key(TOPICS, "epoch_ms", NUMBER, "`epoch_ms` of the file", "one payload leaves in each", "ms",
        EPOCH_MS_MIN, EPOCH_MS_MAX),
    Key(CHANNELS, "name", NAME, REQUIRED, "of the channel"),
    Key(CHANNELS, "url", URL, REQUIRED, f"{_SHARED_URL}; or `serial://localhost:2217?plain=1`, a"
        " cable to one program that speaks SDS and is no member: nothing on it is sealed"),
    Key(CHANNELS, "peers", LIST, (), _LISTENERS),
    Key(CHANNELS, "period_ms", NUMBER, PERIOD_MS_DEFAULT, "what nobody acknowledged is repeated"
        " after it", "ms", EPOCH_MS_MIN, CHANNEL_PERIOD_MS_MAX),
    Key(CHANNELS, "bloom", TEXT, "omit", "`omit` for frames that the JavaScript peer reads;"
        " `small`: a filter of 128 bytes, where all members run this program",
        choices=("omit", "small")),
    Key(CHANNELS, "dialect", TEXT, DIALECT_SDS, "how frames look, the same at every member: `sds`"
        " as the JavaScript peer has them, `sds-nim` as nim-sds", choices=DIALECTS),
    Key(CHANNELS, "bridge", NAME, "none", "another channel of this file, of the other dialect:"
        " what is said in one of the two is carried to the other"),
    Key(BROKERS, "url", URL, REQUIRED, "of the broker, without a prefix:"
        " `mqtts://broker.example:8883` (TLS) or `mqtt://host:1883`; it holds for all prefixes"
        " there"),
    Key(BROKERS, "ca_file", PATH, "whom this machine trusts", "who signed its certificate, PEM."
        " Paths begin at the home"),
    Key(BROKERS, "certificate_file", PATH, "none", "our own certificate, where the broker wants"
        " one"),
    Key(BROKERS, "key_file", PATH, "in certificate_file", "its key; mode 0600"),
    Key(BROKERS, "login_file", PATH, "none", "mode 0600, two lines: user and password. No URL may"
        " hold them"),
    Key(FEED, "place", TEXT, "none of ours: only others' are looked at", "where ours is:"
        " `folder:/media/log`, or `mqtt://host:1883/prefix` at a member that serves there"),
    Key(FEED, "serve", SWITCH, False, "this agent keeps logs and mail of all members at `place`, a"
        " broker's URL, and answers for the history of its channels"),
    Key(FEED, "mail", SWITCH, False, "new messages are left in the mailbox there, for the members"
        " to fetch, and no log is kept; `place` is a broker's URL"),
    Key(FEED, "watch", SWITCH, True, "whether what others keep or left is looked at"),
    Key(FEED, "period_ms", NUMBER, FEED_PERIOD_MS_DEFAULT, "new messages wait at most so long",
        "ms", EPOCH_MS_MIN, EPOCH_MS_MAX),
)  # fmt: skip
