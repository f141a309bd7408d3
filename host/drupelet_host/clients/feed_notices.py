"""Which remote logs there are: announced in a group of their own (docs/SPEC.md 15.5).

    content: bytes root = 1; bytes group_id = 2; repeated string place = 3; bytes access = 4;
             bool mail = 5

The root opens the feed, so it goes to members only, as every message does. A place is a folder
(`folder:<path>`), or a store at an agent (`mqtt://host:port/prefix`), whose id and key are
`access`. With `mail` the messages are in a mailbox there, no log is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from drupelet.base.errors import PeerError
from drupelet.base.limits import ID_SIZE
from drupelet.node import Node
from drupelet.wire.protobuf import VARINT
from drupelet_host.clients.notices import Notices
from drupelet_host.home.client_ids import FEEDS_CLIENT_ID
from drupelet_host.remote.log_bytes import ROOT_SIZE, FeedKeys, fields, put_field, put_varint
from drupelet_host.remote.store_service import KEY_SIZE

# A store's id, and the key of who may use it.
ACCESS_SIZE = 4 + KEY_SIZE
PLACES_MAX = 8
PLACE_SIZE_MAX = 200


@dataclass(frozen=True)
class Feed:
    """A device's log of a group, where it is kept, and what opens it."""

    root: bytes
    group: bytes
    places: tuple[str, ...] = ()
    access: bytes = b""
    mail: bool = False

    @property
    def keys(self) -> FeedKeys:
        """Name and key of the feed."""
        return FeedKeys(self.root)

    def encode(self) -> bytes:
        """As the content of a notice."""
        out = bytearray()
        put_field(out, 1, self.root)
        put_field(out, 2, self.group)
        for place in self.places:
            put_field(out, 3, place.encode())
        if self.access:
            put_field(out, 4, self.access)
        if self.mail:
            put_varint(out, 5 << 3 | VARINT)
            put_varint(out, 1)
        return bytes(out)

    def __repr__(self) -> str:
        return f"Feed({self.keys.name.hex()}, {list(self.places)})"


def decode_feed(content: bytes) -> Feed:
    """Read a notice's content; raises PeerError."""
    root = group = access = b""
    places: list[str] = []
    mail = False
    for number, value in fields(content):
        mail = mail or (number == 5 and value == 1)
        if not isinstance(value, bytes):
            continue
        root = value if number == 1 else root
        group = value if number == 2 else group
        access = value if number == 4 else access
        if number == 3:
            places.append(place_text(value))
    if len(root) != ROOT_SIZE or len(group) != ID_SIZE or len(places) > PLACES_MAX:
        raise PeerError("not a feed")
    if len(access) not in (0, ACCESS_SIZE):
        raise PeerError("not a feed's access")
    return Feed(root, group, tuple(places), access, mail)


def place_text(value: bytes) -> str:
    """A URL that somebody announced; raises PeerError for what is none."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise PeerError("not a place") from error
    if not text.isprintable() or " " in text or not 0 < len(text) <= PLACE_SIZE_MAX:
        raise PeerError("not a place")
    return text


class Feeds:
    """The group of feeds of one member."""

    def __init__(self, node: Node, descriptor: bytes, roster: Mapping[int, bytes]) -> None:
        self.notices = Notices(node, FEEDS_CLIENT_ID, descriptor, roster)
        self.group = self.notices.group

    def announce(self, device: bytes, feed: Feed, timestamp: bytes, now_ms: int) -> None:
        """Tell the members of our feed. Raises CapacityError."""
        self.notices.say(device, feed.encode(), timestamp, now_ms)

    def own(self, device: bytes) -> Feed | None:
        """The feed that this device itself announced as its own; what others say is no proof."""
        self.notices.turn()
        content = self.notices.own(device)
        return decode_feed(content) if content else None

    def known(self) -> dict[bytes, Feed]:
        """Device id -> its feed as somebody announced it, also our own.

        Good for reading: after a loss our own comes back from any member. Any member may have
        written it, so nothing of ours is sealed to it.
        """
        self.notices.turn()
        feeds = {}
        for device, content in self.notices.latest.items():
            try:
                feeds[device] = decode_feed(content)
            except PeerError:
                self.notices.ignored += 1
        return feeds
