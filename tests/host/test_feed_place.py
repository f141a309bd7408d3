"""A feed in another agent's store behind a broker: the last place that a wiped agent has."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from drupelet.base.errors import StorageError
from drupelet_host.agent.brokers import Brokers
from drupelet_host.base import clock
from drupelet_host.broker import Broker
from drupelet_host.clients.feed_notices import ACCESS_SIZE, Feed
from drupelet_host.feeds import agent_feed
from drupelet_host.feeds.agent_feed import AgentFeed
from drupelet_host.feeds.places import STORE_KEY_NAME, STORES_MAX, Places
from drupelet_host.home import config, private_files
from drupelet_host.home.config import Config, FeedSettings, Peer
from drupelet_host.member.member import Member
from drupelet_host.remote.content_store import SqliteRemoteStore
from drupelet_host.view import doctor
from drupelet_transports.common.url import Url
from drupelet_transports.host.mqtt_host import MqttClient
from host.conftest import Cable, Home, wait_for
from host.lost_store import wipe
from opened import opened

A, S = 0xA0000001, 0x50000002
MakeHome = Callable[..., Home]


def with_place(home: Home, place: str, serve: bool = False) -> None:
    rows = ["", "[feed]", f'place = "{place}"', "period_ms = 50", *(["serve = true"] * serve)]
    with (home.path / "drupelet.toml").open("a") as file:
        file.write("\n".join(rows) + "\n")


def pushed(home: Home) -> int:
    return int((home.status()["feed"] or {}).get("pushed", 0))


def test_a_wiped_agent_recovers_from_the_store_of_another(
    make_home: MakeHome, cable: Cable, broker: Broker
) -> None:
    """The two are joined by a cable; what is left without it is the broker, for the feed alone."""
    place = broker.start() + "/log"
    a = make_home("a", A, Peer("s", S.to_bytes(4), cable.url(0), "interactive", 50))
    s = make_home("s", S, Peer("a", A.to_bytes(4), cable.url(1), "interactive", 50))
    with_place(a, place)
    with_place(s, place, serve=True)
    a.start()
    for row in range(5):
        a.put(f"a {row}")
    wait_for(lambda: a.events("feed"), "word of the missing store")
    assert "no member has told" in a.events("feed")[0]["reason"]
    s.start()
    s.put("s 0")
    a.put("long " * 1000)
    wait_for(lambda: len(a.log()) == len(s.log()) == 7, "all readings")
    wait_for(lambda: pushed(a) >= 7 and pushed(s) >= 7, "both feeds")
    wait_for(lambda: s.status()["feed"]["watched"] == 1, "word of a's feed at s")
    wait_for((a.path / "keys" / STORE_KEY_NAME).exists, "the store's key at a")
    before = sorted(entry["id"] for entry in a.log())

    cable.plugged = False
    a.stop()
    wipe(a)
    a.start()
    wait_for(lambda: len(a.log()) == 7, "its log")
    assert sorted(entry["id"] for entry in a.log()) == before
    a.put("after the loss")
    wait_for(lambda: len(s.log()) == 8, "the new one, out of its own store")
    assert a.check_alive() is False and s.check_alive() is False
    # Nothing in the store says what it is about.
    assert "after the loss" in [entry["text"] for entry in s.log()]
    # While it is not there, everything else goes on; and it is asked again.
    s.stop()
    a.put("while s is away")
    wait_for(lambda: len(a.log()) == 9, "a's own")
    a.put("while a asks")
    wait_for(lambda: len(a.log()) == 10, "a's own, again")
    s.start()
    wait_for(lambda: len(s.log()) == 10, "both, by the feed")


def test_who_serves_says_that_nobody_can_ask(make_home: MakeHome, broker: Broker) -> None:
    """Its own log goes to its own store all the same."""
    place = broker.start() + "/log"
    broker.stop()
    s = make_home("s", S)
    with_place(s, place, serve=True)
    s.start()
    s.put("s 0")
    wait_for(lambda: s.events("feed"), "word of the broker")
    reason = s.events("feed")[0]["reason"]
    assert reason.startswith(place) and "nobody listens there" in reason
    wait_for(lambda: pushed(s) == 1, "its own feed")
    assert s.status()["feed"]["reason"] == reason
    assert doctor.Check(
        "carriers", doctor.WARN, f"feed: {reason}", "the agent goes on by itself then"
    ) in doctor.examine(s.path)


def make(folder: Path, name: str, number: int, feed: FeedSettings) -> Config:
    peer = Peer("other", b"oooo", "mqtt://elsewhere:1883/p")
    settings = Config(folder / name, name, number.to_bytes(4), "orchard", 50, None, (peer,))
    config.create(settings)
    return Config(**{**settings.__dict__, "feed": feed})


def test_only_brokers_of_the_own_configuration_are_asked(tmp_path: Path) -> None:
    member = Member(make(tmp_path, "a", A, FeedSettings("mqtt://here:1883/p")))
    asked = set()

    class NotedBrokers(Brokers):
        def client(self, url: Url) -> MqttClient:
            asked.add(url.host)
            return super().client(url)

    places = Places(member, NotedBrokers(), lambda: None)
    access = bytes(range(ACCESS_SIZE))
    for place in ("mqtt://here:1883/p", "mqtt://elsewhere:1883/p"):
        assert places.open(place, access) is places.open(place, access) is not None
        assert places.open(place, b"") is None
    for place in ("mqtt://stranger:1883/p", "mqtt://here:1883/q", "serial:///dev/x", "mqtt:?", ""):
        assert places.open(place, access) is None
    assert asked == {"here", "elsewhere"}
    stores = [
        places.open("mqtt://here:1883/p", bytes((number,)) * ACCESS_SIZE) for number in range(20)
    ]
    assert sum(store is not None for store in stores) == STORES_MAX - 2
    member.close(clock.now_ms())


def test_the_store_at_a_place_is_found_by_word_of_members_and_kept(tmp_path: Path) -> None:
    place = "mqtt://here:1883/p"
    settings = make(tmp_path, "a", A, FeedSettings(place))
    member = Member(settings)
    places = Places(member, Brokers(), lambda: None)
    assert places.own({}) is None
    root, group = bytes(32), bytes(32)
    first, second = b"1" * ACCESS_SIZE, b"2" * ACCESS_SIZE
    known = {
        b"none": Feed(root, group, (place,)),
        b"else": Feed(root, group, ("mqtt://here:1883/q",), b"3" * ACCESS_SIZE),
        b"one ": Feed(root, group, (place,), first),
        b"two ": Feed(root, group, (place,), second),
    }
    assert places.own(known) is not None and places.access == first
    places.failed()
    assert places.own(known) is not None and places.access == second
    places.works()
    # After a loss nobody may be there to tell.
    again = Places(member, Brokers(), lambda: None)
    assert again.own({}) is not None and again.access == second
    member.close(clock.now_ms())


def test_a_store_that_does_not_answer_is_asked_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make(tmp_path, "a", A, FeedSettings("mqtt://127.0.0.1:1/p", True, 50))
    member = Member(settings)
    brokers = Brokers()
    places = Places(member, brokers, lambda: None)
    (tmp_path / "a" / "keys").mkdir(mode=0o700, exist_ok=True)
    private_files.replace(settings.keys_path / STORE_KEY_NAME, bytes(ACCESS_SIZE))
    told: list[str] = []
    assert settings.feed is not None
    feed = AgentFeed(
        member, settings.feed, places, member.take_delivered, lambda _, why: told.append(why), 0
    )
    tries: list[int] = []
    moment = SimpleNamespace(ms=0)
    failed = places.failed

    def failed_again() -> None:
        tries.append(moment.ms)
        failed()

    monkeypatch.setattr(places, "failed", failed_again)
    monkeypatch.setattr(agent_feed, "clock", SimpleNamespace(now_ms=lambda: moment.ms))
    feed.turn(0)
    for number in range(1, 20):
        due_ms = tries[-1] + min(50 << number, 600_000)
        for moment.ms in (due_ms - 1, due_ms):
            feed.turn(moment.ms)
        assert tries[-1] == due_ms and len(tries) == number + 1
    assert len(told) == 1 and "nobody listens there" in told[0]
    brokers.close()
    member.close(clock.now_ms())


def test_a_failed_write_of_the_served_store_takes_no_message_along(tmp_path: Path) -> None:
    settings = make(tmp_path, "s", S, FeedSettings("mqtt://127.0.0.1:1/p", True, 50, True))
    member = Member(settings)
    places = opened(Places(member, Brokers(), lambda: None))
    key = json.dumps((settings.keys_path / STORE_KEY_NAME).read_bytes().hex())
    assert len(places.access) == ACCESS_SIZE and places.access.hex() in key
    store = places.own({})
    assert isinstance(store, SqliteRemoteStore)
    member.node.publish(member.readings, b"\0text", 5, bytes(8), 0)
    member.store.connection.execute(
        "CREATE TRIGGER full BEFORE INSERT ON remote_contents"
        " BEGIN SELECT RAISE(ABORT, 'no room'); END"
    )
    with pytest.raises(StorageError, match="no room"):
        store.add(b"content")
    assert not member.store.connection.in_transaction and not member.store.failure
    assert opened(Places(member, Brokers(), lambda: None)).access == places.access
    member.close(clock.now_ms())
