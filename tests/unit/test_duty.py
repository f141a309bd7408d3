"""Wake plans: they meet from any phase, then need one window; and back-off, as properties."""

import itertools
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drupelet.base.errors import E_PEER, OK, CapacityError
from drupelet.base.limits import (
    BACKOFF_EPOCHS_MAX,
    BACKOFF_FALL_EPOCHS,
    CONTACTS_MISSED_MAX,
    NOW_MODULUS_MS,
    SEND_COUNT_MAX,
    WAIT_MS_MAX,
    WAKE_PERIOD_MS_MAX,
)
from drupelet.duty.wake_plan import (
    KIND_WAKE,
    PLAN_HEAD_SIZE,
    PLAN_OLD_SIZE,
    PLAN_PEER_SIZE,
    WAKE_SIZE,
    WakePlan,
)
from drupelet.engine.backoff import counted, interval_epochs
from drupelet.node import BATCH, CARRIER_SERIAL, PROFILE_BSP_1
from helpers import Draw, Member

nows = st.integers(0, NOW_MODULUS_MS - 1)
Windows = list[tuple[float, float]]

# --- back-off ---


@given(st.integers(0, SEND_COUNT_MAX), st.booleans(), st.booleans())
def test_a_back_off_is_bounded_and_heard_resets_it(count: int, heard: bool, falls: bool) -> None:
    wait = interval_epochs(count, heard, falls)
    assert 2 <= wait <= BACKOFF_EPOCHS_MAX
    assert wait == 2 or not (heard or count <= 1)


@given(st.booleans(), st.integers(1, 1000))
def test_a_back_off_doubles_up_to_its_bound(falls: bool, sends: int) -> None:
    count = 0
    waits = []
    for _ in range(sends):
        count = counted(count)
        assert 0 < count <= SEND_COUNT_MAX
        waits.append(interval_epochs(count, False, falls))
    for before, after in itertools.pairwise(waits):
        assert after == 2 * before or before == BACKOFF_EPOCHS_MAX
        fallen = BACKOFF_FALL_EPOCHS if falls else BACKOFF_EPOCHS_MAX
        assert before != BACKOFF_EPOCHS_MAX or after == fallen


def test_the_two_rules() -> None:
    assert [interval_epochs(n, False, False) for n in range(1, 9)] == [2, 4, 8, 16, 32, 64, 64, 64]
    fallen = [interval_epochs(n, False, True) for n in range(1, 16)]
    assert fallen == [2, 4, 8, 16, 32, 64, 8, 16, 32, 64, 8, 16, 32, 64, 8]


# --- meeting ---


def plan(period=1000, window=60, contact=10, device=b"AAAA", now=0, phase=0, peers=1) -> WakePlan:
    wake_plan = WakePlan(period, window, contact, peers, device, now, phase)
    for peer in range(peers):
        wake_plan.seek(peer, b"ZZZ%d" % peer, 0)
    return wake_plan


def windows(figures: tuple[int, int, int], probe: int, periods: int) -> Windows:
    """When a plan that searches is awake, in its own time from an anchor at 0 on."""
    wake_plan = plan(*figures)
    wake_plan.awake_ms(0)
    if wake_plan.probes:
        wake_plan.probe = probe
    awake: Windows = []
    now = 0
    while now < periods * figures[0]:
        left = wake_plan.awake_ms(now % NOW_MODULUS_MS)
        if left:
            awake.append((now, now + left))
            now += left
        else:
            wait = wake_plan.next_wake_ms(now % NOW_MODULUS_MS)
            assert 0 < wait <= figures[0]
            now += wait
    return awake


