"""A topic: one carrier that all members of a group hear (mobile paper, enhancement 1).

One send counts as a send to every listener, whoever sent it; an acknowledgement informs all who
hear it; and an id that is acknowledged there may be asked for, for its sender holds it. A topic
carries one group, whose members are its listeners. Long messages go by links of their own. Bytes:
docs/SPEC.md 13. Same shape as a link: `receive`, `poll_into`, `wake_ms`.
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import (
    FRAME_SIZE_MIN,
    FRAMES_PER_EPOCH_MAX,
    ID_SIZE,
    RECORD_HEADER_SIZE,
    TOPIC_DELAY_EPOCHS_MAX,
    TOPIC_SENDS_MAX,
    WAIT_MS_MAX,
)
from drupelet.base.memory import copy, find
from drupelet.base.time_ms import epochs_since
from drupelet.engine.members import SHARED
from drupelet.engine.slots import OWED, OWED_TWICE, PEER_ROW, PENDING, USED
from drupelet.engine.states import ACK, DO_ACK, HOLD, QUEUED, REQUEST, step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.link.link import Link
    from drupelet.node import Node

KIND_TOPIC = const(0x53)
_SENDER_AT = const(1)
_SENDER_SIZE = const(4)
_HEADER_SIZE = const(6)  # kind, sender, kind of the records
_KIND_RECORDS = const(0x40)
# After so many epochs whoever heard a message has acknowledged it: it is not sent again before.
_ACKED_EPOCHS = const(5)

assert _ACKED_EPOCHS > TOPIC_DELAY_EPOCHS_MAX


class Topic:
    """A group's topic as one member uses it; `links` are its links to the listeners.

    The links are made by `Node.link`, all of one profile, and are polled by nobody else; `ids` are
    the listeners' device ids, 4 bytes each, in the same order. `beside` tells a listener's other
    links what they need not send. The node's owner polls it as any link, before those.
    """

    visits = False
    interactive = False
    closed = False
    up = True  # its carrier: polled; else the owner calls `turn`
    peer = -1  # of nobody alone
    plan = None

    def __init__(
        self, node: "Node", group: int, links: "list[Link]", ids: "bytes | bytearray",
        own_id: "bytes | bytearray", random_byte: "Callable[[], int]",
    ) -> None:  # fmt: skip
        assert links and len(own_id) == _SENDER_SIZE
        assert len(ids) == _SENDER_SIZE * len(links)
        self.core = node.core
        self.links = links
        self.attention = True
        self.group = node.core.members.group_slot(group)
        self.ignored = 0  # frames of strangers, and our own that came back
        self._own_id = bytearray(own_id)
        self._ids = bytearray(ids)
        self._random_byte = random_byte
        self._codec = links[0].codec
        self._kind = _KIND_RECORDS | links[0].profile
        self._leader = links[0].peer  # by whose clock epochs are counted
        self._train = FRAMES_PER_EPOCH_MAX
        self._epoch = self._now_epoch()
        self._long = bytearray(node.core.slots.count)  # 1: fits no frame
        self._after = [0] * node.core.slots.count  # the epoch before which it is not sent again
        self._ack_epoch = -1  # when acknowledgements leave at the latest; -1: none is owed
        self._speaker = links[0]  # whose frame is read
        self._seen_changes = -1
        self._rewind()
        node.links.append(self)  # type: ignore[arg-type] # it has all that is asked of it there

    def beside(self, link: "Link") -> None:
        """What a listener is reached with here, its other live link leaves to the topic."""
        for own in self.links:
            if own.peer == link.peer:
                link.topic = self

    def carries(self, peer: int, slot: int) -> bool:
        """Whether a message and its acknowledgement reach a listener here: it was heard of late.

        Not one that is too long, and not for ever: who hears us may not be heard here.
        """
        slots = self.core.slots
        if not self.up or slots.group(slot) != self.group or self._long[slot]:
            return False
        for link in self.links:
            if link.peer == peer:
                few = slots.send_counts[link.cell(slot)] < TOPIC_SENDS_MAX
                return few and not link.is_silent()
        return False

    def _rewind(self) -> None:
        count = self.core.slots.count
        self._ack_left = self._message_left = count
        self._owed_at = 0
        self._request_link = 0
        for link in self.links:
            link.begin_payload()

    def remove(self, id: "bytes | bytearray") -> None:
        """Somebody listens no more."""
        row = find(self._ids, _SENDER_SIZE, len(self.links), id, 0, _SENDER_SIZE)
        if row >= 0:
            gone = self.links.pop(row)
            if gone.peer == self._leader and self.links:
                self._follow(self.links[0].peer)
            self._ids = self._ids[: row * _SENDER_SIZE] + self._ids[(row + 1) * _SENDER_SIZE :]

    def _follow(self, peer: int) -> None:
        """Count epochs by this listener's clock: what was sent when is forgotten."""
        self._leader = peer
        self._epoch = self._now_epoch()
        self._ack_epoch = -1 if self._ack_epoch < 0 else self._epoch
        self._after = [self._epoch] * len(self._after)

    def _now_epoch(self) -> int:
        return self.core.clocks.epochs[self._leader]

    # --- in ---

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Take in a frame of the topic; OK, or E_PEER (counted)."""
        if size <= _HEADER_SIZE or frame[0] != KIND_TOPIC:
            self.core.malformed += 1
            return E_PEER
        link = self._of(frame)
        if link is None:
            self.ignored += 1
            return OK
        self._speaker = link
        self.core.now_ms = now_ms
        link.hear(now_ms)
        if frame[_HEADER_SIZE - 1] != self._kind:
            return E_PEER
        # What record codecs without state of their own ask of a link, a topic has.
        code = self._codec.parse(self, frame, _HEADER_SIZE, size)  # type: ignore[arg-type]
        if code == E_PEER:
            link.bad_record()
        return code

    def _of(self, frame: bytearray) -> "Link | None":
        row = find(self._ids, _SENDER_SIZE, len(self.links), frame, _SENDER_AT, _SENDER_SIZE)
        return self.links[row] if row >= 0 else None

    def on_ack(self, buf: bytearray, at: int) -> None:
        """The speaker holds this message: who lacks it may ask for it."""
        core = self.core
        if core.slots.find(buf, at) < 0 and core.store.find(buf, at) <= 0:
            self._speaker.on_offer(buf, at)
        else:
            self._speaker.on_ack(buf, at)

    def on_offer(self, buf: bytearray, at: int) -> None:
        """As on a link."""
        self._speaker.on_offer(buf, at)

    def on_request(self, buf: bytearray, at: int) -> None:
        """The speaker asks all: the author answers, others after a while if they hear nothing."""
        self._speaker.on_request(buf, at)
        owed = self.core.offers.find(buf, at, OWED, OWED_TWICE, self._speaker.peer)
        if owed >= 0:
            self.core.offers.kinds[owed] = 0  # an ACK means here that we hold it
        slot = self.core.slots.find(buf, at)
        if slot >= 0:
            wait = self._random_byte() % TOPIC_DELAY_EPOCHS_MAX if self._is_theirs(slot) else 0
            self._not_before(slot, wait)

    def _not_before(self, slot: int, epochs: int) -> None:
        self._after[slot] = (self._now_epoch() + epochs) & 0xFFFF

    def on_message(
        self, group: bytearray, group_at: int, stamp: bytearray, stamp_at: int, body: bytearray,
        at: int, size: int,
    ) -> None:  # fmt: skip
        """A message that all listeners have just been sent."""
        speaker = self._speaker
        speaker.on_message(group, group_at, stamp, stamp_at, body, at, size)
        slot = self.core.message_slot
        if slot < 0:
            return
        self._not_before(slot, _ACKED_EPOCHS)
        for link in self.links:
            cell = link.cell(slot)
            if link is not speaker and not self.core.slots.states[cell] & (HOLD | REQUEST):
                self.core.slots.sent(cell, 1, link.epoch)

    # --- out ---

    def turn(self, now_ms: int, up: bool = False) -> None:
        """Let time pass, as while its carrier is down: what goes another way goes there."""
        self.up = up
        for link in self.links:
            self.core.now_ms = now_ms
            link.turn(now_ms)
            link.begin_frame()
            self.attention = self.attention or link.attention
            link.attention = False  # the topic's own from now on

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """Write the next frame due; its size, or 0. One payload per epoch for all listeners."""
        self.turn(now_ms, True)
        epoch = self.core.clocks.advance(self._leader, now_ms)
        if epochs_since(epoch, self._epoch):
            self._epoch = epoch
            self._train = FRAMES_PER_EPOCH_MAX
            self._rewind()
        elif self._seen_changes != self._changes():
            self._rewind()
        if not self._train or len(frame) < FRAME_SIZE_MIN:
            return 0
        self._firm = False
        frame[0] = KIND_TOPIC
        copy(frame, _SENDER_AT, self._own_id, 0, _SENDER_SIZE)
        frame[_HEADER_SIZE - 1] = self._kind
        end = self._codec.fill(self, frame, _HEADER_SIZE, len(frame))  # type: ignore[arg-type]
        if end == _HEADER_SIZE:
            self.attention = False
            self._seen_changes = self._changes()
            return 0
        self._train -= 1
        return 0 if self._firm and self.core.store.barrier() != OK else end

    def take_ack(self, buf: bytearray, at: int) -> bool:
        """Write the next id that we owe any listener: it informs them all."""
        if at == _HEADER_SIZE + RECORD_HEADER_SIZE and not self._acks_due():
            return False  # alone in a frame they can wait for company
        slots = self.core.slots
        while self._ack_left:
            slot = (slots.oldest - self._ack_left) % slots.count
            self._ack_left -= 1
            owed = slots.group(slot) == self.group and self._settle(slot)
            if owed and slots.id_into(slot, buf, at):
                self._firm = True
                return True
        offers = self.core.offers
        while self._owed_at < offers.count:
            entry = self._owed_at
            self._owed_at += 1
            if offers.kinds[entry] == OWED and self._listens(offers.peer_of(entry)):
                copy(buf, at, offers.ids, entry * ID_SIZE, ID_SIZE)
                offers.kinds[entry] = 0
                self._firm = True
                return True
        self._ack_epoch = -1
        return False

    def _acks_due(self) -> bool:
        """Acknowledgements leave after a random wait, so that those of many do not collide."""
        epoch = self._now_epoch()
        if self._ack_epoch < 0:
            if not self._owes():
                return False
            wait = self._random_byte() % TOPIC_DELAY_EPOCHS_MAX
            self._ack_epoch = (epoch + wait) & 0xFFFF
        # Not ahead: behind a long silence it is any number of epochs past.
        return not 0 < epochs_since(self._ack_epoch, epoch) < TOPIC_DELAY_EPOCHS_MAX

    def _owes(self) -> bool:
        core = self.core
        slots = core.slots
        for link in self.links:
            base = link.peer * slots.count
            for slot in range(slots.count):
                if slots.states[base + slot] & ACK and slots.group(slot) == self.group:
                    return True
        offers = core.offers
        for entry in range(offers.count):
            if offers.kinds[entry] == OWED and self._listens(offers.peer_of(entry)):
                return True
        return False

    def _settle(self, slot: int) -> bool:
        """Clear what is owed for a slot to all listeners; whether anything was."""
        core = self.core
        owed = False
        for link in self.links:
            state = core.slots.states[link.peer * core.slots.count + slot]
            if state & ACK:
                owed = True
                core.window.set_state(slot, link.peer, step(state, DO_ACK))
        return owed

    def _is_theirs(self, slot: int) -> bool:
        store = self.core.store
        return store.load(self.core.slots.handles[slot]) == OK and store.source > 0

    def _listens(self, peer: int) -> bool:
        for link in self.links:
            if link.peer == peer:
                return True
        return False

    def take_request(self, buf: bytearray, at: int) -> bool:
        """Write the next id to ask for."""
        while self._request_link < len(self.links):
            link = self.links[self._request_link]
            if self._is_there(link) and link.take_request(buf, at):
                return True
            self._request_link += 1
        return False

    def next_message(self) -> bool:
        """Look for the next message that any listener is to be sent now."""
        core = self.core
        slots = core.slots
        while self._message_left:
            slot = (slots.oldest - self._message_left) % slots.count
            ready = slots.flags[slot] & (USED | PENDING) == USED and not self._waits(slot)
            if ready and slots.group(slot) == self.group:
                for link in self.links:
                    due = self._is_there(link) and link.message_due(slot)
                    if due and core.store.load(slots.handles[slot]) == OK:
                        core.message_slot = slot
                        return True
            self._message_left -= 1
        return False

    def _waits(self, slot: int) -> bool:
        """Whether what a slot holds was sent of late: acknowledgements take their time here."""
        return 0 < epochs_since(self._after[slot], self._now_epoch()) <= _ACKED_EPOCHS

    def _is_there(self, link: "Link") -> bool:
        """False for a listener that sleeps by the wake plan: it would not hear it."""
        return link.plan is None or link.plan.there(link.peer, self.core.now_ms)

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        """Copy bytes of the body of the message that `next_message` found."""
        handle = self.core.slots.handles[self.core.message_slot]
        return self.core.store.read_into(handle, offset, buf, at, size) == size

    def put_message(self) -> None:
        """The message is in the frame: it was sent to every listener that may lack it."""
        self._message_left -= 1
        self._long[self.core.message_slot] = 0
        self._firm = True
        slot = self.core.message_slot
        for link in self.links:
            state = self.core.slots.states[link.cell(slot)]
            lacks = state & (QUEUED | REQUEST) and not state & HOLD
            if lacks and link.sight(slot) == SHARED and self._is_there(link):
                link.note_sent(slot)

    def too_long(self) -> None:
        """It fits no frame: a link of its own carries it in pieces."""
        self._message_left -= 1
        self._long[self.core.message_slot] = 1

    def take_offer(self, buf: bytearray, at: int) -> bool:  # noqa: ARG002 - a codec asks
        """Nothing is offered: one send reaches all."""
        return False

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        """Account for a record once, however many hear it."""
        self._speaker.count_record(sent, kind, size)

    def sent(self, wire_size: int) -> None:
        """As on a link."""
        self._speaker.sent(wire_size)

    def received(self, wire_size: int) -> None:
        """As on a link."""
        self._speaker.received(wire_size)

    def damaged(self, count: int) -> None:
        """As on a link."""
        self._speaker.damaged(count)

    # --- when ---

    def _changes(self) -> int:
        """Moves whenever something new is due to some listener."""
        total = 0
        for link in self.links:
            total += self.core.window.rows[link.peer * PEER_ROW + PEER_ROW - 1]
        return total & 0x3FFFFFFF

    def wake_ms(self, now_ms: int) -> int:
        """Milliseconds until `poll_into` may have something, unless a frame comes first."""
        fresh = self.attention or self._seen_changes != self._changes()
        waits = self._ack_epoch >= 0
        for link in self.links:
            waits = waits or (self._is_there(link) and link.next_due_epochs() > 0)
        if not fresh and not waits:
            return WAIT_MS_MAX
        return 0 if fresh and self._train else self.core.clocks.until_ms(self._leader, now_ms, 1)
