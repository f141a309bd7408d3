"""SDS channels of agents, as processes: sealed, over a real broker, the same log at all."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from drupelet.errors import DrupeletError
from drupelet_host import cli, config
from drupelet_host.broker import Broker
from drupelet_host.channels import history
from drupelet_host.commands import ask_agent
from drupelet_host.config import Peer
from host.conftest import Home, share_keys, wait_for

NAMES = "abc"
IDS = {name: 0xA0000001 + row for row, name in enumerate(NAMES)}


def run(home: Home, *words: str) -> str:
    """A command in this process; what it printed."""
    done = CliRunner().invoke(
        cli.app, ["channel", *words, "--home", str(home.path), "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.output


def logged(home: Home) -> list[dict[str, Any]]:
    """The channel as the command shows it."""
    return [json.loads(line) for line in run(home, "log", "chat").splitlines()]


def refused(home: Home, *words: str) -> str:
    """Why a command is refused."""
    with pytest.raises(DrupeletError) as caught:
        run(home, *words)
    return str(caught.value)


def say(home: Home, text: str) -> str:
    done = ask_agent(
        config.load(home.path), "channel", json.dumps({"channel": "chat", "text": text})
    )
    return str(done["id"])


def test_a_channel_of_three_agents(make_home: Callable[..., Home], broker: Broker) -> None:
    url = broker.start() + "/t"
    homes = []
    for own in NAMES:
        peers = [
            Peer(other, IDS[other].to_bytes(4), url, "interactive", 50)
            for other in NAMES
            if other != own
        ]
        homes.append(make_home(own, IDS[own], *peers))
        with (homes[-1].path / "drupelet.toml").open("a") as file:
            file.write(f'\n[[channels]]\nname = "chat"\nurl = "{url}"\nperiod_ms = 300\n')
    for one, other in itertools.combinations(homes, 2):
        share_keys(one, other)
    a, b, c = homes
    assert "the agent does not run" in refused(a, "put", "chat", "hello")
    assert "no such channel" in refused(a, "log", "other")
    assert logged(a) == []
    for home in (a, b):
        home.start("--wait")
    ids = [say(a, "one"), say(b, "two")]
    for home in (a, b):
        wait_for(lambda home=home: len(home.events("channel")) == 2, "both messages")
    # Who comes later asks for what it missed, and is answered by anybody.
    c.start("--wait")
    wait_for(lambda: len(c.events("channel")) == 2, "what was said before it came")
    ids += [json.loads(run(c, "put", "chat", "three"))["id"]]
    for home in homes:
        wait_for(lambda home=home: len(home.events("channel")) == 3, "all messages")
        assert [entry["id"] for entry in home.events("channel")].count(ids[0]) == 1
    logs = [history(home.path / "channels.db", "chat") for home in homes]
    assert logs[0] == logs[1] == logs[2] == logged(b)
    assert [(entry["from"], entry["text"]) for entry in logs[0]] == [
        (a.id.hex(), "one"), (b.id.hex(), "two"), (c.id.hex(), "three"),
    ]  # fmt: skip
    wait_for(
        lambda: all(home.status()["channels"][0]["unacknowledged"] == 0 for home in homes[:2]),
        "acknowledgements",
    )
    # A restart tells of nothing twice, and goes on.
    b.stop()
    b.start()
    say(a, "four")
    wait_for(lambda: len(b.events("channel")) == 4, "the fourth")
    assert b.events("channel")[3]["text"] == "four" and b.check_alive() is False
    assert "1 to 400 bytes" in refused(a, "put", "chat", "x" * 401)
