"""`drupelet bench agent`: its columns, a row for each work, and that a lost message is noticed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet_host.store import database
from drupelet_tools.bench import agent, agent_load
from drupelet_tools.bench.agent_devices import device_id, payload
from drupelet_tools.bench.agent_home import READINGS, AgentHome, open_pair
from drupelet_tools.bench.agent_load import LoadPlan, check_store
from drupelet_tools.bench.columns import AGENT
from drupelet_tools.bench.command import app
from drupelet_tools.bench.errors import BenchError

COLUMNS = [
    "work", "messages", "cpu_s", "wall_s", "messages_per_s", "bytes_per_message", "rss_mb",
    "ratio",
]  # fmt: skip
MESSAGES = 40
BODY = 100
# Two homes with three devices each, and one restart of the broker.
LOAD = [
    "--devices", "6", "--per-home", "3", "--per-second", "10", "--load-minutes", "0.1",
    "--restarts", "1",
]  # fmt: skip
LOAD_MESSAGES = 60


def test_a_row_for_each_work() -> None:
    words = ["agent", "--messages", str(MESSAGES), "--idle-minutes", "0.1", "--json", *LOAD]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row["work"] for row in rows] == list(agent.WORKS)
    for row in rows:
        assert list(row) == [column.name for column in AGENT]
        assert list(row)[: len(COLUMNS)] == COLUMNS
        messages = {"idle": 0, "put": 1, "load": LOAD_MESSAGES}.get(row["work"], MESSAGES)
        assert row["messages"] == messages
        assert row["wall_s"] > 0 and row["cpu_s"] >= 0
        is_command = row["work"] in ("log", "put")
        assert row["rss_mb"] is None if is_command else row["rss_mb"] > 1
        if row["work"] == "idle":
            # Eleven a second, and 5 KB, as long as the agent polled its store.
            assert 0 < row["wakes_per_s"] < 5 and row["write_kb"] < 64
            assert row["plain_cpu_s"] is None
        elif row["work"] == "load":
            assert (row["devices"], row["homes"], row["restarts"]) == (6, 2, 1)
            assert row["bytes_per_message"] > BODY and row["cpu_s"] > 0
            assert 0 <= row["rss_growth_mb"] < row["rss_mb"]
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


class Collected:
    """A home of three devices, with what they published in its store."""

    def __init__(self, folder: Path) -> None:
        self.messages = {0: 2, 1: 2, 2: 1}  # by device
        self.home = AgentHome(folder, "home", b"\xa0\0\0\0", (), ())
        self._ids = 0
        store = database.connect(self.home.path / "store.db")
        for device in self.messages:
            store.execute("INSERT INTO members VALUES (2, ?, ?)", (device + 1, device_id(device)))
        store.close()
        for device, count in self.messages.items():
            for number in range(count):
                self.add(device, payload(device, number))

    def add(self, device: int, content: bytes) -> None:
        """One more message of a device, under an id of its own."""
        self._ids += 1
        row = "INSERT INTO log (id, member_group, source, timestamp, size, state, body) VALUES"
        store = database.connect(self.home.path / "store.db")
        values = (self._ids.to_bytes(32), READINGS, device + 1, b"\0" + content)
        store.execute(f"{row} (?, ?, ?, x'', 0, 1, ?)", values)
        store.close()

    def remove(self, number: int) -> None:
        """One message less."""
        store = database.connect(self.home.path / "store.db")
        store.execute("DELETE FROM log WHERE handle = ?", (number,))
        store.close()


def test_a_fleet_that_lost_nothing(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    check_store(collected.home, collected.messages)


def test_a_message_that_a_home_lacks_is_noticed(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    collected.remove(2)
    with pytest.raises(BenchError, match="home lacks 1 of 5 messages and has 0"):
        check_store(collected.home, collected.messages)


def test_a_message_that_a_home_has_twice_is_noticed(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    collected.add(1, payload(1, 1))
    with pytest.raises(BenchError, match="lacks 0 of 5 messages and has 1 that"):
        check_store(collected.home, collected.messages)


def test_a_message_of_another_author_is_noticed(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    collected.remove(2)
    collected.add(2, payload(0, 1))
    with pytest.raises(BenchError, match="lacks 1 of 5 messages and has 1 that"):
        check_store(collected.home, collected.messages)


def test_a_fleet_has_as_many_homes_as_it_needs() -> None:
    members = LoadPlan().members()
    assert len(members) == 32 and {len(row) for row in members} == {31, 32}
    assert [number for row in members for number in row] == list(range(1000))


def test_messages_that_the_devices_wait_for_in_vain_end_the_bench(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_load, "SETTLE_S_MAX", 0.0)
    done = CliRunner().invoke(app, ["agent", "--work", "load", *LOAD])
    assert done.exit_code == 1
    complaint = str(done.exception)
    assert "of 6 devices wait for messages or acknowledgements" in complaint
    assert isinstance(done.exception, BenchError) and "\n" not in complaint
