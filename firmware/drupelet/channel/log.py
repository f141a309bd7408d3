"""The local log of a channel: delivered messages, messages that wait for a dependency, and
dependencies given up (specs/sds.md "Deliver Message", "Resolve Conflicts", "Periodic Incoming
Buffer Sweep").

    rows       the newest delivered messages, ordered by Lamport value, then by id: row (rows.py) |
               Lamport value 8; state: flags
    incoming   waiting messages, ordered by Lamport value: row (rows.py) | Lamport value 8 | key of
               a missing dependency 8; time: when it was received, state: 1: check it again
    lost       keys of the dependencies given up, 8 bytes each, newest first

Lamport values are little-endian. The open message is the one that the caller opened in `decoder`.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import CHANNEL_LOST_MAX
from drupelet.base.memory import copy, equal, find
from drupelet.base.time_ms import later_ms
from drupelet.channel.keeper import NAMES_ID, NAMES_SIZE, compare_ids, pack_names
from drupelet.channel.lamport import compare
from drupelet.channel.rows import KEY_SIZE, KeyRows, is_due
from drupelet.wire.sds.message import CAUSAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import BloomPort, Buffer, KeeperPort
    from drupelet.channel.repair import Repair
    from drupelet.channel.settings import Settings
    from drupelet.wire.sds.message import Decoder

_LAMPORT_AT = const(12)
_STRIDE = const(20)
REFERENCED = const(1)  # a message in the log depends on it
AGAIN = const(2)  # a duplicate was received: name it in our next frame
IN_LAMPORT = const(16)
_IN_MISSING = const(24)
IN_STRIDE = const(32)


class LocalLog:
    """The order of a channel's messages, and those that wait for dependencies."""

    def __init__(
        self, participant: bytes, keeper: "KeeperPort", bloom: "BloomPort", decoder: "Decoder",
        repair: "Repair", settings: "Settings",
    ) -> None:  # fmt: skip
        self.participant = participant
        self.keeper = keeper
        self.bloom = bloom
        self._decoder = decoder
        self.repair = repair
        self.settings = settings
        # Our log was lost: accept our own messages from others until nothing is missing.
        self.recovering = False
        self.rows = KeyRows(settings.ids_max, _STRIDE)
        self.left = 0  # messages that were evicted from `rows`
        self.again = 0  # rows with the flag AGAIN
        self.incoming = KeyRows(settings.incoming_max, IN_STRIDE)
        self._lost = bytearray(CHANNEL_LOST_MAX * KEY_SIZE)
        self.entry_key = bytearray(KEY_SIZE)
        self.names = bytearray(NAMES_SIZE)
        self._missing = bytearray(KEY_SIZE)
        self._missing_waits = False

    # --- the rows of the log, from the oldest ---

    def has(self, row: int, flag: int) -> bool:
        """Whether a row has a flag: REFERENCED or AGAIN."""
        return self.rows.state(row) & flag != 0

    def set(self, row: int, flag: int, value: bool) -> None:
        """Set or clear a flag of a row."""
        if self.has(row, flag) != value:
            self.rows.set_state(row, self.rows.state(row) ^ flag)
            if flag == AGAIN:
                self.again += 1 if value else -1

    def enter(self, key: bytearray, handle: int) -> None:
        """Insert the open message by Lamport value, then by id; mark those that wait for it.

        If the table is full, evict a row (`_victim`).
        """
        self._check_waiting(key)
        rows = self.rows
        row = self._position(handle)
        if rows.is_full():
            self.left += 1
            victim = self._victim()
            if victim >= row and not self.has(victim, REFERENCED):
                return  # the new message itself would be the one to evict
            self.set(victim, AGAIN, False)
            rows.remove(victim)
            row -= victim < row
        rows.insert(row, key, handle)
        copy(rows.table, row * _STRIDE + _LAMPORT_AT, self._decoder.lamport, 0, 8)

    def _position(self, handle: int) -> int:
        """Return where to insert the open message: after those with a lower Lamport value, or an
        equal one and a lower id."""
        keeper = self.keeper
        rows = self.rows
        lamport_at = rows.count * _STRIDE + _LAMPORT_AT
        for row in range(rows.count, 0, -1):
            lamport_at -= _STRIDE
            order = compare(rows.table, lamport_at, self._decoder.lamport, 0)
            if order == 0 and keeper.names_into(rows.handle(row - 1), self.names):
                work = keeper.work
                id_at = 3 + work[1] if keeper.load(handle) else 0
                order = compare_ids(self.names, NAMES_ID, work, id_at + 1, work[id_at])
            if order <= 0:
                return row
        return 0

    def _victim(self) -> int:
        """Return the row to evict: the oldest referenced one, else the oldest one.

        Unreferenced messages stay longer, because only our own sync messages name them. Rows of
        the newest quarter stay in any case.
        """
        for row in range(self.rows.count * 3 // 4):
            if self.has(row, REFERENCED):
                return row
        return 0

    def add_to_bloom(self, key: bytearray) -> None:
        """Add a received id to the filter.

        A full filter is rebuilt from the newest messages in RAM, three quarters of its capacity.
        """
        bloom = self.bloom
        if bloom.count >= bloom.capacity:
            bloom.clear()
            first = max(self.rows.count - bloom.capacity * 3 // 4, 0)
            for row in range(first, self.rows.count):
                bloom.add(self.rows.table, row * _STRIDE)
            for row in range(self.incoming.count):
                bloom.add(self.incoming.table, row * IN_STRIDE)
        bloom.add(key, 0)

    # --- dependencies ---

    def is_mine(self, buf: "Buffer", at: int, size: int) -> bool:
        """Whether buf[at:at+size] is our own sender id."""
        participant = self.participant
        return size == len(participant) and equal(buf, at, participant, 0, size)

    def count_missing(self, now_ms: int, want: bool) -> int:
        """Count the dependencies of the open message that are not in the log.

        want: plan repair requests for them. The first missing one is noted in `_missing`, if
        possible one that does not wait here itself. If one of our own messages is missing, our log
        was lost or is an older copy. Dependencies in the log are marked as referenced, unless the
        open message is a sync message.
        """
        message = self._decoder
        key = self.entry_key
        count = 0
        message.rewind()
        while message.next(CAUSAL):
            buf = message.buf
            id_at = message.entry_at
            size = message.entry_size
            self.bloom.key_into(key, 0, buf, id_at, size)
            row = self.rows.find(key)
            if row >= 0 and message.content_size:
                self.set(row, REFERENCED, True)
            if row >= 0 or self._is_lost(key):
                continue
            is_waiting = self.incoming.find(key) >= 0
            if not is_waiting and self.keeper.find(key, buf, id_at, size):
                continue
            if not count or (self._missing_waits and not is_waiting):
                copy(self._missing, 0, key, 0, KEY_SIZE)
                self._missing_waits = is_waiting
            count += 1
            sender_at = message.entry_sender_at
            if self.is_mine(buf, sender_at, message.entry_sender_size):
                self.recovering = True
            if self.settings.hints is not None and message.hint_at >= 0:
                self.settings.hints.note(message)
            if want and not is_waiting:
                pack_names(self.names, buf, sender_at, message.entry_sender_size, id_at, size)
                self.repair.want(key, self.names, message.lamport, 0, False, now_ms)
        return count

    def _is_lost(self, key: bytearray) -> bool:
        return find(self._lost, KEY_SIZE, CHANNEL_LOST_MAX, key, 0, KEY_SIZE) >= 0

    def _lose(self, key: bytearray) -> None:
        """Remember a dependency as lost, so that it counts as met."""
        row = self.repair.wanted.find(key)
        if row >= 0:
            self.repair.wanted.remove(row)
        copy(self._lost, KEY_SIZE, self._lost, 0, len(self._lost) - KEY_SIZE)
        copy(self._lost, 0, key, 0, KEY_SIZE)

    def forget(self, key: bytearray) -> None:
        """Count a message that is too old to be accepted as lost; nothing waits for it then."""
        if not self._is_lost(key):
            self._lose(key)
        self._check_waiting(key)

    # --- waiting ---

    def hold(self, key: bytearray, handle: int, since_ms: int) -> None:
        """Let the open message wait, since `since_ms`, for the dependency in `_missing`."""
        incoming = self.incoming
        lamport = self._decoder.lamport
        row = incoming.count
        while row and self.is_above(row - 1):
            row -= 1
        incoming.insert(row, key, handle)
        incoming.set_time(row, since_ms)
        place = row * IN_STRIDE
        copy(incoming.table, place + IN_LAMPORT, lamport, 0, 8)
        copy(incoming.table, place + _IN_MISSING, self._missing, 0, KEY_SIZE)

    def _check_waiting(self, key: bytearray) -> None:
        """Mark the messages that wait for this dependency to be checked again."""
        incoming = self.incoming
        for row in range(incoming.count):
            place = row * IN_STRIDE
            if equal(incoming.table, place + _IN_MISSING, key, 0, KEY_SIZE):
                incoming.set_state(row, 1)

    def highest(self) -> int:
        """If all rows are in use, the waiting message with the highest Lamport value; else -1."""
        return self.incoming.count - 1 if self.incoming.is_full() else -1

    def is_above(self, row: int) -> bool:
        """Whether a waiting message has a higher Lamport value than the open one."""
        at = row * IN_STRIDE + IN_LAMPORT
        return compare(self.incoming.table, at, self._decoder.lamport, 0) > 0

    def check(self, row: int, now_ms: int, want: bool) -> int:
        """Open a waiting message and count its missing dependencies, as `count_missing`."""
        work = self.keeper.work
        size = self.keeper.load(self.incoming.handle(row))
        if not size or self._decoder.open(work, 0, size) != OK:
            return 0  # the keeper lost it, so it need not wait
        missing = self.count_missing(now_ms, want)
        if missing:
            missing_at = row * IN_STRIDE + _IN_MISSING
            copy(self.incoming.table, missing_at, self._missing, 0, KEY_SIZE)
        return missing

    def want_missing(self, now_ms: int) -> None:
        """Plan requests for the missing dependencies of all waiting messages, lowest first."""
        for row in range(self.incoming.count):
            self.check(row, now_ms, True)

    def next_ready(self, now_ms: int) -> int:
        """Return the lowest waiting message that misses nothing any more, or -1."""
        incoming = self.incoming
        for row in range(incoming.count):
            if incoming.state(row):
                incoming.set_state(row, 0)
                if self.check(row, now_ms, False) == 0:
                    return row
        return -1

    def next_overdue(self, now_ms: int) -> int:
        """Return the lowest waiting message whose dependencies are irretrievably lost, or -1."""
        lost_ms = self.settings.lost_ms
        first_lost = -1
        for row in range(self.incoming.count):
            since_ms = self.incoming.time_ms(row)
            is_late = is_due(now_ms, later_ms(since_ms, lost_ms))
            # Check each late one: its dependency may have been given up for another message.
            if is_late and (self.check(row, now_ms, False) == 0 or not self._missing_waits):
                is_lost = True
            else:  # a cycle of messages that wait for each other ends after twice the time
                is_lost = is_late and is_due(now_ms, later_ms(since_ms, 2 * lost_ms))
            if is_lost and first_lost < 0:
                first_lost = row
        return first_lost

    def give_up(self, row: int, now_ms: int) -> int:
        """Give up the missing dependencies of a waiting message that do not wait here themselves.

        Returns how many, at most CHANNEL_LOST_MAX.
        """
        for count in range(CHANNEL_LOST_MAX):
            if not self.check(row, now_ms, False) or self._missing_waits:
                return count
            self._lose(self._missing)
        return CHANNEL_LOST_MAX

    def release(self, row: int, key: bytearray) -> int:
        """Remove a waiting message from `incoming`; return its handle, 0 if the keeper lost it.

        Stores its key in `key` and its Lamport value in the decoder, as `enter` needs them.
        """
        incoming = self.incoming
        place = row * IN_STRIDE
        handle = incoming.handle(row)
        copy(key, 0, incoming.table, place, KEY_SIZE)
        copy(self._decoder.lamport, 0, incoming.table, place + IN_LAMPORT, 8)
        incoming.remove(row)
        self.keeper.pin(handle, False)
        return handle if self.keeper.load(handle) else 0

    def put_off(self, row: int, now_ms: int) -> None:
        """Drop a waiting message to make room, and plan a request for it."""
        incoming = self.incoming
        place = row * IN_STRIDE
        handle = incoming.handle(row)
        if self.keeper.names_into(handle, self.names):
            copy(self.entry_key, 0, incoming.table, place, KEY_SIZE)
            self.repair.want(
                self.entry_key, self.names, incoming.table, place + IN_LAMPORT, True, now_ms
            )
        self.keeper.drop(handle)
        incoming.remove(row)
