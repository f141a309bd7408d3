"""A public group by its topic; notices: feeds and carriers, announced in groups of their own."""

from pathlib import Path

import pytest

from drupelet import host_api
from drupelet.base.errors import CapacityError, PeerError
from drupelet.node import Node
from drupelet.store.states import STATE_DELETED
from drupelet_host.agent.random_sharing import drawn
from drupelet_host.base import clock
from drupelet_host.clients.carriers import CarrierGroup, Carriers, decode_carriers, new_peers
from drupelet_host.clients.feed_notices import Feed, Feeds, decode_feed
from drupelet_host.clients.notices import (
    AHEAD_MS_MAX,
    STRANGERS_PER_SENDER_MAX,
    TIMESTAMP_MS_MAX,
)
from drupelet_host.clients.public import topic_descriptor
from drupelet_host.home.client_ids import PUBLIC_CLIENT_ID
from drupelet_host.home.config import Config, Peer
from drupelet_host.remote.content_store import FolderStore
from drupelet_host.remote.log import LogReader, LogWriter, take_news
from helpers import Draw
from helpers_clients import World
from helpers_remote import Device, upload

STAMP = (1_700_000_000_000).to_bytes(8)


def join_topic(node: Node, topic: str) -> int:
    return node.join(PUBLIC_CLIENT_ID, topic_descriptor(topic))


def publish(world: World, name: str, group: int, text: bytes) -> None:
    body = b"\x00" + text
    assert world.nodes[name].publish(group, body, len(body), STAMP, world.now_ms) > 0


def carrier_groups(world: World) -> tuple[dict[str, CarrierGroup], dict[str, dict[int, bytes]]]:
    """The group of carriers at each node of a world that starts, and the rosters."""
    rosters = {name: world.roster(name) for name in world.nodes}
    groups = {
        name: CarrierGroup(node, b"orchard", rosters[name]) for name, node in world.nodes.items()
    }
    world.start({name: made.group for name, made in groups.items()})
    return groups, rosters


def claim(world: World, group: CarrierGroup, by: str, device: bytes, ms: int) -> Carriers:
    """Have node `by` say how any device is reached, as if that had been said at a time."""
    carriers = Carriers(device.hex(), (f"mqtt://{by}/x",))
    body = b"\x00" + device + carriers.encode()
    assert world.nodes[by].publish(group.group, body, len(body), ms.to_bytes(8), world.now_ms) > 0
    return carriers


def talk(names: str, share_with: int, epochs: int) -> World:
    """Everybody says one thing, and all get all; the world after so many epochs."""
    world = World(names)
    groups = {name: join_topic(node, "#drupelet") for name, node in world.nodes.items()}
    world.start(groups)
    draw = Draw(3)
    for name in names:
        publish(world, name, groups[name], name.encode() * 400)
    for epoch in range(epochs):
        if epoch % 8 == 0:
            for name in names:
                others = [other for other in names if other != name]
                chosen = drawn(others, share_with, draw)
                assert len(set(chosen)) == min(share_with, len(others))
                for other in others:
                    host_api.set_quiet(world.links[name, other], other not in chosen)
        world.run(1)
    assert all(node.delivered == len(names) for node in world.nodes.values())
    return world


def test_a_public_group_reaches_all_with_few_copies() -> None:
    names = "abcdefghij"
    few, every = talk(names, 2, 64), talk(names, len(names), 64)
    assert few.bytes < every.bytes


def test_the_same_topic_is_the_same_group() -> None:
    one, two = World("ab"), World("cd")
    ids = []
    for world in (one, two):
        for node in world.nodes.values():
            group = join_topic(node, "käse")
            at = node.core.members.group_row(group) * 32
            ids.append(bytes(node.core.members.group_ids[at : at + 32]))
    assert len(set(ids)) == 1
    assert topic_descriptor("käse") != topic_descriptor("kase")
    for bad in ("", "x" * 256):
        with pytest.raises(CapacityError):
            topic_descriptor(bad)


