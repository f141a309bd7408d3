"""A running board: one node, its carriers, its sensor, its black box and its console.

The differences between boards are in the port (`boards.ports.Port`): clock, console, peripherals.
"""

import gc
import json

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK, StorageError
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
    from typing import Any

    from boards.ports import Act, BatteryPort, Payload, Port, SleeperPort, Take
    from drupelet.clients.default import Author
    from drupelet.link.link import Link
    from drupelet.node import Node
    from drupelet.seal.seal import Seal
    from drupelet.telemetry.black_box import BlackBox
    from drupelet_transports.common.transport import Transport

# Power states of the black box (docs/SPEC.md 6).
_LIGHT_SLEEP = const(1)
_IDLE = const(2)
_RECEIVE = const(3)
_SEND = const(4)
_FLASH = const(5)
_SENSOR = const(6)
# The context of an error event (docs/SPEC.md 6.1).
_PUBLISHING = const(1)
_SAVING = const(2)
_TURNING = const(3)
_E_SENSOR = const(4)  # an error code beside those of drupelet.base.errors
# The battery is logged when it has changed by so much, so that noise makes no events.
_BATTERY_STEP_MV = const(10)
# A carrier that could not take a whole frame is served again after this time. A UART takes longer
# to send what is in its buffer; a port that nobody reads may stay full for days.
_BUSY_MS = const(20)
_COUNTS = (COUNT_DAMAGED, COUNT_PROGRAMS, COUNT_ERASES)
# A long reading is copied and written in pieces of this size.
_PIECE_SIZE = const(512)
# Events handed to the client in one turn, so that carriers are served in between.
_EVENTS_PER_TURN = const(32)
# A flash that kept nothing for so many epochs ends the program: what was not durable then is known
# again after a start.
_UNSAVED_EPOCHS_MAX = const(3)
# How long to wait after a turn that ran out of memory, or a deep sleep that the store refused.
_AGAIN_MS = const(1000)


