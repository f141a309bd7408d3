"""Makes a failing run small: as few steps as still break the same invariant."""

import time
from collections.abc import Callable

from drupelet_tools.sim.faults import Plan
from drupelet_tools.sim.run import Result, run_plan

# Runs that a search may take; what is left then is small enough to read.
RUNS_MAX = 400
SECONDS_MAX = 60.0
# No plan is nearly so long; a slip of the finger must not fill the memory.
STEP_MAX = 1_000_000


def minimise(
    plan: Plan, name: str, runs_max: int = RUNS_MAX,
    run: Callable[[Plan], Result] = run_plan, seconds_max: float = SECONDS_MAX,
) -> list[int]:  # fmt: skip
    """The numbers of the steps that are needed for a violation of the invariant `name`.

    Leaves out halves, then quarters, and so on, as long as the run still fails in the same way;
    stops after so many runs or seconds with what it has.
    """
    kept = list(range(len(plan.steps)))
    runs = 0
    end = time.monotonic() + seconds_max

    def fails(numbers: list[int]) -> bool:
        nonlocal runs
        runs += 1
        dropped = set(range(len(plan.steps))) - set(numbers)
        return run(plan.without(dropped)).name == name

    piece = max(1, len(kept) // 2)
    while runs < runs_max and time.monotonic() < end:
        smaller = False
        at = 0
        while at < len(kept) and runs < runs_max and time.monotonic() < end:
            without = kept[:at] + kept[at + piece :]
            if without != kept and fails(without):
                kept = without
                smaller = True
            else:
                at += piece
        if piece == 1 and not smaller:
            break
        piece = max(1, piece // 2)
    return kept


def command_for(result: Result, kept: list[int] | None = None) -> str:
    """The one command that shows a failure again."""
    kind = "" if result.drawn else f" --kind {result.kind}"
    text = f"drupelet sim run --seed {result.seed}{kind} --trace"
    if kept is not None:
        text += f" --only {spans(kept)}"
    return text


def spans(numbers: list[int]) -> str:
    """Numbers as 1-4,7: what `parse_spans` reads."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "none"


def parse_spans(text: str) -> set[int]:
    """The numbers of such a text; raises ValueError with the remedy."""
    numbers: set[int] = set()
    for part in text.split(",") if text not in ("", "none") else ():
        first, _, last = part.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= STEP_MAX):
            raise ValueError(f"write steps as 1-4,7, up to {STEP_MAX}, not {text[:40]!r}")
        numbers.update(range(int(first), int(last) + 1))
    return numbers
