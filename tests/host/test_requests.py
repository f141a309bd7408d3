"""What commands ask of the agent: who stops waiting blocks nobody, and nothing is done twice."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drupelet.base.errors import CapacityError
from drupelet_host.agent.loop import Agent
from drupelet_host.base import clock
from drupelet_host.base.output import Output
from drupelet_host.cli import app, common, publishing
from drupelet_host.home import config
from drupelet_host.home.config import Config
from drupelet_host.store import database, outbox


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    made = Config(tmp_path / "home", "a", b"aaaa", "orchard", 50)
    config.create(made)
    return made


@pytest.fixture
def connection(settings: Config) -> Iterator[sqlite3.Connection]:
    with closing(database.connect(settings.store_path)) as made:
        yield made


def rows(connection: sqlite3.Connection) -> list[Any]:
    return connection.execute("SELECT argument, result FROM requests").fetchall()


def end(agent: Agent) -> None:
    agent.channels.close()
    agent.member.close(clock.now_ms())
    agent.member.sealing.close()


def test_answers_that_nobody_took_leave_room_for_others(connection: sqlite3.Connection) -> None:
    """A command that was killed while it waited never takes its answer."""
    for number in range(outbox.REQUESTS_MAX):
        outbox.ask(connection, "stick", f"/{number}")
    with pytest.raises(CapacityError, match="16 entries wait already"):
        outbox.ask(connection, "stick", "/more")
    connection.execute("UPDATE requests SET result = '{}'")
    entry = outbox.ask(connection, "stick", "/more")
    assert outbox.next_request(connection) == outbox.Request(entry, "stick", "/more")


def test_ctrl_c_withdraws_what_was_asked(
    settings: Config, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def press(_: float) -> None:
        asked.extend(rows(connection))
        raise KeyboardInterrupt

    monkeypatch.setattr(common.time, "sleep", press)
    with config.lock(settings.home), pytest.raises(KeyboardInterrupt):
        common.ask_agent(settings, "stick", "/usb")
    assert asked == [("/usb", None)] and rows(connection) == []


def test_an_agent_that_starts_does_nothing_that_an_earlier_one_was_asked(
    settings: Config, connection: sqlite3.Connection
) -> None:
    """What a cut left open may be done already: a message on a channel is durable by itself."""
    outbox.ask(connection, "channel", json.dumps({"channel": "chat", "text": "open the valve"}))
    outbox.ask(connection, "stick", "/answered")
    connection.execute("UPDATE requests SET result = '{}' WHERE kind = 'stick'")
    agent = Agent(settings, Output(True), True)
    assert rows(connection) == []
    end(agent)


def test_what_is_withdrawn_behind_a_long_request_is_not_done(
    settings: Config, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user was told that there was no answer, and asks again."""
    agent = Agent(settings, Output(True), True)
    agent.member.commit()
    outbox.ask(connection, "push", "/slow")
    gone = outbox.ask(connection, "channel", "pump off")
    outbox.ask(connection, "channel", "pump on")
    said = []

    def push(_kind: str, _folder: str) -> dict[str, Any]:
        outbox.withdraw(connection, gone)
        return {}

    def say(argument: str) -> dict[str, Any]:
        said.append(argument)
        return {}

    monkeypatch.setattr(agent, "remote_log", push)
    monkeypatch.setattr(agent, "say", say)
    agent._answer_requests()
    assert said == ["pump on"]
    assert rows(connection) == [("/slow", "{}"), ("pump on", "{}")]
    end(agent)


@pytest.mark.parametrize("runs", [False, True])
def test_a_full_outbox_says_what_is_true(
    settings: Config, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_MAX", 2)
    monkeypatch.setattr(config, "locked", lambda _: runs)
    for _ in range(2):
        publishing.post(connection, b"x", settings.home, wait=False)
    expected = "the agent is behind.* --wait" if runs else "start the agent first"
    with pytest.raises(CapacityError, match=expected):
        publishing.post(connection, b"x", settings.home, wait=False)
    if runs:

        def make_room(_: float) -> None:
            connection.execute("DELETE FROM outbox")

        monkeypatch.setattr(publishing.time, "sleep", make_room)
        assert publishing.post(connection, b"x", settings.home, wait=True) > 0


def test_the_carrier_is_connected_and_the_peer_is_heard_or_not() -> None:
    assert app._carrier({"state": "up"}) == "connected"
    assert app._carrier({"state": "down"}) == "down"
    assert app._ago(0) == "never"