def test_members_learn_of_feeds_and_a_wiped_one_finds_its_own(tmp_path: Path) -> None:
    world = World("ab")
    feeds = {
        name: Feeds(node, b"orchard", world.roster(name)) for name, node in world.nodes.items()
    }
    world.start({name: made.group for name, made in feeds.items()})
    ann = Device()
    for number in range(20):
        ann.put(b"%d" % number)
    feed = Feed(bytes(range(32)), bytes(32), (f"folder:{tmp_path}",), bytes(36))
    upload(LogWriter(ann.node, ann.group, feed.keys, FolderStore(tmp_path)))
    feeds["a"].announce(world.id("a"), feed, STAMP, 0)
    world.run()
    assert feeds["b"].known() == {world.id("a"): feed}
    assert feed.root.hex() not in repr(feed) and repr(feed.root) not in repr(feed)
    # a is wiped; b tells it where its log is, and what opens it.
    again = World("ab")
    again.nodes["b"] = world.nodes["b"]
    lost = Feeds(again.nodes["a"], b"orchard", again.roster("a"))
    again.start({"a": lost.group})
    again.nodes["b"].share(feeds["b"].group, again.peers["b", "a"], 0)
    again.nodes["b"].share(feeds["b"].group, again.peers["b", "a"], 2)
    again.links["b", "a"].exchange.forget_holds()
    again.run(30)
    own = lost.known()[again.id("a")]
    device = Device()
    place = FolderStore(Path(own.places[0].removeprefix("folder:")))
    assert take_news(LogReader(own.keys, place), device.node, device.group, None, 0) == 20
    assert device.log() == ann.log()


def test_only_the_newest_notice_of_a_device_is_kept() -> None:
    world = World("ab")
    groups, _ = carrier_groups(world)
    for number in range(20):
        stamp = (1000 + number).to_bytes(8)
        carriers = Carriers("a", (f"mqtt://host{number}/x",))
        groups["a"].announce(world.id("a"), carriers, stamp, world.now_ms)
        groups["a"].announce(world.id("a"), carriers, stamp, world.now_ms)  # nothing new: not said
        world.run(4)
        groups["b"].known()
    assert groups["b"].known() == {world.id("a"): Carriers("a", ("mqtt://host19/x",))}
    store, kept, handle = world.nodes["b"].store, 0, world.nodes["b"].store.next(0)
    while handle:
        store.load(handle)
        kept += store.state != STATE_DELETED
        handle = store.next(handle)
    assert kept == 1


@pytest.mark.parametrize("ahead_ms", [0, 365 * 86_400_000])
def test_a_clock_that_was_ahead_does_not_have_the_last_word(ahead_ms: int) -> None:
    """Each epoch said the new one again, for it was deleted as the older one."""
    world = World("ab")
    groups, _ = carrier_groups(world)
    ahead = (int.from_bytes(STAMP) + ahead_ms).to_bytes(8)
    groups["a"].announce(world.id("a"), Carriers("a", ("mqtt://old/x",)), ahead, 0)
    for _ in range(5):
        groups["a"].announce(world.id("a"), Carriers("a", ("mqtt://new/x",)), STAMP, 0)
    assert world.nodes["a"].delivered <= 2
    world.run(4)
    assert groups["b"].known() == {world.id("a"): Carriers("a", ("mqtt://new/x",))}


@pytest.mark.parametrize("wall_ms", [0, clock.SET_MS + 86_400_000], ids=["clock not set", "set"])
def test_a_time_that_no_clock_shows_is_nobodys_last_word(
    monkeypatch: pytest.MonkeyPatch, wall_ms: int
) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: wall_ms)
    world = World("abc")
    groups, _ = carrier_groups(world)
    for ms in ((1 << 63) - 1, TIMESTAMP_MS_MAX + 1):
        claim(world, groups["b"], "b", world.id("a"), ms)
    last_ms = wall_ms + AHEAD_MS_MAX if wall_ms else TIMESTAMP_MS_MAX
    claim(world, groups["b"], "b", world.id("a"), last_ms - 1)
    world.run(4)
    stamp = wall_ms.to_bytes(8)
    own = Carriers("a", ("mqtt://own/x",))
    groups["a"].announce(world.id("a"), own, stamp, world.now_ms)
    world.run(4)
    assert [groups[name].known() for name in "abc"] == 3 * [{world.id("a"): own}]
    # One more lie has the very last time: who is lied about is told that it cannot be heard.
    claim(world, groups["b"], "b", world.id("a"), last_ms)
    world.run(4)
    for _ in range(2):
        with pytest.raises(CapacityError, match="61616161: no notice can be newer"):
            groups["a"].announce(world.id("a"), Carriers("a", ("mqtt://x/x",)), stamp, 0)
    assert groups["a"].notices.own(world.id("a")) == own.encode()


def test_who_says_something_of_invented_devices_shuts_nobody_out() -> None:
    world = World("abc")
    groups, rosters = carrier_groups(world)
    invented = [number.to_bytes(4) for number in range(1, 301)]
    for device in invented:
        claim(world, groups["b"], "b", device, int.from_bytes(STAMP))
    world.run(30)
    assert len(groups["a"].known()) == STRANGERS_PER_SENDER_MAX
    claims = {}
    for name in "abc":
        claims[world.id(name)] = Carriers(name, (f"mqtt://{name}/x",))
        groups[name].announce(world.id(name), claims[world.id(name)], STAMP, world.now_ms)
    # A member of another member is heard of all the same.
    claims[b"dddd"] = claim(world, groups["c"], "c", b"dddd", int.from_bytes(STAMP))
    world.run(30)
    known = groups["a"].known()
    assert known.items() >= claims.items() and len(known) == len(claims) + STRANGERS_PER_SENDER_MAX
    # Removed or revoked, what it said is gone; what others said stays.
    rosters["a"].pop(world.peers["a", "b"])
    del claims[world.id("b")]
    assert groups["a"].known() == claims
    assert groups["a"].notices.turn() is False


def test_a_lie_goes_with_the_member_that_told_it() -> None:
    world = World("abc")
    groups, rosters = carrier_groups(world)
    own = Carriers("c", ("mqtt://own/x",))
    groups["c"].announce(world.id("c"), own, STAMP, 0)
    world.run(4)
    lie = claim(world, groups["b"], "b", world.id("c"), int.from_bytes(STAMP) + 1)
    world.run(4)
    assert groups["a"].known() == {world.id("c"): lie}
    rosters["a"].pop(world.peers["a", "b"])
    assert groups["a"].known() == {world.id("c"): own}


def test_a_host_proposes_members_as_peers(tmp_path: Path) -> None:
    settings = Config(
        tmp_path, "me", b"mine", "orchard", 50, None, (Peer("ben", b"benn", "stick:"),)
    )
    known = {
        b"mine": Carriers("me", ("mqtt://here/x",)),
        b"benn": Carriers("ben", ("mqtt://there/x",)),
        b"cidi": Carriers("cid", ("serial:///dev/ttyACM0", "mqtt://broker:1883/x")),
        b"dott": Carriers("dot", ("serial:///dev/ttyACM0",)),
        b"evil": Carriers("ben", ("mqtt://broker/x",)),
        b"bad!": Carriers("bad", ("mqtt://", "nonsense")),
    }
    [peer] = new_peers(settings, known)
    assert (peer.name, peer.id, peer.url) == ("cid", b"cidi", "mqtt://broker:1883/x")


def test_notices_that_say_nothing_are_ignored() -> None:
    with pytest.raises(PeerError):
        decode_feed(b"\x0a\x01x")
    with pytest.raises(PeerError):
        decode_carriers(b"")
    with pytest.raises(PeerError):
        decode_carriers(b"\x0a\x03a\nb")
    world = World("ab")
    groups, _ = carrier_groups(world)
    for text in (b"", b"abc", b"abcd", b"abce\xff\xff", bytes(5000)):
        publish(world, "a", groups["a"].group, text)
    world.run()
    assert groups["b"].known() == {} and groups["b"].notices.ignored > 2
