"""What the fuzzers found, each once more by hand."""

import pytest

from compact_view import Spoken
from drupelet.base.errors import E_STORAGE, OK
from drupelet.base.hashes import MessageHash
from drupelet.base.limits import SNAPSHOT_SHORT_SIZE
from drupelet.base.memory import crc32_into
from drupelet.duty.snapshot import Snapshot
from drupelet.engine.wake_state import STATE_HEAD_SIZE, STATE_PEER_SIZE
from drupelet.link.link import Link
from drupelet.node import INTERACTIVE, PROFILE_COMPACT_1
from drupelet.wire.compact.hello import FULL, FULL_ASKED
from drupelet.wire.sketch import recovery
from helpers import Draw, Member, Network


def test_a_wake_state_of_more_peers_than_it_has_bytes_is_none() -> None:
    """It was read beyond the end of the buffer: the board did not boot."""
    member = Member("A", Draw(1), pool=8)
    member.peers.append("B")
    member.add("B")
    member.boot()
    assert member.publish(b"one")
    assert member.node.save(0) == 0
    store = member.store
    peers = store.saved[1]
    assert peers == 1
    for count in (2, 40, 255):
        store.saved[1] = count
        member.node.boot(0)
    store.saved[1] = peers
    for size in range(STATE_HEAD_SIZE + STATE_PEER_SIZE):
        store.saved_size = size
        member.node.boot(0)
    assert len(member.log()) == 1


def test_a_short_snapshot_has_no_peers() -> None:
    """`apply` went through as many rows as it said, beyond the end of the buffer."""
    member = Member("A", Draw(1), pool=8)
    member.boot()
    assert member.node.save(0) == 0
    snapshot = Snapshot(b"A___")
    buf = bytearray(SNAPSHOT_SHORT_SIZE)
    core = member.node.core
    for peers, code in ((0, OK), (1, E_STORAGE), (255, E_STORAGE)):
        size = snapshot.write_short(buf, core, None, 0)
        buf[1] = peers
        crc32_into(buf, size - 4, buf, 0, size - 4, True)
        assert snapshot.read(buf, size, member.store) == code


def test_a_timestamp_below_zero_comes_in_by_no_way() -> None:
    """In pieces it entered the log, and no peer took it from there in a record of bsp-1."""
    for first, entered in ((0x7F, 1), (0x80, 0), (0xFF, 0)):
        member = Member("A", Draw(3), pool=8)
        member.peers.append("B")
        member.add("B")
        member.boot()
        link = member.node.link(member.numbers["B"], 0, 0, 1000, 0)
        stamp = bytes((first,)) + bytes(7)
        content = bytes(member.node.core.members.group_ids[:32]) + stamp + b"\x00" + bytes(700)
        made = MessageHash()
        made.start(content, 0, stamp, 0, 701)
        made.update(content, 40, 701)
        id = bytearray(32)
        made.digest_into(id, 0)
        for at in range(0, len(content), 400):
            head = b"\x50" + bytes(id[:8]) + len(content).to_bytes(2) + at.to_bytes(2)
            frame = bytearray(head + content[at : at + 400])
            assert link.receive(frame, len(frame), 0) == OK
        assert len(member.log()) == entered
        body = bytearray(b"\x00by hand")
        link.exchange.on_message(bytearray(content), 0, bytearray(stamp), 0, body, 0, len(body))
        assert len(member.log()) == 2 * entered
        assert member.node.malformed == 1 - entered


def test_two_ids_with_one_prefix_before_any_frame_of_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host that was restored begins its sketch before it has heard or said anything."""
    draw = Draw(2)
    members = [Member(name, draw, pool=16) for name in "AB"]
    net = Network(draw, members, ["AB"], INTERACTIVE, profile=PROFILE_COMPACT_1)
    link = net.members["A"].links["B"]
    assert isinstance(link, Link)
    twins = [b"8 bytes!" + bytes((n,)) * 24 for n in (1, 2)]
    monkeypatch.setattr(recovery, "shared_ids", lambda _: twins)
    recovery.Recovery(link, lambda: b"salt").begin()
    codec = Spoken(link)
    assert codec.has(FULL) and codec.has(FULL_ASKED), "of this link, whichever was served last"
    assert members[0].publish(b"goes on")
    net.run(lambda: net.complete(1), 500)
