"""Assembles a board from its configuration; boards/start.py unloads this module afterwards.

So it must not define anything that stays in use: one function would keep the whole module in RAM.
"""

import gc
import os
import sys

from boards.device import Device
from boards.files import BoardFiles
from drupelet.base.errors import DrupeletError
from drupelet.base.events import (
    CODE_BOOT,
    CODE_DESCRIPTOR,
    RESET_WATCHDOG,
    VERSION_HIGH,
    VERSION_LOW,
)
from drupelet.base.limits import FRAME_SIZE_MAX, GROUPS_MAX, SEGMENT_SIZE, SEGMENTS_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID, Author
from drupelet.engine.members import GROUP_TELEMETRY, SHARED, VISIBLE
from drupelet.link.link import BATCH, CARRIER_SERIAL, CARRIER_STICK, INTERACTIVE
from drupelet.node import Node
from drupelet.store.flash_store import FlashStore
from drupelet.telemetry.black_box import BlackBox
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from boards.app import App
    from boards.commands import BoardCommands
    from boards.ports import LinePort, Port, Take
    from boards.sealing import Sealing
    from boards.sleep import Sleeper
    from drupelet.link.link import Link

firmware_set = 0  # its number in sets.toml, put here by its build; 0: no set, as in a clone

_BODY_FILES = 24  # most long bodies kept at a time
_BOX_BLOCKS = 7  # a segment, with its headers, fills one block of LittleFS, 4 KiB
_WALL_UNCERTAINTY = 1  # of the machine's own clock, in units of 10 ms


def make(config: dict, port: "Port") -> Device:
    """Return the board that a configuration describes, on this port, ready to run."""
    device = Setup(config, port).device
    version = ".".join([str(part) for part in sys.implementation.version[:3]])
    bits = 32 if sys.maxsize < 1 << 32 else 64
    event = '{"event":"interpreter","interpreter":"micropython %s, %d-bit"}'
    port.console.say(event % (version, bits))
    return device


