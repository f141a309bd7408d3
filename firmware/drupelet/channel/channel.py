"""A channel of Scalable Data Sync with SDS-R (specs/sds.md): many participants on one topic.

    channel = Channel(b"0", b"me", RamKeeper(128, 1024), Bloom(100, 10, 7), random_byte)
    channel.clock.set_wall(epoch_ms8, now_ms, trusted)
    handle = channel.publish(content, 0, size, now_ms)
    code = channel.receive(frame, size, now_ms); size = channel.poll_into(frame, now_ms)
    sleep for channel.wake_ms(now_ms)
    event = channel.next_event(); channel.event_handle

No peer has state of its own here: what is sent goes to all who listen. Messages enter the log
once, after what they depend on; the log is ordered by Lamport value, then by id, and is the same
with every participant.
"""

from drupelet.base.errors import E_CAPACITY, E_PEER, E_STORAGE, OK
from drupelet.base.memory import copy, put_u32
from drupelet.base.time_ms import elapsed_ms
from drupelet.channel.intake import EPHEMERAL, OUT_HANDLE
from drupelet.channel.log import (
    EVENT_ACKNOWLEDGED,
    EVENT_GAP,
    EVENT_MESSAGE,
    EVENT_NONE,
    OUT_STRIDE,
)
from drupelet.channel.outlet import OWN_ID_SIZE, Outlet
from drupelet.channel.settings import Settings
from drupelet.wire.protobuf import bytes_size
from drupelet.wire.sds.message import CHANNEL_ID, CONTENT, MESSAGE_ID, SENDER_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import Buffer, Key

__all__ = [
    "EPHEMERAL",
    "EVENT_ACKNOWLEDGED",
    "EVENT_GAP",
    "EVENT_MESSAGE",
    "EVENT_NONE",
    "Channel",
    "Settings",
]


