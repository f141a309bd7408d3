"""The local log of a channel: what entered it, what waits for a dependency, what was given up
(specs/sds.md "Deliver Message", "Resolve Conflicts", "Periodic Incoming Buffer Sweep").

    log        key 8 | handle 4, two flags in its highest bits | Lamport value 8; the newest
               messages, ordered by Lamport value, then by id
    incoming   key 8 | handle 4 | Lamport value 8 | key of a missing dependency 8 | check again 1;
               its time: when it came
    lost       key 8: dependencies that were given up, newest first

Lamport values are little-endian. A message is read through `decoder`, which its caller opened.
"""

from drupelet.base.compat import const
from drupelet.base.errors import OK
from drupelet.base.limits import CHANNEL_LOST_MAX
from drupelet.base.memory import copy, equal, find, get_u32, put_u32
from drupelet.base.time_ms import later_ms
from drupelet.channel.keeper import NAMES_SIZE, pack_names
from drupelet.channel.lamport import compare
from drupelet.channel.rows import KEY_SIZE, KeyRows, is_due
from drupelet.wire.sds.message import CAUSAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.channel.ports import BloomPort, Buffer, KeeperPort
    from drupelet.channel.repair import Repair
    from drupelet.channel.settings import Settings
    from drupelet.wire.sds.message import Decoder

