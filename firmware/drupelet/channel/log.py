"""The local log of a channel: what entered it, what waits for a dependency, what was given up
(specs/sds.md "Deliver Message", "Resolve Conflicts", "Periodic Incoming Buffer Sweep").

    incoming   key 8 | handle 4 | Lamport value 8 | key of a missing dependency 8 | look again 1;
               its time: when it came
    lost       key 8: dependencies that were given up
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.hashes_sds import Identity
from drupelet.base.limits import CHANNEL_EVENTS_MAX, CHANNEL_LOST_MAX, CHANNEL_NAME_MAX
from drupelet.base.memory import copy, equal, find, get_u32, put_u32
from drupelet.base.time_ms import later_ms
from drupelet.channel.keeper import NAMES_SIZE
from drupelet.channel.lamport import LamportClock, compare
from drupelet.channel.repair import Repairs, is_due
from drupelet.channel.rows import REFERENCED, KeyRows, RecentLog
from drupelet.wire.sds.message import CAUSAL, Decoder, Encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import BloomPort, Buffer, HintPort, KeeperPort
    from drupelet.channel.settings import Settings

EVENT_NONE = const(0)
EVENT_MESSAGE = const(1)  # a message of another participant entered the log
EVENT_GAP = const(2)  # the same, but something that it depends on is lost
EVENT_ACKNOWLEDGED = const(3)  # a message of ours is known to somebody

OUT_STRIDE = const(14)
IN_HANDLE = const(8)
IN_LAMPORT = const(12)
_IN_MISSING = const(20)
_IN_LOOK = const(28)
IN_STRIDE = const(29)


class LocalLog:
    """A participant's state in one channel, and how messages change it."""

    def __init__(
        self, id: bytes, participant: bytes, keeper: "KeeperPort", bloom: "BloomPort",
        settings: "Settings",
    ) -> None:  # fmt: skip
        assert 0 < len(participant) <= CHANNEL_NAME_MAX and len(id) <= CHANNEL_NAME_MAX
        self.id = id
        self.participant = participant
        self.keeper = keeper
        self.bloom = bloom
        self.settings = settings
        self.recovering = False  # own messages are taken in until nothing misses: see `unmet`
        self.hints: "HintPort | None" = None
        self.clock = LamportClock(settings.unit_ms)
        self.log = RecentLog(settings.ids_max)
        self.outgoing = KeyRows(settings.outgoing_max, OUT_STRIDE)
        self.incoming = KeyRows(settings.incoming_max, IN_STRIDE)
        self.identity = settings.identity or Identity(participant)
        self.repairs = Repairs(self.identity, settings)
        self._lost = bytearray(CHANNEL_LOST_MAX * 8)
        self._lost_next = 0
        self.decoder = Decoder()
        self.encoder = Encoder()
        self.key = bytearray(8)
        self.entry_key = bytearray(8)
        self.names = bytearray(NAMES_SIZE)
        self._missing = bytearray(8)
        self._waits = False
        self._events = bytearray(CHANNEL_EVENTS_MAX)
        self._event_handles = [0] * CHANNEL_EVENTS_MAX
        self._event_first = 0
        self.event_count = 0
        self.event_handle = 0
        self.content_at = self.content_size = 0  # of an ephemeral message in its frame
        self.heard = False  # something came since our last frame
        self.heard_ms = -1  # when something of another came last
        self.changed = True
        self.frames = self.syncs = self.resent = self.repaired = 0  # sent
        self.delivered = self.duplicates = self.malformed = self.refused = 0
        self.foreign = self.own = self.filters = self.too_old = self.given_up = 0
        self.unnamed = 0  # of ours that left unacknowledged after CHANNEL_RESENDS_MAX

    # --- dependencies ---

    def unmet(self, now_ms: int, want: bool) -> int:
        """How many dependencies are not in the log; the first one's key goes to `_missing`, if
        there is one, of those that do not wait here (`_waits`). One of our own that misses is a
        sign that our log was lost, or is an older copy.

        Those that are there have something that depends on them now, unless it is a sync message.
        """
        message = self.decoder
        key = self.entry_key
        count = 0
        message.rewind()
        while message.next(CAUSAL):
            self.bloom.key_into(key, 0, message.buf, message.entry_at, message.entry_size)
            row = self.log.find(key, 0)
            if row >= 0 and message.content_size:
                self.log.mark(row, REFERENCED)
            if row >= 0 or self._is_lost(key):
                continue
            waits = self.incoming.find(key, 0) >= 0
            if not waits and self.keeper.find(
                key, 0, message.buf, message.entry_at, message.entry_size
            ):
                continue
            if not count or (self._waits and not waits):
                copy(self._missing, 0, key, 0, 8)
                self._waits = waits
            count += 1
            if self.is_mine(message.buf, message.entry_sender_at, message.entry_sender_size):
                self.recovering = True
            if self.hints is not None and message.hint_at >= 0:
                self.hints.note(message)
            if want and not waits:
                self.repairs.want(
                    key, message.buf, message.entry_at, message.entry_size, message.buf,
                    message.entry_sender_at, message.entry_sender_size, message.lamport, 0, False,
                    now_ms,
                )  # fmt: skip
        return count

    def is_mine(self, buf: "Buffer", at: int, size: int) -> bool:
        """Whether buf[at:at+size] is our own sender id."""
        mine = self.participant
        return size == len(mine) and equal(buf, at, mine, 0, size)

    def add_to_bloom(self, key: bytearray) -> None:
        """Put a received id into the filter; a full one begins anew with the newest three in
        four of what the log has in RAM."""
        bloom = self.bloom
        if bloom.count >= bloom.capacity:
            bloom.clear()
            first = max(self.log.count - bloom.capacity * 3 // 4, 0)
            for row in range(first, self.log.count):
                bloom.add(self.log.table, self.log.key_at(row))
            for row in range(self.incoming.count):
                bloom.add(self.incoming.table, row * IN_STRIDE)
        bloom.add(key, 0)

    # --- waiting and entering the log ---

    def hold(self, handle: int, since_ms: int) -> None:
        incoming = self.incoming
        place = incoming.add(self.key, 0, since_ms) * IN_STRIDE
        put_u32(incoming.table, place + IN_HANDLE, handle)
        copy(incoming.table, place + IN_LAMPORT, self.decoder.lamport, 0, 8)
        copy(incoming.table, place + _IN_MISSING, self._missing, 0, 8)

    def deliver(
        self, key: bytearray, key_at: int, handle: int, lamport: bytearray, at: int, now_ms: int,
        tell: bool,
    ) -> None:  # fmt: skip
        """Deliver Message, Resolve Conflicts; whatever waited for it is looked at again."""
        self.clock.take(lamport, at, now_ms)
        self.enter(key, key_at, handle, lamport, at)
        self.delivered += 1
        if tell:
            self.tell(EVENT_MESSAGE, handle)

    def enter(self, key: bytearray, key_at: int, handle: int, lamport: bytearray, at: int) -> None:
        """Insert a message into the log by Lamport value, then by id."""
        log = self.log
        row = log.place(lamport, at)
        if row and compare(log.table, log.lamport_at(row - 1), lamport, at) == 0:
            row = self._by_id(row, handle, lamport, at)
        log.insert(row, key, key_at, handle, lamport, at)
        self._look_for(key, key_at)

    def _look_for(self, key: bytearray, at: int) -> None:
        """What waits for a dependency is to be looked at again."""
        incoming = self.incoming
        for row in range(incoming.count):
            place = row * IN_STRIDE
            if equal(incoming.table, place + _IN_MISSING, key, at, 8):
                incoming.table[place + _IN_LOOK] = 1

    def _by_id(self, row: int, handle: int, lamport: bytearray, at: int) -> int:
        """Go back before all rows of the same Lamport value with a higher id."""
        log = self.log
        keeper = self.keeper
        keeper.load(handle)
        work = keeper.work
        id_at = 3 + work[1]
        while row and compare(log.table, log.lamport_at(row - 1), lamport, at) == 0:
            if keeper.order(log.handle(row - 1), work, id_at + 1, work[id_at]) <= 0:
                break
            row -= 1
        return row

    def settle(self, now_ms: int) -> None:
        """Deliver what waits for nothing any more, lowest Lamport value first."""
        incoming = self.incoming
        while self.event_count < CHANNEL_EVENTS_MAX:
            best = -1
            for row in range(incoming.count):
                looks = incoming.table[row * IN_STRIDE + _IN_LOOK]
                if looks and (best < 0 or self._is_before(row, best)):
                    best = row
            if best < 0:
                return
            incoming.table[best * IN_STRIDE + _IN_LOOK] = 0
            if self.look(best, now_ms, False) == 0:
                self._release(best, now_ms, EVENT_MESSAGE)

    def look(self, row: int, now_ms: int, want: bool) -> int:
        """How many dependencies a waiting message still misses; the first is noted."""
        place = row * IN_STRIDE
        table = self.incoming.table
        size = self.keeper.load(get_u32(table, place + IN_HANDLE))
        if not size or self.decoder.open(self.keeper.work, 0, size) != OK:
            return 0  # it is gone from the store: nothing to wait for
        missing = self.unmet(now_ms, want)
        if missing:
            copy(table, place + _IN_MISSING, self._missing, 0, 8)
        return missing

    def _release(self, row: int, now_ms: int, event: int) -> None:
        """A waiting message enters the log."""
        incoming = self.incoming
        place = row * IN_STRIDE
        handle = get_u32(incoming.table, place + IN_HANDLE)
        copy(self.key, 0, incoming.table, place, 8)
        copy(self.decoder.lamport, 0, incoming.table, place + IN_LAMPORT, 8)
        incoming.remove(row)
        self.keeper.pin(handle, False)
        if not self.keeper.load(handle):
            self.refused += 1
            return
        self.deliver(self.key, 0, handle, self.decoder.lamport, 0, now_ms, False)
        self.tell(event, handle)

    # --- what is lost ---

    def _is_lost(self, key: bytearray) -> bool:
        return find(self._lost, 8, CHANNEL_LOST_MAX, key, 0, 8) >= 0

    def _note_lost(self, key: bytearray, at: int) -> None:
        row = self.repairs.wanted.find(key, at)
        if row >= 0:
            self.repairs.wanted.remove(row)
        copy(self._lost, self._lost_next, key, at, 8)
        self._lost_next = (self._lost_next + 8) % (CHANNEL_LOST_MAX * 8)

    def forget_dependency(self, key: bytearray, at: int) -> None:
        """A dependency does not come: it counts as met from now on."""
        if not self._is_lost(key):
            self._note_lost(key, at)
        self._look_for(key, at)

    def give_up(self, now_ms: int) -> bool:
        """Deliver, with a gap, the waiting message with the lowest Lamport value of those that
        wait for too long: what it misses is irretrievably lost. False: there is none."""
        incoming = self.incoming
        lost_ms = self.settings.lost_ms
        best = -1
        for row in range(incoming.count):
            late = is_due(now_ms, later_ms(incoming.times_ms[row], lost_ms))
            # Messages may wait for each other in a circle: after twice the time that ends, too.
            ends = late and is_due(now_ms, later_ms(incoming.times_ms[row], 2 * lost_ms))
            late = late and (self.look(row, now_ms, False) == 0 or not self._waits or ends)
            if late and (best < 0 or self._is_before(row, best)):
                best = row
        if best < 0 or self.event_count == CHANNEL_EVENTS_MAX:
            return False
        for _ in range(CHANNEL_LOST_MAX):
            if not self.look(best, now_ms, False) or self._waits:
                break
            self._note_lost(self._missing, 0)
            self.given_up += 1
        self._release(best, now_ms, EVENT_GAP)
        return True

    def _is_before(self, row: int, other: int) -> bool:
        """Whether a waiting message has a lower Lamport value than another."""
        table = self.incoming.table
        return (
            compare(table, row * IN_STRIDE + IN_LAMPORT, table, other * IN_STRIDE + IN_LAMPORT) < 0
        )

    # --- events ---

    def tell(self, event: int, handle: int) -> None:
        place = (self._event_first + self.event_count) % CHANNEL_EVENTS_MAX
        self._events[place] = event
        self._event_handles[place] = handle
        self.event_count += 1

    def next_event(self) -> int:
        """What the client should know next, with `event_handle`; EVENT_NONE: nothing."""
        if not self.event_count:
            return EVENT_NONE
        place = self._event_first
        self._event_first = (place + 1) % CHANNEL_EVENTS_MAX
        self.event_count -= 1
        self.changed = True
        self.event_handle = self._event_handles[place]
        return self._events[place]
