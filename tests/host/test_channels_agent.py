"""SDS channels of agents, as processes: sealed, over a real broker, the same log at all."""

import itertools
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from typer.testing import CliRunner

from drupelet.base.errors import OK, DrupeletError
from drupelet.channel.channel import open_channel
from drupelet.node import Node
from drupelet_host.agent.channels import (
    AgentChannel,
    ChannelMessage,
    history,
    settings_of,
)
from drupelet_host.base import clock
from drupelet_host.broker import Broker
from drupelet_host.cli import app
from drupelet_host.home import config
from drupelet_host.home.config import CHANNEL_PERIOD_MS_MAX, ConfigError, Peer, Shared
from drupelet_host.member import backup
from drupelet_host.store.channel_database import ChannelDatabase, SqliteKeeper
from helpers_channel import CHANNEL, START_MS, wire
from host.channel_verb import logged, run, say
from host.conftest import Home, share_keys, wait_for
from opened import opened
from ram_store import RamStore

NAMES = "abc"
IDS = {name: 0xA0000001 + row for row, name in enumerate(NAMES)}


def refused(home: Home, *words: str) -> str:
    """Why a command is refused."""
    with pytest.raises(DrupeletError) as caught:
        run(home, *words)
    return str(caught.value)


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
    # What is ephemeral reaches those who listen, once, and no log.
    assert json.loads(run(a, "put", "chat", "typing", "--ephemeral"))["size"] == len("typing")
    for home in homes[1:]:
        (event,) = wait_for(
            lambda home=home: [one for one in home.events("channel") if one["text"] == "typing"],
            "an ephemeral message",
        )
        assert (event["kind"], event["from"]) == ("ephemeral", a.id.hex())
        assert len(logged(home)) == 3
    # A restart tells of nothing twice, and goes on.
    b.stop()
    b.start()
    say(a, "four")
    wait_for(lambda: len(b.events("channel")) == 5, "the fourth")
    assert b.events("channel")[4]["text"] == "four" and b.check_alive() is False
    broker.stop()
    wait_for(lambda: a.status()["channels"][0]["state"] != "up", "the loss of the broker")
    assert "not sent" in refused(a, "put", "chat", "nobody hears it", "--ephemeral")
    assert "1 to 400 bytes" in refused(a, "put", "chat", "x" * 401)


def test_a_peer_that_is_added_is_in_the_channel_at_once(
    make_home: Callable[..., Home], broker: Broker
) -> None:
    url = broker.start() + "/t"
    peers = {name: Peer(name, IDS[name].to_bytes(4), url, "interactive", 50) for name in NAMES}
    a = make_home("a", IDS["a"], peers["b"])
    b = make_home("b", IDS["b"], peers["a"])
    c = make_home("c", IDS["c"], peers["a"], peers["b"])
    for home in (a, b, c):
        with (home.path / "drupelet.toml").open("a") as file:
            file.write(f'\n[[channels]]\nname = "chat"\nurl = "{url}"\nperiod_ms = 300\n')
    for one, other in itertools.combinations((a, b, c), 2):
        share_keys(one, other)
    for home in (a, b):
        home.start("--wait")
    say(a, "before")
    wait_for(lambda: len(b.events("channel")) == 1, "the first message")
    c.start("--wait")
    for home in (a, b):
        words = ["peer", "add", "c", c.id.hex(), url, "--epoch-ms", "50"]
        done = CliRunner().invoke(app.app, [*words, "--home", str(home.path)])
        assert done.exit_code == 0, done.output
    say(c, "from c")
    for home in (a, b, c):
        wait_for(lambda home=home: len(home.events("channel")) == 2, "both messages")
    [line] = a.status()["channels"]
    assert sorted(line["listeners"]) == sorted((b.id.hex(), c.id.hex()))
    wait_for(lambda: len(a.status()["channels"][0]["told"]) == 2, "all have our key")


def with_channel(home: Home, period_ms: int) -> config.Config:
    """The home's configuration with a channel of that period."""
    config_path = home.path / "drupelet.toml"
    text = config_path.read_text().partition("\n[[channels]]")[0]
    text += f'\n[[channels]]\nname = "0"\nurl = "udp://239.1.1.1:9999"\nperiod_ms = {period_ms}\n'
    config_path.write_text(text)
    return config.load(home.path)


def fill(path: Path) -> None:
    """A channel's database with a message in the log and one that waits."""
    database = ChannelDatabase(path)
    channel = open_channel(CHANNEL, b"ann", SqliteKeeper(database, CHANNEL), lambda: 7)
    for frame in (wire(b"there"), wire(b"waits", causal=(b"away",), lamport=START_MS + 1)):
        assert channel.receive(frame, len(frame), 0) == 0
    database.close()


