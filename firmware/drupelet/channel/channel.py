"""A channel: Scalable Data Sync with SDS-R (specs/sds.md) among many participants on one topic.

    channel = open_channel(b"0", b"me", RamKeeper(128, 1024), random_byte)
    channel.clock.set_wall(epoch_ms8, now_ms, trusted)
    handle = channel.publish(content, 0, size, now_ms)
    code = channel.receive(frame, size, now_ms); size = channel.poll_into(frame, now_ms)
    sleep for channel.wake_ms(now_ms)
    event = channel.next_event(); channel.event_handle

There is no state per peer: every frame is broadcast to all participants. Each message enters the
local log once, after its causal dependencies. The log is ordered by Lamport value, then by id, and
is the same at every participant.
"""

# Import the lowest modules first: nested imports take C stack, of which boards have little.
# ruff: isort: off
import drupelet.channel.keeper
import drupelet.channel.log  # noqa: F401
# ruff: isort: on

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, E_PEER, OK, CapacityError
from drupelet.base.hashes_sds import Identity
from drupelet.base.limits import (
    CHANNEL_EVENTS_MAX,
    CHANNEL_HISTORY_MAX,
    CHANNEL_MESSAGE_ID_MAX,
    CHANNEL_NAME_MAX,
    CHANNEL_REPAIRS_MAX,
    CHANNEL_REQUESTS_MAX,
    WAIT_MS_MAX,
)
from drupelet.base.memory import copy, equal
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.channel.frame_writer import FrameWriter
from drupelet.channel.keeper import NAMES_ID, compare_ids, pack_names, put_names
from drupelet.channel.lamport import LamportClock, compare
from drupelet.channel.log import AGAIN, LocalLog
from drupelet.channel.outbox import POSSIBLY, Outbox
from drupelet.channel.repair import PLANNED, Repair
from drupelet.channel.rows import is_due, sooner_ms
from drupelet.channel.settings import Settings
from drupelet.wire.sds.bloom import Bloom
from drupelet.wire.sds.message import CAUSAL, REPAIR, Decoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from drupelet.channel.ports import BloomPort, Buffer, KeeperPort, Key

EPHEMERAL = const(1)  # result of `receive`: an ephemeral message, whose content is in the frame

EVENT_NONE = const(0)
EVENT_MESSAGE = const(1)  # a message of another participant entered the log
EVENT_GAP = const(2)  # the same, but a dependency of it is irretrievably lost
EVENT_ACKNOWLEDGED = const(3)  # another participant has a message of ours


