"""What a channel does with a message that comes in (specs/sds.md "Receive Message", "Review ACK
Status", "SDS-R receive message"); `channel/channel.py` has the whole.

    outgoing   key 8 | handle 4 | state 1 | resends that others were heard before 1; its time: when
               it was sent last
"""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, OK
from drupelet.base.limits import (
    CHANNEL_EVENTS_MAX,
    CHANNEL_HISTORY_MAX,
    CHANNEL_MESSAGE_ID_MAX,
    CHANNEL_NAME_MAX,
    CHANNEL_REQUESTS_MAX,
)
from drupelet.base.memory import copy, equal, get_u32
from drupelet.channel.keeper import NAMES_ID
from drupelet.channel.lamport import compare
from drupelet.channel.log import (
    EVENT_ACKNOWLEDGED,
    IN_HANDLE,
    IN_LAMPORT,
    IN_STRIDE,
    OUT_STRIDE,
    LocalLog,
)
from drupelet.channel.rows import AGAIN
from drupelet.wire.sds.message import (
    CAUSAL,
    CHANNEL_ID,
    CONTENT,
    MESSAGE_ID,
    REPAIR,
    SENDER_ID,
    Decoder,
)

EPHEMERAL = const(1)  # `receive`: an ephemeral message, its content in the frame

UNSENT = const(0)
UNACKNOWLEDGED = const(1)
POSSIBLY = const(2)

OUT_HANDLE = const(8)
OUT_STATE = const(12)
OUT_RESENDS = const(13)


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
            self.heard_ms = now_ms
            self._review(frame, now_ms)
        code = OK
        if message.content_size == 0:
            self.unmet(now_ms, True)
        else:
            code = self.take(frame, now_ms, False)
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
        self.acknowledge(True)
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

    def acknowledge(self, tell: bool) -> None:
        """Messages of ours that the open message names leave the outgoing buffer.

        What those depend on stays: a peer may name a message that itself still waits there for
        what it depends on.
        """
        outgoing = self.outgoing
        message = self.decoder
        key = self.entry_key
        message.rewind()
        while message.next(CAUSAL):
            self.bloom.key_into(key, 0, message.buf, message.entry_at, message.entry_size)
            row = self.log.find(key, 0) if self.log.again else -1
            if row >= 0 and self.log.has(row, AGAIN) and not self._is_own_sender(row):
                self.log.unmark(row, AGAIN)
            row = outgoing.find(key, 0)
            if row >= 0 and self._is_entry(self.handle_of(row)):
                handle = self.release(row)
                if tell and self.event_count < CHANNEL_EVENTS_MAX:
                    self.tell(EVENT_ACKNOWLEDGED, handle)

    def _is_own_sender(self, row: int) -> bool:
        """Whether one of the log is of the open message's sender, who tells us nothing by it."""
        message = self.decoder
        names = self.names
        return (
            self.keeper.names_into(self.log.handle(row), names)
            and names[0] == message.sender_size
            and equal(message.buf, message.sender_at, names, 1, names[0])
        )

    def release(self, row: int) -> int:
        """A message leaves the outgoing buffer; its handle. It stays in the log."""
        handle = self.handle_of(row)
        self.outgoing.remove(row)
        self.keeper.pin(handle, False)
        return handle

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
        self.repairs.requested(key, frame, message.entry_at, size, now_ms)
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
            row = self.log.find(key, 0)
            if row >= 0 and not carried and self.settings.heads_max:
                # Its sender may not know that we have it: our next frame names it.
                self.log.mark(row, AGAIN)
            return OK
        if self._is_beyond(now_ms):
            # It may have been delivered and forgotten: twice is worse than never.
            self.too_old += 1
            self.forget_dependency(key, 0)
            return OK
        if self.event_count == CHANNEL_EVENTS_MAX:
            self.refused += 1
            return E_CAPACITY
        # What is lower is nearer to what can be delivered: it has the room.
        highest = self.highest() if self.incoming.count == self.incoming.rows_max else -1
        fits = highest < 0 or self._is_above(highest)
        missing = self.unmet(now_ms, fits)
        if missing and not fits:
            self.refused += 1
            message.rewind()
            while message.next(CAUSAL):
                self.bloom.key_into(self.entry_key, 0, frame, message.entry_at, message.entry_size)
                self.repairs.forget(self.entry_key, frame, message.entry_at, message.entry_size)
            self.repairs.want(
                key, frame, message.id_at, message.id_size, frame, message.sender_at,
                message.sender_size, message.lamport, 0, True, now_ms,
            )  # fmt: skip
            return E_CAPACITY
        if missing and highest >= 0:
            self._put_off(highest, now_ms)
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

    def _is_beyond(self, now_ms: int) -> bool:
        """Whether a message that the keeper has not got may have been there and gone."""
        keeper = self.keeper
        lamport = self.decoder.lamport
        far = self.clock.is_far(lamport, 0, now_ms)
        copy(keeper.limit, 0, self.clock.limit, 0, 8)
        if not keeper.left:
            return False
        return compare(lamport, 0, keeper.horizon, 0) <= 0 or (far and keeper.left_far > 0)

    def highest(self) -> int:
        """The waiting message with the highest Lamport value."""
        table = self.incoming.table
        best = 0
        for row in range(1, self.incoming.count):
            place = row * IN_STRIDE + IN_LAMPORT
            if compare(table, place, table, best * IN_STRIDE + IN_LAMPORT) > 0:
                best = row
        return best

    def _is_above(self, row: int) -> bool:
        """Whether a waiting message has a higher Lamport value than the one at hand."""
        place = row * IN_STRIDE + IN_LAMPORT
        return compare(self.incoming.table, place, self.decoder.lamport, 0) > 0

    def _put_off(self, row: int, now_ms: int) -> None:
        """Let a waiting message go for want of room; it is to be asked for again."""
        incoming = self.incoming
        place = row * IN_STRIDE
        names = self.names
        handle = get_u32(incoming.table, place + IN_HANDLE)
        if self.keeper.names_into(handle, names):
            copy(self.entry_key, 0, incoming.table, place, 8)
            self.repairs.want(
                self.entry_key, names, NAMES_ID + 1, names[NAMES_ID], names, 1, names[0],
                incoming.table, place + IN_LAMPORT, True, now_ms,
            )  # fmt: skip
        self.keeper.drop(handle)
        incoming.remove(row)
        self.refused += 1

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
