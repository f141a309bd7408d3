"""Seeds of every kind: the plan of one, and what it comes to."""

from collections.abc import Callable

from drupelet_tools.sim.channel_seed import run_channel
from drupelet_tools.sim.faults import Plan, draw_plan
from drupelet_tools.sim.run import Result, run_plan
from drupelet_tools.sim.yearly import WEEK, yearly_plan


def plan_of(seed: int, kind: str = "") -> Plan:
    """The plan of a seed, of any kind."""
    if kind in ("yearly", "week"):
        return yearly_plan(seed, days=WEEK) if kind == "week" else yearly_plan(seed)
    return draw_plan(seed, kind)


def run_seed(
    seed: int, kind: str = "", only: set[int] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Result:  # fmt: skip
    """Run a seed; `only`: the numbers of the steps that are kept."""
    if kind == "channel":
        return run_channel(seed)
    plan = plan_of(seed, kind)
    if only is not None:
        plan = plan.without(set(range(len(plan.steps))) - only)
    return run_plan(plan, trace)