def meet_ms(a: Windows, b: Windows, contact: float, apart: float, rates: tuple[float, float]):
    """When both were awake for `contact` ms, b's time being `apart` later; None: never."""
    i = j = 0
    while i < len(a) and j < len(b):
        begin = max(a[i][0] * rates[0], apart + b[j][0] * rates[1])
        end_a = a[i][1] * rates[0]
        end_b = apart + b[j][1] * rates[1]
        # Seen from outside, a fast clock's contact is shorter by 500 ppm.
        if min(end_a, end_b) - begin >= contact * 0.999:
            return begin
        if end_a < end_b:
            i += 1
        else:
            j += 1
    return None


FAST, SLOW = 1 - 500e-6, 1 + 500e-6
RATES = [(1.0, 1.0), (FAST, SLOW), (SLOW, FAST), (FAST, FAST)]


@pytest.mark.parametrize("figures", [(1000, 60, 10), (1000, 201, 1), (997, 31, 6), (500, 300, 40)],
                         ids=str)  # fmt: skip
def test_every_phase_meets_within_the_bound(figures: tuple[int, int, int]) -> None:
    period, _, contact = figures
    probes = plan(*figures).probes
    bound = plan(*figures).search_periods
    sweeps = range(1, probes + 1) if probes < 9 else [1, 2, probes // 2, probes - 1, probes]
    lists = [windows(figures, probe, bound + 2) for probe in sweeps or [0]]
    latest = 0.0
    for a, b in itertools.product(lists, repeat=2):
        for rates in RATES[:3]:
            for apart in range(period):
                met = meet_ms(a, b, contact, apart, rates)
                assert met is not None, (apart, rates)
                latest = max(latest, met)
    assert latest <= bound * period * SLOW
    # The bound is no empty word: the worst case needs more than half of it.
    assert latest > (bound - 2) * period / 2


@pytest.mark.parametrize("figures", [(100_000, 600, 200), (900_000, 10_000, 2_000)], ids=str)
def test_drift_of_the_order_of_a_window_is_not_jumped_over(figures: tuple[int, int, int]) -> None:
    period, window, contact = figures
    wake_plan = plan(*figures)
    assert wake_plan.drift_ms * 5 > (window - contact) / 2
    bound = wake_plan.search_periods
    ends = (1, wake_plan.probes // 2, wake_plan.probes)
    lists = [windows(figures, probe, bound + 2) for probe in ends]
    step = (window - contact) // 8 + 1
    for a, b in itertools.product(lists, repeat=2):
        for rates in RATES[1:]:
            for apart in range(0, period, step * 7):
                met = meet_ms(a, b, contact, apart, rates)
                assert met is not None and met <= bound * period * SLOW, (apart, rates)


def wandering(awake: Windows, seed: int) -> Windows:
    """The same windows by a clock whose rate changes every period, or turns now and then."""
    draw = random.Random(seed)
    late, rate, shifted = 0.0, 0.0, []
    before = 0.0
    for begin, end in awake:
        late += rate * (begin - before)
        before = begin
        shifted.append((begin + late, end + late))
        if seed % 2 or draw.random() < 0.05:
            rate = draw.choice([-0.001, 0.0, 0.001])
    return shifted


@pytest.mark.parametrize("figures", [(100_000, 600, 200), (900_000, 10_000, 2_000)], ids=str)
def test_clocks_that_wander_meet_within_the_bound(figures: tuple[int, int, int]) -> None:
    period, _, contact = figures
    wake_plan = plan(*figures)
    bound = wake_plan.search_periods
    ends = (1, wake_plan.probes // 3, wake_plan.probes)
    lists = [windows(figures, probe, bound + 2) for probe in ends]
    draw = random.Random(3)
    for seed in range(300):
        a, b = draw.choice(lists), wandering(draw.choice(lists), seed)
        met = meet_ms(a, b, contact, draw.uniform(0, period), (1.0, 1.0))
        assert met is not None and met <= bound * period * SLOW, seed


def test_a_window_just_above_the_drift_sweeps_the_whole_period() -> None:
    figures = (100_000, 125, 10)
    wake_plan = plan(*figures)
    assert wake_plan.search_periods == 2 * wake_plan.probes + 2, "the other case of the bound"
    lists = [
        windows(figures, probe, wake_plan.search_periods + 2) for probe in (2, wake_plan.probes)
    ]
    for rates in RATES[:3]:
        for apart in range(0, 100_000, 2_777):
            met = meet_ms(*lists, 10, apart, rates)
            assert met is not None and met <= wake_plan.search_periods * 100_000 * SLOW


def test_a_window_too_short_for_the_drift_is_refused() -> None:
    with pytest.raises(CapacityError, match="too short: clocks drift 3604 ms"):
        plan(3_600_000, 5_000, 2_000)
    with pytest.raises(CapacityError, match="too short"):
        plan(WAKE_PERIOD_MS_MAX, 67_176, 1)
    worst = plan(WAKE_PERIOD_MS_MAX, 67_176 + 100, 1)
    assert worst.probes <= 1000 and worst.search_periods <= 2 * worst.probes + 2
    # What docs/SPEC.md says of common figures.
    assert plan(900_000, 10_000, 2_000).search_periods == 37
    assert plan(900_000, 30_000, 2_000).search_periods == 11
    assert plan(300_000, 5_000, 1_000).search_periods == 23
    assert plan(3_600_000, 20_000, 2_000).search_periods == 75


# --- rendezvous ---


class Sleeper:
    """A device whose own clock is off by `ppm`, seen in true time."""

    def __init__(self, name: int, others: list[int], figures, ppm: int, phase: int, start: int):
        self.name = name
        self.ppm = ppm
        self.origin = start
        self.figures = figures
        self.others = others
        self.make(0, phase)
        self.awake = 0.0
        self.busy = False
        self.heard: dict[int, list[float]] = {other: [] for other in others}

    def make(self, true: float, phase: int) -> None:
        now = self.now(true)
        ident = bytes([0, 0, 1, self.name])
        self.plan = WakePlan(*self.figures, len(self.others), ident, now, phase)
        for row, other in enumerate(self.others):
            self.plan.seek(row, bytes([0, 0, 1, other]), 0)

    def now(self, true: float) -> int:
        return (self.origin + int(true * (1 + self.ppm / 1e6))) % NOW_MODULUS_MS

    def next(self, true: float) -> float:
        """True time until something may change here."""
        now = self.now(true)
        left = self.plan.awake_ms(now)
        wait = left or self.plan.next_wake_ms(now)
        if left:
            if self.busy:
                wait = min(wait, 150)
            for row in range(len(self.others)):
                wait = min(wait, max(self.plan.wake_due_ms(row, now), 1))
        return max(wait / (1 + self.ppm / 1e6), 0.5)


class Air:
    """Sleepers that hear each other, `loss` of 1,000 frames aside; 40 ms on the way."""

    def __init__(self, sleepers: list[Sleeper], seed: int, loss: int) -> None:
        self.sleepers = {sleeper.name: sleeper for sleeper in sleepers}
        self.random = random.Random(seed)
        self.loss = loss
        self.true = 0.0
        self.flying: list[tuple[float, int, int, bytes]] = []
        self.away: set[int] = set()
        self.met: list[bool] = []
        self.lost = 0  # how often a peer that was met was sought again

    def run(self, until: float, done=lambda: False) -> bool:
        for _ in range(400_000):
            if done() or self.true >= until:
                return done()
            self.step()
        raise AssertionError("too many steps")

    def step(self) -> None:
        here = [s for s in self.sleepers.values() if s.name not in self.away]
        later = min([s.next(self.true) for s in here] + [f[0] - self.true for f in self.flying])
        for sleeper in here:
            if sleeper.plan.awake_ms(sleeper.now(self.true)):
                sleeper.awake += later
        self.true += later
        due = [frame for frame in self.flying if frame[0] <= self.true]
        self.flying = [frame for frame in self.flying if frame[0] > self.true]
        for _, source, target, frame in due:
            self.arrive(self.sleepers[target], source, frame)
        met = [sleeper.plan.met(row) for sleeper in here for row in range(len(sleeper.others))]
        self.lost += sum(a and not b for a, b in zip(self.met, met, strict=False))
        self.met = met
        for sleeper in here:
            self.speak(sleeper)

    def arrive(self, sleeper: Sleeper, source: int, frame: bytes) -> None:
        now = sleeper.now(self.true)
        if sleeper.name not in self.away and sleeper.plan.awake_ms(now):
            row = sleeper.others.index(source)
            assert sleeper.plan.on_wake(row, frame, len(frame), now) == OK
            sleeper.heard[source].append(self.true)

    def speak(self, sleeper: Sleeper) -> None:
        now = sleeper.now(self.true)
        frame = bytearray(WAKE_SIZE)
        for row, other in enumerate(sleeper.others):
            size = sleeper.plan.wake_into(frame, row, now)
            if size and self.random.randrange(1000) >= self.loss:
                self.flying.append((self.true + 40, sleeper.name, other, bytes(frame)))

    def all_met(self) -> bool:
        return all(s.plan.met(row) for s in self.sleepers.values() for row in range(len(s.others)))


FIGURES = (60_000, 3_000, 600)


def sleepers(names: dict[int, list[int]], seed: int, figures=FIGURES) -> list[Sleeper]:
    draw = random.Random(seed)
    return [
        Sleeper(
            name, others, figures, draw.choice([-500, 500, draw.randint(-500, 500)]),
            draw.randrange(figures[0]), draw.choice([0, NOW_MODULUS_MS - 200_000]),
        )
        for name, others in names.items()
    ]  # fmt: skip


PAIR = {1: [2], 2: [1]}
CHAIN = {1: [2], 2: [1, 3], 3: [2, 4], 4: [3]}
FULL = {n: [m for m in range(1, 6) if m != n] for n in range(1, 6)}


@pytest.mark.parametrize("names", [PAIR, CHAIN, FULL], ids=["pair", "chain", "full"])
@pytest.mark.parametrize("seed", range(4))
def test_after_a_contact_one_window_per_period_is_enough(names, seed: int) -> None:
    air = Air(sleepers(names, seed), seed, 0)
    period = FIGURES[0]
    bound = next(iter(air.sleepers.values())).plan.search_periods
    assert air.run((bound + 1) * period * len(names), air.all_met)
    air.run(air.true + (CONTACTS_MISSED_MAX + 2) * period * len(names))  # anchors come together
    assert not air.lost, "nobody moves away from those who know the old anchor"
    begin = air.true
    for sleeper in air.sleepers.values():
        sleeper.awake = 0
        for heard in sleeper.heard.values():
            heard.clear()
    air.run(begin + 40 * period)
    for sleeper in air.sleepers.values():
        share = sleeper.awake / (air.true - begin)
        assert share < 1.1 * FIGURES[1] / period, "one window, and what drift adds"
        for heard in sleeper.heard.values():
            assert len(heard) >= 39, "a contact in every period"


def test_two_seeds_of_bad_air_still_meet_again_after_losing_each_other() -> None:
    for seed in range(3):
        air = Air(sleepers(PAIR, seed), seed, 300)
        period = FIGURES[0]
        bound = (air.sleepers[1].plan.search_periods + 1) * period
        assert air.run(3 * bound, air.all_met)
        # One is off for longer than the other waits, and comes back with another phase.
        air.away = {2}
        air.run(air.true + (CONTACTS_MISSED_MAX + 2) * period)
        assert not air.all_met() and air.sleepers[1].plan.searches()
        air.away = set()
        air.sleepers[2].make(air.true, 31_234)
        assert air.run(air.true + 3 * bound, air.all_met)


@pytest.mark.parametrize("ppm", [-500, 500])
def test_a_few_missed_contacts_need_no_search(ppm: int) -> None:
    # What clocks drift in a period is a third of what a window has room for.
    figures = (100_000, 500, 200)
    period = figures[0]
    for seed in range(3):
        air = Air(sleepers(PAIR, seed, figures), seed, 0)
        for name, sign in ((1, 1), (2, -1)):
            air.sleepers[name].ppm = sign * ppm
        assert air.run(600 * period, air.all_met)
        air.run(air.true + 3 * period)
        air.loss = 1000
        air.run(air.true + (CONTACTS_MISSED_MAX - 1) * period)
        air.loss = 0
        air.run(air.true + period)
        assert air.all_met() and not air.lost
        for sleeper in air.sleepers.values():
            assert air.true - max(sleeper.heard[sleeper.others[0]]) < period + 2 * figures[1]


def test_one_side_that_forgot_is_found_again() -> None:
    air = Air(sleepers(PAIR, 5), 5, 0)
    period = FIGURES[0]
    assert air.run(60 * period, air.all_met)
    bound = air.sleepers[1].plan.search_periods + CONTACTS_MISSED_MAX + 2
    air.sleepers[1].make(air.true, 40_000)
    assert not air.all_met()
    assert air.run(air.true + bound * period, air.all_met)


class Carrier(Air):
    """Sleepers with a member each: a link speaks when its peer is there, and WAKE is a frame."""

    def __init__(self, sleepers: list[Sleeper], seed: int, loss: int) -> None:
        super().__init__(sleepers, seed, loss)
        draw = Draw(seed)
        self.members = {s.name: Member(f"{s.name}", draw, pool=16) for s in sleepers}
        for sleeper in sleepers:
            member = self.members[sleeper.name]
            member.peers = [f"{other}" for other in sleeper.others]
            for name in member.peers:
                member.add(name)
            member.boot(sleeper.now(0))
            for name in member.peers:
                member.links[name] = member.node.link(
                    member.numbers[name], PROFILE_BSP_1, CARRIER_SERIAL, 300, BATCH,
                    sleeper.now(0),
                )  # fmt: skip

    def arrive(self, sleeper: Sleeper, source: int, frame: bytes) -> None:
        if frame[0] == KIND_WAKE:
            super().arrive(sleeper, source, frame)
        elif sleeper.plan.awake_ms(sleeper.now(self.true)):
            member = self.members[sleeper.name]
            link = member.links[f"{source}"]
            assert link.receive(bytearray(frame), len(frame), sleeper.now(self.true)) == OK
            member.consume()

    def speak(self, sleeper: Sleeper) -> None:
        super().speak(sleeper)
        now = sleeper.now(self.true)
        frame = bytearray(200)
        for row, other in enumerate(sleeper.others):
            link = self.members[sleeper.name].links[f"{other}"]
            while sleeper.plan.there(row, now) and sleeper.plan.awake_ms(now):
                size = link.poll_into(frame, now)
                if not size:
                    break
                if self.random.randrange(1000) >= self.loss:
                    self.flying.append((self.true + 40, sleeper.name, other, bytes(frame[:size])))

    def step(self) -> None:
        # Whoever is awake looks at its links every 150 ms.
        for sleeper in self.sleepers.values():
            sleeper.busy = any(
                link.wake_ms(sleeper.now(self.true)) < 1000
                for link in self.members[sleeper.name].links.values()
            )
        super().step()


@pytest.mark.parametrize("names", [PAIR, CHAIN], ids=["pair", "chain"])
@pytest.mark.parametrize("loss", [0, 200])
def test_messages_cross_between_sleepers(names, loss: int) -> None:
    period = FIGURES[0]
    for seed in range(2):
        air = Carrier(sleepers(names, seed), seed, loss)
        logs = air.members.values()
        bound = (air.sleepers[1].plan.search_periods + 2) * period * (1 + bool(loss))
        for member in logs:
            member.publish(member.name.encode(), 0)

        def done(count: int, logs=logs) -> bool:
            return all(len(member.log()) == count for member in logs)

        hops = len(names) - 1
        assert air.run(bound * hops, lambda done=done: done(len(names)))
        # Once they have met, a message needs a period per hop, and a few more on a bad line.
        air.run(air.true + (CONTACTS_MISSED_MAX + 3) * period * hops)
        begin = air.true
        air.members[1].publish(b"again", 1)
        assert air.run(begin + (hops + 0.2 + 2 * bool(loss)) * period,
                       lambda done=done: done(len(names) + 1))  # fmt: skip


# --- frames ---


def wake(wait: int, period: int = 1000, flags: int = 0) -> bytes:
    return bytes([KIND_WAKE, flags]) + wait.to_bytes(4, "big") + period.to_bytes(4, "big")


@pytest.mark.parametrize("drift", [4, -4])
def test_the_probe_goes_on_while_the_anchor_follows_a_leader(drift: int) -> None:
    """Of a follower whose clock is faster or slower, and who seeks a third device besides."""
    wake_plan = plan(device=b"BBBB", peers=2)
    wake_plan.seek(0, b"AAAA", 0)
    wake_plan.seek(1, b"CCCC", 0)
    places = []
    for period in range(1, 2 * wake_plan.probes + 2):
        now = period * (1000 + drift) + 2
        wake_plan.awake_ms(now)
        assert wake_plan.on_wake(0, wake(1000 - 2), WAKE_SIZE, now) == OK
        wake_plan.awake_ms(now + 20)
        places.append(wake_plan.probe)
    steps = {(b - a) % wake_plan.probes for a, b in pairwise(places[1:])}
    assert wake_plan.probes > 3 and steps == {1}


def test_who_is_found_in_a_probe_gets_its_answer_before_the_window_ends() -> None:
    wake_plan = plan()
    wake_plan.seek(0, b"CCCC", 0)
    frame = bytearray(WAKE_SIZE)
    now = 200  # behind the window at the anchor
    now += wake_plan.next_wake_ms(now)
    assert wake_plan.wake_into(frame, 0, now) == WAKE_SIZE and now < 1000
    assert wake_plan.on_wake(0, wake(300, flags=1), WAKE_SIZE, now + 1) == OK and wake_plan.met(0)
    assert wake_plan.awake_ms(now + 1) > 0, "the peer may not have heard that one frame"
    assert wake_plan.wake_into(frame, 0, now + 1) == WAKE_SIZE
    assert wake_plan.awake_ms(now + 2) == 0


def test_the_bytes_of_a_wake_frame() -> None:
    wake_plan = plan(1000, 60, 10, now=5000, phase=300)
    frame = bytearray(WAKE_SIZE)
    assert wake_plan.wake_into(frame, 0, 5299) == 0, "asleep"
    assert wake_plan.wake_into(frame, 0, 5310) == WAKE_SIZE
    assert bytes(frame) == wake(990, flags=1)
    assert wake_plan.wake_into(frame, 0, 5311) == 0 and wake_plan.wake_due_ms(0, 5311) == 4
    assert wake_plan.on_wake(0, wake(995, flags=1), WAKE_SIZE, 5312) == OK
    assert wake_plan.wake_into(frame, 0, 5312) == WAKE_SIZE  # it asked
    assert bytes(frame) == wake(988)
    assert wake_plan.wake_due_ms(0, 5340) == WAIT_MS_MAX and wake_plan.met(0)


@pytest.mark.parametrize("bad", [b"", wake(5)[:-1], wake(5) + b"x", wake(0), wake(1001),
                                 wake(5, 999), wake(0xFFFFFFFF), wake(5, 0xFFFFFFFF),
                                 b"\x51" + wake(5)[1:]], ids=bytes.hex)  # fmt: skip
def test_bytes_of_no_plan_change_nothing(bad: bytes) -> None:
    wake_plan = plan()
    assert wake_plan.on_wake(0, bad.ljust(WAKE_SIZE, b"\0"), len(bad), 10) == E_PEER
    assert not wake_plan.met(0) and wake_plan.start_ms == NOW_MODULUS_MS - 1000


@given(st.binary(min_size=10, max_size=10), st.integers(0, NOW_MODULUS_MS - 1))
def test_any_ten_bytes_are_taken_or_refused(data: bytes, now: int) -> None:
    wake_plan = plan(now=now, phase=77, peers=2)
    assert wake_plan.on_wake(1, bytes([KIND_WAKE]) + data[1:], WAKE_SIZE, now) in (OK, E_PEER)
    assert 0 <= wake_plan.next_wake_ms(now) <= 1000


def has_old_windows(wake_plan: WakePlan, now_ms: int) -> bool:
    """Whether it still opens the windows that it had before it moved."""
    saved = bytearray(PLAN_OLD_SIZE)
    wake_plan.save_old_into(saved, 0, now_ms)
    return saved[0] > 0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 1000)), max_size=20), st.integers())
