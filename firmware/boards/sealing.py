"""Sets up keys, seals and carriers of a board's sealed peers, all but those on plain cables.

The module is unloaded with `boards.setup`, so it must not define anything that stays in use.
"""

import sys

from boards.aead import Aead
from boards.files import BoardFiles
from boards.keys import BoardKeys, has_keys
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.link.link import CARRIER_MQTT, CARRIER_SERIAL, CARRIER_STICK
from drupelet.seal.record import ANEW
from drupelet.seal.seal import Seal, SealContext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from boards.topics import BoardTopics


class Sealing:
    """The part of `setup`, a boards.setup.Setup, for sealed peers; methods in calling order."""

    def __init__(self, setup: "Any") -> None:  # noqa: ANN401 - it leaves the heap
        """Open all key files; if there are no keys, wait to be provisioned."""
        self._setup = setup
        port = setup.port
        # The store_gen is set later, when the store is open.
        self.context = SealContext(Aead(), port.random_byte, bytes(4))
        self.buf = bytearray(FRAME_SIZE_MAX)
        files = BoardFiles(setup.config["flash"])
        ring: "list[BoardKeys]" = []
        self._keys = {
            peer["id"]: BoardKeys(files, setup.id, bytes.fromhex(peer["id"]), ring)
            for peer in setup.config["peers"]
            if not setup.is_plain(peer["url"])
        }
        self._socket: "Any" = None
        self._topics: "BoardTopics | None" = None
        if not has_keys(ring):
            from boards.provision import take_keys

            port.release()  # let Ctrl-C, which an image turns off, end the wait
            take_keys(setup.console, setup.id, ring)
            setup.let_go("boards", "provision")

    def _kind(self, url: str) -> int:
        """Return CARRIER_* of a URL."""
        if self._setup.is_line(url):
            return CARRIER_SERIAL
        return CARRIER_MQTT if url.startswith("mqtt") else CARRIER_STICK

    def open_carrier(self, url: str) -> "Any":  # noqa: ANN401 - three shapes
        """Open the carrier of a URL: a serial line, an MQTT client, or the stick socket."""
        setup = self._setup
        kind = self._kind(url)
        if kind != CARRIER_STICK:
            __import__("drupelet_transports.seal.sealed_carrier")
        if kind == CARRIER_SERIAL:
            return setup.open_line(url)
        if kind == CARRIER_MQTT:
            from boards.broker import open_client

            client = open_client(setup.config, url, setup.port.random_byte, setup.console.say)
            setup.let_go("boards", "broker")
            return client
        # A board has one socket for sticks, which all such peers share.
        if self._socket is None:
            from boards.stick import Socket

            stick = setup.port.open_stick(url.split("://")[1].split("?")[0], setup.id)
            self._socket = Socket(stick, self.buf)
        return self._socket

    def open_topics(self) -> None:
        """Open the topics of the configuration, if it has any."""
        if self._setup.config.get("topics"):
            from boards.topics import BoardTopics

            self._topics = BoardTopics(self._setup, BoardFiles(self._setup.config["flash"]))

    def add_carrier(self, peer: dict, carrier: "Any") -> None:  # noqa: ANN401 - as above
        """Add the carrier of one peer to the device if there are keys for it."""
        setup = self._setup
        device = setup.device
        kind = self._kind(peer["url"])
        if kind == CARRIER_STICK and carrier.device is None:
            carrier.device = device
            device.served.append([carrier, carrier, None])
        seal = self._seal(peer, carrier, kind)
        if seal is None:
            return
        keeper = carrier
        if kind == CARRIER_MQTT:
            carrier = keeper.transport_of(seal)
            setup.let_go("drupelet.seal", "topic_names")
            device.brokers.append(keeper)
        link = setup.link(peer, kind)
        device.seals.append((seal, link))
        if kind == CARRIER_STICK:
            carrier.add(bytes.fromhex(peer["id"]), link, seal)
            return
        device.served.append([keeper, carrier, None])
        if self._topics is not None:
            carrier = self._topics.beside(peer, carrier, seal, link)
        else:
            from drupelet_transports.seal.sealed_carrier import Sealed

            carrier = Sealed(carrier, seal, setup.port.now_ms, self.buf)
        device.add_live(carrier, link)

    def _seal(self, peer: dict, carrier: "Any", kind: int) -> "Seal | None":  # noqa: ANN401 - as above
        """Return the seal of one peer; if it has no keys or revoked ones, report that: None."""
        setup = self._setup
        keys = self._keys[peer["id"]]
        seal = Seal(self.context, keys, 1 if kind == CARRIER_STICK else 0)
        code = seal.load()
        if code == OK:
            keys.seals.append(seal)
            if not setup.node.store.next(0):
                seal.flags |= ANEW  # our log is new: the peer may know another one
            return seal
        if kind == CARRIER_SERIAL:
            carrier.close()
            if setup.console.stream:  # the console was the peer's line: it prints again
                setup.port.watch(None, sys.stdin.buffer)
        why = "revoked" if code == E_PEER else "no keys: see `drupelet provision`"
        setup.console.say('{"event":"refused","peer":"%s","why":"%s"}' % (peer["id"], why))
        if self._topics is not None:
            self._topics.refused(peer)
        return None