_HANDLE_AT = const(8)
_LAMPORT_AT = const(12)
_STRIDE = const(20)
REFERENCED = const(0x80)  # something in the log depends on it
AGAIN = const(0x40)  # it came again: our next frame names it
IN_LAMPORT = const(12)
_IN_MISSING = const(20)
_IN_CHECK = const(28)
IN_STRIDE = const(29)


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
        self.count = 0
        self.table = bytearray(settings.ids_max * _STRIDE)
        self.left = 0  # messages that had to leave the table
        self.again = 0  # rows with that flag
        self.incoming = KeyRows(settings.incoming_max, IN_STRIDE)
        self._lost = bytearray(CHANNEL_LOST_MAX * KEY_SIZE)
        self.entry_key = bytearray(KEY_SIZE)
        self.names = bytearray(NAMES_SIZE)
        self._missing = bytearray(KEY_SIZE)
        self._missing_waits = False

    # --- the rows of the log, from the oldest ---

    def find(self, key: "bytes | bytearray") -> int:
        """The first row with this key, or -1."""
        return find(self.table, _STRIDE, self.count, key, 0, KEY_SIZE) if self.count else -1

    def handle(self, row: int) -> int:
        """The keeper's handle of a row."""
        table = self.table
        at = row * _STRIDE + _HANDLE_AT
        high = (table[at] & 0x3F) << 24
        return high | table[at + 1] << 16 | table[at + 2] << 8 | table[at + 3]

    def has(self, row: int, flag: int) -> bool:
        """Whether a row has a flag: REFERENCED or AGAIN."""
        return self.table[row * _STRIDE + _HANDLE_AT] & flag != 0

    def set(self, row: int, flag: int, value: bool) -> None:
        """Set or clear a flag of a row."""
        if self.has(row, flag) != value:
            self.table[row * _STRIDE + _HANDLE_AT] ^= flag
            if flag == AGAIN:
                self.again += 1 if value else -1

    def enter(self, key: bytearray, handle: int) -> None:
        """Insert the open message by Lamport value, then by id; what waits for it is checked.

        A row leaves a full table: see `_victim`.
        """
        self._check_waiting(key)
        row = self._position(handle)
        table = self.table
        place = row * _STRIDE
        if self.count < self.settings.ids_max:
            copy(table, place + _STRIDE, table, place, self.count * _STRIDE - place)
            self.count += 1
        else:
            self.left += 1
            victim = self._victim()
            if victim >= row and not self.has(victim, REFERENCED):
                return  # it is the oldest itself
            self.set(victim, AGAIN, False)
            if victim < row:
                place -= _STRIDE
                at_victim = victim * _STRIDE
                copy(table, at_victim, table, at_victim + _STRIDE, place - at_victim)
            else:
                copy(table, place + _STRIDE, table, place, victim * _STRIDE - place)
        copy(table, place, key, 0, KEY_SIZE)
        put_u32(table, place + _HANDLE_AT, handle)
        copy(table, place + _LAMPORT_AT, self._decoder.lamport, 0, 8)

    def _position(self, handle: int) -> int:
        """The row behind all messages with a lower Lamport value, or the same and a lower id."""
        keeper = self.keeper
        work = keeper.work
        id_at = 0
        row = self.count
        while row:
            order = compare(
                self.table, row * _STRIDE - _STRIDE + _LAMPORT_AT, self._decoder.lamport, 0
            )
            if order == 0:
                if not id_at:
                    keeper.load(handle)
                    id_at = 3 + work[1]
                order = keeper.order(self.handle(row - 1), work, id_at + 1, work[id_at])
            if order <= 0:
                break
            row -= 1
        return row

    def _victim(self) -> int:
        """The oldest row that something depends on, not of the newest quarter; or the oldest.

        What nothing depends on must stay as long as it can: others hear of it from us only.
        """
        for row in range(self.count * 3 // 4):
            if self.has(row, REFERENCED):
                return row
        return 0

    def add_to_bloom(self, key: bytearray) -> None:
        """Put a received id into the filter; a full one begins anew with the newest three in
        four of what the log has in RAM."""
        bloom = self.bloom
        if bloom.count >= bloom.capacity:
            bloom.clear()
            first = max(self.count - bloom.capacity * 3 // 4, 0)
            for row in range(first, self.count):
                bloom.add(self.table, row * _STRIDE)
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
            row = self.find(key)
            if row >= 0 and message.content_size:
                self.set(row, REFERENCED, True)
            if row >= 0 or self._is_lost(key):
                continue
            waits = self.incoming.find(key, 0) >= 0
            if not waits and self.keeper.find(key, 0, buf, id_at, size):
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
        row = self.repair.wanted.find(key, 0)
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
        place = incoming.add(key, 0, since_ms) * IN_STRIDE
        put_u32(incoming.table, place + _HANDLE_AT, handle)
        copy(incoming.table, place + IN_LAMPORT, self._decoder.lamport, 0, 8)
        copy(incoming.table, place + _IN_MISSING, self._missing, 0, KEY_SIZE)

    def _check_waiting(self, key: bytearray) -> None:
        """What waits for this dependency is to be checked again."""
        incoming = self.incoming
        for row in range(incoming.count):
            place = row * IN_STRIDE
            if equal(incoming.table, place + _IN_MISSING, key, 0, KEY_SIZE):
                incoming.table[place + _IN_CHECK] = 1

    def _is_lower(self, row: int, other: int) -> bool:
        """Whether a waiting message has a lower Lamport value than another one, -1 for none."""
        at = row * IN_STRIDE + IN_LAMPORT
        table = self.incoming.table
        return other < 0 or compare(table, at, table, other * IN_STRIDE + IN_LAMPORT) < 0

    def highest(self) -> int:
        """The waiting message with the highest Lamport value if all rows are in use; or -1."""
        incoming = self.incoming
        if incoming.count < incoming.rows_max:
            return -1
        best = 0
        for row in range(1, incoming.count):
            if self._is_lower(best, row):
                best = row
        return best

    def is_above(self, row: int) -> bool:
        """Whether a waiting message has a higher Lamport value than the open one."""
        at = row * IN_STRIDE + IN_LAMPORT
        return compare(self.incoming.table, at, self._decoder.lamport, 0) > 0

    def check(self, row: int, now_ms: int, want: bool) -> int:
        """How many dependencies a waiting message still misses, as `count_missing`; opens it."""
        table = self.incoming.table
        place = row * IN_STRIDE
        work = self.keeper.work
        size = self.keeper.load(get_u32(table, place + _HANDLE_AT))
        if not size or self._decoder.open(work, 0, size) != OK:
            return 0  # it is gone from the store: nothing to wait for
        missing = self.count_missing(now_ms, want)
        if missing:
            copy(table, place + _IN_MISSING, self._missing, 0, KEY_SIZE)
        return missing

    def want_missing(self, now_ms: int) -> None:
        """Plan to ask for what waiting messages miss: the lowest have the rows."""
        for row in range(self.incoming.count):
            self.check(row, now_ms, True)

    def next_ready(self, now_ms: int) -> int:
        """The lowest of the waiting messages that miss nothing any more; -1: there is none."""
        incoming = self.incoming
        while True:
            best = -1
            for row in range(incoming.count):
                if incoming.table[row * IN_STRIDE + _IN_CHECK] and self._is_lower(row, best):
                    best = row
            if best < 0:
                return -1
            incoming.table[best * IN_STRIDE + _IN_CHECK] = 0
            if self.check(best, now_ms, False) == 0:
                return best

    def next_overdue(self, now_ms: int) -> int:
        """The lowest of the waiting messages whose dependencies are irretrievably lost; or -1."""
        times_ms = self.incoming.times_ms
        lost_ms = self.settings.lost_ms
        best = -1
        for row in range(self.incoming.count):
            late = is_due(now_ms, later_ms(times_ms[row], lost_ms))
            # Messages may wait for each other in a cycle: after twice the time that ends, too.
            ends = late and is_due(now_ms, later_ms(times_ms[row], 2 * lost_ms))
            late = late and (
                self.check(row, now_ms, False) == 0 or not self._missing_waits or ends
            )
            if late and self._is_lower(row, best):
                best = row
        return best

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
        handle = get_u32(incoming.table, place + _HANDLE_AT)
        copy(key, 0, incoming.table, place, KEY_SIZE)
        copy(self._decoder.lamport, 0, incoming.table, place + IN_LAMPORT, 8)
        incoming.remove(row)
        self.keeper.pin(handle, False)
        return handle if self.keeper.load(handle) else 0

    def put_off(self, row: int, now_ms: int) -> None:
        """Forget a waiting message for want of room; it is to be asked for again."""
        incoming = self.incoming
        place = row * IN_STRIDE
        handle = get_u32(incoming.table, place + _HANDLE_AT)
        if self.keeper.names_into(handle, self.names):
            copy(self.entry_key, 0, incoming.table, place, KEY_SIZE)
            self.repair.want(
                self.entry_key, self.names, incoming.table, place + IN_LAMPORT, True, now_ms
            )
        self.keeper.drop(handle)
        incoming.remove(row)
