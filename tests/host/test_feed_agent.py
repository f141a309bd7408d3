"""Agents that keep their remote logs by themselves: a wiped one gets everything back."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from drupelet_host.home import config
from drupelet_host.home.config import ConfigError, FeedSettings, Peer
from host.conftest import Cable, Home, wait_for
from host.lost_store import wipe

A, B = 0xA0000001, 0xB0000002


def with_feed(home: Home, place: Path) -> None:
    with (home.path / "drupelet.toml").open("a") as file:
        file.write(f'\n[feed]\nplace = "folder:{place}"\nperiod_ms = 50\n')


def test_a_wiped_agent_recovers_from_its_feed_and_the_other_reads_it(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path
) -> None:
    place = tmp_path / "log"
    a = make_home("a", A, Peer("b", B.to_bytes(4), cable.url(0), "interactive", 50))
    b = make_home("b", B, Peer("a", A.to_bytes(4), cable.url(1), "interactive", 50))
    for home in (a, b):
        with_feed(home, place)
        home.start()
    # The place is not there yet: told of once, and used as soon as it is.
    a.put("a 0")
    b.put("b 0")
    wait_for(lambda: len(a.log()) == len(b.log()) == 2, "both readings")
    wait_for(lambda: a.events("feed"), "word of the missing folder")
    assert "no such folder" in a.events("feed")[0]["reason"]
    place.mkdir()
    for row in range(1, 6):
        a.put(f"a {row}")
    wait_for(lambda: len(b.log()) == 7, "all readings")
    wait_for(lambda: (a.status()["feed"] or {}).get("pushed", 0) >= 7, "all of them in the feed")
    assert [event["reason"] for event in a.events("feed")] == [a.events("feed")[0]["reason"], ""]
    before = [entry["id"] for entry in a.log()]
    wait_for(lambda: b.status()["feed"]["watched"] == 1, "word of a's feed at b")

    # Wiped, and alone: what it gets back comes from its feed.
    cable.plugged = False
    a.stop()
    wipe(a)
    told = len(a.events("delivered"))
    a.start()
    wait_for(lambda: len(a.log()) == 7, "its log")
    assert sorted(entry["id"] for entry in a.log()) == sorted(before)
    wait_for(lambda: len(a.events("delivered")) - told == 7, "word of each of them")
    # What it writes now follows what it got back; b sees it in the feed it was told of before.
    a.put("after the loss")
    wait_for(lambda: len(b.log()) == 8, "the new one, by the feed alone", 90)
    wait_for(lambda: b.status()["feed"]["pulled"] >= 1, "its count")
    assert b.check_alive() is False
    cable.plugged = True
    b.put("over the cable again")
    wait_for(lambda: len(a.log()) == 9, "the cable's")
    assert len({entry["id"] for entry in a.log()}) == 9


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("feed = 3", "must be a table"),
        ('[feed]\nplace = "folder:log"', 'must be as "folder:/media/log"'),
        ('[feed]\nplace = "/media/log"', 'must be as "folder:/media/log"'),
        ('[feed]\nplace = "stick:///media"', 'or "mqtt://host:1883/prefix", not'),
        ('[feed]\nplace = "mqtt://"', "carrier URL mqtt://"),
        ('[feed]\nplace = "folder:/media/log"\nserve = true', "needs a broker where others ask"),
        ("[feed]\nserve = true", "needs a broker where others ask"),
        ('[feed]\nwatch = "yes"', "must be true or false"),
        ("[feed]\nperiod_ms = 0", "must be a whole number"),
        ("[feed]\nspeed = 1", "unknown key"),
    ],
)
def test_one_clear_line_for_what_is_wrong(
    make_home: Callable[..., Home], text: str, why: str
) -> None:
    path = make_home("a", A).path / "drupelet.toml"
    path.write_text(path.read_text() + text + "\n")
    with pytest.raises(ConfigError) as caught:
        config.load(path.parent)
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_a_feed_is_written_as_it_is_read(make_home: Callable[..., Home], tmp_path: Path) -> None:
    home = make_home("a", A)
    served = FeedSettings("mqtt://host:1883/orchard", True, 500, True)
    folder = FeedSettings("folder:/media/log", False, 500)
    for row, feed in enumerate((folder, FeedSettings(), served)):
        made = replace(config.load(home.path), home=tmp_path / str(row), feed=feed)
        config.create(made)
        assert config.load(made.home) == made
