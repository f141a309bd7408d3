"""The minimal requirements of "P2P Data Sync for mobile", each on the real core, by its number."""

from pathlib import Path

import pytest

from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.engine.members import GROUP_UNORDERED, HEAD_EPHEMERAL
from drupelet.node import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    CARRIER_STICK,
    FAMILY_MVDS,
    INTERACTIVE,
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    SHARED,
    Link,
    Node,
)
from drupelet_host.clients.exploding import ExplodingClient
from drupelet_host.home.lifetime import (
    AFTER_READING,
    AFTER_TIME,
    EPHEMERAL_LIFETIME,
    HEAD_SIZE,
    STAYS,
    Lifetime,
)
from drupelet_host.remote.content_store import FolderStore
from drupelet_host.remote.log import LogReader, take_news
from helpers import Draw, Member, Network, check_causal
from helpers_remote import KEYS, Device, upload
from ram_store import RamStore

ROUNDS_MAX = 4000


def members(draw: Draw, names: str, **bounds: int) -> list[Member]:
    return [Member(name, draw, **bounds) for name in names]


def publish_in_turn(network: Network, count: int) -> int:
    """Each member writes `count` messages while the network runs; how many that were."""
    total = 0
    for number in range(count):
        for member in network.members.values():
            if member.publish(b"%s %d" % (member.name.encode(), number), network.now_ms):
                total += 1
            network.round()
    return total


def same_logs(network: Network) -> None:
    logs = [set(member.log()) for member in network.members.values()]
    assert all(log == logs[0] for log in logs)
    for member in network.members.values():
        check_causal(member)


# 1. MUST sync data reliably between devices.
@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE])
@pytest.mark.parametrize("profile", [PROFILE_BSP_1, PROFILE_COMPACT_1])
def test_1_messages_out_of_order_dropped_duplicated_and_delayed(mode: int, profile: int) -> None:
    draw = Draw(11)
    edges = [("a", "b"), ("b", "c")]
    network = Network(
        draw, members(draw, "abc"), edges, mode, profile=profile,
        loss=300, repeat=300, reorder=300, flip=50,
    )  # fmt: skip
    total = publish_in_turn(network, 8)
    for line in network.lines.values():  # delayed: all of it for three minutes
        line.loss = 1000
    for _ in range(720):
        network.round()
    for line in network.lines.values():
        line.loss = 300
    network.run(lambda: network.complete(total), ROUNDS_MAX)
    same_logs(network)


# 2. MUST NOT rely on any centralized services for reliability.
@pytest.mark.parametrize("gone", "abcd")
def test_2_no_device_is_needed_by_the_others(gone: str) -> None:
    draw = Draw(12)
    names = "abcd"
    edges = [(x, y) for x in names for y in names if x < y]
    network = Network(draw, members(draw, names), edges, loss=100)
    publish_in_turn(network, 3)
    for (here, there), line in network.lines.items():
        if gone in (here, there):
            line.loss = 1000
    rest = [member for name, member in network.members.items() if name != gone]
    for member in rest:
        member.publish(b"without " + gone.encode(), network.now_ms)

    def agreed() -> bool:
        logs = [set(member.log()) for member in rest]
        return all(log == logs[0] and len(log) >= 9 + 3 for log in logs)

    network.run(agreed, ROUNDS_MAX)
    sizes = {len(member.log()) for member in rest}
    assert len(sizes) == 1


# 3. MUST allow for mobile-friendly usage.
def test_3_small_devices_that_are_online_a_tenth_of_the_time() -> None:
    draw = Draw(13)
    network = Network(draw, members(draw, "ab", pool=16, offers=8), [("a", "b")], loss=50)
    total = 0
    lines = list(network.lines.values())
    window = 20  # rounds
    online = {"a": 0, "b": 0}
    met = 0
    for _ in range(ROUNDS_MAX):
        for name in online:
            if draw(window * 10) < 1:
                online[name] = window
                for link in network.members[name].links.values():
                    link.greet()
            online[name] = max(0, online[name] - 1)
        both = all(online.values())
        met += both
        for line in lines:
            line.loss = 50 if both else 1000
        if total < 40 and draw(10) == 0:
            member = network.members["ab"[draw(2)]]
            total += member.publish(b"%d" % total, network.now_ms) is not None
        network.round()
        if total == 40 and all(len(one.log()) == total for one in network.members.values()):
            break
    same_logs(network)
    assert total == 40 and len(network.members["a"].log()) == 40
    assert met < 400, "they met in a tenth of the time at most"


