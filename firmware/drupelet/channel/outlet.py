"""What a channel sends, and when (specs/sds.md "Send Message", "Periodic Outgoing Buffer Sweep",
"Periodic Incoming Buffer Sweep", "Periodic Sync Message", "SDS-R send message")."""

from drupelet.base.compat import const
from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import CHANNEL_REPAIRS_MAX, CHANNEL_RESENDS_MAX, WAIT_MS_MAX
from drupelet.base.memory import copy
from drupelet.base.time_ms import elapsed_ms, later_ms
from drupelet.channel.intake import (
    OUT_RESENDS,
    OUT_STATE,
    POSSIBLY,
    UNACKNOWLEDGED,
    UNSENT,
    Intake,
)
from drupelet.channel.keeper import NAMES_ID
from drupelet.channel.log import IN_LAMPORT, IN_STRIDE, OUT_STRIDE
from drupelet.channel.repair import is_due
from drupelet.channel.rows import AGAIN, REFERENCED
from drupelet.channel.settings import Settings
from drupelet.wire.protobuf import bytes_size
from drupelet.wire.sds.message import BLOOM, CAUSAL, CHANNEL_ID, CONTENT, MESSAGE_ID, SENDER_ID

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from drupelet.channel.ports import BloomPort, KeeperPort

OWN_ID_SIZE = const(64)
# Tags and lengths: of an entry and its id; as many for its name, and for its hint.
_ENTRY_EXTRA = const(5)
# An entry of a repair request, at most: an id of 66 bytes, a name of 32.
_REQUEST_SIZE = const(108)
_SYNC_ID = b"sync"


