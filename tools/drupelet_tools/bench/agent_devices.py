"""Simulated devices of `drupelet bench agent --work load`: some hundred nodes in one process.

    python -m drupelet_tools.bench.agent_devices PLAN

Node, store, seal and MQTT client are the firmware's, each device with a connection of its own to
the broker; only flash and AES are the host's. A device has the tables of a new board and one peer,
its home. The process takes words from its input, a line each, and answers with JSON lines: `begin`
(publish, spread over the time of the plan), `count` (how many are waited for), `end`.
"""

import hashlib
import heapq
import json
import random
import select
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from drupelet import host_api
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import FRAME_SIZE_MAX, SEGMENT_SIZE, SEGMENTS_MAX
from drupelet.base.time_ms import elapsed_ms
from drupelet.clients.default import READINGS_CLIENT_ID, Author
from drupelet.node import BATCH, CARRIER_MQTT, EVENT_MESSAGE, SHARED, Node
from drupelet.seal.record import RECORD_SIZE
from drupelet.seal.seal import CLASS_LIVE, Seal, SealContext
from drupelet.store.files import RamFiles
from drupelet.store.flash_store import FlashStore
from drupelet_host.base import clock
from drupelet_host.base.aead import Aead
from drupelet_host.member.live_link import PROFILES
from drupelet_tools.sim.keys import Keys
from drupelet_transports.board import mqtt_board
from drupelet_transports.seal.sealed_carrier import Sealed

BODY_SIZE = 100
EPOCH_MS = 1000
# The log of a board, its meta log, the departed ids and the parts of long messages.
_FILES_SIZE = 2 * SEGMENTS_MAX * SEGMENT_SIZE
# More RAM than a board has: a search of its log would take most of this machine's time.
_FILTER_SIZE = 8192
_RECENT_MAX = 256
# A save lets the log reclaim what everybody has; a board does it with each reading.
_SAVE_MS = 5000
# What one device takes in before the others have their turn: a device that connects waits for an
# answer of the broker ten seconds at most.
_FRAMES_PER_STEP_MAX = 2
# A log that is full is tried again after this.
_AGAIN_S = 1.0
# No wait of a device is longer, which bounds the queue: a wait stays in it until it is over.
_WAIT_MS_MAX = 5000
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class DevicesPlan:
    """What one process does: which devices it has, and when they publish.

    All devices publish in turn, `per_second` together, so `first` to `last` (numbers, without the
    last) do every `devices / per_second` seconds. home_ids: of each of them, in hex. peers: of
    each of them, how many messages it gets from the others of its home.
    """

    port: int
    prefix: str
    folder: str
    profile: str
    group: str
    devices: int
    per_second: float
    messages: int
    first: int
    last: int
    home_ids: Sequence[str]
    foreign: Sequence[int]


def own_messages(number: int, devices: int, messages: int) -> int:
    """How many of so many messages a device (number) publishes: all devices do it in turn."""
    return len(range(number, messages, devices))


def device_id(number: int) -> bytes:
    """The id of a device."""
    return b"\xd0" + number.to_bytes(3)


def payload(number: int, count: int) -> bytes:
    """What a device writes into one of its messages, always the same."""
    return hashlib.shake_128(b"%d %d" % (number, count)).digest(BODY_SIZE)


def _random_byte() -> int:
    return random.getrandbits(8)