def test_3_the_network_changes_at_each_contact() -> None:
    draw = Draw(14)
    network = Network(draw, members(draw, "ab"), [("a", "b")])
    carriers = (CARRIER_SERIAL, CARRIER_MQTT)
    for turn in range(12):
        for member in network.members.values():
            member.publish(b"%s %d" % (member.name.encode(), turn), network.now_ms)
            (name,) = member.links
            member.links[name].close()
            member.links[name] = member.node.link(
                member.numbers[name], PROFILE_BSP_1, carriers[turn % 2], 1000, BATCH,
                network.now_ms,
            )  # fmt: skip
        for _ in range(6):
            network.round()
    network.run(lambda: network.complete(24), ROUNDS_MAX)
    same_logs(network)


# 4. MAY use helper services in order to be more mobile-friendly.
def test_4_a_helper_shortens_the_wait_and_its_loss_only_delays(tmp_path: Path) -> None:
    ann, ben, cid = Device(), Device(), Device()
    for number in range(10):
        ann.put(b"%d" % number)
    helper = FolderStore(tmp_path)
    upload(ann.writer(helper))
    # ann is offline from here on; ben gets everything all the same.
    assert take_news(LogReader(KEYS, helper), ben.node, ben.group, ben.link(), 0) == 10
    # The helper burns down: cid gets it from a member, as if there had never been one.
    for path in tmp_path.rglob("*.BLK"):
        path.unlink()
    assert take_news(LogReader(KEYS, helper), cid.node, cid.group, cid.link(), 0) == 0
    frame = bytearray(1024)
    one, two = ann.link(), cid.link()
    for now_ms in range(1000, 20_000, 500):
        for sender, receiver in ((one, two), (two, one)):
            while size := sender.poll_into(frame, now_ms):
                receiver.receive(frame, size, now_ms)
    assert cid.log() == ben.log() == ann.log()


# 5. MUST have the ability to provide casual consistency.
@pytest.mark.parametrize("flags", [0, GROUP_UNORDERED])
def test_5_causal_consistency_is_a_switch_of_the_group(flags: int) -> None:
    node = Node(RamStore(), lambda: 0, peers_max=1, groups_max=1, messages_max=64, offers_max=8)
    author = Node(RamStore(), lambda: 0, peers_max=1, groups_max=1, messages_max=64, offers_max=8)
    group = author.join(READINGS_CLIENT_ID, b"")
    bodies, ids = [], [b""]
    for number in range(30):
        body = bytearray(b"\x01" + ids[-1] if number else b"\x00") + b"%d" % number
        handle = author.publish(group, body, len(body), bytes(8), 0)
        author.store.load(handle)
        ids.append(bytes(author.store.id))
        bodies.append(body)
    joined = node.join(READINGS_CLIENT_ID, b"", flags)
    peer = node.add_peer(b"peer")
    node.share(joined, peer, SHARED)
    link = node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, 1000, BATCH)
    draw = Draw(15)
    came = list(range(30))
    for at in range(29, 0, -1):
        other = draw(at + 1)
        came[at], came[other] = came[other], came[at]
    for row in came:
        link.exchange.on_message(
            node.core.members.group_ids, 0, bytearray(8), 0, bodies[row], 0, len(bodies[row])
        )
    order = []
    while node.next_event():
        node.store.load(node.event_handle)
        order.append(ids.index(bytes(node.store.id)) - 1)
    assert order == (came if flags else list(range(30)))


