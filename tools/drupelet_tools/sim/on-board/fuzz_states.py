# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, ANN204, ARG002
"""What is fuzzed of a board's own state and console: snapshots, provisioning lines, commands."""

import sys

import fuzz_links

from drupelet.base.hmac256 import hmac
from drupelet.base.memory import copy, crc32_into, get_u16
from drupelet.clients.command import COMMAND, Command, CommandBoard, CommandClient, put_command
from drupelet.duty.snapshot import Snapshot
from drupelet.duty.wake_plan import WakePlan
from drupelet.engine import wake_state
from drupelet.engine.recovery import wake
from drupelet.node import CARRIER_SERIAL, INTERACTIVE
from drupelet.seal.record import RECORD_SIZE, install
from drupelet.store.files import RamFiles

__import__("boards.keys")  # not of this room's packages
__import__("boards.provision")
BoardKeys = sys.modules["boards.keys"].BoardKeys
Keyless = sys.modules["boards.provision"].Keyless
take_keys = sys.modules["boards.provision"].take_keys
DEVICE = b"A___"
STATE_MAX = 492
# A boot costs more than all else: one for so many snapshots that were taken up.
BOOT_EVERY = 64


class SnapshotFuzz:
    """What a board finds in RTC memory at a wake: read, booted from, applied, spoken with."""

    def __init__(self, parser, draw):
        self.draw = draw
        self.node, group, links = fuzz_links.make_node(0, [b"B___"], draw)
        fuzz_links.publish(self.node, group, b"a")
        self.frame = bytearray(200)
        self.snapshot = Snapshot(DEVICE)
        self.plan = self.make_plan()
        self.sound = []
        buf = bytearray(1024)
        core = self.node.core
        for turn in range(4):
            while links[0].poll_into(self.frame, turn * 1500):
                pass
            fuzz_links.drain(self.node)
            core.store.barrier()
            self.node.save(turn * 1500)
            size = wake_state.pack(core, self.snapshot.state_room(1))
            plan = self.plan if turn & 1 else None
            size = self.snapshot.write(buf, core, links, plan, size, turn * 1500)
            self.sound.append(bytes(buf[:size]))
            size = self.snapshot.write_short(buf, core, plan, turn * 1500)
        self.sound.append(bytes(buf[:size]))
        store = core.store
        self.saved = bytes(store.saved[: store.saved_size])
        self.links = links
        self.taken = 0

    def make_plan(self):
        plan = WakePlan(60_000, 3_000, 600, 1, DEVICE, 0, 17_000)
        plan.seek(0, b"B___", 0)
        return plan

    def fix(self, buf, size, word):
        if not word >> 17:
            return size
        if word & 7:  # of this device and this log
            copy(buf, 0, self.sound[word & 3 if buf[0] & 1 else -1], 0, 12)
        end = 24
        if buf[0] == 3:
            end = 125 + 18 * buf[1] + get_u16(buf, 123)
            if end > STATE_MAX - 4:
                return size
        crc32_into(buf, end, buf, 0, end, True)
        return end + 4

    def feed(self, buf, size):
        store = self.node.store
        copy(store.saved, 0, self.saved, 0, len(self.saved))
        store.saved_size = len(self.saved)
        if self.snapshot.read(buf, size, store):
            return 0
        self.taken += 1
        if not self.taken % BOOT_EVERY:
            self.node = self.boot()
        elif not self.taken & 3:
            wake(self.node.core, 0, 0)
        now_ms = 1000
        core = self.node.core
        self.snapshot.apply(buf, core, self.links, self.plan, now_ms, buf[size - 1] << 12)
        self.plan.next_wake_ms(now_ms)
        now_ms += 1500
        self.node.wake_ms(now_ms)
        return 3 if self.links[0].poll_into(self.frame, now_ms) else 1

    def boot(self):
        """A node over the same log, as after the sleep."""
        node = fuzz_links.Node(self.node.store, lambda: self.draw(256), 1, 1, 8, 8, parts_max=1)
        group = node.join_id(fuzz_links.GROUP, fuzz_links.FAMILY_BSP)
        number = node.add_peer(b"B___")
        node.share(group, number, fuzz_links.SHARED)
        node.boot(0, max(self.snapshot.generation, 0))
        self.links = [node.link(number, 0, CARRIER_SERIAL, fuzz_links.EPOCH_MS, INTERACTIVE)]
        self.plan = self.make_plan()
        return node


