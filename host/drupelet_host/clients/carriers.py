"""Transport properties: members learn from each other over which carriers they are reached.

    content: string name = 1; repeated string url = 2

A URL that somebody announced is used only once the owner says so: `new_peers` proposes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from drupelet.base.errors import DrupeletError, PeerError
from drupelet.node import Node
from drupelet_host.clients.feed_notices import PLACES_MAX, place_text
from drupelet_host.clients.notices import Notices
from drupelet_host.home import config
from drupelet_host.home.client_ids import CARRIERS_CLIENT_ID
from drupelet_host.home.config import Config, Peer
from drupelet_host.remote.log_bytes import fields, put_field
from drupelet_transports.common.url import parse_url

# A cable's name says nothing to another host; a stick has no place.
_REACHABLE = ("mqtt",)


@dataclass(frozen=True)
class Carriers:
    """How a device is reached."""

    name: str
    urls: tuple[str, ...]

    def encode(self) -> bytes:
        """As the content of a notice."""
        out = bytearray()
        put_field(out, 1, self.name.encode())
        for url in self.urls:
            put_field(out, 2, url.encode())
        return bytes(out)


def decode_carriers(content: bytes) -> Carriers:
    """Read a notice's content; raises PeerError."""
    name, urls = "", []
    for number, value in fields(content):
        if isinstance(value, bytes) and number == 1:
            name = place_text(value)
        elif isinstance(value, bytes) and number == 2:
            urls.append(place_text(value))
    if not name or len(urls) > PLACES_MAX:
        raise PeerError("not a device's carriers")
    return Carriers(name, tuple(urls))


class CarrierGroup:
    """The group of transport properties of one member."""

    def __init__(self, node: Node, descriptor: bytes, roster: Mapping[int, bytes]) -> None:
        self.notices = Notices(node, CARRIERS_CLIENT_ID, descriptor, roster)
        self.group = self.notices.group

    def announce(self, device: bytes, carriers: Carriers, timestamp: bytes, now_ms: int) -> None:
        """Tell the members how we are reached. Raises CapacityError."""
        self.notices.say(device, carriers.encode(), timestamp, now_ms)

    def known(self) -> dict[bytes, Carriers]:
        """Device id -> how it is reached."""
        self.notices.turn()
        carriers_by_id = {}
        for device, content in self.notices.latest.items():
            try:
                carriers_by_id[device] = decode_carriers(content)
            except PeerError:
                self.notices.ignored += 1
        return carriers_by_id


def new_peers(settings: Config, known: dict[bytes, Carriers]) -> list[Peer]:
    """Members that this host could add as peers: not known yet, and reached over a network."""
    held = {peer.id for peer in settings.peers} | {settings.id}
    names = {peer.name for peer in settings.peers} | {settings.name}
    peers = []
    for device, carriers in sorted(known.items()):
        url = next((url for url in carriers.urls if _usable(url)), "")
        if device in held or carriers.name in names or not url:
            continue
        names.add(carriers.name)
        peers.append(
            Peer(carriers.name, device, url, config.MODES[0], settings.epoch_ms, "host", "")
        )
    return peers


def _usable(url: str) -> bool:
    try:
        return parse_url(url).scheme in _REACHABLE
    except DrupeletError:
        return False
