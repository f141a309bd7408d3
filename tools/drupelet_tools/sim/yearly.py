"""The steady case: boards that wake every quarter of an hour beside a host, for weeks.

Few faults of each kind, but all the time; what device-years and deliveries are counted on.
"""

from random import Random

from drupelet.link.link import CARRIER_MQTT, CARRIER_SERIAL
from drupelet_tools.sim.carriers import Rates
from drupelet_tools.sim.device import Duty, Spec
from drupelet_tools.sim.faults import DAY_MS, FIELD_PERIOD_MS, LinkPlan, Plan, Step
from drupelet_tools.sim.run import Result, Run, attempt

BOARDS = 5
DAYS = 37
# The same for a shorter time, as the kind `week`: finding things in a short log is quicker.
WEEK = 7
READINGS_PER_DAY = 12
# The host has room for everything that is published; a board's own 256 KB are full after three
# weeks of this, and it drops what all hold.
HOST_SEGMENTS = 128
SEGMENTS = 64
SEGMENT_SIZE = 4096
# Else most searches for an id that is not there go through the whole log.
FILTER_SIZE = 8192


def yearly_plan(
    seed: int, boards: int = BOARDS, days: int = DAYS, per_day: int = READINGS_PER_DAY
) -> Plan:  # fmt: skip
    """So many boards, each with readings at random times, a cut a week, a tenth of frames lost."""
    random = Random(f"yearly {seed}")
    plan = Plan(
        seed, "week" if days == WEEK else "yearly", days * DAY_MS, 400, save_ms=FIELD_PERIOD_MS
    )
    plan.nodes["host"] = Spec(
        pool=16, segments=HOST_SEGMENTS, segment_size=SEGMENT_SIZE, filter_size=FILTER_SIZE
    )
    names = [f"b{number}" for number in range(boards)]
    for name in names:
        plan.nodes[name] = Spec(
            pool=8, offers=8, segments=SEGMENTS, segment_size=SEGMENT_SIZE,
            filter_size=FILTER_SIZE, duty=Duty(),
        )  # fmt: skip
    plan.groups = [["host", *names]]
    for number, name in enumerate(names):
        carrier = random.choice((CARRIER_SERIAL, CARRIER_MQTT))
        plan.links.append(
            LinkPlan("host", name, carrier, 0, random.randrange(2), 300_000, FIELD_PERIOD_MS)
        )
        rates = Rates(loss=random.randrange(200), dup=20, reorder=20, burst=random.randrange(8))
        plan.steps.append(Step(0, "rates", (number, rates, rates)))
        for _ in range(per_day * days):
            at_ms = random.randrange(plan.end_ms)
            plan.steps.append(Step(at_ms, "publish", (name, 0, 24, 0)))
        for _ in range(days // 7):
            cut = (name, 1 + random.randrange(60), random.randrange(3), 0)
            plan.steps.append(Step(random.randrange(plan.end_ms), "cut", cut))
    plan.steps.sort(key=lambda step: step.at_ms)
    return plan


def run_yearly(seed: int, boards: int = BOARDS, days: int = DAYS) -> Result:
    """Run such a world; a board counts as a device, the host too."""
    return attempt(Run(yearly_plan(seed, boards, days)))
