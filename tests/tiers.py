"""Tiers of the suite, and how its tests are dealt to workers.

`durations.json` holds how many seconds a test took when that was last recorded (`--record`), for
every test of SLOW_S and more. It serves two purposes: a test that is not in it is quick, and the
longest tests start first, so that no worker waits long for the last one. Tests marked `long` run
by hand only: they repeat, over hours if need be, what a shorter test of the full tier shows.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

DURATIONS = Path(__file__).with_name("durations.json")
SLOW_S = 0.2
# Examples of a property that does not say how many it needs.
EXAMPLES = {"quick": 20, "full": 60, "long": 1_000}

for _tier, _count in EXAMPLES.items():
    settings.register_profile(
        _tier, max_examples=_count, deadline=None, print_blob=True, derandomize=_tier != "long"
    )
# Rooms whose tests go to workers one by one, and what all those that need Spark are called.
ALONE = ("pico", "m3")
SPARK = "spark"
_SPARK_IS_NEEDED = re.compile(r"^def \w+\([^)]*\bspark\b", re.MULTILINE)
ROOT = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=list(EXAMPLES),
        default="full",
        help="quick: no test that is recorded as slow; full; long: those marked `long` alone",
    )
    parser.addoption(
        "--record", action="store_true", help="write how long each test took to durations.json"
    )


def configure(config: pytest.Config) -> None:
    """Choose the tier's properties; called by the suite's conftest."""
    config.addinivalue_line("markers", "long: runs by hand only, with --tier long")
    settings.load_profile(config.getoption("tier"))
    if config.getoption("record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def recorded() -> dict[str, float]:
    """Test -> seconds."""
    seconds: dict[str, float] = json.loads(DURATIONS.read_text("utf-8"))
    return seconds


def belongs(test_id: str, is_long: bool, tier: str, slow: Iterable[str]) -> bool:
    """Whether a test runs in a tier."""
    if tier == "long":
        return is_long
    return not is_long and (tier == "full" or test_id not in slow)


def group_of(test_id: str) -> str:
    """What has to run on one worker: a file, whose fixtures are then made once, and all files with
    tests that need the session of Spark, which takes ten seconds to come up. Of the emulated chips
    each test is minutes long."""
    path = test_id.partition("::")[0]
    room = path.split("/")[1] if path.count("/") > 1 else ""
    if room in ALONE:
        return test_id
    return SPARK if _needs_spark(path) else path


@cache
def _needs_spark(path: str) -> bool:
    """Whether a fixture or a test of a file is handed the session."""
    file = ROOT / path
    return file.is_file() and bool(_SPARK_IS_NEEDED.search(file.read_text("utf-8")))


def longest_first(groups: list[str], seconds: list[float]) -> list[int]:
    """The order of tests by the sum of their group's seconds; within a group as they stand."""
    total: dict[str, float] = defaultdict(float)
    for group, one in zip(groups, seconds, strict=True):
        total[group] += one
    return sorted(range(len(groups)), key=lambda at: (-total[groups[at]], groups[at], at))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    durations = recorded()
    tier = config.getoption("tier")
    is_named = {str(arg) for arg in config.invocation_params.args}
    chosen, dropped = [], []
    for item in items:
        is_long = item.get_closest_marker("long") is not None
        kept = item.nodeid in is_named or belongs(item.nodeid, is_long, tier, durations)
        (chosen if kept else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    if hasattr(config, "workerinput"):
        groups = [group_of(item.nodeid) for item in chosen]
        order = longest_first(groups, [durations.get(item.nodeid, 0.02) for item in chosen])
        chosen = [chosen[at] for at in order]
    items[:] = chosen


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        """Hands whole groups to workers, in the order of the tests."""

        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)


class Recorder:
    """Adds up the phases of each test, and writes the slow ones at the end of the run.

    Tests that did not run keep what was recorded of them, if they still stand in a file.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        kept = {
            test: seconds
            for test, seconds in recorded().items()
            if test not in self.seconds
            and (DURATIONS.parents[1] / test.partition("::")[0]).is_file()
        }
        slow = {test: round(one, 1) for test, one in self.seconds.items() if one >= SLOW_S}
        text = json.dumps(dict(sorted((kept | slow).items())), indent=0)
        DURATIONS.write_text(text + "\n", "utf-8")
