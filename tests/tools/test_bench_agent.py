"""`drupelet bench agent`: its columns, a row for each work, and that a lost message is noticed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet_host.store import database
from drupelet_tools.bench import agent
from drupelet_tools.bench.agent_home import open_pair
from drupelet_tools.bench.columns import AGENT
from drupelet_tools.bench.command import app
from drupelet_tools.bench.errors import BenchError

COLUMNS = [
    "work", "messages", "cpu_s", "wall_s", "messages_per_s", "bytes_per_message", "rss_mb",
    "ratio",
]  # fmt: skip
MESSAGES = 40
BODY = 100


def test_a_row_for_each_work() -> None:
    words = ["agent", "--messages", str(MESSAGES), "--idle-minutes", "0.1", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row["work"] for row in rows] == list(agent.WORKS)
    for row in rows:
        assert list(row) == [column.name for column in AGENT]
        assert list(row)[: len(COLUMNS)] == COLUMNS
        messages = {"idle": 0, "put": 1}.get(row["work"], MESSAGES)
        assert row["messages"] == messages
        assert row["wall_s"] > 0 and row["cpu_s"] >= 0
        is_command = row["work"] in ("log", "put")
        assert row["rss_mb"] is None if is_command else row["rss_mb"] > 1
        if row["work"] == "idle":
            # Eleven a second, and 5 KB, as long as the agent polled its store.
            assert 0 < row["wakes_per_s"] < 5 and row["write_kb"] < 64
            assert row["plain_cpu_s"] is None
        elif is_command or row["work"] == "start":
            assert row["ratio"] is None and row["bytes_per_message"] is None
            assert row["cpu_s"] > 0
        else:
            assert row["plain_cpu_s"] > 0 and row["ratio"] >= 0
            assert row["bytes_per_message"] > BODY


def test_an_unknown_work_is_refused() -> None:
    done = CliRunner().invoke(app, ["agent", "--work", "stick-eat"])
    assert done.exit_code == 2 and "stick-eat" in done.stderr


def test_a_missing_message_is_noticed(tmp_path: Path) -> None:
    with open_pair(tmp_path / "pair", ("stick:", "stick:"), ()) as (home, _):
        store = database.connect(home.path / "store.db")
        row = "INSERT INTO log (id, member_group, source, timestamp, size, state, body) VALUES"
        for id in (b"a" * 32, b"b" * 32):
            store.execute(f"{row} (?, 1, 0, x'', 0, 1, x'')", (id,))
        store.close()
        home.check_log(2)
        with pytest.raises(BenchError, match="2 of 3"):
            home.check_log(3)