class Outlet(Intake):
    """A participant's side of a channel that also sends."""

    def __init__(
        self, id: bytes, participant: bytes, keeper: "KeeperPort", bloom: "BloomPort",
        random_byte: "Callable[[], int]", settings: "Settings | None" = None, now_ms: int = 0,
    ) -> None:  # fmt: skip
        Intake.__init__(self, id, participant, keeper, bloom, settings or Settings())
        self._random_byte = random_byte
        self.text = bytearray(OWN_ID_SIZE)  # an id of ours, or a hint
        self._wake_ms = self._sweep_ms = self._sync_ms = now_ms
        self._turn = 0  # of what nothing depends on: so many were named in sync messages
        self._cramped = self._hurries = False
        self._repairs_left = CHANNEL_REPAIRS_MAX
        self._plan_sync(now_ms)

    def filter_size(self) -> int:
        size = len(self.bloom.bits)
        return bytes_size(BLOOM, size) if self.settings.send_bloom else 0

    def put_head(self, id: "bytes | bytearray", size: int) -> int:
        """Begin a message of ours: who, which, where, when."""
        out = self.encoder
        mine = self.participant
        code = out.put_bytes(SENDER_ID, mine, 0, len(mine))
        code |= out.put_bytes(MESSAGE_ID, id, 0, size)
        code |= out.put_text(CHANNEL_ID, self.id, 0, len(self.id))
        return code | out.put_lamport(self.clock.value, 0)

    def put_causal(self, rest: int, kept: bool) -> int:
        """Write the newest messages of the log as causal history, oldest first.

        Where there is room, also what came again, so that its sender learns that we have it, and
        what nothing depends on yet: who misses that would never hear of it. `rest`: bytes that
        follow; `kept`: the message will be in the log. A sync message takes turns with the latter,
        and gives up its filter for the former.
        """
        log = self.log
        out = self.encoder
        # Where the last frame had no room for any of the latter, this one has one regular entry
        # and no filter.
        cramped = self._cramped and not kept
        first = max(log.count - (1 if cramped else self.settings.causal), 0)
        heads = self.settings.heads_max
        left = out.limit - rest
        for row in range(first, log.count):
            left -= self._entry_size(log.handle(row))
        filter_size = 0 if kept or cramped else self.filter_size()
        skip = 0 if kept else self._turn
        shown = more = 0
        for row in range(log.count):
            again = log.has(row, AGAIN)
            if row < first and not again:
                if log.has(row, REFERENCED):
                    continue
                if skip:
                    skip -= 1
                    continue
            room = out.limit - rest - out.at
            if row < first:
                room = left - out.at - (0 if again else filter_size)
                room = room if heads > 0 or (again and not kept) else 0
            if self._entry_size(log.handle(row)) > room:
                more += row < first
                continue
            if row < first:
                heads -= 1
                shown += not again
            log.unmark(row, AGAIN)
            if not self._put_kept(log.handle(row)):
                return E_CAPACITY
        if not kept:
            self._turn = self._turn + shown if more else 0
            self._cramped = more > 0 and not shown
        return OK

    def _entry_size(self, handle: int) -> int:
        """What a kept message takes as an entry of the causal history, at most."""
        names = self.names
        if not self.keeper.names_into(handle, names):
            return 0
        size = _ENTRY_EXTRA + names[NAMES_ID]
        if self.settings.repair:
            size += _ENTRY_EXTRA + names[0]
        return size if self.hints is None else size + _ENTRY_EXTRA + OWN_ID_SIZE

    def _put_kept(self, handle: int) -> bool:
        """Write a kept message as an entry of the causal history; False: no room."""
        names = self.names
        if not self.keeper.names_into(handle, names):
            return True  # the store lost it
        hint = -1
        if self.hints is not None:
            hint = self.hints.hint_into(handle, self.text)
        code = self.encoder.put_entry(
            CAUSAL, names, NAMES_ID + 1, names[NAMES_ID], self.text, 0, hint, names, 1,
            names[0] if self.settings.repair else -1,
        )  # fmt: skip
        return code == OK

    # --- out ---

    def poll_into(self, frame: bytearray, now_ms: int) -> int:
        """Write the next frame due; its size, or 0 for none now. `frame` has room for `work`."""
        self.turn(now_ms)
        size = self._message(frame, now_ms)
        if not size and self._repairs_left:
            size = self._repair(frame, now_ms)
        if not size and is_due(now_ms, self._sync_ms):
            size = self._sync(frame, now_ms)
        if size and self.keeper.barrier() != OK:
            size = 0  # what it acknowledges might be lost
        if not size:
            self.changed = False
            self._wake_ms = later_ms(now_ms, self._wait_ms(now_ms))
        return size

    def turn(self, now_ms: int) -> None:
        """Let time pass. While nothing can leave, call it at least once in three days."""
        self.clock.advance(now_ms)
        self.settle(now_ms)
        self._sweep(now_ms)
        if self.log.again and not self._hurries:
            # Each message that came again goes on coming until a frame names it.
            self._hurries = True
            wait_ms = (self.settings.period_ms >> 8) * self._random_byte()
            self._sync_ms = later_ms(now_ms, self._until(self._sync_ms, now_ms, wait_ms))
        if is_due(now_ms, self._sync_ms):
            self._sync_ms = now_ms

    def wake_ms(self, now_ms: int) -> int:
        """Milliseconds until `poll_into` may have something, unless a frame comes first."""
        if self.changed or is_due(now_ms, self._wake_ms):
            return 0
        return elapsed_ms(self._wake_ms, now_ms)

    def _sweep(self, now_ms: int) -> None:
        """Once in a period: what may be lost, what is to be asked for again."""
        if not is_due(now_ms, self._sweep_ms):
            return
        settings = self.settings
        self._sweep_ms = later_ms(now_ms, settings.period_ms)
        self._repairs_left = CHANNEL_REPAIRS_MAX
        self.repairs.purge(now_ms)
        self._release_unnamed()
        while settings.lost_ms and self.give_up(now_ms):
            self.settle(now_ms)
        if settings.repair:
            self.look_again(now_ms)
        if self.delivered and not self.incoming.count and not self.repairs.wanted.count:
            self.recovering = False

    def look_again(self, now_ms: int) -> None:
        """Plan to ask for what waiting messages miss: the lowest have the rows."""
        for row in range(self.incoming.count):
            self.look(row, now_ms, True)

    def _release_unnamed(self) -> None:
        """Let go of what was sent so often while others were heard: from now on who misses it has
        to ask for it. Some peers name the newest few messages of their log only, once."""
        outgoing = self.outgoing
        row = outgoing.count
        while row:
            row -= 1
            if outgoing.table[row * OUT_STRIDE + OUT_RESENDS] >= CHANNEL_RESENDS_MAX:
                self.release(row)
                self.unnamed += 1

    def _message(self, frame: bytearray, now_ms: int) -> int:
        """A message of ours: what was never sent, then what nobody acknowledged, then what
        somebody may have."""
        row = self._due(UNSENT, 0, now_ms)
        if row < 0:
            row = self._due(UNACKNOWLEDGED, self.settings.period_ms, now_ms)
        if row < 0:
            wait_ms = self.settings.period_ms * self.settings.possibly_periods
            row = self._due(POSSIBLY, wait_ms, now_ms)
        if row < 0:
            return 0
        outgoing = self.outgoing
        table = outgoing.table
        place = row * OUT_STRIDE
        if table[place + OUT_STATE] == UNSENT:
            table[place + OUT_STATE] = UNACKNOWLEDGED
        else:
            self.resent += 1
            since_ms = elapsed_ms(now_ms, outgoing.times_ms[row])
            if self.heard_ms >= 0 and elapsed_ms(now_ms, self.heard_ms) <= since_ms:
                table[place + OUT_RESENDS] = min(table[place + OUT_RESENDS] + 1, 255)
        outgoing.times_ms[row] = now_ms
        handle = self.handle_of(row)
        size = self.keeper.load(handle)
        if not size:  # the store lost it: nothing can be sent again
            outgoing.remove(row)
            self.refused += 1
            return 0
        return self._compose(frame, size, now_ms)

    def _due(self, state: int, wait_ms: int, now_ms: int) -> int:
        """The outgoing row in a state that was sent longest ago, if that is `wait_ms` or more."""
        outgoing = self.outgoing
        best = -1
        longest = wait_ms - 1
        for row in range(outgoing.count):
            if outgoing.table[row * OUT_STRIDE + OUT_STATE] == state:
                passed = elapsed_ms(now_ms, outgoing.times_ms[row])
                if passed > longest:
                    best = row
                    longest = passed
        return best

    def _compose(self, frame: bytearray, size: int, now_ms: int) -> int:
        """Write the message in `work` with today's filter and repair request; its size."""
        work = self.keeper.work
        message = self.decoder
        message.open(work, 0, size)
        out = self.encoder
        # All that stands before the content, as it is.
        head = size - bytes_size(CONTENT, message.content_size)
        content_at = size - head
        out.open(frame, 0, len(frame) - content_at)
        copy(frame, 0, work, 0, head)
        out.at = head
        self._put_rest(now_ms)
        copy(frame, out.at, work, head, content_at)
        self._sent()
        if not self.log.again:  # else only a sync message says that we have it
            self._plan_sync(now_ms)
        return out.at + content_at

    def _put_rest(self, now_ms: int) -> None:
        """Add filter and repair request: the latter, where there is no room for both."""
        bits = self.bloom.bits
        out = self.encoder
        asks = self._asks(now_ms)
        room = _REQUEST_SIZE if asks else 0
        if self.settings.send_bloom and out.at + self.filter_size() + room <= out.limit:
            out.put_bytes(BLOOM, bits, 0, len(bits))
        if asks:
            self.repairs.put_requests(out, now_ms, self.incoming.table, self._limit_at())

    def _asks(self, now_ms: int) -> bool:
        """Whether something is to be asked for that there would be room for."""
        return self.repairs.eligible(now_ms, self.incoming.table, self._limit_at())

    def _limit_at(self) -> int:
        """Where the highest Lamport value of waiting messages is, if all rows are taken; or -1."""
        if self.incoming.count < self.incoming.rows_max:
            return -1
        return self.highest() * IN_STRIDE + IN_LAMPORT

    def _sent(self) -> None:
        self.frames += 1
        self.changed = True

    def _repair(self, frame: bytearray, now_ms: int) -> int:
        """A message that somebody misses and nobody has sent yet."""
        handle = self.repairs.due(now_ms)
        if not handle:
            return 0
        self._repairs_left -= 1
        size = self.keeper.load(handle)
        if size:
            copy(frame, 0, self.keeper.work, 0, size)
            self.repaired += 1
            self._sent()
        return size

    # --- sync messages ---

    def _plan_sync(self, now_ms: int) -> None:
        """After this time without another frame, and as long again at random."""
        wait_ms = self.settings.sync_ms
        wait_ms += (wait_ms >> 8) * self._random_byte()
        self._sync_ms = later_ms(now_ms, wait_ms)
        self.heard = self._hurries = False

    def _sync(self, frame: bytearray, now_ms: int) -> int:
        """A periodic sync message, unless others were heard and nothing is to be asked for."""
        asks = self._asks(now_ms)
        if not self.settings.send_sync:
            self._plan_sync(now_ms)
            return self._ask(frame, now_ms) if asks else 0
        if self.heard and not asks and not self.log.again:
            self._plan_sync(now_ms)
            return 0
        self.clock.tick(now_ms)
        out = self.encoder
        out.open(frame, 0, len(frame))
        code = self.put_head(_SYNC_ID, len(_SYNC_ID))
        assert code == OK, "no room in a frame"
        # As much as there is room for.
        self.put_causal(_REQUEST_SIZE if asks else 0, False)
        self._put_rest(now_ms)
        self.syncs += 1
        self._sent()
        self._plan_sync(now_ms)
        return out.at

    def _ask(self, frame: bytearray, now_ms: int) -> int:
        """Repeat the newest message, of ours if there is one, with a repair request: for a dialect
        without sync messages."""
        log = self.log
        newest = row = log.count - 1
        names = self.names
        while row >= 0:
            if self.keeper.names_into(log.handle(row), names) and self.is_mine(names, 1, names[0]):
                newest = row
                break
            row -= 1
        size = self.keeper.load(log.handle(newest)) if newest >= 0 else 0
        return self._compose(frame, size, now_ms) if size else 0

    def _wait_ms(self, now_ms: int) -> int:
        """Milliseconds until something is due."""
        settings = self.settings
        wait_ms = self._until(self._sync_ms, now_ms, WAIT_MS_MAX)
        outgoing = self.outgoing
        for row in range(outgoing.count):
            after_ms = settings.period_ms
            if outgoing.table[row * OUT_STRIDE + OUT_STATE] == POSSIBLY:
                after_ms *= settings.possibly_periods
            wait_ms = self._until(later_ms(outgoing.times_ms[row], after_ms), now_ms, wait_ms)
        if self.incoming.count:
            wait_ms = self._until(self._sweep_ms, now_ms, wait_ms)
        soonest_ms = self.repairs.wait_ms(now_ms, wait_ms)
        if soonest_ms < wait_ms and not self._repairs_left:
            soonest_ms = max(soonest_ms, self._until(self._sweep_ms, now_ms, wait_ms))
        return soonest_ms

    def _until(self, due_ms: int, now_ms: int, wait_ms: int) -> int:
        """The shorter of two waits."""
        if is_due(now_ms, due_ms):
            return 0
        return min(elapsed_ms(due_ms, now_ms), wait_ms)