def test_clocks_that_wrap_or_go_back_keep_the_phase(steps, seed: int) -> None:
    def since(then: int) -> int:
        half = NOW_MODULUS_MS // 2
        return (now - then + half) % NOW_MODULUS_MS - half

    now = random.Random(seed).randrange(NOW_MODULUS_MS)
    wake_plan = plan(now=now, phase=0, device=b"zzzz")
    anchor = heard_ms = now
    # A second move so soon waits, and after a silence clocks may have drifted: more is open then.
    moved = True
    for ahead, wait in steps:
        now = (now + ahead - 800) % NOW_MODULUS_MS
        into = since(anchor)
        left = wake_plan.awake_ms(now)
        more = (
            not moved
            or wake_plan.searches()
            or has_old_windows(wake_plan, now)
            or not 0 <= since(heard_ms) < 1000
        )
        assert left == max(60 - into % 1000, 0) or more
        if into % 1000 < 60 and (moved or wake_plan.met(0)):
            assert left >= 60 - into % 1000
        if wait < 20:
            wake_plan.on_wake(0, wake(wait), WAKE_SIZE, now)
            heard_ms = now
            anchor = now + wait - 1000 if wake_plan.met(0) else anchor
            moved = (since(wake_plan.start_ms) - since(anchor)) % 1000 == 0


