"""A bridge between SDS dialects as a setting: agents as processes, losses, a killed bridge."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drupelet_host.agent.channels import history
from drupelet_host.cli.common import ask_agent
from drupelet_host.home import config
from drupelet_host.home.config import ConfigError, Peer
from drupelet_host.requests.shapes import SayOnChannel
from drupelet_tools.sim.broker import Mosquitto
from host.conftest import Home, share_keys, wait_for
from host.lossy_relay import LossyRelay

SDS, NIM = ("sds-1", "sds-2"), ("nim-1", "nim-2")
IDS = {name: 0xA0000001 + row for row, name in enumerate((*SDS, *NIM, "bridge"))}
# What each side calls the channel.
CHANNELS = dict.fromkeys(SDS, "field") | dict.fromkeys(NIM, "field-nim")
LOSS = 0.25
COUNT = 12


def table(name: str, url: str, more: str = "") -> str:
    return f'\n[[channels]]\nname = "{name}"\nurl = "{url}"\nperiod_ms = 300\n{more}'


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[LossyRelay]:
    broker = Mosquitto(tmp_path)
    broker.start()
    relay = LossyRelay(broker.port, LOSS)
    yield relay
    relay.close()
    broker.stop(True)


def houses(make_home: Callable[..., Home], url: str) -> dict[str, Home]:
    """Two members a side who know each other and the bridge, which is in both channels."""
    homes: dict[str, Home] = {}
    known = {name: {*SDS, "bridge"} for name in SDS} | {name: {*NIM, "bridge"} for name in NIM}
    known["bridge"] = {*SDS, *NIM}
    for own, others in known.items():
        peers = [
            Peer(other, IDS[other].to_bytes(4), url, "interactive", 50)
            for other in sorted(others - {own})
        ]
        homes[own] = make_home(own, IDS[own], *peers)
    nim, sds = 'dialect = "sds-nim"\n', ""
    tables = {name: table("field", url, sds) for name in SDS}
    tables |= {name: table("field-nim", url, nim) for name in NIM}
    # Of each side only its own members hear a channel.
    tables["bridge"] = table("field", url, f"peers = {list(SDS)}\n") + table(
        "field-nim", url, f'{nim}bridge = "field"\npeers = {list(NIM)}\n'
    )
    for name, text in tables.items():
        with (homes[name].path / "drupelet.toml").open("a") as file:
            file.write(text)
    for one, other in itertools.combinations(homes, 2):
        if other in known[one]:
            share_keys(homes[one], homes[other])
    return homes


def say(home: Home, channel: str, text: str) -> str:
    request = SayOnChannel(channel, text.encode())
    return str(ask_agent(config.load(home.path), request, channel)["id"])


def logged(home: Home, channel: str) -> list[str]:
    return [entry["text"] for entry in history(home.path / "channels.db", channel)]


def test_two_peers_a_side_at_25_percent_loss_and_the_bridge_killed(
    make_home: Callable[..., Home], relay: LossyRelay
) -> None:
    homes = houses(make_home, f"mqtt://127.0.0.1:{relay.port}/t")
    for home in homes.values():
        home.start("--wait")
    bridge = homes["bridge"]
    expected = set()
    for row in range(COUNT):
        if row == COUNT // 3:
            bridge.kill()  # what it has taken in and not handed on yet is its only copy there
        if row == 2 * COUNT // 3:
            bridge.start("--wait")
        for name, channel in CHANNELS.items():
            text = f"{name} {row}"
            say(homes[name], channel, text)
            expected.add(text)
            # The outgoing buffer has 16 places, so what is said waits for answers.
            wait_for(
                lambda name=name: homes[name].status()["channels"][0]["unacknowledged"] < 12,
                "room in the outgoing buffer",
            )
    bridge.kill()
    bridge.start("--wait")
    expected.add("from the bridge")
    say(bridge, "field", "from the bridge")
    for name, channel in CHANNELS.items():
        wait_for(
            lambda name=name, channel=channel: set(logged(homes[name], channel)) == expected,
            f"all at {name}", 300,
        )  # fmt: skip
    for name, channel in CHANNELS.items():
        told = [event["text"] for event in homes[name].events("channel")]
        assert sorted(told) == sorted(expected) == sorted(logged(homes[name], channel)), name
    assert logged(homes["sds-1"], "field") == logged(homes["sds-2"], "field")
    writers = {entry["text"].split()[0]: entry["from"] for entry in
               history(homes["nim-1"].path / "channels.db", "field-nim")}  # fmt: skip
    assert writers == {name: f"{IDS[name]:08x}" for name in CHANNELS} | {
        "from": f"{IDS['bridge']:08x}"
    }
    [sds, nim] = bridge.status()["channels"]
    assert sds["not_carried"] == nim["not_carried"] == sds["to_carry"] == nim["to_carry"] == 0
    assert relay.lost > 100 and abs(relay.lost / (relay.lost + relay.carried) - LOSS) < 0.05


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        (table("a", "udp://239.0.0.1:7447", 'bridge = "b"\n'), "a: bridge: no channel 'b'"),
        (table("a", "udp://239.0.0.1:7447", 'bridge = "a"\n'), 'has dialect "sds", too'),
        (table("a", "udp://239.0.0.1:7447", 'dialect = "nim"\n'), "must be one of sds, sds-nim"),
        (table("a", "udp://239.0.0.1:7447", 'dialect = "sds-nim"\nbloom = "small"\n'),
         "always have a filter; leave it out"),
        (table("a", "udp://239.0.0.1:7447", 'bridge = "b"\n')
         + table("b", "udp://239.0.0.1:7448", 'dialect = "sds-nim"\nbridge = "a"\n'),
         "is in a bridge already; name it at one end only"),
        (table("a", "udp://239.0.0.1:7447", 'bridge = "n"\n')
         + table("b", "udp://239.0.0.1:7448", 'bridge = "n"\n')
         + table("n", "udp://239.0.0.1:7449", 'dialect = "sds-nim"\n'), "in a bridge already"),
        (table("a", "serial://127.0.0.1:9"), "a channel's cable has no keys; say so with"),
        (table("a", "serial://127.0.0.1:9?plain=1", 'peers = ["x"]\n'), "whoever is at the cable"),
        (table("a", "stick:///media/usb"), "only udp: and mqtt: reach several"),
    ],
)  # fmt: skip
def test_a_bridge_that_cannot_be_gets_one_line(
    make_home: Callable[..., Home], tables: str, why: str
) -> None:
    home = make_home("a", IDS["bridge"])
    path = home.path / "drupelet.toml"
    path.write_text(path.read_text() + tables)
    with pytest.raises(ConfigError) as caught:
        config.load(home.path)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_the_nim_dialect_has_no_ephemeral_messages(make_home: Callable[..., Home]) -> None:
    home = make_home("a", IDS["bridge"])
    path = home.path / "drupelet.toml"
    path.write_text(path.read_text() + table("n", "udp://239.0.0.1:7449", 'dialect = "sds-nim"\n'))
    home.start("--wait")
    done = home.run("channel", "put", "--ephemeral", "n", "now")
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "leave --ephemeral out" in done.stderr
    assert home.run("channel", "put", "n", "kept").returncode == 0


def test_a_bridge_is_written_as_it_is_read(make_home: Callable[..., Home]) -> None:
    home = make_home("a", IDS["bridge"])
    path = home.path / "drupelet.toml"
    path.write_text(
        path.read_text() + table("a", "udp://239.0.0.1:7447")
        + table("b", "serial://127.0.0.1:9?plain=1", 'dialect = "sds-nim"\nbridge = "a"\n')
    )  # fmt: skip
    settings = config.load(home.path)
    assert [(one.dialect, one.bridge) for one in settings.channels] == [
        ("sds", ""), ("sds-nim", "a"),
    ]  # fmt: skip
    path.write_text(config.render(settings))
    assert config.load(home.path) == settings
