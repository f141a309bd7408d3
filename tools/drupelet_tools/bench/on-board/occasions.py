# mypy: ignore-errors
"""What the declared occasions allocate: a new log segment, a stick visit, a broker connection.

On standard input: profile, family, mode, shared (numbers), stamp (hex), stick (a folder),
delivered, segment_size (the store's), mqtt_port (0: none). Prints one JSON object.
"""

import gc
import os
import time

import meter

from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.node import Node
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore

BLOCK_SIZE = 512
BLOCKS = 300
MESSAGES = 90  # of 100 bytes: into a third segment of 4 KiB
VISITS = 4
CONNECT_MS_MAX = 10_000
CARRIER_STICK = 2
config = meter.settings()


class RamBlocks:
    """A block device for LittleFS that allocates nothing."""

    def __init__(self) -> None:
        self.data = bytearray(BLOCKS * BLOCK_SIZE)

    def readblocks(self, block: int, buf: "bytearray", offset: int = 0) -> None:
        """Read from a block."""
        at = block * BLOCK_SIZE + offset
        for i in range(len(buf)):
            buf[i] = self.data[at + i]

    def writeblocks(self, block: int, buf: "bytearray", offset: int = 0) -> int:
        """Write into a block."""
        at = block * BLOCK_SIZE + offset
        for i in range(len(buf)):
            self.data[at + i] = buf[i]
        return 0

    def ioctl(self, op: int, argument: int) -> int:
        """Count of blocks, size of a block, erase."""
        if op == 4:
            return BLOCKS
        if op == 5:
            return BLOCK_SIZE
        if op == 6:
            for i in range(BLOCK_SIZE):
                self.data[argument * BLOCK_SIZE + i] = 0xFF
        return 0


def segments() -> "dict":
    """The dearest `put` of a store on LittleFS that begins a segment, and how many others
    allocated anything at all."""
    blocks = RamBlocks()
    os.VfsLfs2.mkfs(blocks)
    os.mount(os.VfsLfs2(blocks), "/log")
    store = FlashStore(meter.board_files("/log"))
    assert store.open() == 0
    ids = bytearray(32)
    stamp = bytearray(8)
    body = bytearray(100)
    segment = begun = peak = others = 0
    gc.collect()
    gc.disable()
    for number in range(MESSAGES):
        ids[0] = number
        before = meter.used()
        handle = store.put(1, 2, ids, 0, stamp, 0, body, 0, len(body), config["delivered"])
        assert handle > 0 and store.barrier() == 0
        taken = meter.used() - before
        if handle // config["segment_size"] != segment:
            segment = handle // config["segment_size"]
            begun += 1
            peak = max(peak, taken)
        elif number and taken:
            others += 1
    gc.enable()
    return {"begun": begun, "peak": peak, "others": others}


class Member:
    """A node whose one peer is reached by stick."""

    def __init__(self, own: bytes, other: bytes) -> None:
        from drupelet_transports.stick.stick import Stick

        store = FlashStore(RamFiles(1 << 18, 65535, 3), segment_size=65535, segments_max=4)
        store.open()
        self.node = Node(store, meter.no_random, 2, 2, 32, 32)
        if config["family"]:
            self.group = self.node.join_id(READINGS_CLIENT_ID, config["family"])
        else:
            self.group = self.node.join(READINGS_CLIENT_ID, b"bench")
        peer = self.node.add_peer(other)
        self.node.share(self.group, peer, config["shared"])
        self.node.boot(0)
        self.other = other
        self.link = self.node.link(peer, config["profile"], CARRIER_STICK, 0, config["mode"])
        self.stick = Stick("usb", own)
        self.frame = bytearray(1024)

    def visit(self) -> "object":
        """Take in what is there, leave what is due."""
        from drupelet_transports.stick.plain_visit import Visit

        assert self.stick.present()
        visit = Visit(self.stick, self.frame, self.now_ms, self.idle)
        visit.take_in(self.link, self.other)
        visit.hand_out(self.link, self.other)
        return visit

    def now_ms(self) -> int:
        """A stick needs no clock."""
        return 1000

    def idle(self) -> None:
        """Nothing between frames."""


def stick_visits() -> "dict":
    """The dearest of some visits that read and wrote a bundle each, and what ids it computed."""
    stamp = bytes.fromhex(config["stamp"])
    body = bytearray(100)
    ends = (Member(b"AAAA", b"BBBB"), Member(b"BBBB", b"AAAA"))
    peak = whole = hashed = 0
    for turn in range(2 * VISITS):
        end = ends[turn & 1]
        body[1] = turn + 1
        assert end.node.publish(end.group, body, len(body), stamp, 1000) > 0
        gc.collect()
        gc.disable()
        known = end.node.delivered
        before = meter.used()
        visit = end.visit()
        taken = meter.used() - before
        gc.enable()
        if visit.bundles_in and visit.bundles_out:
            whole += 1
            if taken > peak:
                peak = taken
                hashed = end.node.delivered - known
    delivered = ends[1].node.delivered
    return {"visits": whole, "peak": peak, "hashed": hashed, "delivered": delivered}


def connection(port: int) -> int:
    """What a board's MQTT client allocates from the first call until it is subscribed."""
    from drupelet_transports.board.mqtt_board import MqttClient

    client = MqttClient("127.0.0.1", port, "bench", meter.no_random)
    client.transport(b"a1b2", b"b2a1")
    until = time.ticks_add(time.ticks_ms(), CONNECT_MS_MAX)
    gc.collect()
    gc.disable()
    before = meter.used()
    while not client.up:
        client.maintain(time.ticks_ms() & 0x3FFFFFFF)
        assert time.ticks_diff(until, time.ticks_ms()) > 0, "no answer from the broker"
    taken = meter.used() - before
    gc.enable()
    client.close()
    return taken


# As short a path as a board's: paths are most of what a visit allocates.
os.chdir(config["stick"])
os.mkdir("usb")
result = {"segments": segments(), "stick": stick_visits()}
if config["mqtt_port"]:
    result["connect"] = connection(config["mqtt_port"])
meter.say(result)
