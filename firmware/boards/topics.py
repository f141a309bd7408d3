"""Topics of a board: its readings over carriers that several listeners hear (docs/SPEC.md 13).

    "topics": [{"name": "field", "url": "udp://239.0.0.1:7447", "peers": ["40000000"]}]

Loaded if a board's configuration has any. Each listener needs a sealed link of its own, through
which sender keys are exchanged; revoked peers are excluded.
"""

import binascii
import hashlib

from boards.keys import BoardKeys
from drupelet.base.errors import OK
from drupelet.base.limits import ID_SIZE
from drupelet.channel.key_distribution import TOPIC_SIZE, KeyDistribution
from drupelet.channel.sender_keys import SenderKeys
from drupelet.link.link import BATCH, CARRIER_MQTT, CARRIER_UDP
from drupelet.link.topic import Topic
from drupelet.wire.profiles import PROFILE_BSP_1
from drupelet_transports.seal.key_carrier import KeyCarrier
from drupelet_transports.seal.sealed_topic import SealedTopic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drupelet.link.link import Link
    from drupelet.store.files import Files

# The topic id is a hash of this label, the group's id and the topic's name.
_LABEL = b"drupelet topic"
# A key file has a row of ours and one of each listener, seven at most.
_LISTENERS_MAX = 7


def _carrier(setup: "Any", url: str, name: bytes) -> "Any":  # noqa: ANN401 - it leaves the heap
    """Open the carrier of a topic; one on a peer's broker shares the peer's connection."""
    board = setup.device
    if url.startswith("udp:"):
        from drupelet_transports.common.multicast import BoardMulticast

        host, port = url.split("://")[1].split("?")[0].split(":")
        multicast = BoardMulticast(host, int(port), (url + "?interface=").split("?interface=")[1])
        if not multicast.up:
            setup.console.say(
                '{"event":"absent","carrier":"%s","why":"bring its network up"}' % url
            )
        board.served.append([multicast, multicast, None])
        return multicast
    urls = [peer["url"] for peer in setup.config["peers"]]
    if url in urls:
        client = setup.carriers[urls.index(url)]
    else:
        client = setup.sealing.open_carrier(url)
    transport = client.transport(name, name)
    board.brokers.append(client)
    board.served.append([client, transport, None])
    return transport


class BoardTopics:
    """All topics of a board that is being set up (`setup`: a boards.setup.Setup)."""

    def __init__(self, setup: "Any", files: "Files") -> None:  # noqa: ANN401 - it leaves the heap
        assert not setup.config.get("sleep"), "who sleeps deeply hears no topic"
        self._now_ms = setup.port.now_ms
        self._buf = setup.sealing.buf
        self._topics = [self._make(setup, files, config) for config in setup.config["topics"]]

    def _make(self, setup: "Any", files: "Files", config: dict) -> KeyDistribution:  # noqa: ANN401
        members = setup.node.core.members
        at = members.group_row(setup.readings) * ID_SIZE
        text = _LABEL + bytes(members.group_ids[at : at + ID_SIZE]) + config["name"].encode()
        topic = hashlib.sha256(text).digest()[:TOPIC_SIZE]
        peers = config["peers"]
        assert 0 < len(peers) <= _LISTENERS_MAX, "a topic has 1 to 7 listeners"
        ids = b"".join([bytes.fromhex(peer) for peer in peers])
        context = setup.sealing.context
        records = BoardKeys(files, setup.id, topic, [], ".SND", ".SN2")
        keys = SenderKeys(context.aead, records, setup.id, context.random_byte, _LISTENERS_MAX)
        if keys.load() != OK:
            keys.create()
        distribution = KeyDistribution(keys, setup.id, topic, ids)
        epoch_ms = config.get("epoch_ms", setup.config["epoch_ms"])
        kind = CARRIER_UDP if config["url"].startswith("udp:") else CARRIER_MQTT
        links = [
            setup.node.link(
                setup.numbers[peer], PROFILE_BSP_1, kind, epoch_ms, BATCH, self._now_ms()
            )
            for peer in peers
        ]
        link = Topic(setup.node, setup.readings, links, ids, setup.id, context.random_byte)
        distribution.audience = link
        name = b"t" + binascii.hexlify(topic)
        carrier = _carrier(setup, config["url"], name)
        transport = SealedTopic(carrier, keys, self._now_ms, self._buf)
        setup.device.add_live(transport, link)
        return distribution

    def beside(self, peer: dict, carrier: "Any", seal: "Any", link: "Link") -> "Any":  # noqa: ANN401
        """Return the sealed carrier of a peer's own link, which also distributes sender keys."""
        transport = KeyCarrier(carrier, seal, self._now_ms, self._buf)
        for distribution in self._topics:
            row = distribution.row(bytes.fromhex(peer["id"]))
            if row >= 0:
                transport.distributions.append((distribution, row))
                distribution.audience.beside(link)
        return transport

    def refused(self, peer: dict) -> None:
        """Exclude a peer without keys or with revoked ones, and begin a new chain."""
        for distribution in self._topics:
            row = distribution.row(bytes.fromhex(peer["id"]))
            if row >= 0:
                distribution.revoke(row)
