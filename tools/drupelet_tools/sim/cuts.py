"""Power-cut plans: one script of two nodes, cut at every step of the flash, in every way.

A script is a short world: a board that publishes, takes in, deletes and saves beside a peer in
RAM. It runs once to count the steps of the board's flash; then once per step and moment (before,
torn, after), some of them with a second cut at each early step of the recovery. Each of these runs
is a plan: the board boots, the script goes on, and in the end everything must be everywhere.
"""

from dataclasses import dataclass, field, replace
from random import Random

from drupelet.engine.members import FAMILY_BSP, FAMILY_MVDS
from drupelet.link.link import BATCH, CARRIER_SERIAL, INTERACTIVE
from drupelet.wire.profiles import PROFILE_BSP_1, PROFILE_COMPACT_1, PROFILE_MVDS_1
from drupelet_tools.sim.device import Spec
from drupelet_tools.sim.faults import LinkPlan, Plan, Step
from drupelet_tools.sim.run import Result, Run, attempt, run_plan

MOMENTS = 3
# Recoveries are cut at their first steps, too: a scan writes little.
RECOVERY_STEPS = 6
# One plan in so many has a second cut.
RECOVERY_EVERY = 4


@dataclass(slots=True)
class CutResult:
    """The plans of one script."""

    seed: int
    plans: int = 0
    steps: int = 0
    checks: int = 0
    deliveries: int = 0
    failures: list[str] = field(default_factory=list)


def draw_script(seed: int) -> Plan:
    """A script: the board is `a`, its peer `b`."""
    random = Random(f"cuts {seed}")
    family = random.choice((FAMILY_BSP, FAMILY_BSP, FAMILY_MVDS))
    plan = Plan(seed, "cuts", 6_000, 300, family, save_ms=random.choice((500, 2_000)))
    small = Spec(
        pool=random.choice((2, 4, 8)), offers=8, segments=random.choice((6, 8, 12)),
        segment_size=random.choice((1_280, 1_536, 2_048)), pending=4, body_files=6, peers_max=2,
        groups_max=2,
    )  # fmt: skip
    plan.nodes = {"a": small, "b": replace(small, segments=64, pool=16, body_files=16)}
    plan.groups = [["a", "b"]]
    profile = random.choice((PROFILE_BSP_1, PROFILE_COMPACT_1))
    if family == FAMILY_MVDS:
        profile = PROFILE_MVDS_1
    mode = random.choice((BATCH, INTERACTIVE))
    plan.links = [LinkPlan("a", "b", CARRIER_SERIAL, profile, mode, 500)]
    plan.reorder = random.randrange(2) == 0
    for number in range(4 + random.randrange(6)):
        at = 100 + number * 500 + random.randrange(400)
        name = random.choice(("a", "a", "b"))
        size = random.choice((5, 20, 60, 200, 700, 1_500))
        plan.steps.append(Step(at, "publish", (name, 0, size, 0)))
        if random.randrange(3) == 0:
            plan.steps.append(Step(at + 50, "delete", ("a", random.randrange(256))))
    plan.steps.sort(key=lambda step: step.at_ms)
    return plan


def uncut(plan: Plan) -> tuple[Result, int]:
    """The script with the power on, and how many steps the board's flash has in it."""
    run = Run(plan)
    return attempt(run), run.world.nodes["a"].files.steps


def cut_plan(plan: Plan, step: int, moment: int, again: int) -> Plan:
    """The script with the power going at a step (from 1), and in the recovery at step `again`."""
    cut = Step(-1, "cut", ("a", step, moment, again))
    return replace(plan, steps=[cut, *plan.steps])


def run_script(seed: int, every: int = 1) -> CutResult:
    """Every plan of a script, or each `every`-th one."""
    plan = draw_script(seed)
    whole, steps = uncut(plan)
    result = CutResult(seed, steps=steps)
    if whole.violation:
        result.failures.append(f"drupelet sim cuts --seed {seed}  # uncut: {whole.violation}")
    number = 0
    for step in range(1, result.steps + 1):
        for moment in range(MOMENTS):
            number += 1
            if number % every:
                continue
            again = 1 + number // RECOVERY_EVERY % RECOVERY_STEPS
            if number % RECOVERY_EVERY:
                again = 0
            plan_result = run_plan(cut_plan(plan, step, moment, again))
            result.plans += 1
            result.checks += plan_result.invariant_checks
            result.deliveries += plan_result.deliveries
            if plan_result.violation:
                result.failures.append(
                    f"drupelet sim cuts --seed {seed} --step {step} --moment {moment}"
                    f" --again {again}  # {plan_result.violation}"
                )
    return result
