"""Puts a board together from its configuration. Runs once: `main` lets this code go afterwards.

So nothing that stays may be defined here: one function would keep the whole module in the heap.
"""

import gc
import os
import sys

from boards.base import WholeReadings
from boards.device import Device
from boards.files import BoardFiles
from drupelet.base.errors import E_PEER, OK, DrupeletError
from drupelet.base.events import CODE_BOOT, CODE_DESCRIPTOR, RESET_WATCHDOG
from drupelet.base.limits import FRAME_SIZE_MAX, GROUPS_MAX, SEGMENT_SIZE, SEGMENTS_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID, Author
from drupelet.engine.members import GROUP_TELEMETRY, SHARED, VISIBLE
from drupelet.link.link import (
    AUTO,
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    CARRIER_STICK,
    INTERACTIVE,
)
from drupelet.node import Node
from drupelet.seal.record import ANEW
from drupelet.store.flash_store import FlashStore
from drupelet.telemetry.black_box import BlackBox
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from boards.app import App
    from boards.commands import BoardCommands
    from boards.keys import BoardKeys
    from boards.ports import Port, SourcePort
    from boards.sleep import Sleeper
    from boards.topics import BoardTopics
    from drupelet.link.link import Link
    from drupelet.seal.seal import Seal

_BODY_FILES = 24  # long bodies kept at once
_BOX_BLOCKS = 7  # a segment with what precedes it fills one block of LittleFS, 4 KiB
_WALL_UNCERTAINTY = 1  # units of 10 ms: one machine's clock


def _kind(url: str) -> int:
    """CARRIER_* of a URL."""
    scheme = url.split(":")[0]
    if scheme in ("serial", "uart", "console"):
        return CARRIER_SERIAL
    return CARRIER_MQTT if scheme.startswith("mqtt") else CARRIER_STICK


def _is_plain(url: str) -> bool:
    """Whether no keys are wanted: only for a cable, and only if its URL says so."""
    return _kind(url) == CARRIER_SERIAL and "plain=1" in url


def make(config: dict, port: "Port") -> Device:
    """The board that a configuration describes, on this port, ready to run."""
    device = _Setup(config, port).device
    version = ".".join([str(part) for part in sys.implementation.version[:3]])
    bits = 32 if sys.maxsize < 1 << 32 else 64
    event = '{"event":"interpreter","interpreter":"micropython %s, %d-bit"}'
    port.console.say(event % (version, bits))
    return device


