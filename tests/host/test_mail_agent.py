"""Mail at an agent that serves, and channels that ask it: as processes, over a real broker."""

import json
from collections.abc import Callable
from pathlib import Path

from drupelet_host.broker import Broker
from drupelet_host.home.config import Peer
from drupelet_host.remote.mailbox import open_mail
from host.channel_verb import logged, say
from host.conftest import Cable, Home, share_keys, wait_for

A, B, S = 0xA0000001, 0xB0000002, 0x50000003
MakeHome = Callable[..., Home]


def add(home: Home, *rows: str) -> None:
    with (home.path / "drupelet.toml").open("a") as file:
        file.write("\n".join(["", *rows]) + "\n")


def feed_rows(place: str, *more: str) -> list[str]:
    return ["[feed]", f'place = "{place}"', "period_ms = 50", *more]


def feed_of(home: Home, key: str) -> int:
    return int((home.status()["feed"] or {}).get(key, 0))


def told(home: Home) -> list[str]:
    """Who has its keys for the channel."""
    [line] = home.status().get("channels") or [{"told": []}]
    return list(line["told"])


def test_members_that_never_meet_get_each_others_mail(
    make_home: MakeHome, cable: Cable, broker: Broker
) -> None:
    """S serves the mailbox and reads none of it; A and B are never there at the same time."""
    url = broker.start()
    place = url + "/log"
    s_by_broker = Peer("s", S.to_bytes(4), url + "/t", "interactive", 50)
    a = make_home("a", A, Peer("s", S.to_bytes(4), cable.url(0), "interactive", 50),
                  Peer("b", B.to_bytes(4), "stick:"))  # fmt: skip
    b = make_home("b", B, s_by_broker, Peer("a", A.to_bytes(4), "stick:"))
    s = make_home("s", S, Peer("a", A.to_bytes(4), cable.url(1), "interactive", 50),
                  Peer("b", B.to_bytes(4), url + "/t", "interactive", 50))  # fmt: skip
    share_keys(a, b)
    share_keys(b, s)
    add(s, *feed_rows(place, "serve = true", "watch = false"))
    for home in (a, b):
        add(home, *feed_rows(place, "mail = true"))
    s.start("--wait")
    a.start("--wait")
    a.put("first")
    wait_for(lambda: feed_of(a, "pushed") == 1, "a's mail")
    b.start("--wait")
    wait_for(lambda: feed_of(b, "watched") == 2, "word of s's log and a's mail at b")
    wait_for(lambda: len(b.log()) == 1, "what s has")
    b.stop()
    cable.plugged = False
    for number in range(30):
        a.put(f"left {number}")
    a.put("long " * 2000)
    wait_for(lambda: feed_of(a, "pushed") == 32, "a's mail")
    a.stop()
    assert len(s.log()) == 1, "s did not look"
    b.start("--wait")
    wait_for(lambda: len(b.log()) == 32, "a's mail at b")
    assert sorted(row["id"] for row in b.log()) == sorted(row["id"] for row in a.log())
    wait_for(lambda: len(s.log()) == 32, "what b hands on over its link")
    # A restart leaves nothing twice and asks only for what is new.
    b.stop()
    a.start("--wait")
    a.put("once more")
    wait_for(lambda: feed_of(a, "pushed") == 1, "the new one alone")
    b.start("--wait")
    wait_for(lambda: len(b.log()) == 33, "the new one")
    wait_for(lambda: feed_of(b, "pulled"), "its count")
    assert feed_of(b, "pulled") == 1
    for home in (a, b, s):
        home.stop()
    open_mail(s.path / "mail.db").close()  # nothing in the file says what it is about
    content = (s.path / "mail.db").read_bytes()
    assert len(content) > 10_000 and b"left 1" not in content and b"long long" not in content


def test_a_channel_asks_who_serves_for_what_it_missed(make_home: MakeHome, broker: Broker) -> None:
    """With a period of three minutes, repair by the participants would take that long."""
    url = broker.start() + "/t"
    a = make_home("a", A, Peer("b", B.to_bytes(4), url, "interactive", 50))
    b = make_home("b", B, Peer("a", A.to_bytes(4), url, "interactive", 50))
    share_keys(a, b)
    for home, more in ((a, ["serve = true"]), (b, [])):
        add(home, "[[channels]]", 'name = "chat"', f'url = "{url}"', "period_ms = 180000")
        add(home, *feed_rows(url, *more))
    a.start("--wait")
    b.start("--wait")
    wait_for(lambda: feed_of(b, "watched") == 1, "word of a's store at b")
    wait_for(lambda: told(a) == [B.to_bytes(4).hex()], "a's sender keys at b")
    say(a, "zero")
    wait_for(lambda: len(logged(b)) == 1, "the channel")
    b.kill()
    for number in range(4):
        say(a, f"missed {number}")
    b.start()
    wait_for(lambda: feed_of(b, "watched") == 1, "the store")
    say(a, "last")
    wait_for(lambda: len(logged(b)) == 6, "what it missed")
    assert logged(b) == logged(a)
    [line] = b.status()["channels"]
    assert line["recalled"] == 4 and line["repaired"] == 0, json.dumps(line)


def test_who_serves_needs_a_place_for_its_mail(make_home: MakeHome, broker: Broker) -> None:
    s = make_home("s", S)
    add(s, *feed_rows(broker.start() + "/log", "serve = true"))
    Path(s.path / "mail.db").mkdir()
    done = s.run("agent")
    assert done.returncode == 1 and "mail.db: it cannot be opened" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1
