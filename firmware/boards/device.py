"""A device: one node, its carriers, its sensor and its black box, in a loop that sleeps.

What differs between boards comes in as ports: `clock` (now_ms, timestamp_into), `waiter` (sleep
until a carrier has bytes), `source` (the next payload) and `say` (one line to whoever listens).
"""

import gc

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.events import (
    CODE_BATTERY,
    CODE_ERROR,
    CODE_HEAP_LOW,
    COUNT_DAMAGED,
    COUNT_ERASES,
    COUNT_PROGRAMS,
)
from drupelet.base.time_ms import elapsed_ms
from drupelet.node import EVENT_MESSAGE
from drupelet.seal.record import PEER_LOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import (
        BatteryPort,
        ClockPort,
        EventsPort,
        Say,
        SleeperPort,
        SocketPort,
        SourcePort,
    )
    from drupelet.clients.default import Author
    from drupelet.link.link import Link
    from drupelet.node import Node
    from drupelet.seal.seal import Seal
    from drupelet.telemetry.black_box import BlackBox
    from drupelet_transports.base import Transport

# Power states of the black box (docs/SPEC.md 6).
_LIGHT_SLEEP = const(1)
_IDLE = const(2)
_RECEIVE = const(3)
_SEND = const(4)
_FLASH = const(5)
_SENSOR = const(6)
# What an error befell (docs/SPEC.md 6.1).
_PUBLISHING = const(1)
_SAVING = const(2)
_E_SENSOR = const(4)  # beside those of drupelet.base.errors
# A battery is noted when it has moved by this much: noise makes no events.
_BATTERY_STEP_MV = const(10)
# A carrier that could not take a whole frame is served again after this: what a UART keeps of it
# lasts longer, and a port that nobody reads may stay so for days.
_BUSY_MS = const(20)
# A stick that was plugged in is found within this: who carries it waits beside it.
_STICK_MS = const(1000)
# Events handed to the client in one turn, so that carriers are served in between.
_EVENTS_PER_TURN = const(32)