class Channel:
    """One participant of one channel; its tables are allocated once."""

    def __init__(
        self, id: bytes, participant: bytes, keeper: "KeeperPort", bloom: "BloomPort",
        random_byte: "Callable[[], int]", settings: "Settings | None" = None, now_ms: int = 0,
    ) -> None:  # fmt: skip
        assert 0 < len(participant) <= CHANNEL_NAME_MAX and len(id) <= CHANNEL_NAME_MAX
        settings = settings or Settings()
        self.id = id
        self.keeper = keeper
        self.bloom = bloom
        self.settings = settings
        self._random_byte = random_byte
        self.clock = LamportClock(settings.unit_ms)
        self.decoder = Decoder()
        self.repair = Repair(settings.identity or Identity(participant), settings)
        self.log = LocalLog(participant, keeper, bloom, self.decoder, self.repair, settings)
        self.outbox = Outbox(keeper, settings)
        self.writer = FrameWriter(id, self.log)
        self.key = bytearray(8)  # of the open message
        self._events = bytearray(CHANNEL_EVENTS_MAX)
        self._event_handles = [0] * CHANNEL_EVENTS_MAX
        self._event_first = 0
        self.event_count = 0
        self.event_handle = 0
        self._heard = False  # a frame was received since our last one
        self._heard_ms = -1  # when the last frame of another participant was received
        self._changed = True  # `_wake_ms` is out of date
        self._hurries = False  # the next sync message was moved forward
        self._repairs_left = CHANNEL_REPAIRS_MAX
        self._wake_ms = self._sweep_ms = self._sync_ms = now_ms
        self.frames = self.syncs = self.repaired = 0  # sent
        self.delivered = self.duplicates = self.malformed = self.refused = 0
        self.foreign = self.own = self.filters = self.too_old = self.given_up = 0
        self._plan_sync(now_ms)

    # --- messages of our own ---

    def publish(
        self, content: "Buffer", at: int, size: int, now_ms: int, id: "Key | None" = None
    ) -> int:
        """Log a message of ours and queue it for sending; return its handle, or E_CAPACITY.

        content: at least 1 byte. id: UTF-8, unique in the channel; None: a hash of the message.
        E_CAPACITY: too many of our messages are unacknowledged, or the message is too long for a
        frame.
        """
        assert size > 0, "a message without content would be a sync message"
        if self.outbox.rows.is_full():
            return E_CAPACITY
        key = self.key
        lamport = self.clock.value
        self.clock.tick(now_ms)
        if id is None:
            id = self.writer.text
            self.repair.identity.id_into(id, 0, self.id, lamport, content, at, size)
        self.bloom.key_into(key, 0, id, 0, len(id))
        size = self.writer.message_into(id, lamport, content, at, size)
        if size < 0:
            return size
        handle = self.keeper.put(key, size, False)
        if handle > 0:
            # Mark the messages of its causal history as referenced.
            self.decoder.open(self.keeper.work, 0, size)
            self.log.count_missing(now_ms, False)
            self.log.enter(key, handle)
            self.send_later(handle, now_ms)
        return handle

    def send_later(self, handle: int, now_ms: int) -> None:
        """Add a kept message, whose key is in `key`, to the outgoing buffer, which has room."""
        self.outbox.add(self.key, handle, now_ms)
        self._changed = True

    def ephemeral_into(self, frame: bytearray, content: "Buffer", at: int, size: int) -> int:
        """Write a frame with an ephemeral message, to be sent once; its size or E_CAPACITY.

        Such a message has no Lamport value, history or filter, and nobody keeps it.
        """
        assert size > 0
        self.repair.identity.id_into(
            self.writer.text, 0, self.id, self.clock.value, content, at, size
        )
        return self.writer.ephemeral_into(frame, content, at, size)

    # --- in ---

    def receive(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Handle a received frame; OK, EPHEMERAL, E_PEER (malformed) or E_CAPACITY (no room).

        The content of an ephemeral message is where `decoder` says. A message refused for
        E_CAPACITY is requested again later.
        """
        message = self.decoder
        log = self.log
        code = message.open(frame, 0, size)
        is_named = 0 < message.sender_size <= CHANNEL_NAME_MAX
        is_named = is_named and 0 < message.id_size <= CHANNEL_MESSAGE_ID_MAX
        if code != OK or not is_named or message.causal_count > CHANNEL_HISTORY_MAX:
            self.malformed += 1
            return E_PEER
        channel_id = self.id
        if message.channel_size != len(channel_id) or not equal(
            frame, message.channel_at, channel_id, 0, len(channel_id)
        ):
            self.foreign += 1
            return OK
        is_mine = self._is_mine()
        if not message.has_lamport:
            if message.content_size == 0:
                self.malformed += 1
                return E_PEER
            self.own += is_mine
            return OK if is_mine else EPHEMERAL
        self._changed = True
        self.bloom.key_into(self.key, 0, frame, message.id_at, message.id_size)
        self.repair.on_received(self.key, frame, message.id_at, message.id_size)
        if is_mine and not log.recovering:
            self.own += 1
            return OK
        self._heard = True
        if not is_mine:
            self._heard_ms = now_ms
            self._review(frame, now_ms)
        code = OK
        if message.content_size == 0:
            log.count_missing(now_ms, True)
        else:
            code = self.accept(now_ms, False)
        self._settle(now_ms)
        return min(code, OK)

    def _is_mine(self) -> bool:
        """Whether the open message is ours."""
        message = self.decoder
        return self.log.is_mine(message.buf, message.sender_at, message.sender_size)

    def _review(self, frame: bytearray, now_ms: int) -> None:
        """Review ACK status; look at the repair requests (specs/sds.md, "SDS Repair")."""
        message = self.decoder
        self._acknowledge(True)
        if message.bloom_at >= 0:
            if self.bloom.usable(frame, message.bloom_at, message.bloom_size):
                self.outbox.review_filter(self.bloom, frame, message.bloom_at)
            else:
                self.filters += 1
        message.rewind()
        requests_left = CHANNEL_REQUESTS_MAX if self.settings.repair else 0
        while requests_left and message.next(REPAIR):
            requests_left -= 1
            self._requested(frame, now_ms)

    def _acknowledge(self, notify: bool) -> None:
        """Remove the messages that the open message names from the outgoing buffer.

        Their own dependencies stay: the peer may name a message that still waits there for them.
        """
        message = self.decoder
        log = self.log
        key = log.entry_key
        message.rewind()
        while message.next(CAUSAL):
            buf = message.buf
            at = message.entry_at
            size = message.entry_size
            self.bloom.key_into(key, 0, buf, at, size)
            row = log.rows.find(key) if log.again else -1
            if row >= 0 and log.has(row, AGAIN) and not self._is_of_sender(row):
                log.set(row, AGAIN, False)
            row = self.outbox.rows.find(key)
            handle = self.outbox.rows.handle(row) if row >= 0 else 0
            is_kept = handle and self.keeper.names_into(handle, log.names)
            if is_kept and compare_ids(log.names, NAMES_ID, buf, at, size) == 0:
                self.outbox.release(row)
                if notify:
                    self._add_event(EVENT_ACKNOWLEDGED, handle)

    def _is_of_sender(self, row: int) -> bool:
        """Whether a message of the log is by the open message's sender, who has it anyway."""
        message = self.decoder
        names = self.log.names
        return (
            self.keeper.names_into(self.log.rows.handle(row), names)
            and names[0] == message.sender_size
            and equal(message.buf, message.sender_at, names, 1, names[0])
        )

    def _requested(self, frame: bytearray, now_ms: int) -> None:
        """Handle an entry of a repair request: do not ask for it ourselves; perhaps answer."""
        message = self.decoder
        at = message.entry_at
        size = message.entry_size
        if not 0 < size <= CHANNEL_MESSAGE_ID_MAX:
            return
        log = self.log
        key = log.entry_key
        self.bloom.key_into(key, 0, frame, at, size)
        self.repair.on_requested(key, frame, at, size, now_ms)
        handle = self.keeper.find(key, frame, at, size)
        if handle and log.incoming.find(key) < 0 and self.keeper.load(handle):
            # Take the sender from the kept message: the entry may omit it, or be wrong.
            put_names(log.names, self.keeper.work, 0)
            self.repair.plan_response(key, handle, log.names, now_ms)

    def accept(self, now_ms: int, carried: bool) -> int:
        """Accept the open message, whose key is in `key`; its handle, 0: a duplicate, or a code.

        carried: the message comes from another channel (relay.py).
        """
        message = self.decoder
        log = self.log
        key = self.key
        buf = message.buf
        if self.keeper.find(key, buf, message.id_at, message.id_size):
            self.duplicates += 1
            row = log.rows.find(key)
            if row >= 0 and not carried and self.settings.heads_max:
                # Its sender may not know that we have it: name it in our next frame.
                log.set(row, AGAIN, True)
            return OK
        if self._is_beyond(now_ms):
            # It may have been delivered and removed. Losing it is better than delivering it twice.
            self.too_old += 1
            log.forget(key)
            return OK
        if self.event_count == CHANNEL_EVENTS_MAX:
            self.refused += 1
            return E_CAPACITY
        # Of the messages that wait, prefer lower Lamport values: they can be delivered earlier.
        highest_row = log.highest()
        fits = highest_row < 0 or log.is_above(highest_row)
        missing = log.count_missing(now_ms, fits)
        if missing and not fits:
            self.refused += 1
            self._refuse(now_ms)
            return E_CAPACITY
        if missing and highest_row >= 0:
            self.refused += 1
            log.put_off(highest_row, now_ms)
        size = self.writer.stripped_into(message)
        handle = self.keeper.put(key, size, missing > 0) if size > 0 else E_CAPACITY
        if handle < 0:
            self.refused += 1
            return handle
        log.add_to_bloom(key)
        if missing:
            log.hold(key, handle, now_ms)
        else:
            self._deliver(handle, now_ms)
            if not carried:
                self._add_event(EVENT_MESSAGE, handle)
        return handle

    def _is_beyond(self, now_ms: int) -> bool:
        """Whether the open message, which the keeper does not have, may have been removed."""
        keeper = self.keeper
        lamport = self.decoder.lamport
        is_far = self.clock.is_far(lamport, now_ms)
        copy(keeper.limit, 0, self.clock.limit, 0, 8)
        if not keeper.left:
            return False
        return compare(lamport, 0, keeper.horizon, 0) <= 0 or (is_far and keeper.left_far > 0)

    def _refuse(self, now_ms: int) -> None:
        """Plan a request for the open message, which has no room to wait, and drop the requests
        for refused messages that it names."""
        message = self.decoder
        log = self.log
        buf = message.buf
        message.rewind()
        while message.next(CAUSAL):
            self.bloom.key_into(log.entry_key, 0, buf, message.entry_at, message.entry_size)
            self.repair.on_named(log.entry_key, buf, message.entry_at, message.entry_size)
        pack_names(
            log.names, buf, message.sender_at, message.sender_size, message.id_at, message.id_size
        )
        self.repair.want(self.key, log.names, message.lamport, 0, True, now_ms)

    # --- into the log ---

    def _deliver(self, handle: int, now_ms: int) -> None:
        """Put the open message into the log (specs/sds.md "Deliver Message"); count it."""
        self.clock.adopt(self.decoder.lamport, now_ms)
        self.log.enter(self.key, handle)
        self.delivered += 1

    def _settle(self, now_ms: int) -> None:
        """Deliver waiting messages that miss nothing any more, lowest Lamport value first."""
        while self.event_count < CHANNEL_EVENTS_MAX:
            row = self.log.next_ready(now_ms)
            if row < 0:
                return
            self._release(row, now_ms, EVENT_MESSAGE)

    def _give_up(self, now_ms: int) -> bool:
        """Deliver one message that has waited for too long, as EVENT_GAP; False: there is none, or
        no room for an event."""
        row = self.log.next_overdue(now_ms)
        if row < 0 or self.event_count == CHANNEL_EVENTS_MAX:
            return False
        self.given_up += self.log.give_up(row, now_ms)
        self._release(row, now_ms, EVENT_GAP)
        return True

    def _release(self, row: int, now_ms: int, event: int) -> None:
        """Move a waiting message into the log and queue its event."""
        handle = self.log.release(row, self.key)
        if handle:
            self._deliver(handle, now_ms)
            self._add_event(event, handle)
        else:
            self.refused += 1

    def _add_event(self, event: int, handle: int) -> None:
        """Queue an event for the client; if the queue is full, drop it (only acknowledgements)."""
        if self.event_count < CHANNEL_EVENTS_MAX:
            place = (self._event_first + self.event_count) % CHANNEL_EVENTS_MAX
            self._events[place] = event
            self._event_handles[place] = handle
            self.event_count += 1

    def next_event(self) -> int:
        """Return the next event for the client and set `event_handle`; EVENT_NONE: none."""
        if not self.event_count:
            return EVENT_NONE
        place = self._event_first
        self._event_first = (place + 1) % CHANNEL_EVENTS_MAX
        self.event_count -= 1
        self._changed = True
        self.event_handle = self._event_handles[place]
        return self._events[place]

    # --- out ---

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """Write the next frame that is due; its size, or 0. `frame` is as long as keeper.work."""
        self.turn(now_ms)
        size = self._message(frame, now_ms)
        if not size and self._repairs_left:
            size = self._response(frame, now_ms)
        if not size and is_due(now_ms, self._sync_ms):
            size = self._sync(frame, now_ms)
        if size:
            self.frames += 1
            self._changed = True
            if self.keeper.barrier() == OK:
                return size
        # Nothing is due; or flash failed, and a frame would acknowledge what may be lost.
        self._changed = False
        self._wake_ms = later_ms(now_ms, self._wait_ms(now_ms))
        return 0

    def turn(self, now_ms: int) -> None:
        """Advance the clocks and timers; call it at least once in three days if nothing polls."""
        self.clock.advance(now_ms)
        self._settle(now_ms)
        self._sweep(now_ms)
        if self.log.again and not self._hurries:
            # A message that was received again is resent until a frame of ours names it.
            self._hurries = True
            wait_ms = (self.settings.period_ms >> 8) * self._random_byte()
            self._sync_ms = later_ms(now_ms, sooner_ms(self._sync_ms, now_ms, wait_ms))
        if is_due(now_ms, self._sync_ms):
            self._sync_ms = now_ms

    def wake_ms(self, now_ms: int) -> int:
        """Time until `poll_into` may have a frame, in ms; 0 after each received frame."""
        return 0 if self._changed else sooner_ms(self._wake_ms, now_ms, WAIT_MS_MAX)

    def _sweep(self, now_ms: int) -> None:
        """Once per period: give up lost dependencies, plan requests for missing ones."""
        if not is_due(now_ms, self._sweep_ms):
            return
        settings = self.settings
        log = self.log
        self._sweep_ms = later_ms(now_ms, settings.period_ms)
        self._repairs_left = CHANNEL_REPAIRS_MAX
        self.repair.sweep(now_ms)
        self.outbox.sweep(now_ms)
        while settings.lost_ms and self._give_up(now_ms):
            self._settle(now_ms)
        if settings.repair:
            log.want_missing(now_ms)
        if self.delivered and not log.incoming.count and not self.repair.wanted.count:
            log.recovering = False

    def _wait_ms(self, now_ms: int) -> int:
        """Time until a frame or a sweep is due, in ms, at most WAIT_MS_MAX."""
        wait_ms = sooner_ms(self._sync_ms, now_ms, WAIT_MS_MAX)
        wait_ms = self.outbox.rows.wait_ms(now_ms, wait_ms, POSSIBLY)
        if self.log.incoming.count:
            wait_ms = sooner_ms(self._sweep_ms, now_ms, wait_ms)
        soonest_ms = self.repair.responses.wait_ms(now_ms, wait_ms, PLANNED)
        if soonest_ms < wait_ms and not self._repairs_left:
            soonest_ms = max(soonest_ms, sooner_ms(self._sweep_ms, now_ms, wait_ms))
        return soonest_ms

    def _message(self, frame: bytearray, now_ms: int) -> int:
        """Write the next message of the outgoing buffer; the frame's size, or 0."""
        row = self.outbox.next(now_ms, self._heard_ms)
        if row < 0:
            return 0
        size = self.repeat_into(frame, self.outbox.rows.handle(row), now_ms)
        if not size:  # the keeper lost it
            self.outbox.rows.remove(row)
            self.refused += 1
        return size

    def repeat_into(self, frame: bytearray, handle: int, now_ms: int) -> int:
        """Write a kept message with the current filter and repair request; its size, 0: gone."""
        size = self.keeper.load(handle)
        if size:
            self.decoder.open(self.keeper.work, 0, size)
            size = self.writer.completed_into(frame, self.decoder, size, now_ms)
            if not self.log.again:  # else a sync message must still acknowledge duplicates
                self._plan_sync(now_ms)
        return size

    def _response(self, frame: bytearray, now_ms: int) -> int:
        """Write a message that another participant requested; the frame's size, or 0."""
        handle = self.repair.next_response(now_ms)
        if not handle:
            return 0
        self._repairs_left -= 1
        size = self.keeper.load(handle)
        copy(frame, 0, self.keeper.work, 0, size)
        self.repaired += size > 0
        return size

    def _plan_sync(self, now_ms: int) -> None:
        """Plan the next sync message after one to two `sync_ms` without another frame."""
        wait_ms = self.settings.sync_ms
        wait_ms += (wait_ms >> 8) * self._random_byte()
        self._sync_ms = later_ms(now_ms, wait_ms)
        self._heard = self._hurries = False

    def _sync(self, frame: bytearray, now_ms: int) -> int:
        """Write a sync message, unless others were heard and there is nothing to request."""
        size = 0
        has_request = self.writer.next_request(now_ms) >= 0
        settings = self.settings
        if not settings.send_sync:
            if has_request and settings.ask_into is not None:
                size = settings.ask_into(frame, now_ms)
        elif has_request or not self._heard or self.log.again:
            self.clock.tick(now_ms)
            size = self.writer.sync_into(frame, self.clock.value, now_ms)
            self.syncs += 1
        self._plan_sync(now_ms)
        return size

    # --- after a restart ---

    def restore(self, now_ms: int) -> None:
        """Rebuild log, filter, clock and waiting messages from the newest messages of the keeper.

        Messages of ours count as unacknowledged unless a kept message names them. No events.
        """
        settings = self.settings
        first = self.keeper.tail(settings.ids_max + settings.incoming_max)
        while self._restore_waiting(first, now_ms):
            pass
        for handle in self._kept(first):
            is_mine = self._is_mine()
            if not is_mine:
                self._acknowledge(False)
            if self.log.incoming.find(self.key) < 0:
                self._restore_one(handle, is_mine, now_ms)

    def _kept(self, handle: int) -> "Iterator[int]":
        """Open each message kept after `handle` in turn and compute `key`; yield its handle."""
        message = self.decoder
        work = self.keeper.work
        handle = self.keeper.next(handle)
        while handle:
            if message.open(work, 0, self.keeper.load(handle)) == OK and message.id_size:
                self.bloom.key_into(self.key, 0, work, message.id_at, message.id_size)
                yield handle
            handle = self.keeper.next(handle)

    def _restore_waiting(self, first: int, now_ms: int) -> bool:
        """Find kept messages whose dependencies are missing or wait themselves; False: no more.

        Messages that were in the log before the restart do not wait again.
        """
        log = self.log
        count = log.incoming.count
        for handle in self._kept(first):
            waited_ms = self.keeper.waited_ms(handle)
            if waited_ms < 0 or log.incoming.find(self.key) >= 0 or self._is_mine():
                continue
            if not log.incoming.is_full() and log.count_missing(now_ms, False):
                self.keeper.pin(handle, True)
                log.hold(self.key, handle, elapsed_ms(now_ms, waited_ms))
        return log.incoming.count > count

    def _restore_one(self, handle: int, mine: bool, now_ms: int) -> None:
        """Put the open kept message into the log again."""
        outbox = self.outbox
        key = self.key
        self.clock.adopt(self.decoder.lamport, now_ms)
        self.log.enter(key, handle)
        if not mine:
            self.keeper.pin(handle, False)
            self.log.add_to_bloom(key)
            return
        if outbox.rows.is_full():
            outbox.release(0)
        self.send_later(handle, now_ms)


def open_channel(
    id: bytes, participant: bytes, keeper: "KeeperPort", random_byte: "Callable[[], int]",
    settings: "Settings | None" = None, now_ms: int = 0,
) -> Channel:  # fmt: skip
    """Return a channel of dialect `sds` with the settings' filter, its log restored.

    id: at most 66 bytes of UTF-8; participant: 1 to 66 bytes, unique in the channel. Raises
    CapacityError if a wait in the settings is too long.
    """
    settings = settings or Settings()
    wait_ms = max(settings.period_ms * settings.possibly_periods, 2 * settings.sync_ms)
    wait_ms = max(wait_ms, 2 * settings.lost_ms, settings.t_max_ms)
    if wait_ms > WAIT_MS_MAX or not 0 < settings.t_min_ms < settings.t_max_ms:
        raise CapacityError("a channel's T_max is above T_min, and no wait above 2^28 ms")
    bloom = Bloom(settings.bloom_capacity, settings.bloom_bits, settings.bloom_hashes)
    channel = Channel(id, participant, keeper, bloom, random_byte, settings, now_ms)
    channel.restore(now_ms)
    # A new participant, or one that lost its log, accepts messages of its own from others.
    channel.log.recovering = channel.log.recovering or not keeper.next(0)
    return channel
