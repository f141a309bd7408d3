"""The seven simulations of the mobile paper, and their two questions: what of bandwidth, how late?

1 two people · 2 the same with a mailserver that is there 90 % of the time · 3 a hundred people
· 4 the same over multicast · 5 multicast and mailserver · 6 random pairs with Bloom filters
· 7 those and a mailserver. Everybody is online 10 % of the time; specs/NOTES.md has the rest.
"""

import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from drupelet_tools.sim import paper_naive, paper_sds
from drupelet_tools.sim.growing_store import collect_seldom
from drupelet_tools.sim.paper_world import TICK_MS, Outcome, PaperWorld, Setting

SEEDS_SMALL = 200
SEEDS_LARGE = 3
# Half of a 95 % interval that is wide enough to stop at, as a share of the mean.
INTERVAL_SHARE = 0.1
SEEDS_MAX = 2000
PAIRWISE = ("naive", "bsp-1", "bsp-1+offers", "mvds-1", "compact-1", "compact-1+offers", "bloom")
# Without offers a hundred people send each other what they hold already, and that takes hours.
_LARGE = ("naive", "bsp-1+offers", "compact-1+offers")
NAMES = {
    1: "1-1 chat", 2: "1-1 chat, mailserver", 3: "large chat", 4: "large chat, multicast",
    5: "large chat, multicast, mailserver", 6: "large chat, bloom filters",
    7: "large chat, bloom filters, mailserver",
}  # fmt: skip
# SDS is a broadcast: of large chats it belongs to those over multicast.
SDS = ("sds", "sds+repair")
# What is run unless protocols are named; with a name, any of `KNOWN`.
PROTOCOLS = {
    1: (*PAIRWISE, *SDS), 2: (*PAIRWISE, *SDS), 3: _LARGE, 4: ("topic", *SDS), 5: ("topic", *SDS),
    6: ("bloom",), 7: ("bloom",),
}  # fmt: skip
KNOWN = {**PROTOCOLS, 3: PAIRWISE}
WINDOWS_S = {1: (300, 30), 2: (300, 30)}  # a large chat's is the paper's 5 minutes
WINDOW_S = 300
# Student's, two-sided 95 %, by degrees of freedom; from the last on as good as the normal one.
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14,
            2.13, 2.12, 2.11, 2.10, 2.09, 2.09)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """One row: means over seeds; intervals are 95 % of the mean, half their width.

    None: there is none, as nothing was delivered, or there is one seed only to have an interval.
    """

    simulation: int
    name: str
    protocol: str
    people: int
    window_s: int
    seeds: int
    delivered: float  # the share of what was to be delivered; latencies are of that
    copies: float | None  # MESSAGE records sent per delivery
    multiplier_records: float | None
    multiplier_bytes: float | None
    multiplier_bytes_interval: float | None
    latency_median_h: float | None
    latency_p90_h: float | None
    latency_p90_interval_h: float | None
    cpu_s: float  # of all seeds together


Work = Sequence[tuple[Setting, int]]
Runs = Callable[[Work], list[Outcome]]