# 6. MUST support ephemeral messages that don't need replication.
def test_6_ephemeral_messages_are_sent_once_and_never_repeated() -> None:
    draw = Draw(16)
    made = members(draw, "ab", family=FAMILY_MVDS)
    network = Network(draw, made, [("a", "b")], profile=PROFILE_MVDS_1)
    ann, ben = made
    line = network.lines["a", "b"]
    for number, loss in enumerate((0, 1000, 0)):
        line.loss = loss
        body = bytes((HEAD_EPHEMERAL,)) + b"typing %d" % number
        assert ann.node.publish(ann.group, body, len(body), bytes(8), network.now_ms) > 0
        for _ in range(40):
            network.round()
    line.loss = 0
    for _ in range(200):
        network.round()
    assert len(ben.log()) == 2, "the lost one is lost"
    assert line.sent == 3, "one frame each, no repetition"
    assert ann.node.outstanding(ann.numbers["b"]) == 0


# 7. MUST allow for privacy-preserving messages and extreme data loss.
NOW_S = 1_700_000_000
ROWS_MAX = 64  # of the table of exploding messages


class Exploding(Member):
    """A member of a group whose messages may explode."""

    client: ExplodingClient

    def start(self) -> None:
        super().start()
        self.client = ExplodingClient(ROWS_MAX)
        self.group = self.node.join(READINGS_CLIENT_ID, b"test", client=self.client)

    def say(self, kind: int, lifetime_s: int, text: bytes, now_ms: int = 0) -> int:
        head = Lifetime(kind, lifetime_s).head()
        body = bytes(self.author.body[: self.author.head()]) + head + text
        stamp = (NOW_S * 1000 + now_ms).to_bytes(8, "big")
        handle = self.node.publish(self.group, body, len(body), stamp, now_ms)
        if handle > 0 and kind == STAYS:
            self.author.published(handle)
        return int(handle)

    def consume(self, keep: bool = False) -> list[int]:  # noqa: ARG002 - a member's shape
        handles: list[int] = []
        while self.node.next_event():
            handle = self.node.event_handle
            handles.append(handle)
            if self.client.lasts(self.node, self.group, handle):
                self.author.saw(handle)
        return handles  # done with only once it is read

    def texts(self) -> list[bytes]:
        found, handle = [], self.store.next(0)
        while handle:
            body = self.body(handle)
            if body:
                found.append(body[1 + 32 * body[0] + HEAD_SIZE :])
            handle = self.store.next(handle)
        return found

    def holds(self, text: bytes) -> bool:
        return text in self.texts()

    def read_all(self) -> None:
        handle = self.store.next(0)
        while handle:
            self.node.done(handle)
            handle = self.store.next(handle)
        self.node.save(0)


def exploding_row(seed: int = 17) -> Network:
    draw = Draw(seed)
    return Network(draw, [Exploding(name, draw) for name in "abc"], [("a", "b"), ("b", "c")])


def tick(network: Network, rounds: int, time_s: int = NOW_S) -> None:
    for _ in range(rounds):
        network.round()
        for member in network.members.values():
            member.client.turn(member.node, member.group, time_s)


def test_7_messages_explode_after_their_time_on_every_member() -> None:
    network = exploding_row()
    ann, ben, cid = network.members.values()
    ann.say(STAYS, 0, b"before")
    ann.say(AFTER_TIME, 60, b"secret")
    ann.say(STAYS, 0, b"after")
    tick(network, 40)
    assert all(one.holds(b"secret") for one in (ann, ben, cid))
    tick(network, 1, NOW_S + 59)
    assert all(one.holds(b"secret") for one in (ann, ben, cid))
    tick(network, 1, NOW_S + 60)
    for one in (ann, ben, cid):
        assert one.texts() == [b"before", b"after"] or sorted(one.texts()) == [b"after", b"before"]
    ben.say(STAYS, 0, b"goes on")
    tick(network, 40, NOW_S + 61)
    assert all(one.holds(b"goes on") for one in (ann, ben, cid))
    network.run(lambda: network.complete(4), ROUNDS_MAX)


