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

# What an import leaves behind is collected at once, so that the slabs find room in one piece.
gc.threshold(2048)

# Bottom up, not in alphabetical order: an import inside an import inside an import takes C stack,
# and boards have little of it.
# ruff: isort: off
from drupelet.limits import FRAME_SIZE_MAX  # noqa: F401
from drupelet.memory import copy  # noqa: F401
from drupelet.hashes import MessageHash  # noqa: F401
from drupelet.flashlog import RecordLog  # noqa: F401
from drupelet.flashtables import Tables  # noqa: F401
from drupelet.store import FlashStore
from drupelet.blackbox import CODE_BOOT, CODE_DESCRIPTOR, BlackBox
from drupelet.window import Window  # noqa: F401
from drupelet.graph import Graph  # noqa: F401
from drupelet.core import Core  # noqa: F401
from drupelet.sync import Exchange  # noqa: F401
from drupelet.link import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    CARRIER_STICK,
    INTERACTIVE,
    PROFILE_BSP_1,
)
from drupelet.members import GROUP_TELEMETRY, SHARED, VISIBLE
from drupelet.node import Node
from drupelet.clients import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID, Author
from drupelet.errors import DrupeletError
from drupelet.schedule import elapsed_ms
from boards.unix.files import BoardFiles
from boards.unix.ports import Clock, Console, Rows, Sensors, Waiter
from boards.device import Device

# ruff: isort: on

_BOARD_ESP32 = 1
_BOX_BLOCKS = 2  # 1 KiB a segment: little is lost when the power goes
_WALL_UNCERTAINTY = 1  # units of 10 ms: one machine's clock


def _where(url: str) -> str:
    """What follows `scheme://`, without options; the host checked the URL when it wrote it."""
    return url.split("://")[1].split("?")[0]


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
        self.box = BlackBox(self.id, 0, _BOX_BLOCKS)
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

    # Carriers are loaded only by a board that has them: code is heap.

    def _add_serial(self, peer: dict) -> None:
        from drupelet_transports.serial_board import SerialBoard

        transport = SerialBoard(_where(peer["url"]))
        self.waiter.add(transport.poll_object)
        self.device.add_live(transport, self._link(peer, CARRIER_SERIAL))

    def _add_mqtt(self, peer: dict) -> None:
        from drupelet_transports.mqtt_board import MqttClient

        broker, prefix = _where(peer["url"]).split("/", 1)
        host, port = broker.rsplit(":", 1)
        client = MqttClient(host, int(port), prefix, self.id, _random_byte)
        transport = client.transport(bytes.fromhex(peer["id"]))
        self.clients.append((client, transport))
        self.device.add_live(transport, self._link(peer, CARRIER_MQTT))

    def _add_stick(self, peers: list) -> None:
        from drupelet_transports.stick import Stick

        stick = Stick(_where(peers[0]["url"]), self.id)
        links = [(bytes.fromhex(peer["id"]), self._link(peer, CARRIER_STICK)) for peer in peers]
        self.device.add_stick(stick, links)

    # --- running ---

    def run(self) -> None:
        """Until `stop`."""
        device = self.device
        version = ".".join([str(part) for part in sys.implementation.version[:3]])
        bits = 32 if sys.maxsize < 1 << 32 else 64
        self.console.say(
            '{"event":"interpreter","interpreter":"micropython %s, %d-bit"}' % (version, bits)
        )
        self.say_status("started")
        said_ms = self.clock.now_ms()
        while True:
            command = self.console.command()
            if command == "stop":
                break
            if command == "flush":
                device.flush()
                self.console.say('{"event":"flushed"}')
            wait_ms = device.step()
            wait_ms = self._maintain(wait_ms)
            if elapsed_ms(self.clock.now_ms(), said_ms) >= self.config["epoch_ms"]:
                said_ms = self.clock.now_ms()
                self.say_status("status")
            if wait_ms > 0:
                device.asleep(True)
                self.waiter.wait(wait_ms)
                device.asleep(False)
        self.node.save(self.clock.now_ms())
        for client, _transport in self.clients:
            client.close()
        self.say_status("stopped")

    def _maintain(self, wait_ms: int) -> int:
        """Keep broker connections up; the shorter of `wait_ms` and what they need."""
        for client, transport in self.clients:
            before = transport.poll_object
            client.maintain(self.clock.now_ms())
            self.waiter.replace(before, transport.poll_object)
            wait_ms = min(wait_ms, client.wait_ms(self.clock.now_ms()))
        return wait_ms

    def say_status(self, event: str) -> None:
        """What whoever started the board may want to know, without looking into its flash."""
        node = self.node
        outstanding = 0
        for number in self.numbers.values():
            outstanding += node.outstanding(number)
        self.console.say(
            json.dumps(
                {
                    "event": event,
                    "boot": self.box.boot,
                    "own": self.device.own,
                    "logged": self.device.logged,
                    "delivered": node.delivered,
                    "pending": node.pending_count(),
                    "outstanding": outstanding,
                    "heap_low": self.device.heap_low,
                    "refused": node.refused,
                    "malformed": node.malformed,
                }
            )
        )


def main(path: str) -> int:
    """Run the board that a configuration file describes; the process's exit code."""
    try:
        with open(path) as stream:
            config = json.load(stream)
    except (OSError, ValueError) as error:
        print("board: cannot read " + path + ": " + str(error), file=sys.stderr)
        return 1
    try:
        board = Board(config)
    except (DrupeletError, OSError) as error:
        print("board " + config["name"] + ": " + str(error), file=sys.stderr)
        return 1
    gc.collect()
    try:
        board.run()
    except KeyboardInterrupt:
        board.node.save(board.clock.now_ms())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