def setting_of(simulation: int, protocol: str, people: int, window_s: int) -> Setting:
    """The parameters of one of the seven."""
    return Setting(
        protocol, 2 if simulation <= 2 else people, max(window_s * 1000 // TICK_MS, 1),
        relay=simulation in (2, 5, 7),
    )  # fmt: skip


def run_seed(work: tuple[Setting, int]) -> Outcome:
    """One seed of one setting."""
    setting, seed = work
    started_s = time.process_time()
    if setting.protocol == "naive":
        outcome = paper_naive.run(setting, seed)
    elif setting.protocol in SDS:
        outcome = paper_sds.run(setting, seed)
    else:
        outcome = PaperWorld(setting, seed).run()
    outcome.cpu_s = time.process_time() - started_s
    return outcome


def _quantile(sorted_values: Sequence[int], share: float) -> float:
    return float(sorted_values[min(int(len(sorted_values) * share), len(sorted_values) - 1)])


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean (Student's); of one value it is infinite."""
    free = len(values) - 1
    if free < 1:
        return math.inf
    wide = _STUDENT[free - 1] if free <= len(_STUDENT) else 1.96
    return wide * statistics.stdev(values) / math.sqrt(len(values))


def answer(
    simulation: int, setting: Setting, seeds: int, seeds_max: int,
    runs: Runs,
) -> Answer:  # fmt: skip
    """Run seeds until both intervals are within 10 % of their means; at least `seeds` of them."""
    outcomes: list[Outcome] = []
    while True:
        first = len(outcomes)
        outcomes += runs([(setting, seed) for seed in range(first, first + seeds)])
        # Costs and latencies are means over these seeds; a seed that delivers nothing has neither.
        some = [outcome for outcome in outcomes if outcome.latencies]
        spent = [outcome.multiplier_bytes for outcome in some]
        late = [_quantile(sorted(outcome.latencies), 0.9) for outcome in some]
        wide = not some or any(
            interval(values) > INTERVAL_SHARE * statistics.mean(values) for values in (spent, late)
        )
        if not wide or len(outcomes) + seeds > seeds_max:
            break
    hours = TICK_MS / 3_600_000
    return Answer(
        simulation, NAMES[simulation], setting.protocol, setting.people,
        setting.window_ticks * TICK_MS // 1000, len(outcomes),
        round(statistics.mean(outcome.delivered for outcome in outcomes), 4),
        _rounded(_mean([outcome.copies / len(outcome.latencies) for outcome in some]), 2),
        _rounded(_mean([outcome.multiplier_records for outcome in some]), 2),
        _rounded(_mean(spent), 2), _rounded(interval(spent), 3),
        _rounded(_mean([statistics.median(outcome.latencies) for outcome in some]) * hours, 2),
        _rounded(_mean(late) * hours, 2), _rounded(interval(late) * hours, 2),
        round(sum(outcome.cpu_s for outcome in outcomes), 1),
    )  # fmt: skip


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values) if values else math.inf


def _rounded(value: float, places: int) -> float | None:
    return round(value, places) if math.isfinite(value) else None


def answers(
    simulations: Sequence[int], protocols: Sequence[str], people: int, windows_s: Sequence[int],
    seeds: int, seeds_max: int, runs: Runs, say: Callable[[Answer], None],
) -> list[Answer]:  # fmt: skip
    """All rows, each told as soon as it is known; `runs` is one of `workers`."""
    rows = []
    for simulation in simulations:
        for protocol in protocols or PROTOCOLS[simulation]:
            for window_s in windows_s or WINDOWS_S.get(simulation, (WINDOW_S,)):
                setting = setting_of(simulation, protocol, people, window_s)
                wanted = seeds or (SEEDS_SMALL if simulation <= 2 else SEEDS_LARGE)
                row = answer(simulation, setting, wanted, seeds_max, runs)
                say(row)
                rows.append(row)
    return rows


@contextmanager
def workers(jobs: int, master: str) -> Iterator[Runs]:
    """What runs seeds: `jobs` processes, or a Spark cluster in `jobs` partitions."""
    if master:
        with _on_spark(master, jobs) as runs:
            yield runs
        return
    with multiprocessing.get_context("spawn").Pool(jobs, collect_seldom) as pool:

        def run_here(work: Work) -> list[Outcome]:
            return pool.map(run_seed, work, 1)

        yield run_here


@contextmanager
def _on_spark(master: str, partitions: int) -> Iterator[Runs]:
    """Few partitions, many seeds each; outcomes come back in the order of their seeds."""
    from pyspark.sql import SparkSession

    # Else the workers are whatever python3 is in the path, which may lack this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("drupelet sim paper")
    for setting in ("spark.ui.enabled", "spark.ui.showConsoleProgress"):
        builder = builder.config(setting, "false")
    session = builder.getOrCreate()
    try:
        context = session.sparkContext

        def run_there(work: Work) -> list[Outcome]:
            return context.parallelize(work, min(partitions, len(work))).map(run_seed).collect()

        yield run_there
    finally:
        session.stop()


def as_dict(row: Answer) -> dict[str, object]:
    """A row for JSON."""
    return asdict(replace(row))
