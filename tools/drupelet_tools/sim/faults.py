"""What a seed does to its world: its shape, what its clients do, and what goes wrong, all drawn
before the first event.

A plan is a list of small steps, so a failing one can be made smaller by leaving steps out; and
every kind of fault is there in only some of the seeds, at a strength of its own, so that one fault
does not hide another. The ranges are those of docs/simulator.md.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from drupelet.base.limits import GONE_SHARE, GONE_SPARE, INLINE_SIZE_MAX
from drupelet.engine.members import FAMILY_BSP, FAMILY_MVDS, INVISIBLE, VISIBLE
from drupelet.link.link import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    CARRIER_STICK,
    INTERACTIVE,
)
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1, PROFILE_MVDS_1
from drupelet_host.member.mode_policy import AUTO
from drupelet_tools.sim.carriers import Rates
from drupelet_tools.sim.device import Duty, Spec

MINUTE_MS = 60_000
DAY_MS = 86_400_000
FIELD_PERIOD_MS = 15 * MINUTE_MS
# With less, most searches for an id that is not there go through a long log.
FILTER_SIZE_MAX = 8192
# Bytes that an id takes in the ring of those that are gone, its part of the record's head with it.
_GONE_ID_SIZE = 12
# A table of one or two slots, full with what the wiped peer asked for, has no room for parents.
RESETS_POOL_MIN = 8


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens at a time: `kind` and what it takes (see `run.py`)."""

    at_ms: int
    kind: str
    args: tuple[Any, ...] = ()


@dataclass(slots=True)
class LinkPlan:
    """Arguments of `World.add_link`."""

    a: str
    b: str
    carrier: int
    profile: int
    mode: int
    epoch_ms: int
    back_epoch_ms: int = 0
    size_max: int = 1024
    queue: bool = False
    sealed: bool = False


@dataclass(slots=True)
class Plan:
    """A whole run."""

    seed: int
    kind: str
    end_ms: int
    settle_epochs: int
    family: int = FAMILY_BSP
    nodes: dict[str, Spec] = field(default_factory=dict)
    groups: list[list[str]] = field(default_factory=list)
    links: list[LinkPlan] = field(default_factory=list)
    sticks: int = 0
    steps: list[Step] = field(default_factory=list)
    reorder: bool = False
    save_ms: int = 60_000
    tight: bool = False
    look_every: int = 16  # one in so many frames is looked at closely
    drawn: bool = False  # the seed chose its kind: asked for by name, that is another world

    def without(self, dropped: set[int]) -> "Plan":
        """The same plan without some of its steps."""
        steps = [step for number, step in enumerate(self.steps) if number not in dropped]
        return replace(self, steps=steps)


KINDS = ("field", "drops", "storm", "storm", "storm", "sticks", "plans")


def draw_plan(seed: int, kind: str = "") -> Plan:
    """The plan of a seed; `kind` takes one kind of world instead of the seed's own."""
    random = Random(f"plan {seed}")
    drawn = not kind
    kind = kind or random.choice(KINDS)
    if kind in ("field", "drops", "views"):
        plan = _field(seed, random, kind)
    elif kind == "sticks":
        plan = _storm(seed, random, True)
    elif kind == "plans":
        plan = _plans(seed, random)
    elif kind == "small":
        plan = _storm(seed, random, False, True)
    elif kind == "resets":
        plan = _resets(seed, random)
    else:
        plan = _storm(seed, random, False)
    plan.drawn = drawn
    plan.steps.sort(key=lambda step: step.at_ms)
    _seal(plan)
    return plan


def _seal(plan: Plan) -> None:
    """Seal all links of a third of the seeds; drawn apart, so that nothing else changes."""
    if plan.kind == "resets" or Random(f"seal {plan.seed}").randrange(3) == 0:
        for link in plan.links:
            link.sealed = True