class Setup:
    """The steps of the setup, run by the constructor, and what they hand to each other.

    Optional modules are imported where they are needed, the lowest ones first, to save heap and C
    stack.
    """

    def __init__(self, config: dict, port: "Port") -> None:
        self.config = config
        self.port = port
        self.console = port.console
        self.frame = bytearray(FRAME_SIZE_MAX)  # first, while the heap is in one piece
        self.id = bytes.fromhex(config["id"])
        if len(self.id) != 4:
            raise ValueError("id: 8 hex digits")
        peers = config["peers"]
        self.sealing: "Sealing | None" = None
        if [peer for peer in peers if not self.is_plain(peer["url"])]:
            from boards.sealing import Sealing

            self.sealing = Sealing(self)
        # Code and the carriers' buffers need contiguous room, so load them before the tables.
        self.carriers = [self._open_carrier(peer["url"]) for peer in peers]
        __import__("drupelet.wire.bsp1")
        self.box = BlackBox(self.id, 0, _BOX_BLOCKS)
        store = self._open_store()
        self.sleeper = self._wake(store)
        self.node = Node(
            store, port.random_byte, config["peers_max"], GROUPS_MAX, config["messages_max"],
            config["offers_max"], self.box,
        )  # fmt: skip
        commands = self._join()
        self.let_go("drupelet.engine", "descriptor")
        self._boot()
        self.let_go("drupelet.engine", "recovery")
        self.device = device = self._make_device()
        if commands:
            commands.recover(device)
        if self.sealing:
            self.sealing.open_topics()
        for row, peer in enumerate(peers):
            carrier = self.carriers[row]
            if self.is_plain(peer["url"]):
                device.served.append([carrier, carrier, None])
                device.add_live(carrier, self.link(peer, CARRIER_SERIAL))
            else:
                self.sealing.add_carrier(peer, carrier)
        self.let_go("boards", "sealing")
        # The rest needs all links.
        if self.sleeper:
            device.sleeper = self.sleeper
            self.sleeper.start(device)
        if self.app:
            ids = {number: id for id, number in self.numbers.items()}
            hung = port.reset_cause() == RESET_WATCHDOG
            self.app.attach(device, config["group"], ids, hung)
        port.attach(device)

    @staticmethod
    def is_line(url: str) -> bool:
        """Whether a URL is that of a serial line."""
        return url.split(":")[0] in ("serial", "uart", "console")

    def is_plain(self, url: str) -> bool:
        """Whether a URL is that of a serial line without keys, which it must say."""
        return self.is_line(url) and "plain=1" in url

    def _open_carrier(self, url: str) -> "Any":  # noqa: ANN401 - of three shapes
        """Open the carrier of a URL: a serial line, or as `Sealing.open_carrier`."""
        return self.open_line(url) if self.is_plain(url) else self.sealing.open_carrier(url)

    def open_line(self, url: str) -> "LinePort":
        """Open a serial line."""
        __import__("drupelet_transports.common.framing")
        return self.port.open_line(url)

    @staticmethod
    def let_go(package: str, name: str) -> None:
        """Unload a module that is not needed any more, to free its heap."""
        if sys.modules.pop(package + "." + name, None):
            delattr(sys.modules[package], name)
        gc.collect()

    def _open_store(self) -> FlashStore:
        """Open the log on flash, which migrates the flash of an earlier version."""
        config = self.config
        salt = bytes([self.port.random_byte() for _ in range(4)])
        store = FlashStore(
            BoardFiles(config["flash"]), SEGMENT_SIZE, SEGMENTS_MAX, config["messages_max"],
            _BODY_FILES, config["filter_size"], int.from_bytes(salt, "big") | 1,
        )  # fmt: skip
        if store.open() < 0:
            raise DrupeletError(config["flash"] + ": the log cannot be read: check the flash")
        self.let_go("drupelet.store", "migration")
        self.let_go("drupelet.store", "recovery")
        if self.sealing:
            self.sealing.context.store_gen = store.store_gen.to_bytes(4, "big")
        return store

    def _wake(self, store: FlashStore) -> "Sleeper | None":
        """Return the Sleeper, which reads the last snapshot; None if `sleep` is not configured."""
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

            return join(self, BoardFiles(config["flash"]))
        return None

    def _boot(self) -> None:
        box = self.box
        config = self.config
        now_ms = self.port.now_ms()
        # Without the black box's state, a wake counts as a boot: its counters begin at 0.
        goes_on = self.sleeper is not None and self.sleeper.go_on_box(box, now_ms)
        box.boot = self.node.boot(now_ms, self.sleeper.generation if goes_on else -1)
        if goes_on:
            return
        # Make the boot number durable, so that the next boot has another one in any case.
        self.node.store.barrier()
        anchor = bytearray(6)
        if self.port.anchor_into(anchor):
            box.wall(now_ms, anchor, _WALL_UNCERTAINTY)
        box.log(now_ms, CODE_BOOT, self.port.reset_cause(), box.boot, 0, 0)
        limit = config.get("heap_limit", 0) or gc.mem_alloc() + gc.mem_free()
        for row, value in ((1, limit), (2, config["epoch_ms"])):
            box.log(now_ms, CODE_DESCRIPTOR, row, 0, value >> 16, value & 0xFFFF)
        box.log(now_ms, CODE_DESCRIPTOR, 3, self.port.board, 0, 0)
        box.log(now_ms, CODE_DESCRIPTOR, 4, firmware_set, VERSION_HIGH, VERSION_LOW)

    def _make_device(self) -> Device:
        config = self.config
        self.port.watch(None, self.console.stream)
        author = Author(self.node, self.readings)
        author.own = self.node.store.dropped(self.readings)
        author.recover()
        return Device(
            self.node, self.box, self.port, self._source(), author, self.telemetry,
            config.get("sample_ms", config["epoch_ms"]), self.frame, list(self.numbers.values()),
        )  # fmt: skip

    def _source(self) -> "Take":
        """Return the source of readings: lines of a file, the owner's program, or the port."""
        config = self.config
        self.app: "App | None" = None
        if config.get("rows"):
            from boards.rows import Rows

            return Rows(config["rows"], config["readings_max"]).take
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
                return self.app.take
        return self.port.source(config)

    def link(self, peer: dict, carrier: int) -> "Link":
        """Return a new link to a peer over a carrier of this kind (CARRIER_*)."""
        mode = {"batch": BATCH, "interactive": INTERACTIVE}[peer["mode"]]
        epoch_ms = 0 if carrier == CARRIER_STICK else self.config["epoch_ms"]
        number = self.numbers[peer["id"]]
        profiles = {"bsp-1": PROFILE_BSP_1, "compact-1": PROFILE_COMPACT_1}
        profile = profiles[peer.get("profile", "bsp-1")]
        link = self.node.link(number, profile, carrier, epoch_ms, mode, self.port.now_ms())
        if peer.get("awake") == "plan":
            link.plan = self.sleeper.plan
            link.plan.seek(link.peer, bytes.fromhex(peer["id"]), 0)
        return link
