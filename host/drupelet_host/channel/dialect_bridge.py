"""Carries one channel between the two dialects of SDS, which cannot read each other.

The bridge is a participant of both sides. What is delivered on one is carried to the other with
the same id, sender, history and content, and stays in that side's outgoing buffer until somebody
there has it, over restarts, too (`OwedPort`). Filters and repair are each side's own; sync and
ephemeral messages end here.

A side on which nobody speaks acknowledges nothing, and participants of `sds-nim` speak only when
they have something to say. So when the outgoing buffer has no more room for what is carried and
more waits, what was sent three times gives way, first of all what a later message names: whoever
missed it finds it in the history of what comes after, and asks for it. What is said on the bridge
itself always has a few places of that buffer.

Lamport values are milliseconds in `sds` and seconds in `sds-nim`: a message keeps one value on
each side, behind all that it depends on, in a map that is made again from both logs at a start.
A value that the other side's clock would not adopt, a day ahead or more, does not go over: there
the message counts as sent now, and what depends on it follows its own time. A message that is too
long for the other side's frames does not go over; what depends on it goes without it.
"""

from collections import OrderedDict, deque
from typing import Protocol

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.time_ms import elapsed_ms
from drupelet.channel.channel import EVENT_GAP, EVENT_MESSAGE, Channel
from drupelet.channel.relay import carry, has_room, send
from drupelet.wire.sds.nim import Message, from_sds, to_sds
from drupelet_host.channel.nim_dialect import NimChannel
from drupelet_host.channel.nim_outbox import is_named

# Messages whose two values are known; older ones are behind everything that is still to come.
_MAP_MAX = 65536
# Messages that wait for room in an outgoing buffer.
_BACKLOG_MAX = 4096
# At a start so many of each side's newest messages are looked at; more than could have waited.
_RESTORED_MAX = 2 * _BACKLOG_MAX
# What has been in an outgoing buffer for so many periods was sent once more than that, and gives
# way to what waits.
_PERIODS_MIN = 2
# What a dialect writes around a message beside its own fields.
_FRAME_ROOM = 32


class OwedPort(Protocol):
    """Ids of what was brought to a side and is not acknowledged there, over a restart."""

    def load(self) -> list[bytes]: ...
    def add(self, id: bytes) -> None: ...
    def remove(self, id: bytes) -> None: ...


class _NotKept:
    """An OwedPort that forgets."""

    def load(self) -> list[bytes]:
        return []

    def add(self, id: bytes) -> None: ...

    def remove(self, id: bytes) -> None: ...


