"""A topic: one carrier that all members of a group hear (mobile paper, enhancement 1).

One send counts as a send to every listener, whoever sent it. An acknowledgement informs everybody
who hears it, and shows that its sender has the message, so it may be requested. A topic carries
one group, whose members are its listeners. Long bodies go over links of their own. Bytes:
docs/SPEC.md 13. It has the methods of a link: `receive`, `poll_into`, `wake_ms`.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import (
    FRAME_SIZE_MIN,
    FRAMES_PER_EPOCH_MAX,
    RECORD_HEADER_SIZE,
    TOPIC_DELAY_EPOCHS_MAX,
    TOPIC_SENDS_MAX,
    WAIT_MS_MAX,
)
from drupelet.base.memory import copy, find
from drupelet.base.time_ms import epochs_since
from drupelet.engine.inbox import OWED_TWICE
from drupelet.engine.states import HOLD, REQUEST, TOO_LONG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.engine.exchange import Exchange
    from drupelet.link.link import Link
    from drupelet.link.ports import NodePort

KIND_TOPIC = const(0x53)
_SENDER_AT = const(1)
_SENDER_SIZE = const(4)
_HEADER_SIZE = const(6)  # kind, sender, kind of the records
_KIND_RECORDS = const(0x40)
# A message is not repeated for this many epochs, in which everybody who heard it acknowledges it.
_ACKED_EPOCHS = const(5)

assert _ACKED_EPOCHS > TOPIC_DELAY_EPOCHS_MAX


class Topic:
    """A group's topic as one member uses it; `links` are its links to the listeners.

    The links are made by `Node.link`, with one profile, and polled by the topic only. `ids`: the
    device ids of the listeners, 4 bytes each, in the same order. `beside` tells the other links to
    a listener what the topic carries. The node's owner polls the topic like a link, and before
    those.
    """

    visits = False
    closed = False
    up = True  # the carrier is up: it is polled; otherwise the owner calls `turn`
    peer = -1  # no single peer
    plan = None

    def __init__(
        self, node: "NodePort", group: int, links: "list[Link]", ids: "bytes | bytearray",
        own_id: "bytes | bytearray", random_byte: "Callable[[], int]",
    ) -> None:  # fmt: skip
        """`group`: its number."""
        assert links and len(own_id) == _SENDER_SIZE
        assert len(ids) == _SENDER_SIZE * len(links)
        core = node.core
        self.core = core
        self.links = links
        self.attention = True
        self.group = core.members.group_row(group)
        for link in links:
            link.exchange.group_only = self.group
        self.ignored = 0  # frames of strangers, and our own that came back
        self._own_id = bytearray(own_id)
        self._ids = bytearray(ids)
        self._random_byte = random_byte
        self._codec = links[0].codec
        self._kind = _KIND_RECORDS | links[0].profile
        self._leader = links[0].peer  # the listener whose clock counts the epochs
        self._frames_left = FRAMES_PER_EPOCH_MAX
        self._epoch = self._now_epoch()
        # Messages not to be sent before an epoch, as a ring: their handles, and the epochs.
        self._held_back = [0] * core.pending.rows_max
        self._until = [0] * core.pending.rows_max
        self._next_held_back = 0
        # The last epoch in which owed acknowledgements may leave; -1: none is owed.
        self._ack_epoch = -1
        # The exchange of the sender whose frame is being read.
        self._speaker: "Exchange" = links[0].exchange
        self._seen_changes = -1
        self._finder: "Exchange" = links[0].exchange  # the first listener that it is due to
        self._rewind()
        node.links.append(self)

    def beside(self, link: "Link") -> None:
        """Let another live link to a listener leave to the topic what the topic carries."""
        for own in self.links:
            if own.peer == link.peer:
                link.exchange.topic = self

    def carries(self, peer: int, group: int, row: int) -> bool:
        """Return True if the topic carries a message to a listener, which it heard recently.

        `row`: the message's row in the peer's outbox, or -1 for an acknowledgement. Not a message
        that is too long, and each only a few times: a listener that we hear may not hear us.
        """
        if not self.up or group != self.group:
            return False
        if row >= 0:
            outbox = self.core.outboxes[peer]
            if outbox.state(row) & TOO_LONG or outbox.sends(row) >= TOPIC_SENDS_MAX:
                return False
        for link in self.links:
            if link.peer == peer:
                return not link.exchange.pace.is_silent()
        return False

    def _rewind(self) -> None:
        self._message_link = self._ack_link = self._request_link = 0
        for link in self.links:
            link.exchange.rewind()
            link.exchange.pace.begin_payload()

    def remove(self, id: "bytes | bytearray") -> None:
        """Remove a listener by its device id."""
        row = find(self._ids, _SENDER_SIZE, len(self.links), id, 0, _SENDER_SIZE)
        if row >= 0:
            removed = self.links.pop(row)
            if removed.peer == self._leader and self.links:
                self._follow(self.links[0].peer)
            self._ids = self._ids[: row * _SENDER_SIZE] + self._ids[(row + 1) * _SENDER_SIZE :]

    def _follow(self, peer: int) -> None:
        """Count epochs by another listener's clock; forget when messages were sent."""
        self._leader = peer
        self._epoch = self._now_epoch()
        self._ack_epoch = -1 if self._ack_epoch < 0 else self._epoch
        for row in range(len(self._held_back)):
            self._held_back[row] = 0

    def _now_epoch(self) -> int:
        return self.core.clocks.epochs[self._leader]

    # --- in ---

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Handle a frame of the topic; OK, or E_PEER (counted)."""
        if size <= _HEADER_SIZE or frame[0] != KIND_TOPIC:
            self.core.malformed += 1
            return E_PEER
        row = find(self._ids, _SENDER_SIZE, len(self.links), frame, _SENDER_AT, _SENDER_SIZE)
        if row < 0:
            self.ignored += 1
            return OK
        link = self.links[row]
        self._speaker = link.exchange
        self.core.now_ms = now_ms
        link.hear(now_ms)
        if frame[_HEADER_SIZE - 1] != self._kind:
            return E_PEER
        # A topic has the methods of an exchange that a stateless codec calls.
        code = self._codec.parse(self, frame, _HEADER_SIZE, size)
        if code == E_PEER:
            link.exchange.bad_record()
        return code

    def on_ack(self, buf: bytearray, at: int) -> None:
        """Handle an ACK: the speaker holds the message, so it may be requested if we lack it."""
        if self.core.store.find(buf, at) <= 0:
            self._speaker.on_offer(buf, at)
        else:
            self._speaker.on_ack(buf, at)

    def on_gone(self, buf: bytearray, at: int) -> None:
        """Ignore it: on a topic, an ACK always means that the speaker holds the message."""

    def on_offer(self, buf: bytearray, at: int) -> None:
        """Handle an OFFER as on a link."""
        self._speaker.on_offer(buf, at)

    def on_request(self, buf: bytearray, at: int) -> None:
        """Handle a REQUEST to all: the author answers at once, others after a random wait."""
        speaker = self._speaker
        speaker.on_request(buf, at)
        entry = speaker.inbox.find(buf, at)
        if entry >= 0 and speaker.inbox.kind(entry) == OWED_TWICE:
            speaker.inbox.set_kind(entry, 0)  # on a topic, an ACK means that we hold the message
        store = self.core.store
        handle = store.find(buf, at)
        if handle > 0 and store.load(handle) == OK:
            wait = self._random_byte() % TOPIC_DELAY_EPOCHS_MAX if store.source else 0
            self._not_before(handle, wait)

    def _not_before(self, handle: int, epochs: int) -> None:
        """Do not send a message for the next `epochs` epochs."""
        row = self._next_held_back
        for other in range(len(self._held_back)):
            if self._held_back[other] == handle:
                row = other
        if row == self._next_held_back:
            self._next_held_back = (row + 1) % len(self._held_back)
        self._held_back[row] = handle
        self._until[row] = (self._now_epoch() + epochs) & 0xFFFF

    def _waits(self, handle: int) -> bool:
        """Return True if a message must not be sent yet: it was sent recently."""
        for row in range(len(self._held_back)):
            if self._held_back[row] == handle:
                return 0 < epochs_since(self._until[row], self._now_epoch()) <= _ACKED_EPOCHS
        return False

    def on_message(
        self, group: bytearray, group_at: int, stamp: bytearray, stamp_at: int, body: bytearray,
        at: int, size: int,
    ) -> None:  # fmt: skip
        """Handle a MESSAGE, which has reached all listeners, too."""
        speaker = self._speaker
        speaker.on_message(group, group_at, stamp, stamp_at, body, at, size)
        handle = self.core.message_handle
        if not handle:
            return
        self._not_before(handle, _ACKED_EPOCHS)
        for link in self.links:
            outbox = link.exchange.outbox
            row = outbox.row_of(handle)
            waits = row >= 0 and not outbox.state(row) & (HOLD | REQUEST)
            if waits and link.exchange is not speaker:
                outbox.note_sent(row, 1, link.exchange.epoch)

    # --- out ---

    def turn(self, now_ms: int, up: bool = False) -> None:
        """Advance the clocks; `up`: the carrier is up, so the topic carries its group."""
        self.up = up
        for link in self.links:
            self.core.now_ms = now_ms
            link.turn(now_ms)
            link.exchange.pace.begin_frame()
            self.attention = link.take_attention() or self.attention

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """Write the next frame that is due; return its size, or 0. One payload per epoch."""
        self.turn(now_ms, True)
        epoch = self.core.clocks.advance(self._leader, now_ms)
        if epochs_since(epoch, self._epoch):
            self._epoch = epoch
            self._frames_left = FRAMES_PER_EPOCH_MAX
            self._rewind()
        elif self._seen_changes != self._changes():
            self._rewind()
        if not self._frames_left or len(frame) < FRAME_SIZE_MIN:
            return 0
        frame[0] = KIND_TOPIC
        copy(frame, _SENDER_AT, self._own_id, 0, _SENDER_SIZE)
        frame[_HEADER_SIZE - 1] = self._kind
        end = self._codec.fill(self, frame, _HEADER_SIZE, len(frame))
        if end == _HEADER_SIZE:
            self.attention = False
            self._seen_changes = self._changes()
            return 0
        self._frames_left -= 1
        return self.core.durable_size(end)

    def take_ack(self, buf: bytearray, at: int) -> bool:
        """Write the next id that is owed to any listener; all are informed by it."""
        if at == _HEADER_SIZE + RECORD_HEADER_SIZE and not self._acks_due():
            return False  # too little for a frame of its own: wait for more
        while self._ack_link < len(self.links):
            exchange = self.links[self._ack_link].exchange
            if exchange.take_ack(buf, at):
                if self.core.message_handle:
                    for link in self.links:  # everybody hears it
                        link.exchange.inbox.move_handle(self.core.message_handle, 0)
                return True
            self._ack_link += 1
        self._ack_epoch = -1
        return False

    def _acks_due(self) -> bool:
        """Return True if acknowledgements are due: after a random wait, to avoid collisions."""
        epoch = self._now_epoch()
        if self._ack_epoch < 0:
            owes = False
            for link in self.links:
                owes = owes or link.exchange.inbox.owes()
            if not owes:
                return False
            wait = self._random_byte() % TOPIC_DELAY_EPOCHS_MAX
            self._ack_epoch = (epoch + wait) & 0xFFFF
        # False only if it is ahead; after a long silence it may be far in the past.
        return not 0 < epochs_since(self._ack_epoch, epoch) < TOPIC_DELAY_EPOCHS_MAX

    def take_request(self, buf: bytearray, at: int) -> bool:
        """Write the next id to request."""
        while self._request_link < len(self.links):
            link = self.links[self._request_link]
            if self._is_there(link) and link.exchange.take_request(buf, at):
                return True
            self._request_link += 1
        return False

    def next_message(self) -> bool:
        """Select the next message that is due to any listener; False if there is none."""
        while self._message_link < len(self.links):
            link = self.links[self._message_link]
            exchange = link.exchange
            while self._is_there(link) and exchange.next_message():
                if not self._waits(self.core.message_handle):
                    self._finder = exchange
                    return True
                exchange.pass_message()
            self._message_link += 1
        return False

    def _is_there(self, link: "Link") -> bool:
        """Return False for a listener that sleeps by the wake plan and would not hear us."""
        return link.plan is None or link.plan.there(link.peer, self.core.now_ms)

    @property
    def message_group(self) -> int:
        """See Exchange."""
        return self.group

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        """Copy bytes of the selected message's stored body; False if the store fails."""
        return self._finder.body_into(buf, at, offset, size)

    def put_message(self) -> None:
        """Record that the selected message was sent to every listener that may lack it."""
        handle = self.core.message_handle
        self.core.is_telemetry = self.core.is_box(self.group)
        self._finder.pass_message()
        for link in self.links:
            outbox = link.exchange.outbox
            row = outbox.row_of(handle)
            if row >= 0 and outbox.is_open(row) and self._is_there(link):
                outbox.unmark(row, TOO_LONG)
                link.exchange.note_sent_whole(row)

    def too_long(self) -> None:
        """Skip the selected message, which fits no frame: other links carry it in pieces."""
        self._finder.pass_message()
        for link in self.links:
            outbox = link.exchange.outbox
            row = outbox.row_of(self.core.message_handle)
            if row >= 0:
                outbox.mark(row, TOO_LONG)

    def take_offer(self, buf: bytearray, at: int) -> bool:  # noqa: ARG002 - a codec asks
        """Offer nothing: one send reaches everybody."""
        return False

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        """Count a record once, however many listeners hear it."""
        self._speaker.count_record(sent, kind, size)

    def sent(self, wire_size: int) -> None:
        """Count carrier bytes as on a link."""
        self.links[0].sent(wire_size)

    def received(self, wire_size: int) -> None:
        """Count carrier bytes as on a link."""
        self.links[0].received(wire_size)

    def damaged(self, count: int) -> None:
        """Count damaged frames as on a link."""
        self.links[0].damaged(count)

    # --- when ---

    def _changes(self) -> int:
        """Return a number that changes whenever something new is due to a listener."""
        total = 0
        for link in self.links:
            total += link.exchange.outbox.changes
        return total & 0x3FFFFFFF

    def wake_ms(self, now_ms: int) -> int:
        """Return the ms until `poll_into` may have a frame, unless a frame comes in before."""
        has_news = self.attention or self._seen_changes != self._changes()
        waits = self._ack_epoch >= 0
        for link in self.links:
            waits = waits or (self._is_there(link) and link.exchange.pace.next_due_epochs() > 0)
        if not has_news and not waits:
            return WAIT_MS_MAX
        if has_news and self._frames_left:
            return 0
        return self.core.clocks.until_ms(self._leader, now_ms, 1)
