"""Who was revoked or removed reads no feed any more, and nothing is read of its own."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from drupelet_host.broker import Broker
from drupelet_host.clients.feed_notices import Feed
from drupelet_host.feeds import home_log
from drupelet_host.feeds.root import FeedRoot
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.home.private_files import PrivateError
from drupelet_host.remote.log import POLL_MS_MIN
from host.conftest import Home, share_keys, wait_for

A, C, D = 0xA0000001, 0xC0000003, 0xD0000004
MakeHome = Callable[..., Home]
# An agent waits so long for a store that does not answer, and does nothing else meanwhile.
SOON = {"drupelet_host.remote.store_over_mqtt.ANSWER_S": 1.0}


def texts(home: Home) -> list[str]:
    return sorted(row["text"] for row in home.log())


def follow(home: Home, place: str, *more: str) -> None:
    with (home.path / "drupelet.toml").open("a") as file:
        rows = ["[feed]", f'place = "{place}"', "period_ms = 200", *more]
        file.write("\n" + "\n".join(rows) + "\n")


class Three:
    """Members of one group: a knows c and d, who know a alone; each keeps a feed at one place."""

    def __init__(self, make_home: MakeHome, url: str, place: str, *more: str) -> None:
        known = [Peer("c", C.to_bytes(4), url), Peer("d", D.to_bytes(4), url)]
        self.a = make_home("a", A, *known)
        self.c = make_home("c", C, Peer("a", A.to_bytes(4), url))
        self.d = make_home("d", D, Peer("a", A.to_bytes(4), url))
        follow(self.a, place, *more)
        for other in (self.c, self.d):
            share_keys(self.a, other)
            follow(other, place)
        homes = (self.a, self.c, self.d)
        for home in homes:
            home.start("--wait", **SOON)
        for home in homes:
            home.put(f"{home.name} before")
        for home in homes:
            wait_for(lambda home=home: len(home.log()) == 3, f"what all wrote, at {home.name}")
            count = 2 if home is self.a else 1
            wait_for(lambda h=home, n=count: h.status()["feed"]["watched"] == n, "feeds")
        wait_for(lambda: self.a.status()["feed"]["pushed"] >= 3, "a's feed")

    def check_apart(self) -> None:
        """What c writes is not at a, what others write is not at c; a and d have all of theirs."""
        for home in (self.c, self.a, self.d):
            home.put(f"{home.name} after")
        for home in (self.a, self.d):
            wait_for(lambda home=home: len(home.log()) == 5, f"the rest, at {home.name}")
            assert "c after" not in texts(home)
        assert "c after" in texts(self.c) and len(self.c.log()) == 4


@pytest.mark.parametrize("how", ["revoke", "remove", "while it is stopped"])
def test_who_is_shut_out_reads_no_store(make_home: MakeHome, broker: Broker, how: str) -> None:
    url = broker.start() + "/t"
    three = Three(make_home, url, url + "/log", "serve = true")
    a, c, d = three.a, three.c, three.d
    before = FeedRoot(config.load(a.path)).current(b"")
    store_key = (a.path / "keys" / "store.key").read_bytes()
    failures = c.status()["feed"]["failures"]
    if how == "while it is stopped":
        a.stop()
    done = a.run(*(("peer", "remove", "c") if how == "remove" else ("revoke", "c")))
    assert done.returncode == 0, done.stderr
    if how == "while it is stopped":
        a.start("--wait", **SOON)
    wait_for(lambda: FeedRoot(config.load(a.path)).current(b"") != before, "another root")
    wait_for(lambda: (a.path / "keys" / "store.key").read_bytes() != store_key, "another key")
    wait_for(lambda: c.status()["feed"]["failures"] > failures, "a store that answers c no more")
    three.check_apart()
    wait_for(lambda: (d.status()["feed"] or {}).get("reason") == "", "d's feed at the new store")


def test_who_is_shut_out_reads_no_folder(
    make_home: MakeHome, broker: Broker, tmp_path: Path
) -> None:
    """It has the files, and can write there: what is new it cannot open, what is its is left."""
    (tmp_path / "log").mkdir()
    three = Three(make_home, broker.start() + "/t", f"folder:{tmp_path / 'log'}")
    assert three.a.run("revoke", "c").returncode == 0
    three.check_apart()
    time.sleep(2 * POLL_MS_MIN / 1000)  # all have looked
    assert "c after" not in texts(three.a) and len(three.c.log()) == 4


def test_the_root_changes_only_for_who_goes(tmp_path: Path) -> None:
    peers = tuple(Peer(f"p{n}", bytes([n, 0, 0, 1]), "stick:") for n in range(3))
    made = Config(tmp_path / "home", "a", b"aaaa", "orchard", 50, None, peers)
    config.create(made)

    def root_with(*kept: Peer) -> bytes:
        roots = FeedRoot(Config(made.home, "a", b"aaaa", "orchard", 50, None, kept))
        roots.renew()
        return roots.current(b"")

    first = root_with(*peers[:2])
    assert root_with(*peers[:2]) == first
    assert root_with(*peers) == first, "one more may know it"
    second = root_with(*peers[1:])
    assert second != first
    # What the members were told of before does not count against it, until they know it.
    roots = FeedRoot(made)
    assert roots.current(first) == second
    roots.mark_announced()
    assert roots.current(first) == first, "its own may be of an old backup"
    assert root_with(*peers) == second


@pytest.mark.parametrize("revoked", [True, PrivateError("keys: others can get at it")])
def test_a_feed_that_is_not_to_be_read_is_looked_at_seldom(
    monkeypatch: pytest.MonkeyPatch, revoked: bool | PrivateError
) -> None:
    """Its keys are not looked up in each turn; keys that cannot be read do not end the agent."""
    asked: list[bytes] = []

    def is_revoked(_: Path, device: bytes) -> bool:
        asked.append(device)
        if isinstance(revoked, PrivateError):
            raise revoked
        return revoked

    group = bytes(32)
    monkeypatch.setattr(home_log, "is_revoked", is_revoked)
    monkeypatch.setattr(home_log.host_api, "group_id", lambda *_: group)
    feed = Feed(bytes(32), group, ("place",))
    known = SimpleNamespace(feeds=SimpleNamespace(known=lambda: {b"cccc": feed}))
    member = SimpleNamespace(
        node=None, readings=0, numbers={b"cccc": 1}, config=SimpleNamespace(keys_path=Path("none"))
    )
    source = SimpleNamespace(period_s=0)  # whoever fetches from it fails
    watch = home_log.FeedWatch(member, known, lambda *_: source)  # type: ignore[arg-type]
    for now_ms in range(0, 20_000, 100):
        monkeypatch.setattr(home_log.clock, "now_ms", lambda now_ms=now_ms: now_ms)
        assert watch.turn(now_ms) == 0
    assert 2 <= len(asked) <= 4
    assert watch.failures == (0 if revoked is True else len(asked))