# --- deep sleep ---


@given(nows, st.integers(0, 9_000), nows, st.integers(0, 999))
def test_a_plan_goes_on_after_deep_sleep(now: int, slept: int, then: int, phase: int) -> None:
    before = plan(now=now, phase=phase, device=b"zzzz")
    later = (now + 2300) % NOW_MODULUS_MS
    assert before.on_wake(0, wake(1 + phase), WAKE_SIZE, later) == OK
    buf = bytearray(PLAN_HEAD_SIZE + PLAN_OLD_SIZE + PLAN_PEER_SIZE)
    old, peer = PLAN_HEAD_SIZE, PLAN_HEAD_SIZE + PLAN_OLD_SIZE
    before.save_into(buf, 0, later)
    before.save_old_into(buf, old, later)
    before.save_peer_into(0, buf, peer, later)
    after = plan(now=then, phase=1, device=b"zzzz")
    after.restore_old_from(buf, old, then, slept)
    after.restore_from(buf, 0, then, slept)
    after.restore_peer_from(0, buf, peer, then, slept)
    awoke = (later + slept) % NOW_MODULUS_MS
    for passed in range(0, 3000, 7):
        a, b = (awoke + passed) % NOW_MODULUS_MS, (then + passed) % NOW_MODULUS_MS
        assert before.awake_ms(a) == after.awake_ms(b)
        assert before.next_wake_ms(a) == after.next_wake_ms(b)
        assert before.met(0) == after.met(0)
