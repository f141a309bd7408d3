"""Simulated channels: many participants, seldom online, over a lossy broadcast.

Time is divided into slots; in each, a participant is online with the share that was asked for. A
frame reaches each participant that is online, unless it is lost. The firmware's channel runs as
it is; an event heap keyed by its `wake_ms` makes idle time cost nothing. A seed fixes everything.
"""

import heapq
import random
import resource
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.channel.channel import EVENT_GAP, EVENT_MESSAGE, Channel
from drupelet.channel.ram_keeper import RamKeeper
from drupelet.channel.settings import Settings
from drupelet.wire.sds.bloom import Bloom

START_MS = 1_790_000_000_000
_NOW_MASK = (1 << 30) - 1
FRAME_SIZE = 1024


@dataclass(frozen=True)
class Plan:
    """What to simulate; times in ms."""

    participants: int = 100
    messages: int = 100
    online: float = 0.1
    loss: float = 0.2
    seed: int = 1
    size: int = 100
    slot_ms: int = 300_000
    # Messages are published at random within this time.
    publish_ms: int = 4 * 3_600_000
    until_ms: int = 30 * 24 * 3_600_000
    kept: int = 512
    ids: int = 256
    waiting: int = 64
    period_ms: int = 30_000
    sync_ms: int = 60_000
    repair: bool = True  # SDS-R
    lost_ms: int = 0  # after which a message is delivered without what it waits for; 0: never


@dataclass
class Result:
    """The outcome of a simulation."""

    done_ms: int = -1  # -1: not all had everything in time
    frames: int = 0
    bytes_sent: int = 0
    content: int = 0
    syncs: int = 0
    repairs: int = 0
    twice: int = 0
    latencies_ms: Counter[int] = field(default_factory=Counter)  # beyond a minute in minutes
    logs: list[tuple[bytes, ...]] = field(default_factory=list)  # as far as they are kept
    peak_mb: list[float] = field(default_factory=list)  # after each tenth of the deliveries

    @property
    def equal(self) -> bool:
        """Whether all logs hold the same in the same order, as far back as all of them go."""
        shortest = min(len(log) for log in self.logs)
        return len({log[len(log) - shortest :] for log in self.logs}) == 1

    def percentile_ms(self, share: float) -> int:
        """Latency from publishing to delivery that this share of deliveries keeps to."""
        left = int(self.latencies_ms.total() * share)
        latency_ms = 0
        for latency_ms, count in sorted(self.latencies_ms.items()):  # noqa: B007 - the last one
            left -= count
            if left < 0:
                break
        return latency_ms


