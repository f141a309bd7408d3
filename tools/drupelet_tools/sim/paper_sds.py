"""SDS in the mobile paper's simulations: one channel of the core for each, on one broadcast.

The contacts, messages and accounts are those of `paper_world`; a frame counts once, however many
members receive it. Members do not call each other and do not know who is online: the channel sends
when its own timers are due. The mailserver is a store node that is online 90 % of the time. A
member that comes online asks it at every tick for the messages since its last answer, until it
answers.
"""

import random
from contextlib import closing
from dataclasses import dataclass

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.channel.channel import EVENT_GAP, EVENT_MESSAGE
from drupelet_host.channel.store_node import StoreNode
from drupelet_host.store.channel_database import ChannelDatabase
from drupelet_tools.sim.channels import FRAME_SIZE, START_MS, Participant, Plan
from drupelet_tools.sim.paper_world import (
    BODY_SIZE,
    TICK_MS,
    Availability,
    Outcome,
    Setting,
    availability_of,
    draw_messages,
    next_tick,
)

# A large chat is over after four days, three of them without a new message: with repair it ends
# sooner, and without, it is the resending of what nobody acknowledges that goes on.
TICKS_MAX = 4 * 2_880
TICKS_MAX_OF_TWO = 30 * 2_880
# A message whose dependency nobody has is delivered without it after a day, which is the default.
LOST_MS = 86_400_000
# A topic [16] and since when [8]: the question of docs/SPEC.md 15.6.
QUESTION_SIZE = 24
_MOMENTS = 3  # of a tick, as in `paper_world`
_NOW_MASK = (1 << 30) - 1


class Member:
    """A participant, its online times, and the tick from which it wants stored messages."""

    def __init__(self, number: int, plan: Plan, setting: Setting, seed: int) -> None:
        self.participant = Participant(number, plan, random.Random(f"{seed} {number} sds"))
        self.channel = self.participant.channel
        self.availability = availability_of(setting, seed, number)
        self.online = False
        self.asks = False
        self.since = 0  # a tick: the store node has already sent it all earlier messages

    def open(self) -> bool:
        """Whether anything is on its way out, waits, or is asked for."""
        channel = self.channel
        counts = channel.outbox.rows.count, channel.log.incoming.count, channel.repair.wanted.count
        return any(counts)


@dataclass
class Store:
    """The store node; `arrivals` holds the tick and the id of each message that reached it."""

    node: StoreNode
    availability: Availability
    arrivals: list[tuple[int, bytes]]


