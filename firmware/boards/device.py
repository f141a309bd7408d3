"""A device: one node, its carriers, its sensor and its black box, in a loop that sleeps.

What differs between boards comes in as ports: `clock` (now_ms, timestamp_into), `waiter` (sleep
until a carrier has bytes), `source` (the next payload) and `say` (one line to whoever listens).
"""

import gc

from drupelet._compat import const
from drupelet.blackbox import CODE_HEAP_LOW
from drupelet.errors import OK
from drupelet.limits import FRAME_SIZE_MAX
from drupelet.node import EVENT_MESSAGE
from drupelet.schedule import elapsed_ms
from drupelet_transports.visit import Visit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.clients import Author
    from drupelet.node import Node

# Power states of the black box (docs/SPEC.md 6).
_LIGHT_SLEEP = const(1)
_IDLE = const(2)
_RECEIVE = const(3)
_SEND = const(4)
_FLASH = const(5)
_SENSOR = const(6)
# A carrier that could not take a whole frame is served again after this.
_BUSY_MS = const(5)
# Events handed to the client in one turn, so that carriers are served in between.
_EVENTS_PER_TURN = const(32)


class Device:
    """Call `step` for ever; it returns the milliseconds that the device may sleep."""

    def __init__(
        self, node: "Node", box, clock, source, author: "Author", readings: int, telemetry: int,
        epoch_ms: int, say,
    ) -> None:  # fmt: skip
        self.node = node
        self.box = box
        self.clock = clock
        self.source = source
        self.author = author
        self.epoch_ms = epoch_ms
        self.own = 0  # readings that we have taken, over all boots
        self.logged = 0  # readings of anybody in the log
        self._recovered = 0
        self.heap_low = gc.mem_free()
        self._readings = readings
        self._telemetry = telemetry
        self._say = say
        self._frame = bytearray(FRAME_SIZE_MAX)
        self._timestamp = bytearray(8)
        clock.timestamp_into(self._timestamp)
        self._live = []
        self._stick = None
        self._stick_links = []
        self._visited = False
        self._due_ms = clock.now_ms()

    def add_live(self, transport, link) -> None:
        """Serve a link over a carrier with two ends."""
        self._live.append((transport, link))

    def add_stick(self, stick, links) -> None:
        """Visit this stick whenever it is plugged in; `links`: list of (peer id, link)."""
        self._stick = stick
        self._stick_links = links

    def recover(self) -> None:
        """Take up the log after a reboot: what we wrote last, and how many readings there are."""
        store = self.node.store
        handle = store.next(0)
        while handle:
            self._recovered = handle
            self._saw(handle)
            handle = store.next(handle)

    def step(self) -> int:
        """Everything that is due now; then how long to sleep, in ms."""
        now_ms = self.clock.now_ms()
        if elapsed_ms(now_ms, self._due_ms) < 1 << 29:
            self._epoch(now_ms)
        self._exchange()
        if self._stick is not None:
            self._visit()
        self._consume()
        now_ms = self.clock.now_ms()
        wait_ms = self.node.wake_ms(now_ms)
        for transport, _link in self._live:
            if transport.pending_size:
                wait_ms = _BUSY_MS
        left_ms = elapsed_ms(self._due_ms, now_ms)
        if left_ms > 1 << 29:
            left_ms = 0
        return wait_ms if wait_ms < left_ms else left_ms

    def _epoch(self, now_ms: int) -> None:
        self._due_ms = (now_ms + self.epoch_ms) & 0x3FFFFFFF
        self.box.state(now_ms, _SENSOR)
        if self.source.ready(self.own):
            self._publish(now_ms)
        free = gc.mem_free()
        if free < self.heap_low:
            self.heap_low = free
            self.box.log(now_ms, CODE_HEAP_LOW, 0, 0, free >> 16, free & 0xFFFF)
        gc.collect()
        self.box.state(self.clock.now_ms(), _FLASH)
        self._drain()
        self.node.save(now_ms)
        self.box.state(self.clock.now_ms(), _IDLE)

    def _drain(self) -> None:
        """Let the black box's finished blocks go to flash."""
        if self.box.ready:
            self.clock.timestamp_into(self._timestamp)
        self.node.telemetry(self._telemetry, self.clock.now_ms(), self._timestamp)

    def _publish(self, now_ms: int) -> None:
        """Put the next reading into the log, piece by piece if it is long."""
        self.clock.timestamp_into(self._timestamp)
        head = self.author.head()
        size = self.source.size(self.own)
        body = self.author.body
        if head + size <= len(body):
            self.source.read_into(body, head, size)
            handle = self.node.publish(self._readings, body, head + size, self._timestamp, now_ms)
        else:
            handle = self._publish_long(head, size, now_ms)
        if handle > 0:
            self.author.published(handle)

    def _publish_long(self, head: int, size: int, now_ms: int) -> int:
        node = self.node
        code = node.publish_begin(self._readings, self._timestamp)
        if code == OK:
            code = node.publish_append(self.author.body, 0, head)
        while size and code == OK:
            piece = size if size < len(self._frame) else len(self._frame)
            self.source.read_into(self._frame, 0, piece)
            code = node.publish_append(self._frame, 0, piece)
            size -= piece
        return node.publish_end(self._readings, now_ms) if code == OK else code

    def _exchange(self) -> None:
        frame = self._frame
        box = self.box
        for transport, link in self._live:
            size = transport.receive_into(frame)
            if size > 0:
                box.state(self.clock.now_ms(), _RECEIVE)
            while size > 0:
                link.received(transport.last_wire_size)
                link.receive(frame, size, self.clock.now_ms())
                self._drain()
                size = transport.receive_into(frame)
            self._send_due(transport, link)
            box.state(self.clock.now_ms(), _IDLE)

    def _send_due(self, transport, link) -> None:
        """Send what is due while the carrier takes it; one that is down loses the frame, and
        later epochs send it again."""
        frame = self._frame
        while not transport.pending_size:
            size = link.poll_into(frame, self.clock.now_ms())
            if not size:
                break
            self.box.state(self.clock.now_ms(), _SEND)
            if transport.send(frame, size) == OK:
                link.sent(transport.last_wire_size)

    def _visit(self) -> None:
        """One visit each time the stick is plugged in."""
        if not self._stick.present():
            self._visited = False
            return
        if self._visited:
            return
        self._visited = True
        visit = Visit(self._stick, self._frame, self.clock.now_ms, self._drain)
        for peer_id, link in self._stick_links:
            visit.take_in(link, peer_id)
        self._consume()
        for peer_id, link in self._stick_links:
            visit.hand_out(link, peer_id)
        self.node.save(self.clock.now_ms())
        self._say(
            '{"event":"stick","read":%d,"frames_read":%d,"truncated":%d,"wrote":%d,'
            '"frames_wrote":%d,"failed":%d}'
            % (
                visit.bundles_in, visit.frames_in, visit.truncated,
                visit.bundles_out, visit.frames_out, visit.failed,
            )
        )  # fmt: skip

    def _consume(self) -> None:
        """The board's own client: it remembers what came, so that its next reading follows it."""
        node = self.node
        for _ in range(_EVENTS_PER_TURN):
            if node.next_event() != EVENT_MESSAGE:
                break
            if node.event_handle > self._recovered:
                self._saw(node.event_handle)
            node.done(node.event_handle)

    def _saw(self, handle: int) -> None:
        """Count a message of the log, and let our next reading come after it."""
        store = self.node.store
        self.author.saw(handle)
        if store.group == self._readings:
            self.logged += 1
            if not store.source:
                self.own += 1

    def flush(self) -> None:
        """Close the black box's last segment so that it can leave."""
        now_ms = self.clock.now_ms()
        self.clock.timestamp_into(self._timestamp)
        self.node.telemetry_flush(self._telemetry, now_ms, self._timestamp)
        self.node.save(now_ms)

    def asleep(self, asleep: bool) -> None:
        """Tell the black box that the device goes to sleep, or woke up."""
        self.box.state(self.clock.now_ms(), _LIGHT_SLEEP if asleep else _IDLE)