class _Side:
    """One side: its channel, and what is to be carried into it."""

    def __init__(self, channel: Channel, ms_per_unit: int, owed: OwedPort) -> None:
        self.channel = channel
        self.ms_per_unit = ms_per_unit
        self.owed = owed
        self.backlog: deque[Message] = deque()
        self.carried: OrderedDict[bytes, None] = OrderedDict()
        # Ids of what waits here for a dependency, or is in the outgoing buffer -> since when.
        self.unacknowledged: dict[bytes, int] = {}
        self.unsent: deque[int] = deque()  # handles of what may go out, once there is room
        self._sizes = (-1, -1)  # of the tables when `settle` looked last

    def message(self, handle: int) -> Message | None:
        """A kept message."""
        keeper = self.channel.keeper
        size = keeper.load(handle)
        return from_sds(bytes(keeper.work[:size])) if size else None

    def key(self, id: bytes) -> bytearray:
        """The key of an id."""
        key = bytearray(8)
        self.channel.bloom.key_into(key, 0, id, 0, len(id))
        return key

    def handle(self, id: bytes) -> int:
        """The handle of a kept message; 0: there is none."""
        return self.channel.keeper.find(self.key(id), id, 0, len(id))

    def waits(self, id: bytes) -> bool:
        """Whether a message waits here for one that it depends on."""
        return self.channel.log.incoming.find(self.key(id)) >= 0

    def note_carried(self, id: bytes) -> None:
        """We brought it here."""
        self.carried[id] = None
        if len(self.carried) > _MAP_MAX:
            self.carried.popitem(last=False)

    def begin(self, now_ms: int) -> None:
        """After a restart: what nobody had acknowledged goes out again."""
        for id in self.owed.load():
            handle = self.handle(id)
            if not handle:
                self.owed.remove(id)
                continue
            self.note_carried(id)
            self.unacknowledged[id] = now_ms
            if not self.waits(id):
                self.unsent.append(handle)

    def send_out(self, now_ms: int) -> None:
        """Queue what may go out, as far as there is room."""
        while self.unsent:
            if send(self.channel, self.unsent[0], now_ms) != E_CAPACITY:
                self.unsent.popleft()
            elif not self.make_room(now_ms):
                return

    def settle(self) -> None:
        """Forget what has left the outgoing buffer: somebody has it, or it was repeated enough."""
        channel = self.channel
        sizes = (channel.outbox.rows.count, channel.log.incoming.count)
        if self.unsent or sizes == self._sizes:
            return
        self._sizes = sizes
        for id in list(self.unacknowledged):
            if not self.waits(id) and channel.outbox.rows.find(self.key(id)) < 0:
                self._forget(id)

    def make_room(self, now_ms: int) -> bool:
        """Let the message that is in the full outgoing buffer for longest give way, before others
        one that a later one names; False: none has been there for long enough."""
        channel = self.channel
        shortest_ms = _PERIODS_MIN * channel.settings.period_ms
        rows = {
            id: channel.outbox.rows.find(self.key(id))
            for id, since_ms in self.unacknowledged.items()
            if elapsed_ms(now_ms, since_ms) >= shortest_ms
        }
        waiting = [id for id, row in rows.items() if row >= 0]
        handle = channel.outbox.rows.handle
        waiting.sort(key=lambda id: not is_named(channel.log, handle(rows[id])))
        if waiting:
            channel.outbox.release(rows[waiting[0]])
            self._forget(waiting[0])
        return bool(waiting)

    def _forget(self, id: bytes) -> None:
        del self.unacknowledged[id]
        self.owed.remove(id)

    def value_max(self, now_ms: int) -> int:
        """The highest Lamport value that the clock adopts."""
        clock = self.channel.clock
        clock.is_far(clock.value, now_ms)
        return int.from_bytes(clock.limit, "little")

    def value_now(self, now_ms: int) -> int:
        """The Lamport value of what is sent now."""
        clock = self.channel.clock
        clock.tick(now_ms)
        return int.from_bytes(clock.value, "little")