def test_7_messages_explode_once_read_but_not_before_they_are_passed_on() -> None:
    network = exploding_row()
    ann, ben, cid = network.members.values()
    network.lines["b", "c"].loss = 1000
    ann.say(AFTER_READING, 0, b"burn this")
    tick(network, 40)
    ben.read_all()
    tick(network, 10)
    assert ben.holds(b"burn this"), "c has not got it yet, and only b can bring it"
    network.lines["b", "c"].loss = 0
    tick(network, 400)
    assert not ben.holds(b"burn this") and cid.holds(b"burn this")
    cid.read_all()
    ann.read_all()
    tick(network, 40)
    assert not any(one.texts() for one in (ann, ben, cid))
    assert len({tuple(one.log()) for one in (ann, ben, cid)}) == 1, "its place in the log stays"


def test_7_what_comes_after_its_time_is_not_kept_and_breaks_nothing() -> None:
    network = exploding_row()
    ann, ben, _ = network.members.values()
    ann.say(AFTER_TIME, 10, b"too late")
    for one in network.members.values():
        one.client.time_s = NOW_S + 11
    network.round()
    ann.say(STAYS, 0, b"lasting")
    for _ in range(60):
        network.round()
    assert ben.texts() == [b"lasting"]
    tick(network, 40, NOW_S + 11)
    for one in network.members.values():
        assert one.texts() == [b"lasting"] and one.node.pending_count() == 0


def test_7_a_message_that_depends_on_an_exploded_one_stands() -> None:
    network = exploding_row()
    ann, ben, cid = network.members.values()
    handle = ann.say(AFTER_TIME, 60, b"secret")
    ann.author.published(handle)  # as a careless client does
    tick(network, 40)
    tick(network, 1, NOW_S + 100)
    ann.say(STAYS, 0, b"names it")
    tick(network, 40, NOW_S + 100)
    for one in (ann, ben, cid):
        assert one.texts() == [b"names it"]
        check_causal(one)


def test_7_rows_for_exploding_messages_are_bounded_and_reboots_forget_nothing() -> None:
    network = exploding_row()
    ann = network.members["a"]
    for number in range(ROWS_MAX - 20):
        ann.say(AFTER_TIME, 60 + number, b"%d" % number)
        tick(network, 6)
    for number in range(40):
        ann.say(AFTER_TIME, 500, b"more %d" % number)
        tick(network, 6)
    assert ann.client.watched == ROWS_MAX
    ann.start()
    ann.boot(network.now_ms)
    network.connect(ann)
    tick(network, 30, NOW_S + 59)
    assert len(ann.texts()) == ROWS_MAX + 20
    tick(network, 2, NOW_S + 300)
    assert len(ann.texts()) == 40
    tick(network, 2, NOW_S + 500)
    assert ann.texts() == []


@pytest.mark.parametrize("kind", [AFTER_READING, AFTER_READING | AFTER_TIME])
def test_7_what_was_read_explodes_after_a_reboot_and_what_was_not_stays(kind: int) -> None:
    network = exploding_row()
    ann, ben, cid = network.members.values()
    network.lines["b", "c"].loss = 1000
    ann.say(kind, 100, b"burn this")
    tick(network, 40)
    ben.read_all()
    ann.say(kind, 100, b"not seen")
    tick(network, 40)
    ben.start()
    ben.boot(network.now_ms)
    network.connect(ben)
    assert sorted(ben.texts()) == [b"burn this", b"not seen"]
    network.lines["b", "c"].loss = 0
    tick(network, 600)
    assert ben.texts() == [b"not seen"]
    assert sorted(cid.texts()) == [b"burn this", b"not seen"]
    for one in (ann, ben, cid):
        one.read_all()
    tick(network, 60)
    assert not any(one.texts() for one in (ann, ben, cid))


def test_7_all_that_was_read_explodes_however_much() -> None:
    network = exploding_row()
    ann, ben, cid = network.members.values()
    for number in range(ROWS_MAX + 6):
        ann.say(AFTER_READING, 0, b"%d" % number)
        tick(network, 8)
    tick(network, 100)
    for one in (ann, ben, cid):
        assert len(one.texts()) == ROWS_MAX + 6
        one.read_all()
    tick(network, 60)
    assert not any(one.texts() for one in (ann, ben, cid))