class Device:
    """A board as `boards.setup` assembled it; call `run`."""

    def __init__(
        self, node: "Node", box: "BlackBox", port: "Port", take: "Take", author: "Author",
        telemetry: int, epoch_ms: int, frame: bytearray, peers: "list[int]",
    ) -> None:  # fmt: skip
        self.node = node
        self.box = box
        self.port = port
        self.console = port.console
        self.take = take
        self.author = author
        self.epoch_ms = self._status_ms = epoch_ms
        self.heap_low = gc.mem_free()
        self.frame = frame  # FRAME_SIZE_MAX bytes
        self.live = []  # live carriers with their links
        self.brokers: "list[Any]" = []  # connections to brokers
        # Rows of [KeeperPort, its carrier, the carrier's stream that the port watches].
        self.served: "list[list[Any]]" = []
        self.seals: "list[tuple[Seal, Link]]" = []
        self.sleeper: "SleeperPort | None" = None  # None: the device does not sleep deeply
        self.battery: "BatteryPort | None" = None  # None: it cannot be measured
        # Handlers of events by group (number), called before `Node.done`.
        self.acts: "dict[int, Act]" = {}
        self.due_ms = self._held_ms = port.now_ms()
        self._hold_ms = 0
        self._is_held = False  # the node's last event is not done yet
        self._readings = author.group
        self._telemetry = telemetry
        self._peers = peers
        self._millivolts = 0
        self._unsaved_epochs = 0
        self._timestamp = bytearray(8)
        port.timestamp_into(self._timestamp)
        self._out: "bytearray | memoryview" = frame
        self._totals = [0, 0, 0]  # damaged frames, flash programs and erases counted so far

    def run(self) -> None:
        """Run until the command `stop` or the end of input."""
        port = self.port
        sleeper = self.sleeper
        resumed = sleeper is not None and sleeper.resumed
        self._say_status("woke" if resumed else "started")
        status_ms = port.now_ms()
        while True:
            command = self.console.command()
            if command == b"stop":
                break
            if command == b"flush":
                self.flush()
                self.console.say('{"event":"flushed"}')
            wait_ms = self._turn()
            if elapsed_ms(port.now_ms(), status_ms) >= self._status_ms:
                status_ms = port.now_ms()
                self._say_status("status")
            rest_ms = sleeper.rest_ms(self) if sleeper is not None else 0
            if rest_ms:
                self._sleep(rest_ms)
                wait_ms = _AGAIN_MS
            if wait_ms > 0:
                self.box.state(port.now_ms(), _LIGHT_SLEEP)
            port.wait(wait_ms)
            if wait_ms > 0:
                self.box.state(port.now_ms(), _IDLE)
        self.flush()
        for client in self.brokers:
            client.close()
        self._say_status("stopped")

    def _turn(self) -> int:
        """Do everything that is due; return how long to wait, in ms.

        If memory runs out, the rest is done in another turn.
        """
        try:
            return self._maintain(self.step())
        except MemoryError:
            gc.collect()
            self.box.log(self.port.now_ms(), CODE_ERROR, -E_CAPACITY, _TURNING, 0, 0)
            return _AGAIN_MS

    def _sleep(self, rest_ms: int) -> None:
        """Disconnect from brokers, so that they do not report a lost board, and sleep deeply.

        Returns only if the store fails; then the board stays awake.
        """
        for client in self.brokers:
            client.close()
        self.console.say('{"event":"asleep","ms":%d}' % rest_ms)
        self.sleeper.rest(self, rest_ms)
        for client in self.brokers:
            client.reopen()

    def _maintain(self, wait_ms: int) -> int:
        """Keep carriers up; return the shortest of `wait_ms` and the waits that they allow."""
        port = self.port
        for row in self.served:
            keeper, carrier, watched = row
            port.feed()  # resolving a broker's name takes seconds
            keeper.maintain(port.now_ms())
            # The carrier may have closed its stream: stop watching it, for it is always ready.
            port.watch(watched, carrier.poll_object)
            row[2] = carrier.poll_object
            wait_ms = min(wait_ms, keeper.wait_ms(port.now_ms()))
        return wait_ms

    def _say_status(self, event: str) -> None:
        """Print the board's counters as an event."""
        node = self.node
        status = {
            "event": event, "boot": self.box.boot, "own": self.author.own,
            "logged": self.author.logged,
            "delivered": node.delivered, "pending": node.pending_count(),
            "outstanding": sum([node.outstanding(number) for number in self._peers]),
            "heap_low": self.heap_low, "refused": node.refused, "malformed": node.malformed,
        }  # fmt: skip
        self.console.say(json.dumps(status))

    def add_live(self, transport: "Transport", link: "Link") -> None:
        """Serve a link over a live carrier."""
        self.live.append((transport, link))
        # All links share one frame buffer, limited to the shortest frame of their carriers.
        if transport.frame_size_max < len(self._out):
            self._out = memoryview(self.frame)[: transport.frame_size_max]

    def step(self) -> int:
        """Do everything that is due now; return how long to sleep, in ms."""
        now_ms = self.port.now_ms()
        if elapsed_ms(now_ms, self.due_ms) < 1 << 29:
            self._epoch(now_ms)
        self._exchange()
        if self.consume():
            return 0
        now_ms = self.port.now_ms()
        wait_ms = self.left_ms(now_ms)
        if self.sleeper is not None:
            wait_ms = min(wait_ms, self.sleeper.turn_ms(now_ms))
        for transport, link in self.live:
            if transport.pending_size:
                wait_ms = min(wait_ms, _BUSY_MS)
            elif transport.up:
                wait_ms = min(wait_ms, link.wake_ms(now_ms))
        return wait_ms

    def left_ms(self, now_ms: int) -> int:
        """Return the time until the next reading is due, in ms."""
        left_ms = elapsed_ms(self.due_ms, now_ms)
        return left_ms if left_ms < 1 << 29 else 0

    def _epoch(self, now_ms: int) -> None:
        self.due_ms = (now_ms + self.epoch_ms) & 0x3FFFFFFF
        for seal, link in self.seals:
            if seal.flags & PEER_LOST:
                # The peer has lost what it acknowledged: offer everything again.
                link.exchange.forget_holds()
                if self.node.save(now_ms) == OK:
                    seal.settle()
        self.box.state(now_ms, _SENSOR)
        try:
            payload = self.take(self.author.own)
            if payload is not None:
                self._publish(payload, now_ms)
        except (OSError, ValueError):  # the sensor may answer again in the next epoch
            self.box.log(now_ms, CODE_ERROR, _E_SENSOR, _PUBLISHING, 0, 0)
        free = gc.mem_free()
        if free < self.heap_low:
            self.heap_low = free
            self.box.log(now_ms, CODE_HEAP_LOW, 0, 0, free >> 16, free & 0xFFFF)
        gc.collect()
        self.box.state(self.port.now_ms(), _FLASH)
        self.drain()
        code = self.node.save(now_ms)
        if code != OK:
            self.box.log(now_ms, CODE_ERROR, -code, _SAVING, 0, 0)
        self._unsaved_epochs = self._unsaved_epochs + 1 if code == E_STORAGE else 0
        if self._unsaved_epochs == _UNSAVED_EPOCHS_MAX:
            raise StorageError("the flash kept nothing for %d epochs" % _UNSAVED_EPOCHS_MAX)
        self.tally()
        if self.battery is not None:
            millivolts = self.battery.millivolts()
            if millivolts and abs(millivolts - self._millivolts) >= _BATTERY_STEP_MV:
                self._millivolts = millivolts
                self.box.log(now_ms, CODE_BATTERY, 0, millivolts, 0, 0)
        self.box.state(self.port.now_ms(), _IDLE)

    def tally(self) -> None:
        """Add damaged frames and flash operations since the last call to the counters."""
        store = self.node.store
        damaged = sum([transport.damaged for transport, _ in self.live])
        totals = [damaged, store.programs, store.erases]
        for row in range(len(totals)):
            self.box.count(_COUNTS[row], totals[row] - self._totals[row])
        self._totals = totals

    def drain(self) -> None:
        """Write the black box's finished blocks to flash."""
        if self.box.ready:
            self.port.timestamp_into(self._timestamp)
        self.node.telemetry(self._telemetry, self.port.now_ms(), self._timestamp)

    def _publish(self, payload: "Payload", now_ms: int) -> None:
        """Publish the next reading, piece by piece if it is long."""
        self.port.timestamp_into(self._timestamp)
        head = self.author.head()
        size = len(payload)
        body = self.author.body
        if head + size <= len(body):
            body[head : head + size] = payload[0:size]
            handle = self.node.publish(self._readings, body, head + size, self._timestamp, now_ms)
        else:
            handle = self._publish_long(payload, head, now_ms)
        if handle > 0:
            self.author.published(handle)
        else:
            self.box.log(now_ms, CODE_ERROR, -handle, _PUBLISHING, 0, 0)

    def _publish_long(self, payload: "Payload", head: int, now_ms: int) -> int:
        node = self.node
        code = node.publish_begin(self._readings, self._timestamp)
        code = code or node.publish_append(self.author.body, 0, head)
        for at in range(0, len(payload), _PIECE_SIZE):
            if code == OK:
                piece = payload[at : at + _PIECE_SIZE]
                code = node.publish_append(piece, 0, len(piece))
        return node.publish_end(self._readings, now_ms) if code == OK else code

    def _exchange(self) -> None:
        for transport, link in self.live:
            while (size := transport.receive_into(self.frame)) > 0:
                self.box.state(self.port.now_ms(), _RECEIVE)
                if self.sleeper is not None:
                    self.sleeper.heard(self.port.now_ms())
                link.received(transport.last_wire_size)
                link.receive(self.frame, size, self.port.now_ms())
                self.drain()
            self._send_due(transport, link)
            self.box.state(self.port.now_ms(), _IDLE)

    def _send_due(self, transport: "Transport", link: "Link") -> None:
        """Send frames that are due while the carrier accepts them; if it is down, only let time
        pass.
        """
        if not transport.up:
            link.turn(self.port.now_ms())
            return
        frame = self._out
        while not transport.pending_size and (size := link.poll_into(frame, self.port.now_ms())):
            self.box.state(self.port.now_ms(), _SEND)
            if transport.send(frame, size) == OK:
                link.sent(transport.last_wire_size)

    def hold(self, hold_ms: int) -> None:
        """Handle no events for `hold_ms`."""
        self._held_ms = self.port.now_ms()
        self._hold_ms = hold_ms

    def consume(self) -> bool:
        """Handle some events; return whether there are more, so carriers are served in between.

        The author notes each message, on which its next reading then depends. If the handler of an
        event's group fails, the event is handled again an epoch later, before all later ones.
        """
        node = self.node
        if elapsed_ms(self.port.now_ms(), self._held_ms) < self._hold_ms:
            return False
        self._hold_ms = 0
        for _ in range(_EVENTS_PER_TURN):
            if not self._is_held and node.next_event() != EVENT_MESSAGE:
                return False
            self._is_held = True
            handle = node.event_handle
            self.author.saw(handle)
            act = self.acts.get(node.store.group) if node.store.load(handle) == OK else None
            if act is not None and act(handle) != OK:
                self.hold(self.epoch_ms)
                return False
            self._is_held = False
            node.done(handle)
        return True

    def flush(self) -> None:
        """End the black box's current segment and publish it."""
        now_ms = self.port.now_ms()
        self.port.timestamp_into(self._timestamp)
        self.node.telemetry_flush(self._telemetry, now_ms, self._timestamp)
        self.node.save(now_ms)
