"""What a channel does with a message that comes in (specs/sds.md "Receive Message", "Review ACK
Status", "SDS-R receive message"); `channel.py` has the whole.

    outgoing   key 8 | handle 4 | state 1; its time: when it was sent last
"""

from drupelet._compat import const
from drupelet.channel_log import (
    EVENT_ACKNOWLEDGED,
    IN_HANDLE,
    IN_LAMPORT,
    IN_STRIDE,
    OUT_STRIDE,
    LocalLog,
)
from drupelet.channel_rows import AGAIN
from drupelet.errors import E_CAPACITY, E_PEER, OK
from drupelet.lamport import compare
from drupelet.limits import (
    CHANNEL_EVENTS_MAX,
    CHANNEL_HISTORY_MAX,
    CHANNEL_MESSAGE_ID_MAX,
    CHANNEL_NAME_MAX,
    CHANNEL_REQUESTS_MAX,
)
from drupelet.memory import copy, equal, get_u32
from drupelet.wire.sds import CAUSAL, CHANNEL_ID, CONTENT, MESSAGE_ID, REPAIR, SENDER_ID, Decoder

EPHEMERAL = const(1)  # `receive`: an ephemeral message, its content in the frame

UNSENT = const(0)
UNACKNOWLEDGED = const(1)
POSSIBLY = const(2)
_ACKNOWLEDGED = const(3)

OUT_HANDLE = const(8)
OUT_STATE = const(12)


