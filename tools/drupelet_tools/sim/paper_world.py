"""People whose devices are online a tenth of the time (the mobile paper's simulations).

Time goes in ticks of 30 s; a device that comes online stays so for a window, then is away for as
long as makes its share. Everything that a device sends while it is online counts, heard or not.
Members are real nodes on the flash log in RAM; what the paper calls naive is `paper_naive`.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from drupelet import host_api
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import FAMILY_MVDS, SHARED
from drupelet.link.link import BATCH, CARRIER_MQTT, INTERACTIVE, Link
from drupelet.link.topic import Topic
from drupelet.node import Node
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1, PROFILE_MVDS_1
from drupelet_tools.sim.filter_sync import FilterSync
from drupelet_tools.sim.growing_store import GrowingStore
from drupelet_tools.sim.presence import Presence, There

TICK_MS = 30_000
ONLINE = 0.1
BODY_SIZE = 100
MESSAGES_EACH = 5
# Messages are written some time in the first day, whether the device is online or not.
WRITING_TICKS = 2_880
# A run that has not ended after 180 days never will.
TICKS_MAX = 518_400
RELAY_ONLINE = 0.9
PROFILES = {"bsp-1": PROFILE_BSP_1, "compact-1": PROFILE_COMPACT_1, "mvds-1": PROFILE_MVDS_1}
TOPIC_HEADER_SIZE = 5  # docs/SPEC.md 13
_POLLS_MAX = 256
# Messages on their way to one peer, and ids that one offers: as many as a pace grows to that is
# doubled once a window. What there is besides waits in the log.
ROWS = 64


@dataclass(frozen=True)
class Setting:
    """One simulation: who takes part, how long they are online, and what they speak."""

    protocol: str
    people: int = 2
    window_ticks: int = 10
    relay: bool = False  # the paper's mailserver: a member that is online 90 % of the time
    online: float = ONLINE
    messages_each: int = MESSAGES_EACH


@dataclass
class Outcome:
    """What one run came to: `latencies` in ticks, one per message and receiver."""

    messages: int
    deliveries: int
    copies: int = 0  # of the records, messages
    records: int = 0
    bytes: int = 0
    ticks: int = 0
    latencies: list[int] = field(default_factory=list)
    cpu_s: float = 0.0  # what simulating it took, where that was measured

    @property
    def delivered(self) -> float:
        """The share of `deliveries` that happened; less than 1 with nothing but SDS."""
        return len(self.latencies) / self.deliveries

    @property
    def multiplier_records(self) -> float:
        """Records sent per delivery: the paper's bandwidth multiplier."""
        return self.records / len(self.latencies)

    @property
    def multiplier_bytes(self) -> float:
        """Bytes sent per byte of body delivered."""
        return self.bytes / (len(self.latencies) * BODY_SIZE)


def draw_messages(setting: Setting, seed: int) -> list[tuple[int, int]]:
    """When who writes a message, the last one first; the same for every protocol."""
    rng = random.Random(f"{seed} {setting.people} {setting.messages_each}")
    plan = [
        (rng.randrange(WRITING_TICKS), person)
        for person in range(setting.people)
        for _ in range(setting.messages_each)
    ]
    return sorted(plan, reverse=True)


class Availability:
    """When one device is online: windows of a fixed length, pauses of a random one."""

    def __init__(self, rng: random.Random, online: float, window_ticks: int) -> None:
        self._windows = self._draw(rng, online, window_ticks)
        self.start, self.end = next(self._windows)

    @staticmethod
    def _draw(rng: random.Random, online: float, window: int) -> Iterator[tuple[int, int]]:
        pause = window * (1 - online) / online
        at = -rng.randrange(window) if rng.random() < online else int(rng.expovariate(1 / pause))
        while True:
            yield at, at + window
            at += window + 1 + int(rng.expovariate(1 / max(pause - 1, 0.5)))

    def at(self, tick: int) -> bool:
        """Whether it is online; ticks never go back."""
        while tick >= self.end:
            self.start, self.end = next(self._windows)
        return tick >= self.start


def availability_of(setting: Setting, seed: int, number: int) -> Availability:
    """The same whatever is spoken, so that protocols are compared on the same contacts."""
    relays = setting.relay and number == setting.people
    share = RELAY_ONLINE if relays else setting.online
    own = random.Random(f"{seed} {number} {setting.window_ticks} {share}")
    return Availability(own, share, setting.window_ticks)


def next_tick(tick: int, devices: Iterable[Availability], plan: list[tuple[int, int]]) -> int:
    """The next tick at which anything can happen: somebody is online, or writes."""
    soonest = min(max(tick + 1, device.start) for device in devices)
    return min(soonest, max(tick + 1, plan[-1][0])) if plan else soonest


