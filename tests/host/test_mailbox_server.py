"""The mailbox's contract: groups and a time hint in, messages out; its loss only delays."""

import random
import sqlite3

import pytest

from drupelet.base.errors import CapacityError
from drupelet_host.remote.content_store import CONTENT_SIZE_MAX
from drupelet_host.remote.log_bytes import NAME_SIZE, FeedKeys
from drupelet_host.remote.mailbox import ANSWERS_MAX, MailReader, MailServer, MailWriter
from helpers_remote import KEYS, Device
from opened import opened

OTHER = FeedKeys(bytes(32))


def server(**bounds: int) -> MailServer:
    return MailServer(opened(sqlite3.connect(":memory:", isolation_level=None)), **bounds)


def reader(device: Device) -> MailReader:
    return MailReader(device.node, device.group, {KEYS.name: (KEYS, device.link())})


def meet(one: Device, other: Device) -> None:
    """They are online at the same time for a while."""
    frame = bytearray(1024)
    links = one.link(), other.link()
    for now_ms in range(1000, 120_000, 500):
        for sender, receiver in (links, links[::-1]):
            while size := sender.poll_into(frame, now_ms):
                receiver.receive(frame, size, now_ms)


def test_messages_reach_a_member_that_was_absent() -> None:
    ann, ben, box = Device(), Device(), server()
    for number in range(30):
        ann.put(b"%d" % number * (1 if number else 9000))
    writer = MailWriter(ann.node, ann.group, KEYS)
    assert writer.turn(box, 1000) == 30 and writer.turn(box, 1001) == 0
    assert ann.node.outstanding(ann.peer) == 30  # a mailbox acknowledges nothing
    got = reader(ben)
    assert got.turn(box, 0) == 30 and got.turn(box, 0) == 0
    assert ben.log() == ann.log()


def test_a_time_hint_and_pages() -> None:
    box, rng = server(), random.Random(1)
    for number in range(250):
        assert box.keep(KEYS.name + rng.randbytes(40), 1000 + number)
    assert [kept.came_s for kept in box.ask([KEYS.name], 1100, 1102)] == [1100, 1101, 1102]
    assert box.ask([OTHER.name]) == []
    found, after = [], 0
    while kept := box.ask([OTHER.name, KEYS.name], 1050, after=after):
        assert len(kept) <= ANSWERS_MAX
        found += kept
        after = kept[-1].entry
    assert [kept.came_s for kept in found] == list(range(1050, 1250))
    assert box.expire(1100) == 100 and len(box.ask([KEYS.name], 0, 1099)) == 0


def test_the_loss_of_a_mailbox_only_delays() -> None:
    rng = random.Random(2)
    connection = opened(sqlite3.connect(":memory:", isolation_level=None))
    ann, ben, box = Device(), Device(), MailServer(connection)
    for number in range(30):
        ann.put(b"%d" % number)
    MailWriter(ann.node, ann.group, KEYS).turn(box, 1000)
    # A third is gone, then the rest.
    for entry in rng.sample(range(1, 31), 10):
        connection.execute("DELETE FROM envelopes WHERE entry = ?", (entry,))
    reader(ben).turn(box, 0)
    assert ben.node.delivered < 30
    meet(ann, ben)
    assert {entry[0] for entry in ben.log()} == {entry[0] for entry in ann.log()}
    cid = Device()
    connection.execute("DELETE FROM envelopes")
    assert reader(cid).turn(box, 0) == 0
    ann.node.remove_peer(ann.peer)
    ann.peer = ann.node.add_peer(b"cid!")
    ann.node.share(ann.group, ann.peer, 2)
    meet(ann, cid)
    assert {entry[0] for entry in cid.log()} == {entry[0] for entry in ann.log()}


def test_the_server_reads_nothing_and_strangers_write_nothing() -> None:
    ann, ben, box = Device(), Device(), server()
    ann.put(b"secret words")
    MailWriter(ann.node, ann.group, KEYS).turn(box, 1000)
    [kept] = box.ask([KEYS.name])
    assert b"secret" not in kept.envelope
    for forged in (
        KEYS.name + OTHER.seal(4, b"anything"),
        KEYS.name + KEYS.seal(3, b"a page"),
        KEYS.name + b"short",
    ):
        assert box.keep(forged, 1001)
        assert not box.keep(forged, 1002)
    got = reader(ben)
    assert got.turn(box, 0) == 1 and got.unread == 3


def test_a_mailbox_is_bounded() -> None:
    box = server(envelopes_max=10)
    for number in range(25):
        box.keep(KEYS.name + number.to_bytes(4), number)
    assert [kept.came_s for kept in box.ask([KEYS.name])] == list(range(15, 25))
    assert box.dropped == 15
    for bad in (bytes(NAME_SIZE), bytes(CONTENT_SIZE_MAX + 1)):
        with pytest.raises(CapacityError):
            box.keep(bad, 0)
