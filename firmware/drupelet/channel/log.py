"""The local log of a channel: what entered it, what waits for a dependency, what was given up
(specs/sds.md "Deliver Message", "Resolve Conflicts", "Periodic Incoming Buffer Sweep").

    rows       the newest messages, ordered by Lamport value, then by id: rows (rows.py) | Lamport
               value 8; their state: flags
    incoming   rows (rows.py) by Lamport value | Lamport value 8 | key of a missing dependency 8;
               their time: when it came, their state: 1: check again
    lost       key 8: dependencies that were given up, newest first

Lamport values are little-endian. A message is read through `decoder`, which its caller opened.
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
REFERENCED = const(1)  # something in the log depends on it
AGAIN = const(2)  # it came again: our next frame names it
IN_LAMPORT = const(16)
_IN_MISSING = const(24)
IN_STRIDE = const(32)


class LocalLog:
    """The order of a channel's messages, and which of them wait."""

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
        self.recovering = False  # own messages are taken in until nothing is missing
        self.rows = KeyRows(settings.ids_max, _STRIDE)
        self.left = 0  # messages that had to leave the table
        self.again = 0  # rows with that flag
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
        """Insert the open message by Lamport value, then by id; what waits for it is checked.

        A row leaves a full table: see `_victim`.
        """
        self._check_waiting(key)
        rows = self.rows
        row = self._position(handle)
        if rows.is_full():
            self.left += 1
            victim = self._victim()
            if victim >= row and not self.has(victim, REFERENCED):
                return  # it is the oldest itself
            self.set(victim, AGAIN, False)
            rows.remove(victim)
            row -= victim < row
        rows.insert(row, key, handle)
        copy(rows.table, row * _STRIDE + _LAMPORT_AT, self._decoder.lamport, 0, 8)

    def _position(self, handle: int) -> int:
        """The row behind all messages with a lower Lamport value, or the same and a lower id."""
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
        """The oldest row that something depends on, not of the newest quarter; or the oldest.

        What nothing depends on must stay as long as it can: others hear of it from us only.
        """
        for row in range(self.rows.count * 3 // 4):
            if self.has(row, REFERENCED):
                return row
        return 0

    def add_to_bloom(self, key: bytearray) -> None:
        """Put a received id into the filter; a full one begins anew with the newest three in
        four of what the log has in RAM."""
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
        mine = self.participant
        return size == len(mine) and equal(buf, at, mine, 0, size)

    def count_missing(self, now_ms: int, want: bool) -> int:
        """How many dependencies of the open message are not in the log; `want`: ask for them.

        The first one is noted, of those that do not wait here if there is one. A missing one of
        our own is a sign that our log was lost, or is an older copy. Dependencies that are in the
        log are marked as referenced, unless the message is a sync message.
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
            waits = self.incoming.find(key) >= 0
            if not waits and self.keeper.find(key, buf, id_at, size):
                continue
            if not count or (self._missing_waits and not waits):
                copy(self._missing, 0, key, 0, KEY_SIZE)
                self._missing_waits = waits
            count += 1
            sender_at = message.entry_sender_at
            if self.is_mine(buf, sender_at, message.entry_sender_size):
                self.recovering = True
            if self.settings.hints is not None and message.hint_at >= 0:
                self.settings.hints.note(message)
            if want and not waits:
                pack_names(self.names, buf, sender_at, message.entry_sender_size, id_at, size)
                self.repair.want(key, self.names, message.lamport, 0, False, now_ms)
        return count

    def _is_lost(self, key: bytearray) -> bool:
        return find(self._lost, KEY_SIZE, CHANNEL_LOST_MAX, key, 0, KEY_SIZE) >= 0

    def _lose(self, key: bytearray) -> None:
        """Remember that a dependency does not come: it counts as met."""
        row = self.repair.wanted.find(key)
        if row >= 0:
            self.repair.wanted.remove(row)
        copy(self._lost, KEY_SIZE, self._lost, 0, len(self._lost) - KEY_SIZE)
        copy(self._lost, 0, key, 0, KEY_SIZE)

    def forget(self, key: bytearray) -> None:
        """A message is not taken in any more: what waits for it need not."""
        if not self._is_lost(key):
            self._lose(key)
        self._check_waiting(key)

    # --- waiting ---

    def hold(self, key: bytearray, handle: int, since_ms: int) -> None:
        """Let the open message wait for the dependency that `count_missing` noted."""
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
        """What waits for this dependency is to be checked again."""
        incoming = self.incoming
        for row in range(incoming.count):
            place = row * IN_STRIDE
            if equal(incoming.table, place + _IN_MISSING, key, 0, KEY_SIZE):
                incoming.set_state(row, 1)

    def highest(self) -> int:
        """The waiting message with the highest Lamport value if all rows are in use; or -1."""
        return self.incoming.count - 1 if self.incoming.is_full() else -1

    def is_above(self, row: int) -> bool:
        """Whether a waiting message has a higher Lamport value than the open one."""
        at = row * IN_STRIDE + IN_LAMPORT
        return compare(self.incoming.table, at, self._decoder.lamport, 0) > 0

    def check(self, row: int, now_ms: int, want: bool) -> int:
        """How many dependencies a waiting message still misses, as `count_missing`; opens it."""
        work = self.keeper.work
        size = self.keeper.load(self.incoming.handle(row))
        if not size or self._decoder.open(work, 0, size) != OK:
            return 0  # it is gone from the store: nothing to wait for
        missing = self.count_missing(now_ms, want)
        if missing:
            missing_at = row * IN_STRIDE + _IN_MISSING
            copy(self.incoming.table, missing_at, self._missing, 0, KEY_SIZE)
        return missing

    def want_missing(self, now_ms: int) -> None:
        """Plan to ask for what waiting messages miss: the lowest have the rows."""
        for row in range(self.incoming.count):
            self.check(row, now_ms, True)

    def next_ready(self, now_ms: int) -> int:
        """The lowest of the waiting messages that miss nothing any more; -1: there is none."""
        incoming = self.incoming
        for row in range(incoming.count):
            if incoming.state(row):
                incoming.set_state(row, 0)
                if self.check(row, now_ms, False) == 0:
                    return row
        return -1

    def next_overdue(self, now_ms: int) -> int:
        """The lowest of the waiting messages whose dependencies are irretrievably lost; or -1."""
        lost_ms = self.settings.lost_ms
        first = -1
        for row in range(self.incoming.count):
            since_ms = self.incoming.time_ms(row)
            late = is_due(now_ms, later_ms(since_ms, lost_ms))
            # Each late one is checked: what it waits for may have been given up for another.
            if late and (self.check(row, now_ms, False) == 0 or not self._missing_waits):
                lost = True
            else:  # messages may wait for each other in a cycle: after twice the time that ends
                lost = late and is_due(now_ms, later_ms(since_ms, 2 * lost_ms))
            if lost and first < 0:
                first = row
        return first

    def give_up(self, row: int, now_ms: int) -> int:
        """Count the dependencies of a waiting message as met that do not wait here; how many."""
        for count in range(CHANNEL_LOST_MAX):
            if not self.check(row, now_ms, False) or self._missing_waits:
                return count
            self._lose(self._missing)
        return CHANNEL_LOST_MAX

    def release(self, row: int, key: bytearray) -> int:
        """End a message's waiting, and give its key; the handle, 0: it is gone from the store.

        The decoder has its Lamport value, as `enter` asks for.
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
        """Forget a waiting message for want of room; it is to be asked for again."""
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
