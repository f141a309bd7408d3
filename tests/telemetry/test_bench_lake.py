"""`drupelet bench lake`: its rows say what they should, and two lakes that differ end it."""

import pytest

from drupelet_tools.bench import lake as lake_bench
from drupelet_tools.bench.columns import LAKE
from drupelet_tools.bench.errors import BenchError

PLAN = lake_bench.Plan(days=30, devices=2)


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch):
    """Of two the one counts that took less; more only make the figures steadier."""
    monkeypatch.setattr(lake_bench, "INGEST_REPEATS", 2)
    monkeypatch.setattr(lake_bench, "QUERY_REPEATS", 2)


def test_rows_have_every_column_and_the_lakes_agree():
    rows = list(lake_bench.measure(PLAN, lambda _: None))
    assert all({column.name for column in LAKE} == set(row) for row in rows)
    of = {row["work"]: row for row in rows}
    assert of["ingest, late"]["segments"] == 20 and of["query, grown"]["segments"] == 60
    assert of["query, grown"]["files"] > of["query, compacted"]["files"] == 3, (
        "pieces, keys and a pack"
    )
    assert all(row["cpu_ms"] > 0 for row in rows)
    claims = lake_bench.claims(rows)
    assert [row["kept"] for row in claims[2:]] == [None, True]
    assert {row["limit"] for row in claims} == {"≤ 1.15", "≤ 2", "-", "≤ 40"}


def test_a_row_that_is_lost_ends_it(monkeypatch):
    compact = lake_bench.compact

    def loses_all(root):
        compact(root, keep_days=-1)

    monkeypatch.setattr(lake_bench, "compact", loses_all)
    with pytest.raises(BenchError, match="day by day and in one go give different rows"):
        list(lake_bench.measure(lake_bench.Plan(days=30, devices=1), lambda _: None))
    with pytest.raises(BenchError, match="29 days: want 30 or more"):
        list(lake_bench.measure(lake_bench.Plan(days=29), lambda _: None))
