"""Power cuts at every change of the flash, also while recovering: nothing lost, nothing twice."""

import pytest

from drupelet.base.errors import OK
from repeats import strides
from unit.cut_files import CutFiles
from unit.power_cuts import SCENARIOS, Plan, plans, recorded, run
from unit.power_cuts_model import make_store, message_id

EVERYTHING = 1 << 20


@pytest.mark.parametrize("stride", strides(3))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_cut_at_every_step(scenario: str, stride: int) -> None:
    """With a seed of its own; in half of the scenarios unflushed writes come in any order.

    There are two cuts and more for each step.
    """
    seed = list(SCENARIOS).index(scenario)
    every = list(plans(scenario, seed, twins=False))[::stride]
    violations = [found for plan in every for found in run(plan)]
    assert not violations, f"{len(violations)} of {len(every)}: {violations[0]}"


def test_the_scenarios_write_what_they_are_for() -> None:
    assert len(SCENARIOS) >= 20
    assert sum(len(recorded(scenario)) for scenario in SCENARIOS) > 1000
    assert any(plan.again >= 0 for plan in plans("long_bodies")), "some recovery changes the flash"


def test_a_plan_is_one_trial_that_can_be_repeated() -> None:
    plan = Plan("publish", 9, 1, seed=5)
    assert plan in set(plans("publish", 5)) and run(plan) == []
    assert Plan("publish", 9, 1) in set(plans("publish", recovery=False))


def test_a_part_that_is_resumed_changes_nothing_on_the_flash() -> None:
    content = bytes(range(250)) * 8
    files = CutFiles()
    store = make_store(files)
    store.open()
    store.spool.part_open(0, b"whose-id", 0, len(content))
    store.spool.part_append(0, content, 0, 1300)
    for _ in range(2):
        files.power_on(EVERYTHING, cut_at=0)
        store = make_store(files)
        assert store.spool.part_open(0, b"whose-id", 0, len(content)) == 1300
        assert store.spool.part_size(0) == 1300 and not files.steps
        files.cut_at = -1
    buf = bytearray(1400)
    assert store.spool.part_read_into(0, 0, buf, 0, 1400) == 1300
    assert buf[:1300] == content[:1300]
    assert store.spool.part_append(0, content, 1300, len(content) - 1300) == OK
    assert store.put_part(0, 1, 0, message_id(1), 0, 1) > 0
