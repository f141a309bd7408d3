"""Carries one channel between the two dialects of SDS, which cannot read each other.

The bridge is a participant of both sides. What is delivered on one is carried to the other with
the same id, sender, history and content, and stays in that side's outgoing buffer until somebody
there has it. Filters and repair are each side's own; sync and ephemeral messages end here.

Lamport values are milliseconds in `sds` and seconds in `sds-nim`: a message keeps one value on
each side, behind all that it depends on, in a map that is made again from both logs at a start.
A value that the other side's clock would not adopt, a day ahead or more, does not go over: there
the message counts as sent now, and what depends on it follows its own time.
"""

from collections import OrderedDict, deque

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.channel.channel import EVENT_GAP, EVENT_MESSAGE, Channel
from drupelet.channel.relay import carry, send
from drupelet.wire.sds.nim import Message, from_sds, to_sds
from drupelet_host.channel.nim_dialect import NimChannel

# Messages whose two values are known; older ones are behind everything that is still to come.
_MAP_MAX = 65536
# Messages that wait for room in an outgoing buffer.
_BACKLOG_MAX = 4096


class _Side:
    """One side: its channel, and what is to be carried into it."""

    def __init__(self, channel: Channel, ms_per_unit: int) -> None:
        self.channel = channel
        self.ms_per_unit = ms_per_unit
        self.backlog: deque[Message] = deque()
        self.carried: OrderedDict[bytes, None] = OrderedDict()

    def message(self, handle: int) -> Message | None:
        """A kept message."""
        keeper = self.channel.keeper
        size = keeper.load(handle)
        return from_sds(bytes(keeper.work[:size])) if size else None

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
    """Between a channel of dialect `sds` and one of `sds-nim`; `step` after whatever came in.

    refused: messages that were not carried, for want of room or because the other side did not
    take them, and those whose Lamport value was not. now_ms: the time at which it begins.
    """

    def __init__(self, sds: Channel, nim: NimChannel, now_ms: int = 0) -> None:
        self._sides = (_Side(sds, 1), _Side(nim.channel, 1000))
        # Id -> Lamport value on each side.
        self._values: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self.refused = 0
        self._restore(now_ms)

    def _restore(self, now_ms: int) -> None:
        """Make the map from what both sides keep, and carry what only one of them has."""
        kept: list[dict[bytes, int]] = []
        for side in self._sides:
            found = {}
            handle = side.channel.keeper.next(0)
            while handle:
                message = side.message(handle)
                if message and message.lamport is not None:
                    found[message.message_id] = message.lamport
                handle = side.channel.keeper.next(handle)
            kept.append(found)
        for id in kept[0].keys() & kept[1].keys():
            self._note(id, kept[0][id], kept[1][id])
        for index, side in enumerate(self._sides):
            handle = side.channel.keeper.next(0)
            while handle:
                message = side.message(handle)
                if message and message.message_id not in kept[1 - index]:
                    self._queue(message, index, now_ms)
                handle = side.channel.keeper.next(handle)

    def _note(self, id: bytes, sds: int, nim: int) -> None:
        self._values[id] = (sds, nim)
        if len(self._values) > _MAP_MAX:
            self._values.popitem(last=False)

    def step(self, now_ms: int) -> int:
        """Carry what was delivered; how many messages were taken over."""
        for index, side in enumerate(self._sides):
            while event := side.channel.next_event():
                if event in (EVENT_MESSAGE, EVENT_GAP):
                    self._delivered(index, side.channel.event_handle, now_ms)
        return sum(self._carry(index, now_ms) for index in (0, 1))

    def _delivered(self, index: int, handle: int, now_ms: int) -> None:
        side = self._sides[index]
        message = side.message(handle)
        if message is None:
            return
        if message.message_id in side.carried:
            # We brought it, and it had to wait: now this side may have it.
            send(side.channel, handle, now_ms)
        else:
            self._queue(message, index, now_ms)

    def _queue(self, message: Message, index: int, now_ms: int) -> None:
        """Plan to carry a message from one side to the other."""
        other = self._sides[1 - index]
        if len(other.backlog) == _BACKLOG_MAX:
            self.refused += 1
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
        message.channel_id = other.channel.id
        message.bloom = None
        message.repair = []
        other.backlog.append(message)

    def _carry(self, index: int, now_ms: int) -> int:
        side = self._sides[index]
        count = 0
        while side.backlog:
            message = side.backlog[0]
            frame = bytearray(to_sds(message))
            code = carry(side.channel, frame, len(frame), now_ms)
            if code == E_CAPACITY:
                break
            side.backlog.popleft()
            if code < OK:
                self.refused += 1
                continue
            if code > 0:
                count += 1
            side.carried[message.message_id] = None
            if len(side.carried) > _MAP_MAX:
                side.carried.popitem(last=False)
        return count
