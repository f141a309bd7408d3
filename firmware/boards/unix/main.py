"""A board as a process: `micropython -X heapsize=128K -m boards.unix.main config.json`.

The configuration is one JSON object:

    name, id (8 hex digits), flash (folder), group (text), epoch_ms, readings_max,
    rows (file or null), heap_limit (bytes), telemetry_to (list of peer ids),
    peers: [{id, url, mode}]   url: serial:///dev/x, mqtt://host:port/prefix, stick:///folder

Commands come on stdin, a line each: `flush` (close the black box's segment), `stop`. End of input
is `stop` too, so a board never outlives whoever started it. Lines of JSON go to stdout.
"""

import gc
import json
import os
import sys

from boards.device import Device
from boards.unix.files import BoardFiles
from boards.unix.ports import Clock, Console, Rows, Sensors, Waiter
from drupelet.blackbox import CODE_BOOT, CODE_DESCRIPTOR, BlackBox
from drupelet.clients import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID, Author
from drupelet.errors import DrupeletError
from drupelet.node import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    CARRIER_STICK,
    GROUP_TELEMETRY,
    INTERACTIVE,
    PROFILE_BSP_1,
    SHARED,
    VISIBLE,
    Node,
)
from drupelet.store import FlashStore

_STATUS_EVERY = 1  # epochs between two status lines
_BOARD_ESP32 = 1
_WALL_UNCERTAINTY = 1  # units of 10 ms: one machine's clock


def _random_byte() -> int:
    return os.urandom(1)[0]


class Board:
    """Everything that `main` puts together from the configuration."""

    def __init__(self, config: dict) -> None:
        self.config = config
        self.id = bytes.fromhex(config["id"])
        self.clock = Clock()
        self.console = Console()
        self.waiter = Waiter()
        self.waiter.add(self.console.stream)
        self.clients = []
        self.store = FlashStore(BoardFiles(config["flash"]))
        self.damaged = self.store.open()
        self._make_node()
        self._make_device()
        self._add_carriers()

    def _make_node(self) -> None:
        config = self.config
        self.box = BlackBox(self.id, 0)
        self.node = Node(self.store, _random_byte, blackbox=self.box)
        descriptor = config["group"].encode()
        self.readings = self.node.join(READINGS_CLIENT_ID, descriptor)
        self.telemetry = self.node.join(TELEMETRY_CLIENT_ID, descriptor, GROUP_TELEMETRY)
        self.numbers = {}
        for peer in config["peers"]:
            number = self.node.add_peer(bytes.fromhex(peer["id"]))
            self.numbers[peer["id"]] = number
            self.node.share(self.readings, number, SHARED)
            shared = SHARED if peer["id"] in config["telemetry_to"] else VISIBLE
            self.node.share(self.telemetry, number, shared)
        now_ms = self.clock.now_ms()
        self.box.boot = self.node.boot(now_ms)
        self.author = Author(self.node, self.readings)
        anchor = bytearray(6)
        self.clock.anchor_into(anchor)
        self.box.wall(now_ms, anchor, _WALL_UNCERTAINTY)
        self.box.log(now_ms, CODE_BOOT, 0, self.box.boot, 0, 0)
        limit = config["heap_limit"]
        self.box.log(now_ms, CODE_DESCRIPTOR, 1, 0, limit >> 16, limit & 0xFFFF)
        epoch_ms = config["epoch_ms"]
        self.box.log(now_ms, CODE_DESCRIPTOR, 2, 0, epoch_ms >> 16, epoch_ms & 0xFFFF)
        self.box.log(now_ms, CODE_DESCRIPTOR, 3, _BOARD_ESP32, 0, 0)

    def _make_device(self) -> None:
        config = self.config
        count = config["readings_max"]
        source = Rows(config["rows"], count) if config["rows"] else Sensors(config["name"], count)
        self.device = Device(
            self.node, self.box, self.clock, source, self.author, self.readings, self.telemetry,
            config["epoch_ms"], self.console.say,
        )  # fmt: skip
        self.device.recover()

    def _add_carriers(self) -> None:
        sticks = []
        for peer in self.config["peers"]:
            scheme = peer["url"].split(":")[0]
            if scheme == "serial":
                self._add_serial(peer)
            elif scheme == "mqtt":
                self._add_mqtt(peer)
            else:
                sticks.append(peer)
        if sticks:
            self._add_stick(sticks)

    def _link(self, peer: dict, carrier: int):
        mode = INTERACTIVE if peer["mode"] == "interactive" else BATCH
        epoch_ms = 0 if carrier == CARRIER_STICK else self.config["epoch_ms"]
        number = self.numbers[peer["id"]]
        return self.node.link(
            number, PROFILE_BSP_1, carrier, epoch_ms, mode, self.clock.now_ms()
        )