class SdsWorld:
    """One run; `run` gives its outcome."""

    def __init__(self, setting: Setting, seed: int) -> None:
        total = setting.people * setting.messages_each
        plan = Plan(
            setting.people, total, ids=max(total, 64), kept=total + 64, waiting=max(total, 64),
            repair=setting.protocol == "sds+repair", lost_ms=LOST_MS,
        )  # fmt: skip
        self.setting = setting
        self.rng = random.Random(f"{seed} {setting.people} {setting.messages_each}")
        self.members = [Member(number, plan, setting, seed) for number in range(setting.people)]
        self.store: Store | None = None
        self._database: ChannelDatabase | None = None
        if setting.relay:
            available = availability_of(setting, seed, setting.people)
            self._database = ChannelDatabase(":memory:")
            self.store = Store(StoreNode(self._database), available, [])
        self.outcome = Outcome(total, total * (setting.people - 1))
        self._plan = draw_messages(setting, seed)
        self._written: dict[bytes, int] = {}
        self._frame = bytearray(FRAME_SIZE)

    def run(self) -> Outcome:
        """Run until all members have all messages, or until no further delivery is possible.

        With two members, it also runs until both know that the other has everything.
        """
        outcome = self.outcome
        tick = 0
        while tick < (TICKS_MAX if self.setting.people > 2 else TICKS_MAX_OF_TWO):
            self._write(tick)
            online = [member for member in self.members if self._comes(member, tick)]
            for moment in range(_MOMENTS):
                for member in online:
                    self._send(member, online, tick, moment)
            if not self._plan and self._ended():
                break
            ends = [member.availability for member in self.members]
            tick = next_tick(tick, ends, self._plan)
        channels = [member.channel for member in self.members]
        outcome.records += sum(channel.frames for channel in channels)
        outcome.copies += sum(channel.frames - channel.syncs for channel in channels)
        outcome.ticks = tick
        return outcome

    def close(self) -> None:
        """Free the store node's database."""
        if self._database is not None:
            self._database.close()

    def _ended(self) -> bool:
        complete = len(self.outcome.latencies) == self.outcome.deliveries
        if complete and self.setting.people > 2:
            return True
        # With repair, a member that is offline today may answer a request tomorrow.
        sure = complete or self.setting.protocol == "sds"
        return sure and not any(member.open() for member in self.members)

    def _comes(self, member: Member, tick: int) -> bool:
        was = member.online and member.availability.start < tick
        member.online = member.availability.at(tick)
        if member.online and not was:
            wall_ms = START_MS + tick * TICK_MS
            member.channel.clock.set_wall(wall_ms.to_bytes(8, "little"), wall_ms & _NOW_MASK, True)
            member.asks = self.store is not None
        return member.online

    def _write(self, tick: int) -> None:
        while self._plan and self._plan[-1][0] <= tick:
            _, person = self._plan.pop()
            content = self.rng.randbytes(BODY_SIZE)
            now_ms = START_MS + tick * TICK_MS & _NOW_MASK
            handle = self.members[person].channel.publish(content, 0, BODY_SIZE, now_ms)
            assert handle > 0, handle
            self._written[content[:8]] = tick

    def _send(self, member: Member, online: list[Member], tick: int, moment: int) -> None:
        now_ms = START_MS + tick * TICK_MS + moment * TICK_MS // 4 & _NOW_MASK
        if member.asks and not moment:
            self._ask(member, tick, now_ms)
        if member.channel.wake_ms(now_ms):
            return
        frame = self._frame
        while size := member.channel.poll_into(frame, now_ms):
            self.outcome.bytes += size
            store = self.store
            if (
                store is not None
                and store.availability.at(tick)
                and store.node.hear(bytes(frame[:size]))
            ):
                store.arrivals.append((tick, _id_of(frame)))
            for other in online:
                if other is not member:
                    self._receive(other, frame, size, tick, now_ms)
        self._events(member, tick)

    def _receive(
        self, member: Member, frame: bytearray, size: int, tick: int, now_ms: int
    ) -> None:
        code = member.channel.receive(frame, size, now_ms)
        assert code in (OK, E_CAPACITY), code
        self._events(member, tick)

    def _ask(self, member: Member, tick: int, now_ms: int) -> None:
        """Ask the store node once, and receive its answers if it is online."""
        store = self.store
        assert store is not None
        self.outcome.records += 1
        self.outcome.bytes += QUESTION_SIZE
        if not store.availability.at(tick):
            return
        for arrival_tick, id in store.arrivals:
            if arrival_tick < member.since:
                continue
            message = store.node.by_id(member.channel.id, id)
            assert message is not None
            self.outcome.records += 1
            self.outcome.copies += 1
            self.outcome.bytes += len(message)
            self._receive(member, bytearray(message), len(message), tick, now_ms)
        member.asks = False
        member.since = member.availability.end

    def _events(self, member: Member, tick: int) -> None:
        while event := member.channel.next_event():
            if event in (EVENT_MESSAGE, EVENT_GAP):
                name = member.participant.name_of(member.channel.event_handle)
                self.outcome.latencies.append(tick - self._written[name])


def _id_of(frame: bytearray) -> bytes:
    """The message's id: field 2, behind the sender's name (drupelet.channel.keeper)."""
    at = 3 + frame[1]
    return bytes(frame[at + 1 : at + 1 + frame[at]])


def run(setting: Setting, seed: int) -> Outcome:
    """The same contacts and messages as `PaperWorld` has for this seed."""
    with closing(SdsWorld(setting, seed)) as world:
        return world.run()
