"""Which tests run in which tier, and in which order workers get them."""

import json
from pathlib import Path

import pytest

from tiers import DURATIONS, SLOW_S, SPARK, belongs, group_of, longest_first, recorded

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("is_long", "is_slow", "tiers"),
    [
        (False, False, ["quick", "full"]),
        (False, True, ["full"]),
        (True, False, ["long"]),
        (True, True, ["long"]),
    ],
)
def test_a_test_runs_in_its_tiers(is_long: bool, is_slow: bool, tiers: list[str]) -> None:
    slow = {"test_a": 1.0} if is_slow else {}
    assert [
        tier for tier in ("quick", "full", "long") if belongs("test_a", is_long, tier, slow)
    ] == tiers


@pytest.mark.parametrize(
    ("test_id", "group"),
    [
        ("tests/unit/test_pace.py::test_a[x-y]", "tests/unit/test_pace.py"),
        ("tests/test_docs.py::test_a", "tests/test_docs.py"),
        ("tests/telemetry/test_job.py::test_a", SPARK),
        ("tests/telemetry/test_packs.py::test_a[1]", "tests/telemetry/test_packs.py"),
        ("tests/pico/test_walk.py::test_a[uart]", "tests/pico/test_walk.py::test_a[uart]"),
        ("tests/board/hal/test_hal.py::test_a", "tests/board/hal/test_hal.py"),
    ],
)
def test_groups_share_what_is_costly(test_id: str, group: str) -> None:
    assert group_of(test_id) == group


def test_the_longest_group_starts_first_and_stays_together() -> None:
    groups = ["a", "spark", "b", "spark", "c"]
    order = longest_first(groups, [5.0, 3.0, 0.1, 4.0, 6.0])
    assert [groups[at] for at in order] == ["spark", "spark", "c", "a", "b"]
    assert order[:2] == [1, 3], "as they stand in the file"


def test_what_is_recorded_is_slow_and_in_the_tree() -> None:
    assert recorded(), f"{DURATIONS} is empty: tools/test --record"
    assert min(recorded().values()) >= SLOW_S
    files = {test.partition("::")[0] for test in json.loads(DURATIONS.read_text("utf-8"))}
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []
