"""`drupelet group push` and `pull`: a wiped home gets its log back, and a peer reads it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet.base.errors import StorageError
from drupelet.node import BATCH, CARRIER_MQTT, PROFILE_BSP_1
from drupelet_host.agent.brokers import Brokers
from drupelet_host.base import clock
from drupelet_host.cli import app
from drupelet_host.clients.feed_notices import Feed
from drupelet_host.feeds.agent_feed import AgentFeed
from drupelet_host.feeds.home_log import FeedWatch, LogSource, Source, open_folder, run_alone
from drupelet_host.feeds.places import Places
from drupelet_host.home import config
from drupelet_host.home.config import Config, FeedSettings, Peer
from drupelet_host.member.member import Member
from drupelet_host.remote.content_store import FolderStore
from drupelet_host.remote.log import POLL_MS_MAX, POLL_MS_MIN, LogReader, take_news
from drupelet_host.store import database, outbox
from drupelet_host.view.log_view import LogView


def make(folder: Path, name: str, other: str) -> Config:
    peer = Peer(other, other.encode() * 4, "stick:")
    made = Config(folder / name, name, name.encode() * 4, "orchard", 50, None, (peer,))
    config.create(made)
    return made


def write(settings: Config, count: int) -> None:
    member = Member(settings)
    write_into(member, count)
    member.close(clock.now_ms())


def write_into(member: Member, count: int) -> None:
    member.commit()  # what it has open would keep the letters out
    connection = database.connect(member.config.store_path)
    for number in range(count):
        outbox.post(connection, b"reading %d" % number)
    connection.close()
    while member.publish_letters(clock.now_ms()):
        for event in member.events():
            member.take_delivered(event)


def log(settings: Config) -> list[tuple[str, str]]:
    view = LogView(settings.home)
    found = [(entry.id.hex(), entry.payload.decode()) for entry in view.entries()]
    view.close()
    return found


def folders(member: Member) -> Callable[[str, Feed], Source | None]:
    """The logs in folders that are there."""

    def source(place: str, feed: Feed) -> Source | None:
        store = open_folder(place)
        return LogSource(member, feed.keys, store) if store is not None else None

    return source


def run(*words: str) -> dict[str, object]:
    result = CliRunner().invoke(app.app, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    made: dict[str, object] = json.loads(result.output)
    return made


def test_a_wiped_home_gets_every_message_back_in_order(tmp_path: Path) -> None:
    ann, place = make(tmp_path, "a", "b"), tmp_path / "stick"
    place.mkdir()
    write(ann, 150)
    words = (str(place), "--home", str(ann.home))
    assert run("group", "push", *words)["pushed"] == 150
    assert run("group", "push", *words)["pushed"] == 0
    before = log(ann)
    for path in ann.home.glob("store.db*"):
        path.unlink()
    ann.status_path.unlink(missing_ok=True)
    assert run("group", "pull", *words)["pulled"] == 150
    assert log(ann) == before
    write(ann, 3)
    assert run("group", "push", *words) == {
        "pushed": 3,
        "stored": 153,
        "place": f"folder:{place}",
    }
    assert all(b"reading" not in path.read_bytes() for path in place.rglob("*.*"))


def pushed(home: Config, place: Path, count: int) -> Feed:
    """A member's feed with so many readings, in a place that is made for it."""
    place.mkdir()
    write(home, count)
    run_alone(home, "push", place)
    member = Member(home)
    feed = member.clients.feeds.known()[home.id]
    member.close(clock.now_ms())
    return feed


def test_what_a_feed_brings_back_is_not_all_our_own(tmp_path: Path) -> None:
    ann, ben, place = make(tmp_path, "a", "b"), make(tmp_path, "b", "a"), tmp_path / "stick"
    feed = pushed(ben, place, 2)
    member = Member(ann)
    member.clients.feeds.announce(ben.id, feed, bytes(8), 0)
    member.close(clock.now_ms())
    run_alone(ann, "pull", place)
    write(ann, 1)
    assert authors(ann) == ["", "", "a"]  # a text does not say who wrote it
    run_alone(ann, "push", place)
    for path in ann.home.glob("store.db*"):
        path.unlink()
    ann.status_path.unlink(missing_ok=True)
    assert run_alone(ann, "pull", place)["pulled"] == 3
    assert authors(ann) == ["", "", ""]
    write(ann, 1)
    run_alone(ann, "push", place)
    assert run_alone(ann, "pull", place)["pulled"] == 0
    assert authors(ann) == ["", "", "", "a"]


def test_what_a_member_brings_that_is_no_peer_is_not_ours(tmp_path: Path) -> None:
    ann, ben, place = make(tmp_path, "a", "c"), make(tmp_path, "b", "a"), tmp_path / "stick"
    feed = pushed(ben, place, 70)
    member = Member(ann)
    member.clients.feeds.announce(ben.id, feed, bytes(8), 0)
    member.close(clock.now_ms())
    run_alone(ann, "pull", place)
    assert authors(ann) == 70 * [""]
    view = LogView(ann.home)
    taken = "SELECT substr(key, ?), value FROM meta WHERE key GLOB ?"
    [(first, last)] = view.connection.execute(  # two turns, one row
        taken, (len(database.TAKEN) + 1, database.TAKEN + "*")
    )
    assert int(last) - int(first) == 69
    view.close()


def bring(sender: Member, receiver: Member) -> None:
    """Carry what the sender owes the receiver over a line without loss."""
    ends = [
        one.node.link(one.numbers[other.config.id], PROFILE_BSP_1, CARRIER_MQTT, 1000, BATCH)
        for one, other in ((sender, receiver), (receiver, sender))
    ]
    frame = bytearray(1024)
    for now_ms in range(0, 12_000, 1000):
        for here, there in (ends, ends[::-1]):
            while size := here.poll_into(frame, now_ms):
                there.receive(frame, size, now_ms)


@pytest.mark.parametrize("ahead_ms", [1, 86_400_000, (1 << 63) - 1 - 1_700_000_000_000])
def test_nobody_else_says_what_our_root_is(tmp_path: Path, ahead_ms: int) -> None:
    """Who could make us upload under a root of its own would read all, revoked or not."""
    ann, ben, place = make(tmp_path, "a", "b"), make(tmp_path, "b", "a"), tmp_path / "stick"
    feed = pushed(ann, place, 2)
    lie = Feed(bytes(range(32)), feed.group, feed.places)
    liar, member = Member(ben), Member(ann)
    body = b"\x00" + ann.id + lie.encode()
    stamp = (1_700_000_000_000 + ahead_ms).to_bytes(8)
    group = liar.clients.feeds.group
    assert liar.node.publish(group, body, len(body), stamp, 0) > 0
    bring(liar, member)
    liar.close(clock.now_ms())
    assert member.store.next(0) and member.clients.feeds.own(ann.id) == feed
    write_into(member, 1)
    member.close(clock.now_ms())
    assert run_alone(ann, "push", place) == {"pushed": 1, "stored": 3, "place": feed.places[0]}
    assert FolderStore(place).fetch(lie.keys.name) is None
    # The members are told again what is true.
    member = Member(ann)
    assert member.clients.feeds.known() == {ann.id: feed}
    member.close(clock.now_ms())


def authors(settings: Config) -> list[str]:
    view = LogView(settings.home)
    try:
        assert all(entry.via in ("a", "b") for entry in view.entries())
        return [entry.author for entry in view.entries()]
    finally:
        view.close()


def test_a_peer_that_knows_the_feed_reads_it(tmp_path: Path) -> None:
    ann, ben, place = make(tmp_path, "a", "b"), make(tmp_path, "b", "a"), tmp_path / "stick"
    feed = pushed(ann, place, 20)
    assert feed.places == (f"folder:{place}",)
    assert run_alone(ben, "pull", place)["pulled"] == 0  # it knows of no feed yet
    member = Member(ben)
    groups = member.clients
    groups.feeds.announce(ann.id, feed, bytes(8), 0)  # as it comes from a
    member.close(clock.now_ms())
    done = run_alone(ben, "pull", place)
    assert done["pulled"] == 20 and done["feeds"]["a"] == 20
    assert log(ben) == log(ann)


def test_an_agent_watches_feeds_less_often_while_they_do_not_grow(tmp_path: Path) -> None:
    ann, ben, place = make(tmp_path, "a", "b"), make(tmp_path, "b", "a"), tmp_path / "stick"
    feed = pushed(ann, place, 5)
    member = Member(ben)
    groups = member.clients
    watch = FeedWatch(member, groups, folders(member))
    assert watch.turn(0) == 0 and watch.wait_ms(0) == POLL_MS_MAX
    groups.feeds.announce(ann.id, feed, bytes(8), 0)
    assert watch.turn(0) == 5
    looks, now_ms = [], 0
    for _ in range(10):
        wait_ms = watch.wait_ms(now_ms)
        assert watch.turn(now_ms + wait_ms - 1) == 0
        now_ms += wait_ms
        looks.append(wait_ms)
        assert watch.turn(now_ms) == 0
    assert looks == sorted(looks) and looks[-1] > 10 * looks[0]
    write(ann, 1)
    run_alone(ann, "push", place)
    assert watch.turn(now_ms) == 0  # not before it is time
    assert watch.turn(now_ms + watch.wait_ms(now_ms)) == 1
    place.rename(tmp_path / "gone")
    now_ms += POLL_MS_MAX
    assert watch.turn(now_ms) == 0 and watch.failures == 1
    member.close(clock.now_ms())


def test_members_are_told_of_a_feed_before_its_place_is_there(tmp_path: Path) -> None:
    """Who hears of it with the first message can follow it when no link is left."""
    place = tmp_path / "stick"
    settings = FeedSettings(f"folder:{place}", True, 50)
    ann = replace(make(tmp_path, "a", "b"), feed=settings)
    member = Member(ann)
    troubles: list[str] = []
    places = Places(member, Brokers(), lambda: None)
    feed = AgentFeed(
        member, settings, places, member.take_delivered, lambda _, why: troubles.append(why), 0
    )
    feed.turn(0)
    known = member.clients.feeds.known()[ann.id]
    assert known.places == (f"folder:{place}",) and "no such folder" in troubles[0]
    write_into(member, 3)
    feed.turn(50)
    assert feed.pushed == 0 and len(troubles) == 1
    place.mkdir()
    feed.turn(100)
    assert feed.pushed == 3 and troubles[1:] == [""]
    assert member.clients.feeds.known()[ann.id] == known  # nothing that has to be told anew
    feed.turn(150)
    assert feed.pushed == 3
    member.close(clock.now_ms())


def test_a_feed_that_grows_is_looked_at_as_often_whatever_brings_it(tmp_path: Path) -> None:
    """Messages that links bring first are no reason to look less often: the links may go."""
    ann, place = make(tmp_path, "a", "b"), tmp_path / "stick"
    feed = pushed(ann, place, 5)
    ben = make(tmp_path, "b", "a")
    member = Member(ben)
    member.clients.feeds.announce(ann.id, feed, bytes(8), 0)
    watch = FeedWatch(member, member.clients, folders(member))
    assert watch.turn(0) == 5 and watch.watched == 1
    now_ms = 0
    for _ in range(12):
        write(ann, 1)
        run_alone(ann, "push", place)
        # As over a cable: b has it before it looks.
        reader = LogReader(feed.keys, FolderStore(place))
        link = member.stick_link(ann.id)
        assert take_news(reader, member.node, member.readings, link, now_ms) == 1
        now_ms += watch.wait_ms(now_ms)
        assert watch.turn(now_ms) == 0
        assert watch.wait_ms(now_ms) == POLL_MS_MIN
    member.close(clock.now_ms())


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    ann = make(tmp_path, "a", "b")
    with pytest.raises(StorageError, match="no such folder"):
        run("group", "push", str(tmp_path / "none"), "--home", str(ann.home))