def test_a_period_whose_waits_would_be_too_long_is_refused(make_home: Callable[..., Home]) -> None:
    home = make_home("a", IDS["a"])
    settings = with_channel(home, CHANNEL_PERIOD_MS_MAX)
    assert settings.channels[0].period_ms == CHANNEL_PERIOD_MS_MAX
    with pytest.raises(ConfigError, match="channels 1: period_ms: must be a whole number from 20"):
        with_channel(home, CHANNEL_PERIOD_MS_MAX + 1)


def test_a_channel_sends_no_filter_unless_its_members_agree_on_one(
    make_home: Callable[..., Home],
) -> None:
    home = make_home("a", IDS["a"])
    [plain] = with_channel(home, 30_000).channels
    assert not settings_of(plain, 2).send_bloom
    path = home.path / "drupelet.toml"
    text = path.read_text()
    path.write_text(text + 'bloom = "small"\n')
    [agreed] = config.load(home.path).channels
    assert settings_of(agreed, 2).send_bloom
    path.write_text(text + 'bloom = "huge"\n')
    with pytest.raises(ConfigError, match="bloom: must be one of omit, small, not 'huge'"):
        config.load(home.path)


@pytest.mark.parametrize("period_ms", [20, 209_716, CHANNEL_PERIOD_MS_MAX])
def test_repair_reckons_with_every_period(tmp_path: Path, period_ms: int) -> None:
    settings = settings_of(Shared("0", "udp://239.1.1.1:9999", (), period_ms), 300)
    keeper = SqliteKeeper(opened(ChannelDatabase(tmp_path / "c.db")), CHANNEL)
    channel = open_channel(CHANNEL, b"ann", keeper, lambda: 7, settings)
    channel.publish(b"x", 0, 1, 0)
    for frame in (
        wire(b"m", causal=(b"away",), author=b"bob"),
        wire(b"n", sender=b"bob"),
        *(wire(b"sync", content=None, repair=(b"n",), sender=b"b%d" % n) for n in range(9)),
    ):
        assert channel.receive(frame, len(frame), 0) == 0
    assert channel.repair.wanted.count == 1
    assert 0 <= channel.wake_ms(0) <= 10 * period_ms


def test_what_waits_is_not_shown(tmp_path: Path) -> None:
    fill(tmp_path / "channels.db")
    shown = history(tmp_path / "channels.db", "0")
    assert msgspec.to_builtins(msgspec.convert(shown, list[ChannelMessage])) == shown
    assert [(entry["from"], entry["lamport"]) for entry in shown] == [("eve", START_MS)]


def test_a_file_of_an_earlier_release_is_shown(tmp_path: Path) -> None:
    fill(tmp_path / "channels.db")
    database = ChannelDatabase(tmp_path / "channels.db")
    database.connection.execute("DROP INDEX waiting")
    database.connection.execute("ALTER TABLE messages DROP COLUMN logged")
    database.close()
    assert len(history(tmp_path / "channels.db", "0")) == 2


def test_channels_are_in_a_backup(make_home: Callable[..., Home], tmp_path: Path) -> None:
    home = make_home("a", IDS["a"])
    with_channel(home, 30_000)
    fill(home.path / "channels.db")
    backup.back_up(home.path, tmp_path / "file")
    with tarfile.open(tmp_path / "file") as tar:
        assert "channels.db" in tar.getnames()
    backup.restore(tmp_path / "file", tmp_path / "new")
    restored = tmp_path / "new" / "channels.db"
    assert history(restored, "0") == history(home.path / "channels.db", "0") != []
    assert restored.stat().st_mode & 0o777 == 0o600


def test_after_a_quiet_week_a_channel_knows_what_time_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core's clock goes round in twelve days, so it takes more than six of them for none."""
    passed_ms = 0
    monkeypatch.setattr(clock, "now_ms", lambda: passed_ms & 0x3FFFFFFF)
    monkeypatch.setattr(clock, "wall_ms", lambda: START_MS + passed_ms)
    settings = SimpleNamespace(id=b"ann_", listeners=lambda _: ())
    member = cast(Any, SimpleNamespace(node=Node(RamStore(), lambda: 0), config=settings))
    shared = Shared(CHANNEL.decode(), "mqtt://localhost/t")
    told: list[dict[str, Any]] = []
    spoken = AgentChannel(member, opened(ChannelDatabase(tmp_path / "c.db")), shared, told.append)
    for days in (0, 8, 20, 50):
        passed_ms = days * 86_400_000
        frame = wire(b"%d" % days, lamport=clock.wall_ms())
        assert spoken.receive(frame, len(frame), clock.now_ms()) == OK
        assert spoken.channel.clock.far == 0 and told[-1]["lamport"] == clock.wall_ms()