class Device:
    """Call `step` for ever; it returns the milliseconds that the device may sleep."""

    def __init__(
        self, node: "Node", box: "BlackBox", clock: "ClockPort", source: "SourcePort",
        author: "Author", readings: int, telemetry: int, epoch_ms: int, say: "Say",
        frame: bytearray,
    ) -> None:  # fmt: skip
        self.node = node
        self.box = box
        self.clock = clock
        self.source = source
        self.author = author
        self.epoch_ms = epoch_ms
        self.own = 0  # readings that we have taken, over all boots
        self.logged = 0  # readings of anybody in the log
        self._recovered = self._millivolts = 0
        self.heap_low = gc.mem_free()
        self._readings = readings
        self._telemetry = telemetry
        self.say = say
        self.frame = frame  # FRAME_SIZE_MAX bytes
        self._timestamp = bytearray(8)
        clock.timestamp_into(self._timestamp)
        self.live = []
        self._out: "bytearray | memoryview" = self.frame
        self.seals: "list[tuple[Seal, Link]]" = []
        self.socket: "SocketPort | None" = None  # of a device that takes a stick
        self.sleeper: "SleeperPort | None" = None  # of a device that sleeps deeply
        self.battery: "BatteryPort | None" = None  # of a device that can measure it
        self.events: "EventsPort" = node  # whose events `consume` takes
        self._totals = [0, 0, 0]  # damaged frames, flash programs and erases that were counted
        self.due_ms = clock.now_ms()

    def add_live(self, transport: "Transport", link: "Link") -> None:
        """Serve a link over a carrier with two ends."""
        self.live.append((transport, link))
        # A sealed carrier takes shorter frames: all send what fits the one that takes least.
        if transport.frame_size_max < len(self._out):
            self._out = memoryview(self.frame)[: transport.frame_size_max]

    def recover(self) -> None:
        """Take up the log after a reboot: what we wrote last, and how many readings there are."""
        store = self.node.store
        self.own = store.dropped(self._readings)
        handle = store.next(0)
        while handle:
            self._recovered = handle
            self._saw(handle)
            if store.group == self._readings and not store.source:
                self.own += 1
                self.author.saw(handle)
            handle = store.next(handle)

    def step(self) -> int:
        """Everything that is due now; then how long to sleep, in ms."""
        now_ms = self.clock.now_ms()
        if elapsed_ms(now_ms, self.due_ms) < 1 << 29:
            self._epoch(now_ms)
        self._exchange()
        if self.socket is not None:
            self.socket.look(self)
        if self.consume():
            return 0
        now_ms = self.clock.now_ms()
        wait_ms = self.left_ms(now_ms)
        if self.socket is not None:
            wait_ms = min(wait_ms, _STICK_MS)
        if self.sleeper is not None:
            wait_ms = min(wait_ms, self.sleeper.turn_ms(now_ms))
        for transport, link in self.live:
            if transport.pending_size:
                wait_ms = min(wait_ms, _BUSY_MS)
            elif transport.up:
                wait_ms = min(wait_ms, link.wake_ms(now_ms))
        return wait_ms

    def left_ms(self, now_ms: int) -> int:
        """Milliseconds until the next reading is due."""
        left_ms = elapsed_ms(self.due_ms, now_ms)
        return left_ms if left_ms < 1 << 29 else 0

    def _epoch(self, now_ms: int) -> None:
        self.due_ms = (now_ms + self.epoch_ms) & 0x3FFFFFFF
        for seal, link in self.seals:
            if seal.flags & PEER_LOST:
                self._show_again(seal, link, now_ms)
        self.box.state(now_ms, _SENSOR)
        try:
            if self.source.ready(self.own):
                self._publish(now_ms)
        except (OSError, ValueError):  # a sensor that does not answer may do so in the next epoch
            self.box.log(now_ms, CODE_ERROR, _E_SENSOR, _PUBLISHING, 0, 0)
        free = gc.mem_free()
        if free < self.heap_low:
            self.heap_low = free
            self.box.log(now_ms, CODE_HEAP_LOW, 0, 0, free >> 16, free & 0xFFFF)
        gc.collect()
        self.box.state(self.clock.now_ms(), _FLASH)
        self.drain()
        code = self.node.save(now_ms)
        if code != OK:
            self.box.log(now_ms, CODE_ERROR, -code, _SAVING, 0, 0)
        self._measure(now_ms)
        self.box.state(self.clock.now_ms(), _IDLE)

    def _measure(self, now_ms: int) -> None:
        """Note what flash, carriers and battery went through since the last epoch."""
        box = self.box
        damaged = 0
        for transport, _link in self.live:
            damaged += transport.damaged
        self._tally(COUNT_DAMAGED, 0, damaged)
        self.count_flash()
        if self.battery is not None:
            millivolts = self.battery.millivolts()
            apart = millivolts - self._millivolts
            if millivolts and (apart >= _BATTERY_STEP_MV or -apart >= _BATTERY_STEP_MV):
                self._millivolts = millivolts
                box.log(now_ms, CODE_BATTERY, 0, millivolts, 0, 0)

    def count_flash(self) -> None:
        """Note what the flash went through since the last time."""
        store = self.node.store
        self._tally(COUNT_PROGRAMS, 1, store.programs)
        self._tally(COUNT_ERASES, 2, store.erases)

    def _tally(self, index: int, row: int, total: int) -> None:
        """Count what a total has grown by since it was last asked for."""
        self.box.count(index, total - self._totals[row])
        self._totals[row] = total

    def _show_again(self, seal: "Seal", link: "Link", now_ms: int) -> None:
        """The peer has lost what it acknowledged: all of it is shown again."""

        link.exchange.forget_holds()
        if self.node.save(now_ms) == OK:
            seal.settle()

    def drain(self) -> None:
        """Let the black box's finished blocks go to flash."""
        if self.box.ready:
            self.clock.timestamp_into(self._timestamp)
        self.node.telemetry(self._telemetry, self.clock.now_ms(), self._timestamp)

    def _publish(self, now_ms: int) -> None:
        """Put the next reading into the log, piece by piece if it is long."""
        self.clock.timestamp_into(self._timestamp)
        head = self.author.head()
        size = self.source.size()
        body = self.author.body
        if head + size <= len(body):
            self.source.read_into(body, head, size)
            handle = self.node.publish(self._readings, body, head + size, self._timestamp, now_ms)
        else:
            handle = self._publish_long(head, size, now_ms)
        if handle > 0:
            self.own += 1
            self.author.published(handle)
        else:
            self.box.log(now_ms, CODE_ERROR, -handle, _PUBLISHING, 0, 0)

    def _publish_long(self, head: int, size: int, now_ms: int) -> int:
        node = self.node
        code = node.publish_begin(self._readings, self._timestamp)
        if code == OK:
            code = node.publish_append(self.author.body, 0, head)
        while size and code == OK:
            piece = size if size < len(self.frame) else len(self.frame)
            self.source.read_into(self.frame, 0, piece)
            code = node.publish_append(self.frame, 0, piece)
            size -= piece
        return node.publish_end(self._readings, now_ms) if code == OK else code

    def _exchange(self) -> None:
        frame = self.frame
        box = self.box
        for transport, link in self.live:
            size = transport.receive_into(frame)
            if size > 0:
                box.state(self.clock.now_ms(), _RECEIVE)
                if self.sleeper is not None:
                    self.sleeper.heard(self.clock.now_ms())
            while size > 0:
                link.received(transport.last_wire_size)
                link.receive(frame, size, self.clock.now_ms())
                self.drain()
                size = transport.receive_into(frame)
            self._send_due(transport, link)
            box.state(self.clock.now_ms(), _IDLE)

    def _send_due(self, transport: "Transport", link: "Link") -> None:
        """Send what is due while the carrier takes it. What is due stays so while it is down."""
        if not transport.up:
            link.turn(self.clock.now_ms())
            return
        frame = self._out
        while not transport.pending_size:
            size = link.poll_into(frame, self.clock.now_ms())
            if not size:
                break
            self.box.state(self.clock.now_ms(), _SEND)
            if transport.send(frame, size) == OK:
                link.sent(transport.last_wire_size)

    def consume(self) -> bool:
        """The board's own client: it remembers what came, so that its next reading follows it.

        Whether there is more to take: a board serves its carriers in between.
        """
        node = self.node
        for _ in range(_EVENTS_PER_TURN):
            if self.events.next_event() != EVENT_MESSAGE:
                return False
            handle = node.event_handle
            if handle > self._recovered:
                self._saw(handle)
            self.events.done(handle)
        return True

    def _saw(self, handle: int) -> None:
        """Count a message of the log; what we write next comes after what others wrote.

        Our own are known since we published them: their event may come after the next reading.
        """
        store = self.node.store
        if store.load(handle) == OK and store.group == self._readings:
            self.logged += 1
            if store.source:
                self.author.saw(handle)

    def rest_ms(self) -> int:
        """How long the device may sleep deeply from now on; 0: something keeps it awake."""
        return self.sleeper.rest_ms(self) if self.sleeper is not None else 0

    def flush(self) -> None:
        """Close the black box's last segment so that it can leave."""
        now_ms = self.clock.now_ms()
        self.clock.timestamp_into(self._timestamp)
        self.node.telemetry_flush(self._telemetry, now_ms, self._timestamp)
        self.node.save(now_ms)

    def asleep(self, asleep: bool) -> None:
        """Tell the black box that the device goes to sleep, or woke up."""
        self.box.state(self.clock.now_ms(), _LIGHT_SLEEP if asleep else _IDLE)