class Channel(Outlet):
    """One participant's side of one channel; tables get their sizes when it is made, for life."""

    # --- messages of our own ---

    def publish(
        self, content: "Buffer", at: int, size: int, now_ms: int, id: "Key | None" = None
    ) -> int:
        """Put a message of ours into the log and on its way; its handle, or E_CAPACITY.

        content: 1 byte at least. id: UTF-8, unique in the channel; None: a hash of the message.
        Refused while too many of ours are unacknowledged, or when it is too long for a frame.
        """
        assert size > 0, "a message without content would be a sync message"
        if self.outgoing.count == self.outgoing.rows_max:
            return E_CAPACITY
        self.clock.tick(now_ms)
        if id is None:
            id = self.text
            self.identity.id_into(id, 0, self.id, self.clock.value, content, at, size)
        out = self.encoder
        work = self.keeper.work
        # The frame that it leaves in has a filter, too.
        out.open(work, 0, len(work) - self.filter_size())
        code = self.put_head(id, len(id))
        self.bloom.key_into(self.key, 0, id, 0, len(id))
        code |= self.put_causal(bytes_size(CONTENT, size), True)
        code |= out.put_bytes(CONTENT, content, at, size)
        if code != OK:
            return E_CAPACITY
        handle = self.keeper.put(self.key, 0, out.at, False)
        if handle > 0:
            # What it names has something that depends on it now.
            self.decoder.open(work, 0, out.at)
            self.unmet(now_ms, False)
            self.enter(self.key, 0, handle, self.clock.value, 0)
            self._send_later(handle, now_ms)
        return handle

    def carry(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Bring in another's message from elsewhere and see that this channel gets it.

        Its handle; 0: it is here already, or waits for what it depends on; or a negative code.
        """
        message = self.decoder
        code = message.open(frame, 0, size)
        if code != OK or not message.has_lamport or not message.content_size:
            return E_PEER
        if self.outgoing.count == self.outgoing.rows_max:
            return E_CAPACITY
        self.bloom.key_into(self.key, 0, frame, message.id_at, message.id_size)
        handle = self.take(frame, now_ms, True)
        if handle > 0 and self.incoming.find(self.key, 0) < 0:
            self._send_later(handle, now_ms)
        return handle

    def send(self, handle: int, now_ms: int) -> int:
        """Put a kept message into the outgoing buffer, whoever wrote it; OK or a code."""
        message = self.decoder
        size = self.keeper.load(handle)
        work = self.keeper.work
        if not size or message.open(work, 0, size) != OK:
            return E_STORAGE
        if self.outgoing.count == self.outgoing.rows_max:
            return E_CAPACITY
        self.bloom.key_into(self.key, 0, work, message.id_at, message.id_size)
        if self.outgoing.find(self.key, 0) < 0:
            self._send_later(handle, now_ms)
        return OK

    def ephemeral_into(self, frame: bytearray, content: "Buffer", at: int, size: int) -> int:
        """Write a frame with a short-lived message, to be sent once; its size or E_CAPACITY.

        It has no Lamport value, history or filter, and nobody keeps it.
        """
        assert size > 0
        self.identity.id_into(self.text, 0, self.id, self.clock.value, content, at, size)
        out = self.encoder
        out.open(frame, 0, len(frame))
        mine = self.participant
        code = out.put_bytes(SENDER_ID, mine, 0, len(mine))
        code |= out.put_bytes(MESSAGE_ID, self.text, 0, OWN_ID_SIZE)
        code |= out.put_text(CHANNEL_ID, self.id, 0, len(self.id))
        code |= out.put_bytes(CONTENT, content, at, size)
        return out.at if code == OK else E_CAPACITY

    def _send_later(self, handle: int, now_ms: int) -> None:
        """Add a message to the outgoing buffer; it leaves with the next frame."""
        self.keeper.pin(handle, True)
        row = self.outgoing.add(self.key, 0, now_ms)
        put_u32(self.outgoing.table, row * OUT_STRIDE + OUT_HANDLE, handle)
        self.changed = True

    # --- after a restart ---

    def restore(self, now_ms: int) -> None:
        """Take up what the keeper has of late: log, filter, clock, what waits.

        Ours count as unacknowledged, unless a kept message names them. Events are not told again.
        """
        settings = self.settings
        count = settings.ids_max + settings.incoming_max
        first = self.keeper.tail(count)
        while self._restore_waiting(first, now_ms):
            pass
        handle = self.keeper.next(first)
        while handle:
            if self._open_kept(handle):
                if not self.is_mine(self.keeper.work, 2, self.keeper.work[1]):
                    self.acknowledge(False)
                if self.incoming.find(self.key, 0) < 0:
                    self._restore_one(handle, now_ms)
            handle = self.keeper.next(handle)

    def _open_kept(self, handle: int) -> bool:
        """Take a kept message apart, and its key."""
        message = self.decoder
        size = self.keeper.load(handle)
        if not size or message.open(self.keeper.work, 0, size) != OK:
            return False
        self.bloom.key_into(self.key, 0, self.keeper.work, message.id_at, message.id_size)
        return True

    def _restore_waiting(self, first: int, now_ms: int) -> bool:
        """Find messages that wait for what is not here, or waits itself; False: no more.

        What is in the log stays there, whatever became of what it depends on.
        """
        found = False
        work = self.keeper.work
        handle = self.keeper.next(first)
        while handle and self.incoming.count < self.incoming.rows_max:
            waited_ms = self.keeper.waited_ms(handle)
            if waited_ms >= 0 and self._open_kept(handle) and not self.is_mine(work, 2, work[1]):
                waits = self.incoming.find(self.key, 0) >= 0
                if not waits and self.unmet(now_ms, False):
                    self.keeper.pin(handle, True)
                    self.hold(handle, elapsed_ms(now_ms, waited_ms))
                    found = True
            handle = self.keeper.next(handle)
        return found

    def _restore_one(self, handle: int, now_ms: int) -> None:
        """A kept message is in the log again."""
        outgoing = self.outgoing
        mine = self.is_mine(self.keeper.work, 2, self.keeper.work[1])
        self.clock.take(self.decoder.lamport, 0, now_ms)
        copy(self.text, 0, self.decoder.lamport, 0, 8)
        self.enter(self.key, 0, handle, self.text, 0)
        if not mine:
            self.keeper.pin(handle, False)
            self.add_to_bloom(self.key)
            return
        if outgoing.count == outgoing.rows_max:
            self.keeper.pin(self.handle_of(0), False)
            outgoing.remove(0)
        self._send_later(handle, now_ms)