class Participant:
    """A channel, its log as its client sees it, and when it wakes."""

    def __init__(self, number: int, plan: Plan, draw: random.Random) -> None:
        settings = Settings()
        settings.ids_max = plan.ids
        settings.incoming_max = plan.waiting
        settings.wanted_max = 16
        settings.asked_max = 32
        settings.repair = plan.repair
        settings.lost_ms = plan.lost_ms
        settings.period_ms = plan.period_ms
        settings.sync_ms = plan.sync_ms
        self.channel = Channel(
            b"sim", b"p%03d" % number, RamKeeper(plan.kept, FRAME_SIZE), Bloom(100, 10, 7),
            lambda: draw.randrange(256), settings, START_MS & _NOW_MASK,
        )  # fmt: skip
        self.channel.clock.set_wall(
            START_MS.to_bytes(8, "little"), START_MS & _NOW_MASK, trusted=True
        )
        self.has = bytearray(plan.messages // 8 + 1)  # a bit for each message
        self.online = False
        self.wakes_ms = 0

    def name_of(self, handle: int) -> bytes:
        """The name of a message in the log: the first 8 bytes of its content."""
        size = self.channel.keeper.load(handle)
        decoder = self.channel.decoder
        assert size and decoder.open(self.channel.keeper.work, 0, size) == OK
        at = decoder.content_at
        return bytes(self.channel.keeper.work[at : at + 8])

    def log(self) -> tuple[bytes, ...]:
        """The messages of the log in its order."""
        rows = self.channel.log.rows
        return tuple(self.name_of(rows.handle(row)) for row in range(rows.count))


class World:
    """All participants, and the simulated time."""

    def __init__(self, plan: Plan, on_peak: Callable[[int, float], None] | None = None) -> None:
        self.plan = plan
        self._on_peak = (
            on_peak  # called after each tenth of the deliveries: its number, peak in MB
        )
        self.draw = random.Random(plan.seed)
        self.result = Result()
        self.now_ms = 0
        self.all = [Participant(number, plan, self.draw) for number in range(plan.participants)]
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        # When each message that not all have was published, and how many lack it.
        self._published: dict[int, list[int]] = {}
        self._missing = self._deliveries = plan.messages * plan.participants
        self._frame = bytearray(FRAME_SIZE)
        self._times_ms = array(
            "Q", sorted(self.draw.randrange(plan.publish_ms) for _ in range(plan.messages))
        )
        self._at(self._times_ms[0], lambda: self._publish(0))
        self._at(0, self._slot)

    def _at(self, time_ms: int, call: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (time_ms, self._number, call))

    @property
    def _clock_ms(self) -> int:
        return (START_MS + self.now_ms) & _NOW_MASK

    def run(self) -> Result:
        """Run until every participant has every message, or the plan's time is over."""
        while self._heap and self._heap[0][0] <= self.plan.until_ms:
            self.now_ms, _, call = heapq.heappop(self._heap)
            call()
            if not self._missing:
                self.result.done_ms = self.now_ms
                break
        result = self.result
        result.logs = [participant.log() for participant in self.all]
        result.syncs = sum(participant.channel.syncs for participant in self.all)
        result.repairs = sum(participant.channel.repaired for participant in self.all)
        return result

    def _slot(self) -> None:
        """Draw who is online in the next slot."""
        for participant in self.all:
            participant.online = self.draw.random() < self.plan.online
            if participant.online:
                self._wake(participant)
        self._at(self.now_ms + self.plan.slot_ms, self._slot)

    def _publish(self, number: int) -> None:
        """Publish a message of a participant that is online; later if none is, or has room."""
        present = [participant for participant in self.all if participant.online]
        if present:
            participant = self.draw.choice(present)
            content = number.to_bytes(8, "big") + self.draw.randbytes(self.plan.size - 8)
            if participant.channel.publish(content, 0, len(content), self._clock_ms) > 0:
                self.result.content += 1
                self._published[number] = [self.now_ms, self.plan.participants]
                self._note_delivery(participant, number)
                self._wake(participant)
                if number + 1 < self.plan.messages:
                    at_ms = max(self._times_ms[number + 1], self.now_ms)
                    self._at(at_ms, lambda: self._publish(number + 1))
                return
        self._at(self.now_ms + 10_000, lambda: self._publish(number))

    def _wake(self, participant: Participant) -> None:
        """Poll a participant when its channel says so."""
        wait_ms = participant.channel.wake_ms(self._clock_ms)
        due_ms = self.now_ms + wait_ms
        if participant.wakes_ms <= self.now_ms or due_ms < participant.wakes_ms:
            participant.wakes_ms = due_ms
            self._at(due_ms, lambda: self._poll(participant))

    def _poll(self, participant: Participant) -> None:
        if participant.wakes_ms != self.now_ms or not participant.online:
            return
        participant.wakes_ms = 0
        frame = self._frame
        while size := participant.channel.poll_into(frame, self._clock_ms):
            self.result.frames += 1
            self.result.bytes_sent += size
            for other in self.all:
                if (
                    other.online
                    and other is not participant
                    and self.draw.random() >= self.plan.loss
                ):
                    self._receive(other, frame, size)
        self._events(participant)
        self._at(self.now_ms + 1, lambda: self._wake(participant))

    def _receive(self, participant: Participant, frame: bytearray, size: int) -> None:
        code = participant.channel.receive(frame, size, self._clock_ms)
        assert code in (OK, E_CAPACITY), code
        self._events(participant)
        self._wake(participant)

    def _events(self, participant: Participant) -> None:
        while event := participant.channel.next_event():
            if event in (EVENT_MESSAGE, EVENT_GAP):
                self._note_delivery(
                    participant,
                    int.from_bytes(participant.name_of(participant.channel.event_handle), "big"),
                )

    def _note_delivery(self, participant: Participant, number: int) -> None:
        bit = 1 << (number & 7)
        if participant.has[number >> 3] & bit:
            self.result.twice += 1
            return
        participant.has[number >> 3] |= bit
        self._missing -= 1
        state = self._published[number]
        late_ms = self.now_ms - state[0]
        self.result.latencies_ms[late_ms if late_ms < 60_000 else late_ms // 60_000 * 60_000] += 1
        state[1] -= 1
        if not state[1]:
            del self._published[number]
        if self._missing * 10 % self._deliveries < 10:
            self._note_memory()

    def _note_memory(self) -> None:
        """Note the peak of memory so far, once for each tenth of the deliveries."""
        done = 10 - -(-self._missing * 10 // self._deliveries)
        if done > len(self.result.peak_mb):
            peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            self.result.peak_mb.append(round(peak_kb / 1024, 1))
            if self._on_peak is not None:
                self._on_peak(done, self.result.peak_mb[-1])


def run(plan: Plan, on_peak: Callable[[int, float], None] | None = None) -> Result:
    """Simulate one plan; `on_peak` is called with the peak of memory after each tenth."""
    return World(plan, on_peak).run()
