"""Writes the frames of a channel (specs/sds.md "Send Message", "Periodic Sync Message", "SDS-R
send message"): sender, id, channel, Lamport value; causal history; filter and repair request."""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import CHANNEL_REQUESTS_SENT
from drupelet.base.memory import copy
from drupelet.channel.keeper import NAMES_ID
from drupelet.channel.log import AGAIN, IN_LAMPORT, IN_STRIDE, REFERENCED
from drupelet.wire.protobuf import bytes_size
from drupelet.wire.sds.message import (
    BLOOM,
    CAUSAL,
    CHANNEL_ID,
    CONTENT,
    MESSAGE_ID,
    SENDER_ID,
    Encoder,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.log import LocalLog
    from drupelet.channel.ports import Buffer, Key
    from drupelet.wire.sds.message import Decoder

OWN_ID_SIZE = const(64)
# Most tag and length bytes of an entry and its id; of its sender; of its hint.
_ENTRY_EXTRA = const(5)
# The longest entry of a repair request: an id of 66 bytes, a sender of 32.
_REQUEST_SIZE = const(108)
_SYNC_ID = b"sync"


class FrameWriter:
    """Writes the frames of one participant."""

    def __init__(self, id: bytes, log: "LocalLog") -> None:
        self._id = id
        self._log = log
        self._encoder = Encoder()
        self.text = bytearray(OWN_ID_SIZE)  # an id of ours, or a hint
        self._skipped = 0  # unreferenced messages that the last sync messages named
        self._cramped = False  # the last sync message had no room for any of them

    # --- messages ---

    def message_into(
        self, id: "Key", lamport: bytearray, content: "Buffer", at: int, size: int
    ) -> int:
        """Write a message of ours to keeper.work; its size, or E_CAPACITY."""
        out = self._encoder
        work = self._log.keeper.work
        # When it is sent, its frame also has a filter.
        out.open(work, len(work) - self._filter_size())
        code = self._put_head(id, len(id), lamport)
        code |= self._put_history(bytes_size(CONTENT, size), True)
        code |= out.put_bytes(CONTENT, content, at, size)
        return out.at if code == OK else E_CAPACITY

    def ephemeral_into(self, frame: bytearray, content: "Buffer", at: int, size: int) -> int:
        """Write an ephemeral message with the id in `text`; its size, or E_CAPACITY."""
        out = self._encoder
        out.open(frame, len(frame))
        code = self._put_head(self.text, OWN_ID_SIZE, None)
        code |= out.put_bytes(CONTENT, content, at, size)
        return out.at if code == OK else E_CAPACITY

    def stripped_into(self, message: "Decoder") -> int:
        """Write a received message to keeper.work without filter and repair request.

        Returns its size, or E_CAPACITY.
        """
        out = self._encoder
        buf = message.buf
        work = self._log.keeper.work
        out.open(work, len(work))
        code = out.put_bytes(SENDER_ID, buf, message.sender_at, message.sender_size)
        code |= out.put_bytes(MESSAGE_ID, buf, message.id_at, message.id_size)
        code |= out.put_text(CHANNEL_ID, buf, message.channel_at, message.channel_size)
        code |= out.put_lamport(message.lamport)
        message.rewind()
        while code == OK and message.next(CAUSAL):
            code = out.put_entry(
                CAUSAL, buf, message.entry_at, message.entry_size, buf, message.hint_at,
                message.hint_size, buf, message.entry_sender_at, message.entry_sender_size,
            )  # fmt: skip
        code |= out.put_bytes(CONTENT, buf, message.content_at, message.content_size)
        return out.at if code == OK else E_CAPACITY

    def completed_into(self, frame: bytearray, message: "Decoder", size: int, now_ms: int) -> int:
        """Write the open message of keeper.work with the current filter and repair request.

        size: the size of the message, which ends with its content. Returns the frame's size.
        """
        work = self._log.keeper.work
        out = self._encoder
        tail = bytes_size(CONTENT, message.content_size)
        out.open(frame, len(frame) - tail)
        out.at = size - tail
        copy(frame, 0, work, 0, size - tail)
        self._put_filter_and_requests(self.next_request(now_ms), now_ms)
        copy(frame, out.at, work, size - tail, tail)
        return out.at + tail

    def sync_into(self, frame: bytearray, lamport: bytearray, now_ms: int) -> int:
        """Write a sync message; return its size."""
        out = self._encoder
        out.open(frame, len(frame))
        code = self._put_head(_SYNC_ID, len(_SYNC_ID), lamport)
        assert code == OK, "no room in a frame"
        # Its history has as many entries as there is room for.
        request = self.next_request(now_ms)
        self._put_history(_REQUEST_SIZE if request >= 0 else 0, False)
        self._put_filter_and_requests(request, now_ms)
        return out.at

    def _put_head(self, id: "Key", size: int, lamport: "bytearray | None") -> int:
        out = self._encoder
        participant = self._log.participant
        code = out.put_bytes(SENDER_ID, participant, 0, len(participant))
        code |= out.put_bytes(MESSAGE_ID, id, 0, size)
        code |= out.put_text(CHANNEL_ID, self._id, 0, len(self._id))
        return code if lamport is None else code | out.put_lamport(lamport)

    # --- causal history ---

    def _put_history(self, rest: int, kept: bool) -> int:
        """Write the newest messages of the log as causal history, oldest first; OK or E_CAPACITY.

        If there is room, also name messages that were received again, so that their sender learns
        that we have them, and unreferenced messages, on which nothing depends yet: no other entry
        would tell participants that miss them. rest: bytes that follow in the frame. kept: the
        message will be in the log, so it is not a sync message. Consecutive sync messages take
        turns through the unreferenced messages, and omit the filter to name those received again.
        """
        log = self._log
        out = self._encoder
        # If the last sync message had no room for an unreferenced message, make room in this one:
        # one regular entry, no filter.
        is_cramped = self._cramped and not kept
        first = max(log.rows.count - (1 if is_cramped else log.settings.causal), 0)
        extras_left = log.settings.heads_max
        extras_end = out.limit - rest
        for row in range(first, log.rows.count):
            extras_end -= self._entry_size(log.rows.handle(row))
        filter_size = 0 if kept or is_cramped else self._filter_size()
        skip = 0 if kept else self._skipped
        shown_count = omitted_count = 0
        for row in range(log.rows.count):
            again = log.has(row, AGAIN)
            if row < first and not again:
                if log.has(row, REFERENCED):
                    continue
                if skip:
                    skip -= 1
                    continue
            room = out.limit - rest - out.at
            if row < first:
                room = extras_end - out.at - (0 if again else filter_size)
                room = room if extras_left > 0 or (again and not kept) else 0
            if self._entry_size(log.rows.handle(row)) > room:
                omitted_count += row < first
                continue
            if row < first:
                extras_left -= 1
                shown_count += not again
            log.set(row, AGAIN, False)
            if self._put_kept(log.rows.handle(row)) != OK:
                return E_CAPACITY
        if not kept:
            self._skipped = self._skipped + shown_count if omitted_count else 0
            self._cramped = omitted_count > 0 and not shown_count
        return OK

    def _entry_size(self, handle: int) -> int:
        """Return the most bytes that a kept message takes as an entry of the causal history."""
        names = self._log.names
        if not self._log.keeper.names_into(handle, names):
            return 0
        size = _ENTRY_EXTRA + names[NAMES_ID]
        if self._log.settings.repair:
            size += _ENTRY_EXTRA + names[0]
        return size if self._log.settings.hints is None else size + _ENTRY_EXTRA + OWN_ID_SIZE

    def _put_kept(self, handle: int) -> int:
        """Write a kept message as an entry of the causal history; OK or E_CAPACITY."""
        names = self._log.names
        if not self._log.keeper.names_into(handle, names):
            return OK  # the keeper lost it
        hints = self._log.settings.hints
        hint_size = -1 if hints is None else hints.hint_into(handle, self.text)
        return self._encoder.put_entry(
            CAUSAL, names, NAMES_ID + 1, names[NAMES_ID], self.text, 0, hint_size, names, 1,
            names[0] if self._log.settings.repair else -1,
        )  # fmt: skip

    # --- filter and repair request ---

    def _filter_size(self) -> int:
        return bytes_size(BLOOM, len(self._log.bloom.bits)) if self._log.settings.send_bloom else 0

    def next_request(self, now_ms: int) -> int:
        """Return the row of the first request due, of messages there would be room for; or -1."""
        highest = self._log.highest()
        at = highest * IN_STRIDE + IN_LAMPORT if highest >= 0 else -1
        return self._log.repair.next_request(now_ms, self._log.incoming.table, at)

    def _put_filter_and_requests(self, request: int, now_ms: int) -> None:
        """Write filter and repair request; if there is no room for both, only the latter.

        request: the result of `next_request`.
        """
        bits = self._log.bloom.bits
        out = self._encoder
        room = _REQUEST_SIZE if request >= 0 else 0
        if self._log.settings.send_bloom and out.at + self._filter_size() + room <= out.limit:
            out.put_bytes(BLOOM, bits, 0, len(bits))
        left = CHANNEL_REQUESTS_SENT
        while left and request >= 0 and self._log.repair.put_request(out, request, now_ms) == OK:
            left -= 1
            request = self.next_request(now_ms)
