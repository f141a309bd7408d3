"""The stick half of the backlog bench: what it costs, and that nothing goes twice."""

import pytest

from drupelet_tools.bench.backlog_stick import SMALL_SLOTS, is_over, stick_rows
from drupelet_tools.bench.profiles import PROFILES


@pytest.mark.parametrize(("name", "count"), [("bsp-1", 300), ("compact-1", 4000)])
def test_a_backlog_by_stick_costs_no_more_than_a_transfer(name: str, count: int) -> None:
    (profile,) = (profile for profile in PROFILES if profile.name == name)
    rows = list(stick_rows(profile, (count,)))
    assert [row["note"] for row in rows] == [
        "first contact; receiver: a host", "first contact; receiver: small tables",
    ]  # fmt: skip
    for row in rows:
        assert row["visits"] == 4 and row["duplicates"] == 0 and not is_over(row)
        assert row["messages"] == count > SMALL_SLOTS[0]
        assert row["carrier_bytes_per_message"] < row["budget"]
    dear = rows[0] | {"duplicates": count // 50}
    assert is_over(dear)