class Console:
    """A console on which one line comes, and then nothing more."""

    def __init__(self):
        self.lines = []
        self.answer = ""

    def line(self, size_max):
        return self.lines.pop()[:size_max] if self.lines else b""

    def say(self, text):
        self.answer = text


class ProvisionFuzz:
    """Lines that a board without keys takes from its console."""

    def __init__(self, parser, draw):
        self.ring = []
        files = RamFiles(1 << 20, 1024, 6)
        for peer in (b"B___", b"C___"):
            BoardKeys(files, DEVICE, peer, self.ring)
        self.console = Console()
        record = bytearray(RECORD_SIZE)
        install(self.ring[0], bytes(range(32)), 0x0124, 0, 0)
        self.ring[0].load(0, record)
        self.sound = [b"keys hello", b"keys done", b"keys prove 425f5f5f 0 " + b"0a" * 16]
        for row in (0, 1, 5):
            self.sound.append(b"keys put 435f5f5f %d " % row + self.hex(record))
            self.sound.append(b"keys prove 425f5f5f %d " % row + b"7e" * 16)

    def hex(self, data):
        return b"".join([b"%02x" % byte for byte in data])

    def fix(self, buf, size, word):
        if word >> 18:  # mostly words
            copy(buf, 0, b"keys ", 0, 5)
            size = max(size, 5)
        for at in range(size):
            if buf[at] == 10:
                buf[at] = 32
        return size

    def feed(self, buf, size):
        console = self.console
        console.answer = ""
        console.lines.append(bytes(memoryview(buf)[:size]))
        try:
            take_keys(console, DEVICE, self.ring)
        except Keyless:
            console.lines.clear()  # the end of what is there
        if not console.answer or '"keyless"' in console.answer:
            return 0
        return 2 if '"no"' in console.answer else 3


class Body:
    """A body as a client reads it, or a node and an author as a board's end uses them."""

    bare = False

    def __init__(self):
        self.content = bytearray(64)
        self.size = 0
        self.body = bytearray(64)

    def read_into(self, offset, buf, at, size):
        count = max(0, min(size, self.size - offset))
        copy(buf, at, self.content, offset, count)
        return count

    def head(self):
        return 1

    def publish(self, group, body, size, timestamp, now_ms):
        return 1

    def published(self, handle):
        """As of an author."""


class Client(CommandClient):
    """Reads the body at hand, wherever the log would have it."""

    def read(self, node, group, handle):
        return Command(self._payload)


class CommandFuzz:
    """A message of the command channel, and what the board does then."""

    def __init__(self, parser, draw):
        self.key = bytes(range(32))
        self.client = Client({DEVICE: self.key})
        self.body = Body()
        self.done = 0
        self.board = CommandBoard(self.client, DEVICE, [self.act] * 4)
        self.sound = []
        payload = bytearray(31)
        for counter in range(8):
            target = DEVICE if counter % 3 else b"X___"
            number = counter.to_bytes(4, "big")
            put_command(payload, 1, COMMAND, target, number, counter & 3, counter << 28, self.key)
            self.sound.append(bytes(payload))

    def act(self, value):
        self.done += 1
        return value if value & 1 else -1

    def fix(self, buf, size, word):
        if not word >> 17:
            return size
        buf[0] = 0
        size = 31
        if word & 4:
            copy(buf, 1, b"\x43A___", 0, 5)
            if word & 8:  # above the last one
                last = int.from_bytes(self.board._last, "big") + 1
                buf[6:10] = (last & 0xFFFFFFFF).to_bytes(4, "big")
        buf[15:31] = hmac(self.key, bytes(buf[1:15]))[:16]
        return size

    def feed(self, buf, size):
        body = self.body
        body.size = min(size, 64)
        copy(body.content, 0, buf, 0, body.size)
        if not self.client.validate(body):
            return 0
        before = self.board.done
        self.board.take(body, 0, 1, body, bytes(8), 0)
        if self.board._last >= b"\xf0":
            self.board._last = bytes(4)  # else all that follows is old
        return 3 if self.board.done != before else 1