def test_7_a_full_table_keeps_back_nothing_that_is_due_sooner() -> None:
    network = exploding_row()
    ann = network.members["a"]
    for number in range(ROWS_MAX):
        ann.say(AFTER_TIME, 600 + number, b"%d" % number)
        tick(network, 6)
    ann.say(AFTER_READING, 0, b"burn this")
    ann.say(AFTER_TIME, 60, b"short-lived")
    tick(network, 40)
    ann.node.done(ann.store.next(0))
    tick(network, 1)
    assert ann.holds(b"burn this"), "it was not read"
    tick(network, 1, NOW_S + 60)
    assert not ann.holds(b"short-lived") and len(ann.texts()) == ROWS_MAX + 1
    ann.read_all()
    tick(network, 1, NOW_S + 60)
    assert not ann.holds(b"burn this") and len(ann.texts()) == ROWS_MAX
    tick(network, 1, NOW_S + 600)
    assert len(ann.texts()) == ROWS_MAX - 1
    tick(network, 1, NOW_S + 600 + ROWS_MAX)
    assert ann.texts() == []


def test_7_an_ephemeral_message_reaches_neighbours_and_is_not_passed_on() -> None:
    network = exploding_row()
    ann, ben, cid = network.members.values()
    ann.say(*EPHEMERAL_LIFETIME, b"typing")
    tick(network, 60)
    assert ann.holds(b"typing") and ben.holds(b"typing") and not cid.holds(b"typing")
    tick(network, 1, NOW_S + EPHEMERAL_LIFETIME.seconds)
    assert not any(one.texts() for one in (ann, ben, cid))


def test_7_extreme_data_loss_two_trusted_devices_recover() -> None:
    draw = Draw(18)
    network = Network(draw, members(draw, "ab"), [("a", "b")], profile=PROFILE_COMPACT_1, loss=100)
    ann, ben = network.members.values()
    total = publish_in_turn(network, 10)
    network.run(lambda: network.complete(total), ROUNDS_MAX)
    before = ann.log()
    # b wipes itself: not a byte is left.
    wiped = Member("b", draw, salt=99)
    wiped.peers.append("a")
    wiped.add("a")
    network.members["b"] = wiped
    wiped.boot(network.now_ms)
    network.connect(wiped)
    network.run(lambda: len(wiped.log()) == total, ROUNDS_MAX)
    assert set(wiped.log()) == set(before)
    check_causal(wiped)
    assert ben.publish(b"the old one is gone") is not None  # and never heard of again
    wiped.publish(b"new life", network.now_ms)
    network.run(lambda: network.complete(total + 1), ROUNDS_MAX)


# 8. MUST be agnostic to whatever transport it is running on.
def carry(sender: Link, receiver: Link, now_ms: int, frames_max: int = 1000) -> int:
    """Frames from one link to the other, over whatever it is."""
    frame = bytearray(1024)
    count = 0
    while count < frames_max:
        size = sender.poll_into(frame, now_ms)
        if not size:
            break
        receiver.receive(frame, size, now_ms)
        count += 1
    return count


def test_8_the_carrier_is_swapped_in_the_middle_of_a_message() -> None:
    ann, ben = Device(), Device()
    ann.put(b"before")
    ann.put(bytes(range(256)) * 100)
    ann.put(b"behind")

    def links(carrier: int) -> tuple[Link, Link]:
        made = [
            one.node.link(one.peer, PROFILE_BSP_1, carrier, 1000, BATCH, 0) for one in (ann, ben)
        ]
        return made[0], made[1]

    one, two = links(CARRIER_SERIAL)
    now_ms = 1000
    assert carry(one, two, now_ms, 12) == 12  # and somebody pulls the cable
    assert ben.node.delivered < 3
    one.close()
    two.close()
    one, two = links(CARRIER_MQTT)
    sent = 0
    for now_ms in range(2000, 40_000, 500):
        sent += carry(one, two, now_ms)
        carry(two, one, now_ms)
    assert ben.log() == ann.log()
    assert sent < 40, "what came by cable was not sent again"
    ann.put(b"by stick")
    one, two = links(CARRIER_STICK)
    one.visit(now_ms, True)
    assert carry(one, two, now_ms) > 0
    assert ben.log() == ann.log()