class _Setup:
    """What the steps hand to each other."""

    def __init__(self, config: dict, port: "Port") -> None:
        self.config = config
        self.port = port
        self.console = port.console
        self.frame = bytearray(FRAME_SIZE_MAX)  # before everything that splits the heap
        self.id = bytes.fromhex(config["id"])
        if len(self.id) != 4:
            raise ValueError("id: 8 hex digits")
        self.keys: "dict[str, BoardKeys]" = {}
        self._open_keys()
        self.socket: "Any" = None
        # Code and the carriers' buffers first: they need room in one piece, and the tables take
        # theirs for good.
        self.carriers = [self.open_carrier(peer) for peer in config["peers"]]
        __import__("drupelet.wire.bsp1")
        self.box = BlackBox(self.id, 0, _BOX_BLOCKS)
        store = FlashStore(
            BoardFiles(config["flash"]), SEGMENT_SIZE, SEGMENTS_MAX, config["messages_max"],
            _BODY_FILES, config["filter_size"],
            int.from_bytes(bytes([port.random_byte() for _ in range(4)]), "big") | 1,
        )  # fmt: skip
        if store.open() < 0:
            raise DrupeletError(config["flash"] + ": the log cannot be read: check the flash")
        self._let_go("drupelet.store", "migration")
        self._let_go("drupelet.store", "recovery")
        if self.keys:
            self.context.store_gen = store.store_gen.to_bytes(4, "big")
        self.sleeper = self._wake(store)
        self.node = Node(
            store, port.random_byte, config["peers_max"], GROUPS_MAX, config["messages_max"],
            config["offers_max"], self.box,
        )  # fmt: skip
        commands = self._join()
        self._let_go("drupelet.engine", "descriptor")
        self._boot()
        self._let_go("drupelet.engine", "recovery")
        self.device = self._make_device()
        if commands:
            commands.recover(self.device)
        self.topics: "BoardTopics | None" = None
        if config.get("topics"):
            from boards.topics import BoardTopics

            self.topics = BoardTopics(self, BoardFiles(config["flash"]))
        for row in range(len(self.carriers)):
            self._add_carrier(config["peers"][row], self.carriers[row])
        # What wants all links to be there.
        if self.sleeper:
            self.device.sleeper = self.sleeper
            self.sleeper.start(self.device)
        if self.app:
            ids = {number: id for id, number in self.numbers.items()}
            hung = port.reset_cause() == RESET_WATCHDOG
            self.app.attach(self.device, config["group"], ids, hung)
        port.attach(self.device)

    # What not every board has is loaded only where it is used, bottom up as in `main`: code is
    # heap.

    def _open_keys(self) -> None:
        """Keys of all peers but those behind plain cables; a board without any waits for some."""
        sealed = [peer for peer in self.config["peers"] if not _is_plain(peer["url"])]
        if not sealed:
            return
        from boards.aead import Aead
        from boards.keys import BoardKeys, has_keys
        from drupelet.seal.seal import SealContext

        # Its store is opened later.
        self.context = SealContext(Aead(), self.port.random_byte, bytes(4))
        self.seal_buf = bytearray(FRAME_SIZE_MAX)
        files = BoardFiles(self.config["flash"])
        ring: "list[BoardKeys]" = []
        for peer in sealed:
            self.keys[peer["id"]] = BoardKeys(files, self.id, bytes.fromhex(peer["id"]), ring)
        if not has_keys(ring):
            from boards.provision import take_keys

            self.port.leave()  # Ctrl-C ends the wait; an image turned it off
            take_keys(self.console, self.id, ring)
            self._let_go("boards", "provision")

    def _seal(self, peer: dict, carrier: "Any", kind: int) -> "Seal | None":  # noqa: ANN401 - as below
        """The seal of one peer; None, and said why, when it has no keys or they were revoked."""
        from drupelet.seal.seal import Seal

        keys = self.keys[peer["id"]]
        seal = Seal(self.context, keys, 1 if kind == CARRIER_STICK else 0)
        code = seal.load()
        if code == OK:
            keys.seals.append(seal)
            if not self.node.store.next(0):
                seal.flags |= ANEW  # whoever knew another log of ours should hear of it
            return seal
        if kind == CARRIER_SERIAL:
            carrier.close()
            if self.console.stream:  # it was the peer's line: it speaks again
                self.port.watch(None, sys.stdin.buffer)
        why = "revoked" if code == E_PEER else "no keys: see `drupelet provision`"
        self.console.say('{"event":"refused","peer":"%s","why":"%s"}' % (peer["id"], why))
        if self.topics is not None:
            self.topics.refused(peer)
        return None

    def open_carrier(self, peer: dict) -> "Any":  # noqa: ANN401 - three shapes
        """The carrier of one peer: a transport, an MQTT client, or the socket for sticks."""
        url = peer["url"]
        kind = _kind(url)
        if kind == CARRIER_SERIAL:
            __import__("drupelet_transports.framing")
        if kind == CARRIER_MQTT or (kind == CARRIER_SERIAL and peer["id"] in self.keys):
            __import__("drupelet_transports.sealed")
        if kind == CARRIER_SERIAL:
            return self.port.open_line(url)
        if kind == CARRIER_MQTT:
            from boards.broker import open_client

            client = open_client(self.config, url, self.port.random_byte, self.console.say)
            self._let_go("boards", "broker")
            return client
        # All peers that are reached by stick share one: a board has one socket for it.
        if self.socket is None:
            from boards.stick import Socket

            stick = self.port.open_stick(url.split("://")[1].split("?")[0], self.id)
            self.socket = Socket(stick, self.seal_buf, self.port.feed)
        return self.socket

    def _wake(self, store: FlashStore) -> "Sleeper | None":
        """What this board's deep sleep needs, if its configuration has any."""
        config = self.config.get("sleep")
        if not config:
            return None
        from boards.sleep import Sleeper

        now_ms = self.port.now_ms()
        plan = None
        if [peer for peer in self.config["peers"] if peer.get("awake") == "plan"]:
            from drupelet.duty.wake_plan import WakePlan

            period_ms = config["period_ms"]
            phase_ms = period_ms * (self.port.random_byte() << 8 | self.port.random_byte()) >> 16
            plan = WakePlan(
                period_ms, config["window_ms"], config["contact_ms"], self.config["peers_max"],
                self.id, now_ms, phase_ms,
            )  # fmt: skip
        rtc = self.port.rtc(config)
        sleeper = Sleeper(self.id, rtc, config["window_ms"], config["contact_ms"], plan)
        sleeper.wake(store, now_ms)
        return sleeper

    @staticmethod
    def _let_go(package: str, name: str) -> None:
        """Free a module that has done its work: code is heap."""
        if sys.modules.pop(package + "." + name, None):
            delattr(sys.modules[package], name)
        gc.collect()

    def _join(self) -> "BoardCommands | None":
        config = self.config
        node = self.node
        descriptor = config["group"].encode()
        self.readings = node.join(READINGS_CLIENT_ID, descriptor)
        self.telemetry = node.join(TELEMETRY_CLIENT_ID, descriptor, GROUP_TELEMETRY)
        quotas = config.get("quotas", {})
        node.store.quotas[self.readings & 7] = quotas.get("readings", 0)
        node.store.quotas[self.telemetry & 7] = quotas.get("telemetry", 0)
        self.numbers = {}
        for peer in config["peers"]:
            number = node.add_peer(bytes.fromhex(peer["id"]))
            self.numbers[peer["id"]] = number
            node.share(self.readings, number, SHARED)
            shared = SHARED if peer["id"] in config["telemetry_to"] else VISIBLE
            node.share(self.telemetry, number, shared)
        if config.get("commands"):
            from boards.commands import join

            return join(self, BoardFiles)
        return None

    def _boot(self) -> None:
        box = self.box
        config = self.config
        now_ms = self.port.now_ms()
        # Where the black box is lost, a wake is a boot of its own: counters begin at 0 again.
        goes_on = self.sleeper is not None and self.sleeper.go_on_box(box, now_ms)
        box.boot = self.node.boot(now_ms, self.sleeper.generation if goes_on else -1)
        if goes_on:
            return
        # However soon the power fails: the next boot has another number.
        self.node.store.barrier()
        anchor = bytearray(6)
        if self.port.anchor_into(anchor):
            box.wall(now_ms, anchor, _WALL_UNCERTAINTY)
        box.log(now_ms, CODE_BOOT, self.port.reset_cause(), box.boot, 0, 0)
        limit = config.get("heap_limit", 0) or gc.mem_alloc() + gc.mem_free()
        for row, value in ((1, limit), (2, config["epoch_ms"])):
            box.log(now_ms, CODE_DESCRIPTOR, row, 0, value >> 16, value & 0xFFFF)
        box.log(now_ms, CODE_DESCRIPTOR, 3, self.port.board, 0, 0)

    def _make_device(self) -> Device:
        config = self.config
        self.port.watch(None, self.console.stream)
        device = Device(
            self.node, self.box, self.port, self._source(), Author(self.node, self.readings),
            self.telemetry, config.get("sample_ms", config["epoch_ms"]), self.frame,
            list(self.numbers.values()),
        )  # fmt: skip
        device.recover()
        return device

    def _source(self) -> "SourcePort":
        """Rows of a file, the owner's program, or what the port measures."""
        config = self.config
        self.app: "App | None" = None
        if config.get("rows"):
            from boards.rows import Rows

            return Rows(config["rows"], config["readings_max"])
        path = config.get("app", "app.py")
        if path:
            try:
                os.stat(path)
            except OSError:
                if "app" in config:
                    why = "app: there is no file " + path + ": copy it to the board"
                    raise DrupeletError(why) from None
            else:
                from boards.app import App

                self.app = App(path, self.port, self.box)
                return WholeReadings(self.app.take)
        return self.port.source(config)

    def _add_carrier(self, peer: dict, carrier: "Any") -> None:  # noqa: ANN401 - as above
        kind = _kind(peer["url"])
        device = self.device
        if kind == CARRIER_STICK:
            device.socket = carrier
        seal = None
        if not _is_plain(peer["url"]):
            seal = self._seal(peer, carrier, kind)
            if seal is None:
                return
        keeper = carrier
        if kind == CARRIER_MQTT:
            carrier = keeper.transport_of(seal)
            self._let_go("drupelet.seal", "topic_names")
            device.brokers.append(keeper)
        link = self._link(peer, kind)
        if seal is not None:
            device.seals.append((seal, link))
        if kind == CARRIER_STICK:
            carrier.add(bytes.fromhex(peer["id"]), link, seal)
            return
        device.served.append([keeper, carrier, None])
        if seal is not None and self.topics is not None:
            carrier = self.topics.beside(peer, carrier, seal, link)
        elif seal is not None:
            from drupelet_transports.sealed import Sealed

            carrier = Sealed(carrier, seal, self.port.now_ms, self.seal_buf)
        device.add_live(carrier, link)

    def _link(self, peer: dict, carrier: int) -> "Link":
        mode = {"batch": BATCH, "interactive": INTERACTIVE, "auto": AUTO}[peer["mode"]]
        epoch_ms = 0 if carrier == CARRIER_STICK else self.config["epoch_ms"]
        number = self.numbers[peer["id"]]
        profiles = {"bsp-1": PROFILE_BSP_1, "compact-1": PROFILE_COMPACT_1}
        profile = profiles[peer.get("profile", "bsp-1")]
        link = self.node.link(number, profile, carrier, epoch_ms, mode, self.port.now_ms())
        if peer.get("awake") == "plan":
            link.plan = self.sleeper.plan
            link.plan.seek(link.peer, bytes.fromhex(peer["id"]), 0)
        return link
