"""Agents as processes, on a cable, behind a broker and with a stick: each message exactly once."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet_host.broker import Broker
from drupelet_host.home.config import Peer
from host.conftest import Cable, Home, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B = 0xA0000001, 0xB0000002
# An agent ends within tenths of a second, also on a machine that gives it a tenth of its time.
STOP_S_MAX = 5.0


def pair(make_home: MakeHome, url_a: str, url_b: str, mode: str = "interactive") -> list[Home]:
    homes = [
        make_home("a", A, Peer("b", B.to_bytes(4), url_a, mode, 50)),
        make_home("b", B, Peer("a", A.to_bytes(4), url_b, mode, 50)),
    ]
    if "plain" not in url_a:
        share_keys(*homes)
    return homes


def assert_same_logs(homes: list[Home], texts: set[str]) -> None:
    """Every text once in each log, and after everything that it depends on."""
    for home in homes:
        log = home.log()
        assert sorted(entry["text"] for entry in log) == sorted(texts)
        seen: set[str] = set()
        for entry in log:
            assert set(entry["dependencies"]) <= seen
            seen.add(entry["id"])


def wait_for_logs(homes: list[Home], count: int) -> None:
    for home in homes:
        wait_for(
            lambda home=home: any(one.check_alive() for one in homes) or len(home.log()) >= count,
            f"{count} messages at {home.name}",
        )


@pytest.mark.parametrize("mode", ["interactive", "batch"])
def test_two_agents_on_a_cable(make_home: MakeHome, cable: Cable, mode: str) -> None:
    homes = pair(make_home, cable.url(0), cable.url(1), mode)
    homes[0].put("written before any agent ran")
    for home in homes:
        home.start()
    texts = {"written before any agent ran"}
    for number in range(4):
        for home in homes:
            home.put(f"{home.name} {number}")
            texts.add(f"{home.name} {number}")
    wait_for_logs(homes, len(texts))
    for home in homes:
        wait_for(lambda home=home: home.status()["peers"][0]["state"] == "up", "word of the line")
        # It is told of after it is in the log.
        wait_for(lambda home=home: len(home.events("delivered")) == len(texts), "word of all")
        told = [event["text"] for event in home.events("delivered")]
        assert sorted(told) == sorted(texts)
        assert home.stop() < STOP_S_MAX
        status = home.status()
        assert (status["running"], status["delivered"], status["pending"]) == (False, 9, 0)
        assert status["peers"][0]["state"] == "stopped"
    assert_same_logs(homes, texts)


def test_a_long_message_crosses_a_cable(make_home: MakeHome, cable: Cable, tmp_path: Path) -> None:
    homes = pair(make_home, cable.url(0), cable.url(1))
    for home in homes:
        home.start()
    text = "".join(random.Random(1).choices("abcdefgh \n", k=30000))
    (tmp_path / "long.txt").write_text(text)
    assert homes[0].run("put", "--file", str(tmp_path / "long.txt")).returncode == 0
    homes[0].put("after it")
    wait_for_logs(homes, 2)
    log = homes[1].log()
    assert bytes.fromhex(log[0]["payload"]).decode() == text
    assert log[1]["text"] == "after it"


def test_killed_five_times_still_exactly_once(make_home: MakeHome, cable: Cable) -> None:
    homes = pair(make_home, cable.url(0), cable.url(1))
    for home in homes:
        home.start()
    rng = random.Random(7)
    texts = set()
    for number in range(5):
        for home in homes:
            for row in range(3):
                home.put(f"{home.name} {number} {row}")
                texts.add(f"{home.name} {number} {row}")
        victim = homes[number % 2]
        time.sleep(rng.uniform(0.0, 0.4))
        victim.kill()
        victim.start()
    wait_for_logs(homes, len(texts))
    for home in homes:
        home.stop()
    assert_same_logs(homes, texts)
    for home in homes:
        first = [event["id"] for event in home.events("delivered") if not event["again"]]
        assert len(first) == len(set(first))
        assert {event["id"] for event in home.events("delivered")} == {
            entry["id"] for entry in home.log()
        }


def test_two_agents_behind_a_broker_that_goes_away(make_home: MakeHome) -> None:
    broker = Broker()
    url = broker.start() + "/t"
    try:
        homes = pair(make_home, url, url)
        for home in homes:
            home.start()
        homes[0].put("one")
        homes[1].put("two")
        wait_for_logs(homes, 2)
        broker.stop()
        wait_for(lambda: homes[0].status()["peers"][0]["state"] == "down", "loss noticed")
        homes[0].put("written while the broker was away")
        broker.start()
        wait_for_logs(homes, 3)
        assert_same_logs(homes, {"one", "two", "written while the broker was away"})
        for home in homes:
            assert home.stop() < STOP_S_MAX
    finally:
        broker.stop()


def test_a_stick_between_an_agent_and_a_home_without_one(
    make_home: MakeHome, tmp_path: Path
) -> None:
    homes = pair(make_home, "stick:", "stick:", "batch")
    folder = tmp_path / "usb"
    folder.mkdir()
    homes[0].start()
    for home in homes:
        for number in range(3):
            home.put(f"{home.name} {number}")
    wait_for(lambda: len(homes[0].log()) == 3, "own messages published")
    for turn in range(4):
        done = homes[turn % 2].run("stick", str(folder))
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "safe to unplug"
    assert_same_logs(homes, {f"{name} {number}" for name in "ab" for number in range(3)})
    assert len(homes[0].events("stick")) == 2
    last = homes[0].run("stick", str(folder), "--json")
    assert '"messages": 0' in last.stdout
    homes[0].stop()


def test_a_stick_is_visited_when_it_is_mounted(make_home: MakeHome, tmp_path: Path) -> None:
    folder = tmp_path / "usb"
    homes = pair(make_home, f"stick://{folder}", "stick:", "batch")
    homes[0].put("by itself")
    homes[0].start()
    wait_for(lambda: len(homes[0].log()) == 1, "own message published")
    assert homes[0].events("stick") == []
    folder.mkdir()
    wait_for(lambda: homes[0].events("stick"), "visit")
    assert homes[1].run("stick", str(folder)).returncode == 0
    assert [entry["text"] for entry in homes[1].log()] == ["by itself"]


def test_one_agent_owns_a_home(make_home: MakeHome) -> None:
    home = make_home("a", A)
    home.start()
    second = home.run("agent")
    assert second.returncode == 1
    assert "an agent already owns this home" in second.stderr
    assert len(second.stderr.splitlines()) == 1


def test_a_cable_that_is_cut_and_joined(make_home: MakeHome, cable: Cable) -> None:
    homes = pair(make_home, cable.url(0), cable.url(1))
    for home in homes:
        home.start()
    homes[0].put("before")
    wait_for_logs(homes, 1)
    cable.plugged = False
    homes[0].put("while cut")
    homes[1].put("meanwhile there")
    wait_for_logs(homes, 2)
    time.sleep(0.5)
    assert [len(home.log()) for home in homes] == [2, 2]
    cable.plugged = True
    wait_for_logs(homes, 3)
    assert_same_logs(homes, {"before", "while cut", "meanwhile there"})
