"""`drupelet bench fleet`: its logs are whole, its rows are, and a wrong answer ends it."""

from types import SimpleNamespace

import pytest

from drupelet_tools.bench import corpus_days, process_tree
from drupelet_tools.bench import fleet as fleet_bench
from drupelet_tools.bench.columns import FLEET
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.telemetry.analysis.report_figures import build
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import delta


def test_the_logs_are_whole_and_say_what_each_day_was(tmp_path):
    corpus_days.write(tmp_path / "in", devices=8, days=5, seed=3)
    counts = job.ingest([tmp_path / "in"], tmp_path / "lake", {}, None)
    assert (counts["new"], counts["devices"], counts["quarantined"]) == (40, 8, 0)
    state = delta.open_lake(tmp_path / "lake")
    days = state.read("days").to_pylist()
    assert len(days) == 40 and {row["hours"] for row in days} == {24}
    assert {row["deep_sleep_ms"] + row["idle_ms"] + row["receive_ms"] + row["send_ms"]
            for row in days} == {86_400_000}  # fmt: skip
    assert {(row["messages_created"], row["messages_delivered"]) for row in days} == {(1, 4)}
    assert {row["bytes_sent"] for row in days} == {4 * 9_000}
    assert [sum(row["boots"] for row in days), sum(row["resets"] for row in days)] == [8, 8]
    health = state.read("health").to_pylist()
    names = ("board_kind", "reset_cause", "segments_missing", "firmware")
    assert {tuple(row[name] for name in names) for row in health} == {(1, 1, 0, "0.1.0")}
    counts = state.read("messages")["message"].value_counts().field("counts").to_pylist()
    assert counts == [5] * 40, "created and delivered at its author, delivered at three others"
    fleet = build(tmp_path / "lake")["fleet"]
    assert (fleet["latency"]["undelivered"], fleet["deliveries_away"]) == (0, 3 * 40)


def test_rows_have_every_column():
    works = (fleet_bench.INGEST, fleet_bench.COMPACT, fleet_bench.REPORT)
    plan = fleet_bench.Plan((20, 121), days=1, works=works)
    rows = list(fleet_bench.measure(plan, lambda _: None))
    assert all({column.name for column in FLEET} == set(row) for row in rows)
    assert [(row["work"], row["device_days"]) for row in rows[3:]] == [
        ("ingest", 121), ("compact", 121), ("report", 121),
    ]  # fmt: skip
    assert all(row["cpu_s"] > 0 and row["peak_mb"] > 0 for row in rows)
    claims = fleet_bench.claims(rows)
    assert [row["limit"] for row in claims] == ["≤ 1.15", "≤ 1.15"]
    assert fleet_bench.claims(rows[:3]) == []


def test_a_command_that_fails_or_answers_wrongly_ends_it(monkeypatch):
    plan = fleet_bench.Plan((1,), days=1, works=(fleet_bench.REPORT,))
    with pytest.raises(BenchError, match=r"report: .*no lake here"):
        list(fleet_bench.measure(plan, lambda _: None))
    monkeypatch.setattr(process_tree, "run", lambda *_: ('{"n": 4}', SimpleNamespace(mb=1)))
    plan = fleet_bench.Plan((1,), days=3, works=(fleet_bench.QUERY,))
    with pytest.raises(BenchError, match=r"4 days of .*, and it has 3"):
        list(fleet_bench.measure(plan, lambda _: None))
