"""Agents that learn from each other how they are reached, and take it where there are keys."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drupelet_host.broker import Broker
from drupelet_host.home import config
from drupelet_host.home.config import ConfigError, Peer
from host.conftest import Home, share_keys, wait_for

IDS = {name: 0xA0000001 + row for row, name in enumerate("abcd")}


def test_members_that_were_strangers_find_each_other(
    make_home: Callable[..., Home], broker: Broker
) -> None:
    """All know b. a and c have keys with each other and find out how; d has keys with b alone."""
    url = broker.start() + "/t"

    def peer(name: str) -> Peer:
        return Peer(name, IDS[name].to_bytes(4), url, "interactive", 50)

    homes = {
        name: make_home(name, IDS[name], *(peer(other) for other in knows))
        for name, knows in (("a", "b"), ("b", "acd"), ("c", "b"), ("d", "b"))
    }
    for one, other in ("ba", "bc", "bd"):
        share_keys(homes[one], homes[other])
    # Keys of two that have no lines yet: as `drupelet provision` leaves them.
    share_keys(homes["a"], homes["c"])
    for name, home in homes.items():
        path = home.path / "drupelet.toml"
        learn = "learn = true\n" if name in "ac" else ""
        path.write_text(f'announce = ["{url}"]\n{learn}' + path.read_text())
        home.start("--wait")
    a, b, c, d = homes.values()
    for home, other in ((a, c), (c, a)):
        wait_for(
            lambda home=home, other=other: [
                row for row in home.status()["peers"]
                if row["id"] == other.id.hex() and row["state"] == "up"
            ],
            f"{other.name} as a peer of {home.name}",
        )  # fmt: skip
        assert [row.name for row in config.load(home.path).peers] == ["b", other.name]
        wait_for(lambda home=home: home.status()["not_learned"], "that d was refused")
        [refused] = home.status()["not_learned"]
        assert refused["id"] == d.id.hex() and "has no keys here" in refused["reason"]
        told = {event["peer"]: event["refused"] for event in home.events("learn")}
        assert told[other.name] == "" and "drupelet provision" in told["d"]
    assert [row.name for row in config.load(b.path).peers] == ["a", "c", "d"]
    # The new line is one: it works without whom it was learned from.
    b.stop()
    a.put("without b")
    wait_for(lambda: [entry["text"] for entry in c.log()] == ["without b"], "it at c")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('learn = "yes"\n', "learn: must be true or false"),
        ('announce = "mqtt://h/p"\n', "announce: must be names in brackets"),
        ('announce = ["stick:///m"]\n', "announce: others reach a broker only"),
        ('announce = ["mqtt://h"]\n', "give a topic prefix"),
        (f"announce = {['mqtt://h/p'] * 9}\n", "announce: at most 8"),
    ],
)
def test_one_clear_line_for_what_is_wrong(
    make_home: Callable[..., Home], text: str, why: str
) -> None:
    path = make_home("a", 1).path / "drupelet.toml"
    path.write_text(text + path.read_text())
    with pytest.raises(ConfigError) as caught:
        config.load(path.parent)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_it_is_written_as_it_is_read(make_home: Callable[..., Home], tmp_path: Path) -> None:
    home = make_home("a", 1)
    made = replace(
        config.load(home.path), home=tmp_path / "b", announce=("mqtt://h/p",), learn=True
    )
    config.create(made)
    assert config.load(made.home) == made
