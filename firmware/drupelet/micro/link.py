"""A micro member's link to one peer: handles records, and selects what is due (BSP v1 4).

It has the methods of an exchange that `wire.bsp1` calls to read and write records. Beside the rows
of `Micro`, it keeps ids of messages without a row, as many for each peer:

    entry   id 32 | kind u8 | send count u8 | send epoch u8
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import BACKOFF_EPOCHS_MAX, DEPENDENCIES_MAX, ID_SIZE, TIMESTAMP_SIZE
from drupelet.base.memory import copy, equal, fill, find
from drupelet.base.time_ms import epochs_since
from drupelet.micro.member import CELL_SIZE, CELLS_AT, FRAME_SIZE, HOLD, NEW_AT, TIMESTAMP_AT
from drupelet.wire import bsp1

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.micro.member import Micro

_ENTRY_SIZE = const(35)
_OFFERED = const(1)  # to be requested once: the peer repeats its offer
_WANTED = const(2)  # a missing parent: requested until it comes
_OWED = const(3)  # an acknowledgement of a message that was removed
_OWED_TWICE = const(4)  # two ACKs to a peer that requested it (docs/SPEC.md 4.2)
_WANTED_SENDS = const(8)  # a missing parent may be evicted after so many requests
_KIND_RECORDS = const(0x40)  # frame kind, docs/SPEC.md 2; the profile's number is 0
_DOUBLINGS_MAX = const(6)  # back-off: 2, 4, 8 ... 64 epochs (BSP v1 4.3; as backoff.py)
_NEVER_EPOCHS = const(1 << 14)
_SILENT_EPOCHS = const(128)  # before send epochs, modulo 2^8, look new again

assert 1 << _DOUBLINGS_MAX == BACKOFF_EPOCHS_MAX

# What one node knows of one message at one peer (BSP v1 4.1): the three flags of the text are the
# state of a cell, HOLD and these two. Every event from a peer has a result; NO means a mistake of
# our own.
_ACK = const(2)  # we owe the peer an acknowledgement
_REQUEST = const(4)  # the peer requested it since we last offered or sent it
_NO = const(0xFF)

_GOT_ACK = const(0)
_GOT_OFFER = const(1)
_GOT_REQUEST = const(2)
_GOT_MESSAGE = const(3)
_DO_ACK = const(4)
_DO_OFFER = const(5)
_DO_SEND = const(6)
_EVENTS = const(7)

# A peer that requests a message that it acknowledged has lost it: HOLD is cleared. To send to a
# holder, to offer a requested message, or to acknowledge one that is not owed is our own mistake.
# fmt: off
_TABLE = bytes((
    # ack offer request message do_ack do_offer do_send
    1, 3, 4, 3, _NO, 0, 0,      # -
    1, 3, 4, 3, _NO, _NO, _NO,  # H
    3, 3, 6, 3, 0, 2, 2,        # A
    3, 3, 6, 3, 1, _NO, _NO,    # HA
    1, 3, 4, 3, _NO, _NO, 0,    # R
    1, 3, 4, 3, _NO, _NO, _NO,  # HR: never entered, listed so that the table is whole
    3, 3, 6, 3, 4, _NO, 2,      # AR
    3, 3, 6, 3, 5, _NO, _NO,    # HAR: never entered
))
# fmt: on
assert len(_TABLE) == 8 * _EVENTS


class MicroLink:
    """One peer over one line; `interactive`: 0 batch mode, 1 interactive mode."""

    message_group = 0  # the only group

    def __init__(self, node: "Micro", interactive: int) -> None:
        self.core = node
        self._cell = CELLS_AT + CELL_SIZE * node.peers
        assert self._cell < node.stride, "more links than peers_max"
        node.peers += 1
        self._interactive = interactive
        self._pool = bytearray(_ENTRY_SIZE * node.offers_each)
        self._seen = -1  # `node.changes` when it was looked at last
        self._rest = self._from = 0  # nothing is due for `_rest` epochs from epoch `_from` on
        self._closed = -1  # the epoch whose payload is complete
        self._used = False
        self._heard_epoch = -1

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Handle one frame; OK, or E_PEER (counted): records before the fault were handled."""
        self._heard_epoch = self.core.clocks.advance(0, now_ms)
        self._rest = 0
        code = E_PEER
        if size > 1 and frame[0] == _KIND_RECORDS:
            code = bsp1.parse(self, frame, 1, size)  # type: ignore[arg-type]
        if code != OK:
            self.core.malformed += 1
        return code

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """Write the next frame that is due, at most 251 bytes; return its size, or 0.

        One payload, a train of frames, per epoch.
        """
        epoch = self.core.clocks.advance(0, now_ms)
        if epochs_since(epoch, self._heard_epoch) > _SILENT_EPOCHS:
            self._heard_epoch = -1
        if self._seen != self.core.changes:
            self._seen = self.core.changes
            self._rest = 0
        if self._closed == epoch or epochs_since(epoch, self._from) < self._rest:
            return 0
        if (size := bsp1.fill(self, frame, 1, FRAME_SIZE)) > 1:  # type: ignore[arg-type]
            frame[0] = _KIND_RECORDS
            self._used = True
            return size
        if self._used:
            self._used = False
            self._closed = epoch
        self._from = epoch
        self._rest = self._soonest()
        return 0

    def wake_ms(self, now_ms: int) -> int:
        """Return the ms until `poll_into` may have a frame, unless a frame comes in before."""
        clocks = self.core.clocks
        epoch = clocks.epochs[0]
        left = self._rest - epochs_since(epoch, self._from)
        if left <= 0 or self._seen != self.core.changes:
            left = 1 if self._closed == epoch else 0
        return clocks.until_ms(0, now_ms, left)

    def _soonest(self) -> int:
        """Return the epochs until something is due again, at least 1."""
        node = self.core
        soonest = _NEVER_EPOCHS
        for row in range(node.rows):
            at = row * node.stride + self._cell
            if not node.table[at] & HOLD:
                soonest = min(soonest, self._wait(node.table, at))
        for entry in range(node.offers_each):
            at = entry * _ENTRY_SIZE + ID_SIZE
            if self._pool[at] == _WANTED:
                soonest = min(soonest, self._wait(self._pool, at))
        return max(soonest, 1)

    def _wait(self, table: bytearray, at: int) -> int:
        """Return the epochs until the cell or entry whose counts follow `at` is due; <= 0: now."""
        count = table[at + 1]
        if not count:
            return 0
        doublings = 1 if self._heard_since(table[at + 2]) else min(count, _DOUBLINGS_MAX)
        return (1 << doublings) - ((self.core.clocks.epochs[0] - table[at + 2]) & 0xFF)

    def _heard_since(self, sent_epoch: int) -> bool:
        return self._heard_epoch >= 0 and (self._heard_epoch - sent_epoch) & 0xFF < _SILENT_EPOCHS

    def _sent(self, table: bytearray, at: int) -> None:
        # The count of a missing parent keeps rising, so that it can be evicted one day.
        if table is not self._pool and self._heard_since(table[at + 2]):
            table[at + 1] = 0
        table[at + 1] = min(table[at + 1] + 1, 255)
        table[at + 2] = self.core.clocks.epochs[0] & 0xFF

    # --- records in ---

    def on_ack(self, buf: bytearray, at: int) -> None:
        """Handle an ACK: the peer holds this message."""
        self._step(self.core.find(buf, at), _GOT_ACK)

    def on_gone(self, buf: bytearray, at: int) -> None:
        """Do nothing: a request for a message that is gone ends when its entry is evicted."""

    def on_request(self, buf: bytearray, at: int) -> None:
        """Handle a REQUEST: the message is due at once."""
        if (cell := self._step(self.core.find(buf, at), _GOT_REQUEST)) >= 0:
            self.core.table[cell + 1] = 0
        elif self.core.gone(buf, at):
            self._note(buf, at, _OWED_TWICE)  # tell the peer not to wait for it any more

    def on_offer(self, buf: bytearray, at: int) -> None:
        """Handle an OFFER: acknowledge the message if we had it, else request it."""
        if self._step(self.core.find(buf, at), _GOT_OFFER) < 0:
            self._note(buf, at, _OWED if self.core.gone(buf, at) else _OFFERED)

    def on_message(
        self, group: bytearray, group_at: int, stamp: bytearray, stamp_at: int, body: bytearray,
        at: int, size: int,
    ) -> None:  # fmt: skip
        """Handle a MESSAGE: group id (32 bytes), timestamp (8), body, each in its own buffer."""
        node = self.core
        if not equal(group, group_at, node.group_ids, 0, ID_SIZE):
            return
        node.identify(stamp, stamp_at, body, at, size)
        row = node.find(node.id, 0)
        if row < 0 and not node.gone(node.id, 0):
            # Even if it is refused: its parents need the entry, and the peer repeats its offer.
            self._drop(node.id, 0)
            if self._ready(body, at, size):
                row = node.take(stamp, stamp_at, body, at, size)
        else:
            node.duplicates += 1
            if row < 0:
                self._note(node.id, 0, _OWED)
        self._step(row, _GOT_MESSAGE)

    def _ready(self, body: bytearray, at: int, size: int) -> bool:
        """Return True if all dependencies are here; else request the missing ones."""
        node = self.core
        count = body[at] if size else 0
        if count > DEPENDENCIES_MAX or count * ID_SIZE >= max(size, 1):
            node.malformed += 1
            return False
        missing = 0
        for parent in range(count):
            id_at = at + 1 + parent * ID_SIZE
            if node.find(body, id_at) < 0 and not node.gone(body, id_at):
                missing += 1
                self._note(body, id_at, _WANTED)
        if missing:
            node.refused += 1
        return not missing

    def _step(self, row: int, event: int) -> int:
        """Apply an event to a row; return the offset of its cell, or -1 if there is no row."""
        if row < 0:
            return -1
        table = self.core.table
        cell = row * self.core.stride + self._cell
        after = _TABLE[table[cell] * _EVENTS + event]
        assert after != _NO
        table[cell] = after
        return cell

    # --- ids without a row ---

    def _note(self, id: bytearray, at: int, kind: int) -> None:
        pool = self._pool
        entry = find(pool, _ENTRY_SIZE, self.core.offers_each, id, at, ID_SIZE)
        if entry < 0 or not pool[entry * _ENTRY_SIZE + ID_SIZE]:
            if (entry := self._victim(kind)) < 0:
                return
            fill(pool, entry * _ENTRY_SIZE, _ENTRY_SIZE, 0)
            copy(pool, entry * _ENTRY_SIZE, id, at, ID_SIZE)
            pool[entry * _ENTRY_SIZE + ID_SIZE + 2] = self.core.clocks.epochs[0] & 0xFF
        if pool[entry * _ENTRY_SIZE + ID_SIZE] < kind:
            pool[entry * _ENTRY_SIZE + ID_SIZE] = kind

    def _victim(self, kind: int) -> int:
        """Return a free entry, else the oldest one that may be evicted, or -1.

        An offer does not evict one of the present epoch: offers come in log order, and the first
        ones are those that can be taken in now.
        """
        pool = self._pool
        oldest = oldest_age = -1
        for entry in range(self.core.offers_each):
            at = entry * _ENTRY_SIZE + ID_SIZE
            present_kind = pool[at]
            if not present_kind:
                return entry
            age = (self.core.clocks.epochs[0] - pool[at + 2]) & 0xFF
            stays = pool[at + 1] < _WANTED_SENDS if present_kind == _WANTED else not age
            if kind == _WANTED and present_kind != _WANTED:
                stays = False
            if not stays and age > oldest_age:
                oldest = entry
                oldest_age = age
        return oldest

    def _drop(self, id: bytearray, at: int) -> None:
        entry = find(self._pool, _ENTRY_SIZE, self.core.offers_each, id, at, ID_SIZE)
        if entry >= 0:
            self._pool[entry * _ENTRY_SIZE + ID_SIZE] = 0

    def _take_entry(self, buf: bytearray, at: int, owed: bool) -> bool:
        """Write the id of the next entry that is owed an ACK, or that is to be requested."""
        pool = self._pool
        for entry in range(self.core.offers_each):
            cell = entry * _ENTRY_SIZE + ID_SIZE
            kind = pool[cell]
            waits = kind == _WANTED and self._wait(pool, cell) > 0
            if kind and owed == (kind >= _OWED) and not waits:
                self._sent(pool, cell)
                if kind != _WANTED:
                    pool[cell] = _OWED if kind == _OWED_TWICE else 0
                copy(buf, at, pool, entry * _ENTRY_SIZE, ID_SIZE)
                return True
        return False

    # --- records out ---

    def take_ack(self, buf: bytearray, at: int) -> bool:
        """Write the next id that is owed an acknowledgement; False if there is none."""
        return self._take(buf, at, _DO_ACK) or self._take_entry(buf, at, True)

    def take_request(self, buf: bytearray, at: int) -> bool:
        """Write the next id to request; False if there is none."""
        return self._take_entry(buf, at, False)

    def take_offer(self, buf: bytearray, at: int) -> bool:
        """Write the next id to offer; False if there is none."""
        return bool(self._interactive) and self._take(buf, at, _DO_OFFER)

    def _take(self, buf: bytearray, at: int, event: int) -> bool:
        node = self.core
        if not self._look(event):
            return False
        cell = self._step(node.row, event)
        if event == _DO_OFFER:
            self._sent(node.table, cell)
        copy(buf, at, node.table, node.row * node.stride, ID_SIZE)
        return True

    def _look(self, event: int) -> bool:
        """Set `node.row` to the first row for which an event is possible and due; False: none."""
        node = self.core
        asked = _REQUEST if self._interactive and event == _DO_SEND else 0
        for row in range(node.rows):
            cell = row * node.stride + self._cell
            state = node.table[cell]
            if _TABLE[state * _EVENTS + event] == _NO or state & asked != asked:
                continue
            is_new = node.table[row * node.stride + NEW_AT]
            if (is_new if event == _DO_ACK else self._wait(node.table, cell)) <= 0:
                node.row = row
                return True
        return False

    def next_message(self) -> bool:
        """Select the next message that is due; its timestamp and size are in the node then."""
        node = self.core
        if not self._look(_DO_SEND):
            return False
        node.size = node.body_size(node.row)
        copy(node.timestamp, 0, node.table, node.row * node.stride + TIMESTAMP_AT, TIMESTAMP_SIZE)
        return True

    def body_into(self, buf: bytearray, at: int, offset: int, size: int) -> bool:
        """Copy bytes of the selected message's body."""
        copy(buf, at, self.core.bodies, self.core.body_at(self.core.row) + offset, size)
        return True

    def put_message(self) -> None:
        """Record that the selected message was written into the frame."""
        self._sent(self.core.table, self._step(self.core.row, _DO_SEND))

    def too_long(self) -> None:
        """Fail: every body fits a frame."""
        raise AssertionError("BODY_SIZE does not fit FRAME_SIZE")

    def count_record(self, sent: bool, kind: int, size: int) -> None:
        """Count nothing."""