def _keys(path: Path, own_id: bytes, peer_id: bytes) -> Keys:
    """The keys that were provisioned into a board's key file."""
    keys = Keys(own_id, peer_id, 0, None)
    content = path.read_bytes()
    for row in range(len(content) // RECORD_SIZE):
        record = content[row * RECORD_SIZE : (row + 1) * RECORD_SIZE]
        if any(record):
            keys.records[row] = record
    return keys


class Device:
    """A member of its home's group, behind the broker."""

    def __init__(self, plan: DevicesPlan, number: int, first_s: float) -> None:
        own_id, home_id = device_id(number), bytes.fromhex(plan.home_ids[number - plan.first])
        now_ms = clock.now_ms()
        self.number = number
        self.own_max = own_messages(number, plan.devices, plan.messages)
        self.foreign_max = plan.foreign[number - plan.first]
        self.published = 0
        self.publish_s = first_s
        self._period_s = plan.devices / plan.per_second
        store = FlashStore(
            RamFiles(_FILES_SIZE), filter_size=_FILTER_SIZE, salt=random.getrandbits(32),
            recent_max=_RECENT_MAX,
        )  # fmt: skip
        store.open()
        self._node = node = Node(store, _random_byte)
        self._group = node.join(READINGS_CLIENT_ID, plan.group.encode())
        self._home = node.add_peer(home_id)
        node.share(self._group, self._home, SHARED)
        node.boot(now_ms)
        self._author = Author(node, self._group)
        self._link = node.link(
            self._home, PROFILES[plan.profile], CARRIER_MQTT, EPOCH_MS, BATCH, now_ms
        )
        self.client = mqtt_board.MqttClient(_HOST, plan.port, plan.prefix, _random_byte)
        context = SealContext(Aead(), _random_byte, store.store_gen.to_bytes(4))
        path = Path(plan.folder, own_id.hex(), f"{home_id.hex().upper()}.KEY")
        self._seal = seal = Seal(context, _keys(path, own_id, home_id), CLASS_LIVE)
        code = seal.load()
        assert code == OK, "the bench provisioned this device"
        host_api.note_reads_segments(self._link)
        buf = bytearray(FRAME_SIZE_MAX)
        self._transport = Sealed(self.client.transport_of(seal), seal, clock.now_ms, buf)
        self._frame_in = bytearray(FRAME_SIZE_MAX)
        self._frame_out = bytearray(self._transport.frame_size_max)
        self._unsent = 0
        self._saved_ms = now_ms
        self._was_up = False
        self.bytes = 0  # of MQTT packets with frames, both ways

    @property
    def is_settled(self) -> bool:
        """Whether all is published, acknowledged and, of the others, received."""
        return (
            self.published == self.own_max
            and self.delivered >= self.foreign_max
            and host_api.is_current(self._node, self._home)
        )

    @property
    def delivered(self) -> int:
        """How many messages of others are in the log."""
        return self._node.delivered

    def step(self, now_s: float) -> float:
        """Do what is due; return after how many ms there may be more."""
        now_ms = clock.now_ms()
        self.client.maintain(now_ms)
        if self.client.up != self._was_up:
            self._was_up = self.client.up
            self._unsent = 0
            if self._was_up:
                self._link.greet()
        is_more = self._receive(now_ms)
        if self.published < self.own_max and now_s >= self.publish_s:
            self._publish(now_ms)
        self._take_events()
        if elapsed_ms(now_ms, self._saved_ms) >= _SAVE_MS:
            self._saved_ms = now_ms
            self._node.save(now_ms)
        wait_ms: float = self._send(now_ms)
        if self.published < self.own_max:
            wait_ms = min(wait_ms, max(0.0, 1000 * (self.publish_s - now_s)))
        return 0.0 if is_more else min(wait_ms, self.client.wait_ms(now_ms), _WAIT_MS_MAX)

    def _receive(self, now_ms: int) -> bool:
        """Take some frames in; True when more may wait."""
        transport = self._transport
        for _ in range(_FRAMES_PER_STEP_MAX):
            size = transport.receive_into(self._frame_in)
            if size <= 0:
                return False
            self.bytes += transport.last_wire_size
            self._link.received(transport.last_wire_size)
            self._link.receive(self._frame_in, size, now_ms)
            if self._seal.peer_lost:
                host_api.forget_holds(self._link)
                self._node.save(now_ms)
                self._seal.settle()
        return True

    def _publish(self, now_ms: int) -> None:
        content = payload(self.number, self.published)
        size = self._author.compose(content, len(content))
        handle = self._node.publish(
            self._group, self._author.body, size, clock.timestamp8(clock.wall_ms()), now_ms
        )
        if handle <= 0:
            self.publish_s += _AGAIN_S
            return
        self._author.published(handle)
        self.published += 1
        self.publish_s += self._period_s

    def _take_events(self) -> None:
        node = self._node
        while node.next_event() == EVENT_MESSAGE:
            handle = node.event_handle
            self._author.saw(handle)
            node.done(handle)

    def _send(self, now_ms: int) -> int:
        """Send what is due; return after how many ms there may be more."""
        transport, link = self._transport, self._link
        if not transport.up:
            link.turn(now_ms)
            return _WAIT_MS_MAX
        while not transport.pending_size:
            size = self._unsent or link.poll_into(self._frame_out, now_ms)
            if not size:
                break
            code = transport.send(self._frame_out, size)
            self._unsent = size if code == E_CAPACITY else 0
            if code != OK:
                break
            self.bytes += transport.last_wire_size
            link.sent(transport.last_wire_size)
        return link.wake_ms(now_ms)


class Devices:
    """All devices of a process, each served when bytes came for it or its time has come."""

    def __init__(self, plan: DevicesPlan) -> None:
        self._plan = plan
        self._poll = select.epoll()
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)
        self._devices = [
            Device(plan, number, float("inf")) for number in range(plan.first, plan.last)
        ]
        self._watched = [-1] * len(self._devices)
        self._by_fd: dict[int, int] = {}
        self._due_s = [0.0] * len(self._devices)
        self._queue = [(0.0, at) for at in range(len(self._devices))]
        self._ended = False

    def serve(self) -> None:
        """Serve until the input says `end`, or ends."""
        while not self._ended:
            now_s = time.monotonic()
            wait_s = self._queue[0][0] - now_s
            fds = [fd for fd, _ in self._poll.poll(max(0.0, wait_s))]
            ready = {self._by_fd[fd] for fd in fds if fd in self._by_fd}
            if sys.stdin.fileno() in fds:
                self._obey(sys.stdin.readline().strip())
            now_s = time.monotonic()
            while self._queue and self._queue[0][0] <= now_s:
                due_s, at = heapq.heappop(self._queue)
                if due_s == self._due_s[at]:  # else it was served since
                    ready.add(at)
            for at in ready:
                self._step(at)

    def _step(self, at: int) -> None:
        device = self._devices[at]
        now_s = time.monotonic()
        wait_ms = device.step(now_s)
        self._due_s[at] = due_s = now_s + wait_ms / 1000
        heapq.heappush(self._queue, (due_s, at))
        polled = device.client.poll_object
        fd = polled.fileno() if polled is not None else -1  # type: ignore[attr-defined]
        if fd != self._watched[at]:
            # A socket that was closed has left the poll by itself.
            if self._by_fd.get(self._watched[at]) == at:
                del self._by_fd[self._watched[at]]
            self._watched[at] = fd
            if fd >= 0:
                self._poll.register(fd, select.EPOLLIN)
                self._by_fd[fd] = at

    def _obey(self, word: str) -> None:
        if word == "begin":
            started_s, plan = time.monotonic(), self._plan
            for at, device in enumerate(self._devices):
                device.publish_s = started_s + device.number / plan.per_second
                self._step(at)
        self._ended = word not in ("begin", "count")
        if not self._ended:
            self._report()

    def _report(self) -> None:
        devices = self._devices
        figures = {
            "up": sum(device.client.up for device in devices),
            "published": sum(device.published for device in devices),
            "delivered": sum(device.delivered for device in devices),
            "settled": sum(device.is_settled for device in devices),
            "connects": sum(device.client.connects for device in devices),
            "bytes": sum(device.bytes for device in devices),
            "cpu_s": time.process_time(),
        }
        print(json.dumps(figures), flush=True)


def write_plan(path: Path, plan: DevicesPlan) -> None:
    """Leave a plan for a process."""
    path.write_text(json.dumps(asdict(plan)))


def _main() -> None:
    plan = DevicesPlan(**json.loads(Path(sys.argv[1]).read_text()))
    Devices(plan).serve()


if __name__ == "__main__":
    _main()
