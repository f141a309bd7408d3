"""The seven simulations of the mobile paper, and their two questions: what of bandwidth, how late?

1 two people · 2 the same with a mailserver that is there 90 % of the time · 3 a hundred people
· 4 the same over multicast · 5 multicast and mailserver · 6 random pairs with Bloom filters
· 7 those and a mailserver. Everybody is online 10 % of the time; specs/NOTES.md has the rest.
"""

import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from drupelet_tools.sim import paper_naive
from drupelet_tools.sim.paper_world import TICK_MS, Outcome, PaperWorld, Setting

SEEDS_SMALL = 200
SEEDS_LARGE = 3
# Half of a 95 % interval that is wide enough to stop at, as a share of the mean.
INTERVAL_SHARE = 0.1
SEEDS_MAX = 2000
PAIRWISE = ("naive", "bsp-1", "bsp-1+offers", "mvds-1", "compact-1", "compact-1+offers", "bloom")
_LARGE = ("naive", "bsp-1", "bsp-1+offers", "compact-1", "compact-1+offers")
NAMES = {
    1: "1-1 chat", 2: "1-1 chat, mailserver", 3: "large chat", 4: "large chat, multicast",
    5: "large chat, multicast, mailserver", 6: "large chat, bloom filters",
    7: "large chat, bloom filters, mailserver",
}  # fmt: skip
PROTOCOLS = {
    1: PAIRWISE, 2: PAIRWISE, 3: _LARGE, 4: ("topic",), 5: ("topic",), 6: ("bloom",),
    7: ("bloom",),
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """One row: means over seeds; intervals are 95 % of the mean, half their width."""

    simulation: int
    name: str
    protocol: str
    people: int
    window_s: int
    seeds: int
    multiplier_records: float
    multiplier_bytes: float
    multiplier_bytes_interval: float
    latency_median_h: float
    latency_p90_h: float
    latency_p90_interval_h: float


def setting_of(simulation: int, protocol: str, people: int, window_s: int) -> Setting:
    """The parameters of one of the seven."""
    return Setting(
        protocol, 2 if simulation <= 2 else people, max(window_s * 1000 // TICK_MS, 1),
        relay=simulation in (2, 5, 7),
    )  # fmt: skip


def run_one(work: tuple[Setting, int]) -> Outcome:
    """One seed of one setting."""
    setting, seed = work
    if setting.protocol == "naive":
        return paper_naive.run(setting, seed)
    return PaperWorld(setting, seed).run()


def _quantile(sorted_values: Sequence[int], share: float) -> float:
    return float(sorted_values[min(int(len(sorted_values) * share), len(sorted_values) - 1)])


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean (normal; the seeds are many)."""
    if len(values) < 2:
        return math.inf
    return 1.96 * statistics.stdev(values) / math.sqrt(len(values))


def answer(
    simulation: int, setting: Setting, seeds: int, runs: Callable[[Iterable[int]], list[Outcome]]
) -> Answer:
    """Run seeds until both intervals are within 10 % of their means; at least `seeds` of them."""
    outcomes: list[Outcome] = []
    while True:
        outcomes += runs(range(len(outcomes), len(outcomes) + seeds))
        spent = [outcome.multiplier_bytes for outcome in outcomes]
        late = [_quantile(sorted(outcome.latencies), 0.9) for outcome in outcomes]
        wide = any(
            interval(values) > INTERVAL_SHARE * statistics.mean(values) for values in (spent, late)
        )
        if not wide or len(outcomes) >= SEEDS_MAX:
            break
    hours = TICK_MS / 3_600_000
    middle = statistics.mean(statistics.median(outcome.latencies) for outcome in outcomes)
    return Answer(
        simulation, NAMES[simulation], setting.protocol, setting.people,
        setting.window_ticks * TICK_MS // 1000, len(outcomes),
        round(statistics.mean(outcome.multiplier_records for outcome in outcomes), 2),
        round(statistics.mean(spent), 2), round(interval(spent), 3),
        round(middle * hours, 2), round(statistics.mean(late) * hours, 2),
        round(interval(late) * hours, 2),
    )  # fmt: skip


def answers(
    simulations: Sequence[int], protocols: Sequence[str], people: int, windows_s: Sequence[int],
    seeds: int, jobs: int, say: Callable[[Answer], None],
) -> list[Answer]:  # fmt: skip
    """All rows, each told as soon as it is known; `jobs` processes share the seeds."""
    rows = []
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for simulation in simulations:
            for protocol in protocols or PROTOCOLS[simulation]:
                for window_s in windows_s:
                    setting = setting_of(simulation, protocol, people, window_s)
                    wanted = seeds or (SEEDS_SMALL if simulation <= 2 else SEEDS_LARGE)

                    def runs(numbers: Iterable[int], setting: Setting = setting) -> list[Outcome]:
                        return pool.map(run_one, [(setting, seed) for seed in numbers], 1)

                    row = answer(simulation, setting, wanted, runs)
                    say(row)
                    rows.append(row)
    return rows


def as_dict(row: Answer) -> dict[str, object]:
    """A row for JSON."""
    return asdict(replace(row))
