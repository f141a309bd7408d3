"""The clients of a running agent: it commands, pushes and pulls for whoever asks it."""

import json
from collections.abc import Callable
from pathlib import Path

from drupelet_host.clients.home_groups import COMMANDS_KEY_NAME
from drupelet_host.home.config import Peer
from host.conftest import Cable, Home, share_keys, wait_for

A, B = 0xA0000001, 0xB0000002


def test_an_agent_commands_pushes_and_pulls(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path
) -> None:
    homes = [
        make_home("a", A, Peer("b", B.to_bytes(4), cable.url(0), "interactive", 50)),
        make_home("b", B, Peer("a", A.to_bytes(4), cable.url(1), "interactive", 50)),
    ]
    share_keys(*homes)
    a, b = homes
    a.put("one")
    for home in homes:
        home.start()
    assert not (a.path / "keys" / COMMANDS_KEY_NAME).exists()  # no secret before it is needed
    done = a.run("command", "--json", "b", "epoch", "60000")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert (first["board"], first["operation"], first["value"]) == ("b", "epoch", 60_000)
    second = json.loads(a.run("command", "--json", "b", "report").stdout)
    assert second["counter"] > first["counter"]
    wrong = a.run("command", "nobody", "report")
    assert wrong.returncode == 4 and "no such peer" in wrong.stderr
    wait_for(lambda: len(b.log()) == 1, "the reading")
    wait_for(lambda: a.status()["peers"][0]["outstanding"] == 0, "commands taken by a host")

    place = tmp_path / "stick"
    wrong = a.run("group", "push", str(place))
    assert wrong.returncode == 1 and "no such folder" in wrong.stderr
    place.mkdir()
    done = a.run("group", "push", "--json", str(place))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pushed"] == 1
    a.settle()  # b has the feed's notice
    pulled = json.loads(b.run("group", "pull", "--json", str(place)).stdout)
    assert pulled["feeds"] == {"a": 0, "b": 0} and pulled["place"] == f"folder:{place}"
    for home in homes:
        assert home.check_alive() is False
    assert [event["operation"] for event in a.events("command")] == ["epoch", "report"]


def test_an_agent_tells_of_what_it_pulled(make_home: Callable[..., Home], tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B.to_bytes(4), "stick:"))
    place = tmp_path / "stick"
    place.mkdir()
    for number in range(3):
        home.put(f"reading {number}")
    home.start()
    wait_for(lambda: len(home.log()) == 3, "the readings")
    assert json.loads(home.run("group", "push", "--json", str(place)).stdout)["pushed"] == 3
    home.stop()
    before = home.log()
    for path in home.path.glob("store.db*"):
        path.unlink()
    (home.path / "status.json").unlink(missing_ok=True)
    told = len(home.events("delivered"))
    home.start()
    assert json.loads(home.run("group", "pull", "--json", str(place)).stdout)["pulled"] == 3
    assert [entry["id"] for entry in home.log()] == [entry["id"] for entry in before]
    texts = [event["text"] for event in home.events("delivered")[told:]]
    assert texts == ["reading 0", "reading 1", "reading 2"]
