"""`drupelet telemetry query`: it only looks, and it shows all that was found."""

import io
import json

import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.commands.telemetry import app
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import commit, delta
from drupelet_tools.telemetry.spark import sql
from drupelet_tools.telemetry.text import query_output
from telemetry import fleet, fleet_rows


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    folder = tmp_path_factory.mktemp("query")
    fleet.write(folder, only=["A"])
    job.ingest([folder], folder / "lake", fleet.names(), None)
    return delta.open_lake(folder / "lake")


def test_what_writes_is_refused_wherever_it_stands(spark, state, tmp_path):
    out = tmp_path / "out"
    write = f"INSERT OVERWRITE LOCAL DIRECTORY '{out}' USING csv SELECT device"
    for statement in (
        f"FROM segments {write}",
        f"FROM segments {write} {write}",
        f"WITH t AS (SELECT device FROM segments) {write} FROM t",
        f"WITH t AS (SELECT 1) FROM segments {write}",
        f"SELECT 1) t; {write} FROM segments; SELECT (1",
    ):
        with pytest.raises(TelemetryError, match=r"query: .*(?:INSERT|Syntax error)") as told:
            sql.select(spark, state, statement)
        assert "\n" not in str(told.value)
        assert not out.exists(), statement


def test_a_query_that_looks_runs_in_every_form(spark, state):
    wanted = state.read("segments").num_rows
    for statement in (
        "SELECT device FROM segments;",
        "FROM segments SELECT device",
        "WITH t AS (SELECT device FROM segments) SELECT * FROM t -- all",
        "TABLE segments",
        "(SELECT device FROM segments)",
    ):
        assert len(sql.select(spark, state, statement).rows) == wanted, statement
    ordered = sql.select(spark, state, "SELECT number FROM segments ORDER BY number DESC").rows
    assert ordered == sorted(ordered, reverse=True)
    assert sql.select(spark, state, "VALUES (1), (2)").rows == [(1,), (2,)]
    assert sql.select(spark, state, "SELECT 1 AS a, 2 AS a").names == ["a", "a"]
    assert ("segments",) in {row[1:2] for row in sql.select(spark, state, "SHOW TABLES").rows}
    assert sql.select(spark, state, "EXPLAIN SELECT * FROM segments").rows
    many = sql.select(spark, state, "SELECT id FROM range(10001)")
    assert (len(many.rows), many.more) == (sql.ROWS_MAX, True)
    assert not sql.select(spark, state, "SELECT id FROM range(10000)").more


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT TRANSFORM(device) USING 'touch /x' AS (a) FROM segments",
        'SELECT TRANSFORM(device) using -- "\n/* */ "touch /x" AS (a) FROM segments',
        "SELECT reflect('java.lang.System', 'exit', 1)",
        "SELECT `java_method` ('java.lang.System', 'exit', 1)",
    ],
)
def test_a_query_that_runs_a_program_is_refused_before_spark(statement):
    with pytest.raises(TelemetryError, match="query: runs a program"):
        sql.looking(statement)
    assert sql.looking("SELECT 1 FROM a JOIN b USING (device)").startswith("SELECT * FROM (\n")


def test_a_table_in_a_pipe_is_as_wide_as_its_cells():
    out = io.StringIO()
    names = [f"column_{at}[/old]" for at in range(40)]
    query_output.show(names, [[f"value [old] {at}" for at in range(40)], [None] * 40], out)
    text = out.getvalue()
    assert all(name in text for name in names)
    assert all(f"value [old] {at}" in text for at in range(40))
    assert len(text.splitlines()) == 6
    assert max(map(len, text.splitlines())) < 40 * 24


def test_json_keeps_every_column_and_is_json():
    names = query_output.distinct(["a", "a", "b", "a", "a_2", "a_2"])
    assert names == ["a", "a_3", "b", "a_4", "a_2", "a_2_2"]
    told = query_output.line(["x", "y", "z"], (float("nan"), [float("inf"), 1.5], {1: (2,)}))
    assert json.loads(told) == {"x": None, "y": [None, 1.5], "z": {"1": [2]}}


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_the_command_says_that_there_are_more_rows(monkeypatch, words):
    found = sql.Found(["a", "a"], [(1, "[/x]")], more=True)
    monkeypatch.setattr(sql, "run", lambda *_: found)
    told = CliRunner().invoke(app, ["query", "SELECT 1", "--lake", "lake", *words])
    assert told.exit_code == 0
    assert "the first 10,000 rows; there are more" in told.stderr
    assert told.stderr.count("\n") == 1
    assert "[/x]" in told.stdout
    if words:
        assert json.loads(told.stdout) == {"a": 1, "a_2": "[/x]"}


def test_a_query_of_one_device_reads_no_other(spark, tmp_path):
    """By name or by id; rows of imports and of devices without a name, too."""
    fleet.write(tmp_path, only=["A", "B"])
    names = fleet.names()
    job.ingest([tmp_path], tmp_path / "lake", names, None)
    state = delta.open_lake(tmp_path / "lake")
    commit.append(state.root, {"health": [fleet_rows.health("0badcafe")]}, "one more")
    state = delta.open_lake(state.root)
    ids = dict(zip(*state.read_devices().select(["name", "device"]).to_pydict().values(),
                   strict=True))  # fmt: skip
    tables = ("devices", "segments", "health", "days", "messages", sql.PIECES)
    counted = (f"SELECT '{table}', device, count(*) FROM {table} GROUP BY 2" for table in tables)
    rows_of_all = sql.select(spark, state, " UNION ALL ".join(counted)).rows
    counts = {(table, device): count for table, device, count in rows_of_all}
    assert {table for table, _ in counts} == set(tables)
    of_one = "SELECT " + ", ".join(f"(SELECT count(*) FROM {table})" for table in tables)
    for word, device in (("A", ids["A"]), (ids["B"], ids["B"]), ("0badcafe", "0badcafe")):
        own = state.ids_of([word])
        assert own == {device}
        expected = tuple(counts.get((table, device), 0) for table in tables)
        assert sql.select(spark, state, of_one, own).rows == [expected], word
        for table in tables:
            if table not in ("devices", sql.PIECES):
                rows = state.read(table).filter(pc.field("device") == device)
                assert state.read(table, devices=own).equals(rows)
    with pytest.raises(TelemetryError, match="no device 'nobody'; name one by name or id"):
        state.ids_of(["A", "nobody"])


def test_the_command_takes_a_device(state):
    words = ["query", "SELECT 1", "--lake", str(state.root), "--device", "nobody"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1 and "no device 'nobody'" in done.stderr
    assert done.stderr.count("\n") == 1