class Intake(LocalLog):
    """A participant's side of a channel that takes messages in."""

    # --- one message ---

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Take in one frame: OK, EPHEMERAL, E_PEER (counted) or E_CAPACITY (it may come again)."""
        message = self.decoder
        code = message.open(frame, 0, size)
        known = 0 < message.sender_size <= CHANNEL_NAME_MAX
        known = known and 0 < message.id_size <= CHANNEL_MESSAGE_ID_MAX
        if code != OK or not known or message.causal_count > CHANNEL_HISTORY_MAX:
            self.malformed += 1
            return E_PEER
        own = self.id
        if message.channel_size != len(own) or not equal(
            frame, message.channel_at, own, 0, len(own)
        ):
            self.foreign += 1
            return OK
        mine = self.is_mine(frame, message.sender_at, message.sender_size)
        if not message.has_lamport:
            return self._ephemeral(mine)
        self.changed = True
        self.bloom.key_into(self.key, 0, frame, message.id_at, message.id_size)
        self.repairs.came(self.key, frame, message.id_at, message.id_size)
        if mine and not self.recovering:
            self.own += 1
            return OK
        self.heard = True
        if not mine:
            self._review(frame, now_ms)
        code = OK
        if message.content_size == 0:
            self.unmet(now_ms, True)
        else:
            code = self.take(frame, now_ms, False)
        self._acknowledge()
        self.settle(now_ms)
        return min(code, OK)

    def _ephemeral(self, mine: bool) -> int:
        message = self.decoder
        if message.content_size == 0:
            self.malformed += 1
            return E_PEER
        if mine:
            self.own += 1
            return OK
        self.content_at = message.content_at
        self.content_size = message.content_size
        return EPHEMERAL

    def _review(self, frame: bytearray, now_ms: int) -> None:
        """Review ACK status, and SDS-R's look at the repair request."""
        message = self.decoder
        outgoing = self.outgoing
        key = self.entry_key
        if outgoing.count or self.again:
            message.rewind()
            while message.next(CAUSAL):
                self.bloom.key_into(key, 0, frame, message.entry_at, message.entry_size)
                row = self.log.find(key, 0) if self.again else -1
                if row >= 0:
                    self.log.unmark(row, AGAIN)
                row = outgoing.find(key, 0)
                if row >= 0 and self._is_entry(self.handle_of(row)):
                    outgoing.table[row * OUT_STRIDE + OUT_STATE] = _ACKNOWLEDGED
            if message.bloom_at >= 0:
                self._review_bloom(frame)
        if not self.settings.repair or not message.repair_count:
            return
        message.rewind()
        left = CHANNEL_REQUESTS_MAX
        while left and message.next(REPAIR):
            left -= 1
            self._requested(frame, now_ms)

    def _is_entry(self, handle: int) -> bool:
        """Whether a kept message is the one that the entry just read names."""
        message = self.decoder
        return self.keeper.order(handle, message.buf, message.entry_at, message.entry_size) == 0

    def handle_of(self, row: int) -> int:
        """The handle of an outgoing row."""
        return get_u32(self.outgoing.table, row * OUT_STRIDE + OUT_HANDLE)

    def _acknowledge(self) -> None:
        """What is known to somebody leaves the outgoing buffer.

        So does what it depends on: it would not be in a log before that was.
        """
        outgoing = self.outgoing
        message = self.decoder
        key = self.entry_key
        row = self._acknowledged()
        while row >= 0:
            handle = self.handle_of(row)
            outgoing.remove(row)
            size = self.keeper.load(handle)
            if size and message.open(self.keeper.work, 0, size) == OK:
                message.rewind()
                while message.next(CAUSAL):
                    self.bloom.key_into(key, 0, message.buf, message.entry_at, message.entry_size)
                    row = outgoing.find(key, 0)
                    if row >= 0 and self._is_entry(self.handle_of(row)):
                        outgoing.table[row * OUT_STRIDE + OUT_STATE] = _ACKNOWLEDGED
            self.keeper.pin(handle, False)
            if self.event_count < CHANNEL_EVENTS_MAX:
                self.tell(EVENT_ACKNOWLEDGED, handle)
            row = self._acknowledged()

    def _acknowledged(self) -> int:
        outgoing = self.outgoing
        for row in range(outgoing.count):
            if outgoing.table[row * OUT_STRIDE + OUT_STATE] == _ACKNOWLEDGED:
                return row
        return -1

    def _review_bloom(self, frame: bytearray) -> None:
        message = self.decoder
        if not self.bloom.usable(frame, message.bloom_at, message.bloom_size):
            self.filters += 1
            return
        outgoing = self.outgoing
        for row in range(outgoing.count):
            place = row * OUT_STRIDE
            if outgoing.table[place + OUT_STATE] == UNACKNOWLEDGED and self.bloom.has(
                frame, message.bloom_at, outgoing.table, place
            ):
                outgoing.table[place + OUT_STATE] = POSSIBLY

    def _requested(self, frame: bytearray, now_ms: int) -> None:
        """An entry of a repair request: we ask no more for it, and may answer."""
        message = self.decoder
        size = message.entry_size
        if not 0 < size <= CHANNEL_MESSAGE_ID_MAX:
            return
        key = self.entry_key
        self.bloom.key_into(key, 0, frame, message.entry_at, size)
        self.repairs.requested(key, frame, message.entry_at, size)
        handle = self.keeper.find(key, 0, frame, message.entry_at, size)
        if not handle or self.incoming.find(key, 0) >= 0 or not self.keeper.load(handle):
            return
        # Who sent it stands in what we keep: an entry may not say so, or lie.
        work = self.keeper.work
        self.repairs.ask(key, handle, work, 2, work[1], frame, message.entry_at, size, now_ms)

    # --- content ---

    def take(self, frame: bytearray, now_ms: int, carried: bool) -> int:
        """Take in a message with content; its handle, 0: it is here already, or a code."""
        message = self.decoder
        key = self.key
        if self.keeper.find(key, 0, frame, message.id_at, message.id_size):
            self.duplicates += 1
            if not carried:
                self._came_again()
            return OK
        if self._is_beyond(now_ms):
            # It may have been delivered and forgotten: twice is worse than never.
            self.too_old += 1
            self.forget_dependency(key, 0)
            return OK
        if self.event_count == CHANNEL_EVENTS_MAX:
            self.refused += 1
            return E_CAPACITY
        missing = self.unmet(now_ms, True)
        lowest = True
        if missing and self.incoming.count == self.incoming.rows_max:
            lowest = self._make_room()
        if not lowest:
            self.refused += 1
            return E_CAPACITY
        size = self._strip(frame)
        handle = self.keeper.put(key, 0, size, missing > 0) if size > 0 else E_CAPACITY
        if handle < 0:
            self.refused += 1
            return handle
        self.add_to_bloom(key)
        if missing:
            self.hold(handle, now_ms)
        else:
            self.deliver(key, 0, handle, message.lamport, 0, now_ms, not carried)
        return handle

    def _came_again(self) -> None:
        """Its sender may not know that we have it: our next frame tells. Not of a repair, which
        has no filter."""
        settings = self.settings
        row = self.log.find(self.key, 0)
        again = self.decoder.bloom_at >= 0 or not settings.send_bloom
        if settings.heads_max and again and row >= 0:
            self.log.mark(row, AGAIN)
            self.again = True

    def _is_beyond(self, now_ms: int) -> bool:
        """Whether a message that the keeper has not got may have been there and gone."""
        keeper = self.keeper
        lamport = self.decoder.lamport
        far = self.clock.is_far(lamport, 0, now_ms)
        copy(keeper.limit, 0, self.clock.limit, 0, 8)
        if not keeper.left:
            return False
        return compare(lamport, 0, keeper.horizon, 0) <= 0 or (far and keeper.left_far > 0)

    def _make_room(self) -> bool:
        """Free a row of the incoming buffer for the message at hand, which came last.

        The highest Lamport value goes: what is lower is nearer to what can be delivered.
        """
        incoming = self.incoming
        best = 0
        for row in range(1, incoming.count):
            place = row * IN_STRIDE + IN_LAMPORT
            if compare(incoming.table, place, incoming.table, best * IN_STRIDE + IN_LAMPORT) > 0:
                best = row
        place = best * IN_STRIDE
        if compare(incoming.table, place + IN_LAMPORT, self.decoder.lamport, 0) <= 0:
            return False
        self.keeper.drop(get_u32(incoming.table, place + IN_HANDLE))
        incoming.remove(best)
        self.refused += 1
        return True

    def _strip(self, frame: bytearray) -> int:
        """Write the message without filter and repair request to the keeper's buffer; its size."""
        message = self.decoder
        out = self.encoder
        work = self.keeper.work
        out.open(work, 0, len(work))
        code = out.put_bytes(SENDER_ID, frame, message.sender_at, message.sender_size)
        code |= out.put_bytes(MESSAGE_ID, frame, message.id_at, message.id_size)
        code |= out.put_text(CHANNEL_ID, frame, message.channel_at, message.channel_size)
        code |= out.put_lamport(message.lamport, 0)
        message.rewind()
        while code == OK and message.next(CAUSAL):
            code = self.put_entry(message)
        code |= out.put_bytes(CONTENT, frame, message.content_at, message.content_size)
        return out.at if code == OK else E_CAPACITY

    def put_entry(self, message: Decoder) -> int:
        """Write the causal entry that was just read; OK or E_CAPACITY."""
        buf = message.buf
        return self.encoder.put_entry(
            CAUSAL, buf, message.entry_at, message.entry_size, buf, message.hint_at,
            message.hint_size if message.hint_at >= 0 else -1, buf, message.entry_sender_at,
            message.entry_sender_size if message.entry_sender_at >= 0 else -1,
        )  # fmt: skip
