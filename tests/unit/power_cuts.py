"""Power cuts at every write of a store, also while it recovers from one.

    for name in SCENARIOS:
        for plan in plans(name, seed):
            violations = run(plan)      # [] when all is well

A scenario is played once per process on a flash that keeps what it holds before each step; a plan
says at which step the power goes, whether the step was not begun, half done or done, by which seed
unflushed bytes survive, and at which step of the recovery the power goes again. With an odd seed
unflushed bytes reach the flash in any order. So a plan costs one boot, and any is run alone.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from drupelet.base.errors import OK
from drupelet.store.files import Files
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELETED, STATE_DELIVERED, STATE_PENDING
from unit.cut_files import AFTER, BEFORE, TORN, CutFiles, Image, PowerCut
from unit.power_cuts_model import (
    ABSENT,
    EDGES,
    GROUP,
    Model,
    Run,
    body_of,
    key_of,
    make_store,
    message_id,
    state_of,
)
from unit.power_cuts_scenarios import SCENARIOS

# What goes wrong inside the store counts as a violation, too.
BROKEN = (AssertionError, LookupError, ArithmeticError, TypeError, ValueError, AttributeError)


# --- what must hold after any cut ---


def check(model: Model, store: FlashStore, files: Files) -> None:
    """What is on the flash is what the model allows; nothing is half there or there twice."""
    places = {}
    for number, possible in model.possible.items():
        places[number] = store.find(message_id(number), 0)
        state = state_of(store, number, places[number])
        assert state in possible, (number, state, sorted(possible))
        if number in model.kept and state == STATE_DELETED:
            assert store.missing, "it is deleted, and somebody may offer it"
    assert bytes(store.saved[: store.saved_size]) in model.saved, "the wake state"
    ids = []
    handle = store.next(0)
    while handle:
        assert store.load(handle) == OK, "in the log, but not there"
        if handle == places.get(store.id[1]):
            check_body(model, store, handle)
        else:
            assert store.state == STATE_DELETED, "not where its id leads"
        ids.append(bytes(store.id))
        after = store.next(handle)
        assert after == 0 or after > handle
        handle = after
    assert len(ids) == len(set(ids)), "a message is in the log twice"
    handle = store.next_pending(0)
    while handle:
        assert store.load(handle) == OK and store.state == STATE_PENDING
        assert bytes(store.id) not in ids, "it waits, and is in the log"
        check_body(model, store, handle)
        handle = store.next_pending(handle)
    assert sum(name.endswith(".BOD") for name in files.names()) <= 3
    check_members(model, store, {number for number, place in places.items() if place})


def check_members(model: Model, store: FlashStore, found: set[int]) -> None:
    for (kind, key), number in model.durable_members.items():
        assert store.member(kind, key, 0, len(key)) == number, "its number is another one"
        if kind == GROUP and number != model.leaving:
            check_descriptor(model, store, number)
    if model.leaving:
        present = [n for n, its in model.groups.items()
                   if its == model.leaving and n in found]  # fmt: skip
        had = [n for n, its in model.groups.items()
               if its == model.leaving and model.possible[n] != {ABSENT}]  # fmt: skip
        assert present in ([], had), "half a group was left"
    if (GROUP, key_of(1)) in model.durable_members and model.own_durable:
        mine = store.dropped(1)
        handle = store.next(0)
        while handle:
            assert store.load(handle) == OK
            mine += store.group == 1 and not store.source
            handle = store.next(handle)
        assert mine >= model.own_durable, "messages of our own are not counted"


def check_descriptor(model: Model, store: FlashStore, number: int) -> None:
    size = store.spool.descriptor_size(number)
    allowed = model.descriptors.get(number, b"").split(b"|")
    buf = bytearray(max(size, 0))
    if size >= 0:
        assert store.spool.descriptor_read_into(number, 0, buf, 0, size) == size
    assert bytes(buf) in allowed, "the descriptor"


def check_body(model: Model, store: FlashStore, handle: int) -> None:
    number = store.id[1]
    body = body_of(number)
    assert store.timestamp == number.to_bytes(8) and store.source in (0, 2)
    assert store.group == model.groups.get(number, 1)
    buf = bytearray(1200)
    if store.state == STATE_DELETED:
        assert store.size == 0
        assert store.edges_size == store.read_into(handle, 0, buf, 0, 1200)
        assert store.edges_size in (0, len(EDGES))
    else:
        assert store.size == len(body) == store.read_into(handle, 0, buf, 0, 1200)
        assert buf[: len(body)] == body


def go_on(model: Model, store: FlashStore, files: CutFiles) -> None:
    """The store works after all that: one more message survives another cut."""
    files.capacity = 1 << 20
    for group in range(8):
        store.settled[group] = 1 << 29
    model.settled |= {number for number, state in model.now.items() if state != STATE_PENDING}
    for number in model.settled:
        if number in model.possible:
            model.possible[number] |= model.sure(number, model.now[number])
    body = body_of(99)
    code = store.put(1, 2, message_id(99), 0, (99).to_bytes(8), 0, body, 0, len(body), 1)
    assert code > 0, "nothing can be stored any more"
    assert store.barrier() == OK
    model.possible[99] = frozenset((STATE_DELIVERED,))
    model.saved = (bytes(store.saved[: store.saved_size]),)
    files.power_on(0)
    store = make_store(files)
    assert store.open() >= 0
    assert state_of(store, 99) == STATE_DELIVERED, "what is new is lost"
    for number, possible in model.possible.items():
        if number < 100 and len(possible) == 1:
            assert state_of(store, number) in possible, number


# --- plans ---


@dataclass(frozen=True)
class Plan:
    """One trial. `again`, `again_moment`: the step of the recovery that is cut, -1 for none."""

    scenario: str
    step: int
    moment: int
    seed: int = 0
    again: int = -1
    again_moment: int = BEFORE


@cache
def recorded(scenario: str) -> list[tuple[Image, Image, Image, Model]]:
    """Of each step the flash before, inside and after it, and what the model knew then."""
    files = CutFiles()
    run = Run(files)
    steps: list[tuple[Image, Image, Image, Model]] = []
    files.on_step = lambda before, torn, after: steps.append(
        (before, torn, after, Model.copy(run))
    )
    playing = SCENARIOS[scenario](run)
    files.recording = False
    next(playing)
    files.recording = True
    for _ in playing:
        pass
    check(run, run.store, files)
    assert run.store.damaged == 0
    files.recording = False
    return steps


def plans(
    scenario: str, seed: int = 0, recovery: bool = True, twins: bool = True
) -> Iterator[Plan]:  # fmt: skip
    """Every step before, torn and after; and with `recovery` every step of each recovery so.

    Without `twins`, not after a step where before the next one is the same: no call has returned.
    """
    steps = recorded(scenario)
    for step, (before, torn, _, model) in enumerate(steps):
        for moment in (BEFORE, TORN, AFTER):
            if moment == TORN and torn is before:
                continue  # it is atomic
            last = step + 1 == len(steps)
            if (
                moment == AFTER
                and not twins
                and not last
                and vars(steps[step + 1][3]) == vars(model)
            ):
                continue
            plan = Plan(scenario, step, moment, seed)
            yield plan
            for again in range(_recovery_steps(plan) if recovery else 0):
                for again_moment in (BEFORE, TORN, AFTER):
                    yield replace(plan, again=again, again_moment=again_moment)


def _after_cut(plan: Plan) -> CutFiles:
    """The flash as the first cut left it."""
    files = CutFiles()
    rng = random.Random(f"{plan.scenario} {plan.step} {plan.moment} {plan.seed}")
    files.restore(recorded(plan.scenario)[plan.step][plan.moment], rng, bool(plan.seed & 1))
    return files


def _recovery_steps(plan: Plan) -> int:
    files = _after_cut(plan)
    files.capacity = 1 << 20
    try:
        make_store(files).open()
    except BROKEN:
        return 0  # the plan without a second cut says so
    return files.steps


def run(plan: Plan) -> list[str]:
    """What is wrong after the cuts of a plan; nothing, if all is well."""
    try:
        files = _after_cut(plan)
        model = recorded(plan.scenario)[plan.step][3].copy()
        if plan.again >= 0:
            files.cut_at, files.moment = plan.again, plan.again_moment
            try:
                make_store(files).open()
                raise AssertionError("the second cut did not come")
            except PowerCut:
                files.power_on(0)
        store = make_store(files)
        assert store.open() >= 0, "it does not open"
        check(model, store, files)
        go_on(model, store, files)
    except BROKEN as error:
        return [f"{plan}: {type(error).__name__} {error}"]
    return []


# --- a flash that refuses, a heap that is full ---


def play(scenario: str, refusals: Callable[[int], int]) -> Run:
    """Play a scenario to its end on a flash that may refuse: `refusals` of each step's number."""
    files = CutFiles()
    run = Run(files)
    playing = SCENARIOS[scenario](run)
    next(playing)
    files.steps = 0
    run.working = False
    run.forgets = True
    steps = -1

    def refusal() -> int:
        nonlocal steps
        steps += 1
        return refusals(steps)

    files.refusal = refusal
    for _ in playing:
        pass
    files.refusal = None
    return run