# Where a box counts the records that were sent, by type (docs/SPEC.md 6.3).
_SENT = 64 + 32 * CARRIER_MQTT + 8
_SENT_MESSAGES = _SENT + 1


def records_of(counts: dict[int, int]) -> int:
    """All records that were sent, of any type, from a box's counters."""
    return sum(counts.get(kind, 0) for kind in range(_SENT, _SENT + 5))


class Counts:
    """A black box of which only the counters are wanted."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        """Events are not kept."""

    def log_id(self, now_ms: int, code: int, a: int, b: int, ids: object, at: int) -> None:
        """Events are not kept."""

    def count(self, index: int, amount: int) -> None:
        """Add to a counter."""
        self.counts[index] = self.counts.get(index, 0) + amount


class Person:
    """One member: a node, a link to each other member (or a topic), and when it is online."""

    def __init__(self, number: int, setting: Setting, seed: int, count: int) -> None:
        rng = random.Random(f"{seed} {number}")
        self.number = number
        self.frame = bytearray(FRAME_SIZE_MAX)
        self.box = Counts()
        self.filters = 0
        self.presence = Presence(count)
        store = GrowingStore()
        store.reopen()
        rows = ROWS * (count - 1)
        self.node = Node(
            store, lambda: rng.randrange(256), count, 1, rows, rows,
            self.box,  # type: ignore[arg-type]  # what the engine tells one
        )  # fmt: skip
        topic, blooms = setting.protocol == "topic", setting.protocol == "bloom"
        profile = PROFILES.get(setting.protocol.removesuffix("+offers"), PROFILE_COMPACT_1)
        if topic:
            profile = PROFILE_BSP_1
        mode = INTERACTIVE if setting.protocol.endswith("+offers") else BATCH
        if profile == PROFILE_MVDS_1:
            self.group = self.node.join_id(bytes(range(32)), FAMILY_MVDS)
        else:
            self.group = self.node.join(READINGS_CLIENT_ID, b"paper")
        others = [other for other in range(count) if other != number]
        self.links: dict[int, Link] = {}
        self.peers: dict[int, int] = {}
        for other in others:
            peer = self.peers[other] = self.node.add_peer(_id(other))
            self.node.share(self.group, peer, SHARED)
            link = self.node.link(peer, profile, CARRIER_MQTT, TICK_MS, mode)
            self.links[other] = link
        self.node.boot(0)
        self.blooms = {}
        if blooms:
            for other, link in self.links.items():
                host_api.set_quiet(link, True)
                self.blooms[other] = FilterSync(self.node, self.group, link, rng.randrange)
        self.topic: Topic | None = None
        self.news = 0  # what came or was written: moves whenever a topic may have more to say
        self.calm: tuple[int, ...] = ()  # as it was when it had not
        if topic:
            self._listen(others, rng)
        self.availability = availability_of(setting, seed, number)
        self.online = False

    def _listen(self, others: list[int], rng: random.Random) -> None:
        """Speak to all others on a topic."""
        ids = b"".join(_id(other) for other in others)
        for other, link in self.links.items():
            link.plan = There(self.presence, other)  # type: ignore[assignment]
        self.topic = Topic(
            self.node, self.group, list(self.links.values()), ids, _id(self.number),
            lambda: rng.randrange(256),
        )  # fmt: skip

    def publish(self, payload: bytes, now_ms: int) -> bytes:
        """Write a message; its id."""
        body = b"\0" + payload
        handle = self.node.publish(
            self.group, body, len(body), now_ms.to_bytes(8), now_ms & 0x3FFFFFFF
        )
        assert handle > 0, handle
        self.news += 1
        published = host_api.message(self.node.store, handle)
        assert published is not None
        return published.id

    def delivered(self) -> Iterator[bytes]:
        """Ids of messages that came into the log since the last call."""
        node = self.node
        while node.next_event():
            entered = host_api.message(node.store, node.event_handle)
            if entered is not None and entered.source:
                yield entered.id
            node.done(node.event_handle)

    def lacking(self) -> list[int]:
        """Who is not known to have everything."""
        node = self.node
        return [other for other, peer in self.peers.items() if not host_api.is_current(node, peer)]

    def quiet(self) -> bool:
        """Whether everybody is known to have everything."""
        return not self.lacking()


def _id(number: int) -> bytes:
    return (number + 1).to_bytes(4)


class PaperWorld:
    """One run; `run` gives its outcome."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.rng = random.Random(f"{seed} {setting.people} {setting.messages_each}")
        count = setting.people + setting.relay
        self.people = [Person(number, setting, seed, count) for number in range(count)]
        self.bytes = 0
        self._written: dict[bytes, int] = {}
        self._latencies: list[int] = []
        self._plan = draw_messages(setting, seed)

    def run(self) -> Outcome:
        """Until everybody has everything, two also know it; or for 180 days.

        In a large group somebody always meets somebody: what is spent after the last delivery is
        the cost of meetings, not of messages.
        """
        messages = len(self._plan)
        receivers = self.setting.people - 1
        tick = 0
        while tick < TICKS_MAX:
            self._write(tick)
            online = [person for person in self.people if self._comes(person, tick)]
            self._exchange(online, tick)
            done = not self._plan and len(self._latencies) == messages * receivers
            if done and (receivers > 1 or all(person.quiet() for person in self.people)):
                break
            tick = next_tick(tick, (person.availability for person in self.people), self._plan)
        records = sum(records_of(person.box.counts) + person.filters for person in self.people)
        copies = sum(person.box.counts.get(_SENT_MESSAGES, 0) for person in self.people)
        return Outcome(
            messages, messages * receivers, copies, records, self.bytes, tick, self._latencies
        )

    def _comes(self, person: Person, tick: int) -> bool:
        was = person.online and person.availability.start < tick
        person.online = person.availability.at(tick)
        if person.online and not was:
            person.presence.begin(person.lacking() if self.setting.window_ticks == 1 else None)
        return person.online

    def _write(self, tick: int) -> None:
        while self._plan and self._plan[-1][0] <= tick:
            _, person = self._plan.pop()
            payload = self.rng.randbytes(BODY_SIZE - 1)
            id = self.people[person].publish(payload, tick * TICK_MS)
            self._written[id] = tick

    def _exchange(self, online: list[Person], tick: int) -> None:
        now_ms = tick * TICK_MS & 0x3FFFFFFF
        for moment in range(3):  # a frame, its answer and what follows from that fit a tick
            for person in online:
                at_ms = now_ms + moment * TICK_MS // 4
                if person.topic is not None:
                    self._speak(person, online, at_ms)
                else:
                    self._send(person, online, at_ms)
        for person in online:
            for id in person.delivered():
                if person.number < self.setting.people:
                    self._latencies.append(tick - self._written[id])

    def _send(self, person: Person, online: list[Person], now_ms: int) -> None:
        here = {other.number: other for other in online}
        for number in person.presence.due():
            link = person.links.get(number)
            if link is None:
                continue
            other = here.get(number)
            call = person.presence.call_into(person.frame, number)
            if call:
                self.bytes += call
                if other is not None:
                    other.presence.receive_wake(person.number, person.frame)
            if not person.presence.there(number):
                continue
            if person.blooms:
                self._tell(person, other, number)
            if link.wake_ms(now_ms):
                continue
            for _ in range(_POLLS_MAX):
                size = link.poll_into(person.frame, now_ms)
                if not size:
                    break
                self.bytes += size
                if other is not None:
                    back = other.links[person.number]
                    other.presence.heard(person.number)
                    back.receive(bytearray(person.frame), size, now_ms)

    def _tell(self, person: Person, other: Person | None, number: int) -> None:
        """Send the filter that is due to a peer; the peer takes it in if it is online."""
        if person.presence.newly_met(number):
            person.blooms[number].meet()
        size = person.blooms[number].poll_into(person.frame, len(person.frame))
        if size:
            self.bytes += size
            person.filters += 1
            if other is not None:
                other.presence.heard(person.number)
                other.blooms[person.number].receive(person.frame, size)

    def _speak(self, person: Person, online: list[Person], now_ms: int) -> None:
        """Send what is due on a topic, where one call and one answer reach all peers."""
        topic = person.topic
        assert topic is not None
        others = [other for other in online if other is not person]
        call = person.presence.call_all_into(person.frame)
        if call:
            self.bytes += TOPIC_HEADER_SIZE + call
            for other in others:
                other.presence.receive_wake(person.number, person.frame)
        here = [link for number, link in person.links.items() if person.presence.there(number)]
        link = next(iter(person.links.values()))
        state = (host_api.epoch_at(link, now_ms), person.news, len(here))
        if state == person.calm:
            return
        for _ in range(_POLLS_MAX):
            size = topic.poll_into(person.frame, now_ms)
            if not size:
                person.calm = state
                break
            self.bytes += size
            for other in others:
                assert other.topic is not None
                other.presence.heard(person.number)
                other.news += 1
                other.topic.receive(bytearray(person.frame), size, now_ms)
