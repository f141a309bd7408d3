"""Runs many seeds on all cores until the time is over, and power-cut plans between them.

A book is a file with one line of JSON per soak. A later soak with the same book continues with the
next seeds, and prints the totals of all soaks in the book.
"""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drupelet_tools.bounded import read_bounded
from drupelet_tools.sim import EACH, SOAK_KINDS
from drupelet_tools.sim.cuts import CutResult, run_script
from drupelet_tools.sim.minimise import command_for, minimise
from drupelet_tools.sim.run import Result
from drupelet_tools.sim.seeds import plan_of, run_seed

# The kind of a seed by its place in a round of seeds. The proportions let one soak reach the
# device-years, deliveries and power-cut plans that docs/simulator.md asks for in about the same
# time. "": the seed draws its kind.
TURNS = (
    "cuts", "week", "week", "cuts", "week", "resets", "cuts", "week", "cuts", "week",
    "cuts", "week", "", "cuts", "week", "cuts", "week", "channel", "cuts", "views",
)  # fmt: skip
# One in so many seeds is a month instead of a week.
MONTH_EVERY = 50
FIRST_SEED = 1_000_000
# The most runs in which a failing seed is made smaller.
MINIMISE_RUNS = 120


@dataclass(slots=True)
class Totals:
    """The totals that a soak prints."""

    seeds: int = 0
    device_years: float = 0.0
    wakes: int = 0
    deliveries: int = 0
    lost: int = 0
    duplicated: int = 0
    power_cuts: int = 0
    invariant_checks: int = 0
    violations: int = 0
    frames: int = 0
    seconds: float = 0.0
    next_seed: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """Count one seed."""
        self.seeds += 1
        self.device_years += result.device_years
        self.wakes += result.wakes
        self.deliveries += result.deliveries
        self.duplicated += result.duplicated
        self.power_cuts += result.power_cuts
        self.invariant_checks += result.invariant_checks
        self.frames += result.frames
        if result.violation:
            self.violations += 1
            # Only L1 means that a message never came; any other violation ends the run early.
            self.lost += result.lost if result.name == "L1" else 0
            self.failures.append(f"{command_for(result)}  # {result.violation}")
        else:
            self.lost += result.lost

    def add_cuts(self, result: CutResult) -> None:
        """Count the plans of one script."""
        self.power_cuts += result.plans
        self.invariant_checks += result.checks
        self.deliveries += result.deliveries
        self.violations += len(result.failures)
        self.failures += result.failures

    def add_figures(self, figures: dict[str, Any]) -> None:
        """Add the totals of another soak."""
        for name in self.__dataclass_fields__:
            if name != "next_seed":
                setattr(self, name, getattr(self, name) + figures[name])

    def figures(self) -> dict[str, object]:
        """The totals as `--json` prints them."""
        row = {name: getattr(self, name) for name in self.__dataclass_fields__}
        row["device_years"] = round(self.device_years, 3)
        row["seconds"] = round(self.seconds, 1)
        return row


def kind_of(seed: int) -> str:
    """The kind of world that a soak makes of a seed."""
    kind = TURNS[seed % len(TURNS)]
    return "yearly" if kind == "week" and seed % MONTH_EVERY == 1 else kind


def _run_seed(seed: int, kind: str) -> tuple[Result | CutResult, float]:
    """Run one seed; return its result and the seconds that it took."""
    started_s = time.monotonic()
    kind = kind or kind_of(seed)
    result = run_script(seed) if kind == "cuts" else run_seed(seed, kind)
    return result, time.monotonic() - started_s


class Turns:
    """Chooses the next kind in a soak of EACH: the least time so far, then the fewest seeds."""

    def __init__(self, kind: str) -> None:
        kinds = SOAK_KINDS if kind == EACH else (kind,)
        self.spent = {each: [0.0, 0] for each in kinds}

    def take(self) -> str:
        """The kind of the next seed."""
        kind = min(self.spent, key=self.spent.__getitem__)
        self.spent[kind][1] += 1
        return kind

    def add_time(self, kind: str, seconds: float) -> None:
        """Add the time that a seed of a kind took."""
        self.spent[kind][0] += seconds


def read_book(book: Path) -> tuple[Totals, int]:
    """The totals of the soaks in a book, and the first seed that none of them ran.

    Raises ValueError for a file that is no book.
    """
    totals = Totals()
    seed = FIRST_SEED
    for row, line in enumerate(
        read_bounded(book).decode().splitlines() if book.exists() else [], 1
    ):
        try:
            figures = json.loads(line)
            totals.add_figures(figures)
            seed = max(seed, figures["next_seed"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"line {row} is not of a soak: name another file") from None
    return totals, seed


def soak(
    minutes: float, first_seed: int = FIRST_SEED, kind: str = "", workers: int = 0,
    seeds_max: int = 0,
) -> Totals:  # fmt: skip
    """Run seeds upwards from the first for so long, or for so many."""
    workers = workers or os.cpu_count() or 1
    started_s = time.monotonic()
    totals = Totals()
    turns = Turns(kind)
    seed = first_seed - 1
    seeds: Iterator[int] = iter(range(first_seed, first_seed + (seeds_max or 1 << 30)))
    with ProcessPoolExecutor(workers) as pool:
        running: dict[Future[tuple[Result | CutResult, float]], str] = {}
        while True:
            over = time.monotonic() - started_s >= minutes * 60
            while not over and len(running) < workers:
                number = next(seeds, -1)
                if number < 0:
                    break
                seed = number
                turn = turns.take()
                running[pool.submit(_run_seed, seed, turn)] = turn
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                result, seconds = future.result()
                turns.add_time(running.pop(future), seconds)
                if isinstance(result, CutResult):
                    totals.add_cuts(result)
                else:
                    totals.add(result)
    totals.seconds = time.monotonic() - started_s
    totals.next_seed = max(seed, first_seed - 1) + 1
    return totals


def smallest(result: Result, runs_max: int = MINIMISE_RUNS) -> str:
    """The command that shows a failure with the fewest steps."""
    plan = plan_of(result.seed, "" if result.drawn else result.kind)
    return command_for(result, minimise(plan, result.name, runs_max))