def draw_rates(random: Random, epoch_ms: int) -> Rates:
    """Faults of one direction: each there or not, and how strong."""

    def maybe(most: int) -> int:
        return random.randrange(most) if random.randrange(3) == 0 else 0

    return Rates(
        loss=random.choice((0, 30, 100, 300, 500, 900)) if random.randrange(2) else 0,
        burst=maybe(40),
        burst_frames=2 + random.randrange(60),
        dup=maybe(512),
        reorder=maybe(300),
        reorder_ms=1 + random.randrange(4 * epoch_ms),
        flip=maybe(80),
        cut=maybe(80),
        late=maybe(40),
        late_ms=20 * epoch_ms,
        delay_ms=1 + random.randrange(max(2, min(epoch_ms // 8, 500))),
        jitter_ms=random.randrange(max(2, min(epoch_ms // 4, 500))),
    )


# --- boards that wake every quarter of an hour, and a host ---


def _field(seed: int, random: Random, kind: str) -> Plan:
    """`drops`, `views`: the boards' logs are small, and drop what all hold (docs/simulator.md)."""
    boards = [f"b{number}" for number in range(1, 2 + random.randrange(4))]
    days = 8 + random.randrange(24)
    plan = Plan(seed, kind, days * DAY_MS, 400, save_ms=FIELD_PERIOD_MS)
    host_store = "sqlite" if random.randrange(3) == 0 else "flash"
    # The host takes what comes: two members that are both full could take nothing of each other.
    plan.nodes["host"] = Spec(
        host_store, pool=32, offers=32, segments=512, pending=32, filter_size=FILTER_SIZE_MAX
    )
    for name in boards:
        deep = random.randrange(8) == 0
        plan.nodes[name] = Spec(
            pool=random.choice((4, 8, 16)),
            offers=random.choice((4, 8, 16)),
            segments=8 if deep else random.choice((12, 24)),
            segment_size=1024 if deep else 2048,
            duty=Duty(FIELD_PERIOD_MS, random.choice((5_000, 10_000, 30_000)), deep),
            drift_ppm=random.choice((0, 0, 40, -40, 500)),
        )
    plan.groups = [["host", *boards]]
    if kind == "views" and random.randrange(2):
        plan.groups = [["host", name] for name in boards]
    plan.family = random.choice((FAMILY_BSP, FAMILY_BSP, FAMILY_MVDS))
    for name in boards:
        serial = random.randrange(2) == 0
        plan.links.append(
            LinkPlan(
                "host",
                name,
                CARRIER_SERIAL if serial else CARRIER_MQTT,
                _profile(random, plan.family),
                random.choice((BATCH, BATCH, INTERACTIVE)),
                300_000,
                FIELD_PERIOD_MS,
                queue=not serial and random.randrange(2) == 0,
            )
        )
    _readings(plan, random, boards, days)
    (_make_room if kind == "field" else _remember)(plan)
    _line_faults(plan, random, 6)
    _power_faults(plan, random, boards, days // 4)
    _client_faults(plan, random, days)
    if kind == "views":
        _view_faults(plan, random, days)
        plan.steps = [step for step in plan.steps if _may(plan, step)]
    return plan


def _may(plan: Plan, step: Step) -> bool:
    """Whether who publishes is a member."""
    return step.kind != "publish" or step.args[0] in plan.groups[step.args[1]]


def _readings(plan: Plan, random: Random, boards: list[str], days: int) -> None:
    """What boards measure, and what the host says now and then."""
    per_day = random.choice((6, 12, 24))
    for number, name in enumerate(boards):
        group = number % len(plan.groups)
        for _ in range(per_day * days):
            args = (name, group, random.choice((12, 24, 40, 100)), 0)
            plan.steps.append(Step(random.randrange(plan.end_ms), "publish", args))
    for number in range(days // 2):
        args = ("host", number % len(plan.groups), 60, 0)
        plan.steps.append(Step(random.randrange(plan.end_ms), "publish", args))


def _view_faults(plan: Plan, random: Random, count: int) -> None:
    """Boards, mostly, hide their group for up to a quarter of the run, or only accept of it."""
    for _ in range(count):
        at = random.randrange(plan.end_ms)
        until = min(at + random.randrange(1, plan.end_ms // 4), plan.end_ms)
        side = 0 if random.randrange(4) == 0 else 1
        view = random.choice((INVISIBLE, VISIBLE))
        number = random.randrange(len(plan.links))  # of a board
        args = (number, side, number % len(plan.groups), view, until)
        plan.steps.append(Step(at, "view", args))


def _profile(random: Random, family: int) -> int:
    if family == FAMILY_MVDS:
        return PROFILE_MVDS_1
    return random.choice((PROFILE_BSP_1, PROFILE_BSP_1, PROFILE_COMPACT_1))


# --- fast and rough ---


def _storm(seed: int, random: Random, sticks: bool, small: bool = False) -> Plan:
    count = 2 + random.randrange(2 if small else 4)
    names = [f"n{number}" for number in range(count)]
    minutes = 1 + random.randrange(2) if small else 4 + random.randrange(16)
    kind = "sticks" if sticks else "small" if small else "storm"
    plan = Plan(seed, kind, minutes * MINUTE_MS, 250 if small else 500)
    plan.save_ms = random.choice((1_000, 5_000, 60_000))
    plan.reorder = random.randrange(2) == 0
    plan.family = FAMILY_BSP if sticks else random.choice((FAMILY_BSP, FAMILY_BSP, FAMILY_MVDS))
    for name in names:
        plan.nodes[name] = _any_spec(random)
    plan.groups.append(names)
    edges = _edges(random, names)
    if random.randrange(3) == 0 and count > 2:
        some = random.sample(names, count - 1)
        if sticks or _joined(some, edges):
            plan.groups.append(sorted(some))
    _lines(plan, random, edges[1:] if sticks else edges)
    if sticks:
        _carry(plan, random, names)
    sizes = (0, 8, 20, 60, 200, 1_200) if small else (0, 8, 20, 60, 200, 800, 2_000, 8_000)
    for _ in range(8 + random.randrange(24) if small else 20 + random.randrange(100)):
        size = random.choice(sizes)
        group = random.randrange(len(plan.groups))
        name = random.choice(plan.groups[group])
        args = (name, group, size, random.choice((0, 0, 0, 2, 2)))
        plan.steps.append(Step(random.randrange(plan.end_ms), "publish", args))
    plan.tight = not sticks and not small and random.randrange(6) == 0
    if not plan.tight:
        _make_room(plan)
    _line_faults(plan, random, 3 * len(plan.links))
    _power_faults(plan, random, names, random.randrange(12))
    _client_faults(plan, random, random.randrange(20))
    return plan


def _lines(plan: Plan, random: Random, edges: list[tuple[str, str]]) -> None:
    """A line or a broker for each of these pairs."""
    for a, b in edges:
        carrier = random.choice((CARRIER_SERIAL, CARRIER_MQTT))
        profile = _profile(random, plan.family)
        mode = random.choice((BATCH, INTERACTIVE, AUTO))
        back_epoch_ms = random.choice((0, 0, 3_000))
        size_max = random.choice((1024, 1024, 256, 100))
        queue = random.randrange(4) == 0
        plan.links.append(
            LinkPlan(a, b, carrier, profile, mode, 1_000, back_epoch_ms, size_max, queue)
        )


def _make_room(plan: Plan) -> None:
    """Give every log room for all that is published: two full logs wait for each other for ever.

    A tight world has not got it: in it nothing may break, but not everything must come.
    """
    sizes = [step.args[2] for step in plan.steps if step.kind == "publish"]
    total = sum(min(size, INLINE_SIZE_MAX) + 400 for size in sizes)
    for name, spec in plan.nodes.items():
        segments = max(spec.segments, 8 + 2 * total // spec.segment_size)
        many = max(spec.filter_size, FILTER_SIZE_MAX if len(sizes) > 400 else 0)
        plan.nodes[name] = replace(
            spec, segments=segments, body_files=min(len(sizes), 400) + 4, filter_size=many
        )


def _remember(plan: Plan) -> None:
    """Give each small log a ring that holds the ids of all that is published.

    What a ring has forgotten, oldest first, is unknown again: the store's stated bound.
    """
    size = _GONE_ID_SIZE * sum(step.kind == "publish" for step in plan.steps)
    for name, spec in plan.nodes.items():
        ring = size // spec.segment_size + 1
        segments = max(spec.segments, (ring - GONE_SPARE) * GONE_SHARE)
        plan.nodes[name] = replace(spec, segments=segments)


def _any_spec(random: Random) -> Spec:
    pool = random.choice((1, 2, 4, 8, 16, 32))
    return Spec(
        store="sqlite" if random.randrange(4) == 0 else "flash",
        pool=pool,
        offers=random.choice((2, 4, 8, 16)),
        segment_size=random.choice((1_536, 2_048, 4_096)),
        segments=random.choice((8, 16, 48)),
        pending=random.choice((2, 8, 32)),
        body_files=random.choice((4, 8, 16)),
        drift_ppm=random.choice((0, 0, 100, -100)),
        judges=True,
    )


def _edges(random: Random, names: list[str]) -> list[tuple[str, str]]:
    """A connected graph: a tree, and some more edges."""
    edges = [(names[random.randrange(at)], names[at]) for at in range(1, len(names))]
    for at, name in enumerate(names):
        for other in names[at + 1 :]:
            if (name, other) not in edges and random.randrange(4) == 0:
                edges.append((name, other))
    return edges


def _joined(names: list[str], edges: list[tuple[str, str]]) -> bool:
    """Whether these nodes reach each other without any other's help."""
    reached = {names[0]}
    for _ in names:
        reached |= {b for a, b in edges if a in reached and b in names}
        reached |= {a for a, b in edges if b in reached and a in names}
    return len(reached) == len(names)


def _carry(plan: Plan, random: Random, names: list[str]) -> None:
    """Every node meets every other by stick; sticks make their rounds, also once in the end."""
    for at, name in enumerate(names):
        for other in names[at + 1 :]:
            plan.links.append(LinkPlan(name, other, CARRIER_STICK, PROFILE_BSP_1, BATCH, 0))
    plan.sticks = 1 + random.randrange(2)
    now = 0
    while now < plan.end_ms:
        now += 2_000 + random.randrange(40_000)
        stick = random.randrange(plan.sticks)
        if random.randrange(12) == 0:
            bits = random.randrange(1 << 30)
            plan.steps.append(Step(now, random.choice(("spoil", "keep", "old")), (stick, bits)))
        pulled = random.randrange(8) if random.randrange(8) == 0 else -1
        plan.steps.append(Step(now, "stick", (stick, random.choice(names), pulled)))


# --- stores and keys that are lost, set back, changed and copied ---


def _resets(seed: int, random: Random) -> Plan:
    """A small storm, or one with sticks, in which no client deletes and none lies.

    Either stores are wiped and restored, or keys are copied: who has the keys of a device that
    was wiped can acknowledge what it lost, and nobody can tell. Where a backup is put back keys
    are not changed: one that is older than the change has to be provisioned again.
    """
    sticks = random.randrange(3) == 0
    plan = _storm(seed, random, sticks, not sticks)
    plan.kind = "resets"
    plan.family = FAMILY_BSP if sticks else plan.family
    for name, spec in plan.nodes.items():
        plan.nodes[name] = replace(spec, judges=True, pool=max(spec.pool, RESETS_POOL_MIN))
    gone = ("delete", "wall")
    plan.steps = [
        step
        for step in plan.steps
        if step.kind not in gone and not (step.kind == "publish" and step.args[3] == 1)
    ]
    how = random.choice(("clone", "wipe", "restore", "restore"))
    hosts = [name for name, spec in plan.nodes.items() if spec.store == "sqlite"]
    for _ in range(1 + random.randrange(3)):
        at = random.randrange(plan.end_ms // 4, plan.end_ms)
        name = random.choice(list(plan.nodes))
        number = random.randrange(len(plan.links))
        if how == "clone":
            plan.steps.append(Step(at, "clone", (number, random.randrange(2))))
        elif how == "restore" and hosts:
            name = random.choice(hosts)
            plan.steps.append(Step(random.randrange(at), "backup", (name,)))
            plan.steps.append(Step(at, "restore", (name,)))
        else:
            plan.steps.append(Step(at, "wipe", (name,)))
        if random.randrange(2) and not (how == "restore" and hosts):
            plan.steps.append(Step(random.randrange(plan.end_ms), "rotate", (number,)))
    return plan


# --- boards whose windows must find each other ---


def _plans(seed: int, random: Random) -> Plan:
    count = 2 + random.randrange(2)
    names = [f"s{number}" for number in range(count)]
    hours = 12 + random.randrange(36)
    plan = Plan(seed, "plans", hours * 60 * MINUTE_MS, 500, save_ms=FIELD_PERIOD_MS)
    window_ms = 20_000
    duty = Duty(FIELD_PERIOD_MS, window_ms, plan=True, contact_ms=4_000)
    for name in names:
        plan.nodes[name] = Spec(duty=duty, drift_ppm=random.choice((0, 20, -20, 200, -200)))
    plan.groups.append(names)
    for number in range(1, count):
        plan.links.append(
            LinkPlan(
                names[random.randrange(number)],
                names[number],
                CARRIER_SERIAL,
                PROFILE_BSP_1,
                random.choice((BATCH, INTERACTIVE)),
                2_000,
            )
        )
    for _ in range(hours * 2):
        args = (random.choice(names), 0, 30, 0)
        plan.steps.append(Step(random.randrange(plan.end_ms), "publish", args))
    _line_faults(plan, random, 3)
    _power_faults(plan, random, names, random.randrange(4))
    return plan


# --- faults ---


def _line_faults(plan: Plan, random: Random, changes: int) -> None:
    """Rates that change, partitions, one-way lines; in a quarter of the seeds there are none."""
    if not plan.links or random.randrange(4) == 0:
        return
    live = [number for number, link in enumerate(plan.links) if link.carrier != CARRIER_STICK]
    for number in live:
        rates = draw_rates(random, plan.links[number].epoch_ms)
        back = rates if random.randrange(2) else draw_rates(random, plan.links[number].epoch_ms)
        plan.steps.append(Step(0, "rates", (number, rates, back)))
    for _ in range(changes if live else 0):
        number = random.choice(live)
        at = random.randrange(plan.end_ms)
        epoch_ms = plan.links[number].epoch_ms
        what = random.randrange(4)
        if what == 0:
            until = at + random.randrange(1 + (plan.end_ms - at) // 2)
            plan.steps.append(Step(at, "down", (number, until)))
        elif what == 1:
            deaf = Rates(loss=1024)
            args = (number, deaf, Rates()) if random.randrange(2) else (number, Rates(), deaf)
            plan.steps.append(Step(at, "rates", args))
        elif what == 2:
            plan.steps.append(
                Step(at, "mode", (number, random.choice((BATCH, INTERACTIVE, AUTO))))
            )
        else:
            args = (number, draw_rates(random, epoch_ms), draw_rates(random, epoch_ms))
            plan.steps.append(Step(at, "rates", args))


def _power_faults(plan: Plan, random: Random, names: list[str], count: int) -> None:
    """Cuts at a flash step to come, torn or not, some with another one in the recovery."""
    for _ in range(count if random.randrange(4) else 0):
        again = 1 + random.randrange(12) if random.randrange(3) == 0 else 0
        args = (random.choice(names), 1 + random.randrange(60), random.randrange(3), again)
        kind = "plug" if random.randrange(6) == 0 else "cut"
        plan.steps.append(Step(random.randrange(plan.end_ms), kind, args))


def _client_faults(plan: Plan, random: Random, count: int) -> None:
    """Deletions, messages that are not valid, clocks that jump."""
    names = list(plan.nodes)
    if random.randrange(2):
        for _ in range(count):
            args = (random.choice(names), random.randrange(1 << 16))
            plan.steps.append(Step(random.randrange(plan.end_ms), "delete", args))
    if random.randrange(3) == 0:
        liar = random.choice(names)
        plan.nodes[liar] = _liar(plan.nodes[liar])
        for _ in range(1 + count // 4):
            lie = (liar, 0, 30, 1)
            plan.steps.append(Step(random.randrange(plan.end_ms), "publish", lie))
    if random.randrange(3) == 0:
        for _ in range(1 + count // 4):
            jump = random.choice((-1, 1)) * random.choice((3_600_000, 10**12, 50 * 365 * DAY_MS))
            args = (random.choice(names), jump)
            plan.steps.append(Step(random.randrange(plan.end_ms), "wall", args))


def _liar(spec: Spec) -> Spec:
    """The same node with a client that finds everything valid."""
    return replace(spec, judges=False)