class Bridge:
    """Between a channel of dialect `sds` and one of `sds-nim`.

    `step` after whatever came in; or, if the owner takes the channels' events itself, `delivered`
    for each, then `carry_on`. Sides are 0 for `sds` and 1 for `sds-nim`; owed: of each.
    refused: messages that were not carried, for want of room or because the other side did not
    take them, and those whose Lamport value was not. now_ms: the time at which it begins.
    """

    def __init__(
        self, sds: Channel, nim: NimChannel, now_ms: int = 0,
        owed: tuple[OwedPort, OwedPort] | None = None,
    ) -> None:  # fmt: skip
        ports = owed or (_NotKept(), _NotKept())
        self._sides = (_Side(sds, 1, ports[0]), _Side(nim.channel, 1000, ports[1]))
        # Id -> Lamport value on each side.
        self._values: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        # Ids of what does not go over: nothing there may wait for it.
        self._left_out: OrderedDict[bytes, None] = OrderedDict()
        self.refused = self.carried = 0
        self._restore(now_ms)

    def _restore(self, now_ms: int) -> None:
        """Make the map from what both sides keep, and carry what only one of them has."""
        kept: list[dict[bytes, int]] = []
        for side in self._sides:
            lamports_by_id = {}
            keeper = side.channel.keeper
            handle = keeper.next(keeper.tail(_RESTORED_MAX))
            while handle:
                message = side.message(handle)
                if message and message.lamport is not None:
                    lamports_by_id[message.message_id] = message.lamport
                handle = keeper.next(handle)
            kept.append(lamports_by_id)
        for id in kept[0].keys() & kept[1].keys():
            self._note(id, kept[0][id], kept[1][id])
        for index, side in enumerate(self._sides):
            other = self._sides[1 - index]
            for id in kept[index]:
                if id in kept[1 - index] or other.handle(id) or side.waits(id):
                    continue  # what waits is carried when it is delivered
                message = side.message(side.handle(id))
                if message:
                    self._queue(message, index, now_ms)
            side.begin(now_ms)

    def _note(self, id: bytes, sds: int, nim: int) -> None:
        self._values[id] = (sds, nim)
        if len(self._values) > _MAP_MAX:
            self._values.popitem(last=False)

    def step(self, now_ms: int) -> int:
        """Carry what was delivered; how many messages were taken over."""
        for index, side in enumerate(self._sides):
            while event := side.channel.next_event():
                if event in (EVENT_MESSAGE, EVENT_GAP):
                    self.delivered(index, side.channel.event_handle, now_ms)
        return self.carry_on(now_ms)

    def carry_on(self, now_ms: int) -> int:
        """Carry what there is room for; how many messages were taken over."""
        count = 0
        for index, side in enumerate(self._sides):
            side.send_out(now_ms)
            count += self._carry(index, now_ms)
            side.settle()
        self.carried += count
        return count

    def delivered(self, index: int, handle: int, now_ms: int) -> bool:
        """A message entered the log of a side, ours too; False: we had brought it there."""
        side = self._sides[index]
        message = side.message(handle)
        if message is None:
            return True
        if message.message_id in side.carried:
            # It had to wait: now this side may have it.
            side.unsent.append(handle)
            return False
        if side.channel.outbox.rows.find(side.key(message.message_id)) >= 0:
            side.unacknowledged[message.message_id] = now_ms  # our own
        self._queue(message, index, now_ms)
        return True

    def waiting(self, index: int) -> int:
        """How many messages wait to be carried into a side."""
        return len(self._sides[index].backlog)

    def _queue(self, message: Message, index: int, now_ms: int) -> None:
        """Plan to carry a message from one side to the other."""
        other = self._sides[1 - index]
        message.causal = [
            entry for entry in message.causal if entry.message_id not in self._left_out
        ]
        message.channel_id = other.channel.id
        message.bloom = None
        message.repair = []
        is_long = len(to_sds(message)) > len(other.channel.keeper.work) - _FRAME_ROOM
        if is_long or len(other.backlog) == _BACKLOG_MAX:
            self._leave_out(message.message_id)
            return
        lamport = message.lamport or 0
        value = lamport // 1000 if index == 0 else lamport * 1000
        value_max = other.value_max(now_ms)
        if value > value_max:
            value = other.value_now(now_ms)
            self.refused += 1
        for entry in message.causal:
            before = self._values.get(entry.message_id)
            # What is too far ahead there is behind everything anyway.
            if before is not None and before[1 - index] < value_max:
                value = max(value, before[1 - index] + 1)
        self._note(message.message_id, *((lamport, value) if index == 0 else (value, lamport)))
        message.lamport = value
        other.backlog.append(message)

    def _leave_out(self, id: bytes) -> None:
        self.refused += 1
        self._left_out[id] = None
        if len(self._left_out) > _MAP_MAX:
            self._left_out.popitem(last=False)

    def _carry(self, index: int, now_ms: int) -> int:
        side = self._sides[index]
        count = 0
        while side.backlog:
            message = side.backlog[0]
            frame = bytearray(to_sds(message))
            code = carry(side.channel, frame, len(frame), now_ms)
            if code == E_CAPACITY:
                if not has_room(side.channel) and side.make_room(now_ms):
                    continue
                break
            side.backlog.popleft()
            if code < OK:
                self._leave_out(message.message_id)
                continue
            side.note_carried(message.message_id)
            if code > 0:
                count += 1
                side.unacknowledged[message.message_id] = now_ms
                side.owed.add(message.message_id)
        return count
