"""The store node: history by id, hint and time; persistent; usable and never needed."""

from pathlib import Path

import pytest

from drupelet.base.errors import CapacityError, PeerError, StorageError
from drupelet.channel.channel import Channel
from drupelet.wire.sds.bloom import Bloom
from drupelet_host.channel.store_node import ANSWERS_MAX, StoreNode, catch_up
from drupelet_host.store.channel_database import ChannelDatabase, SqliteKeeper
from helpers_channel import CHANNEL, START_MS, Said, Talker, filter_of, wire
from opened import opened


def node(path: Path, **bounds: int) -> StoreNode:
    return StoreNode(opened(ChannelDatabase(path / "node.db")), **bounds)


def test_history_by_id_without_filter_and_request(tmp_path: Path) -> None:
    store = node(tmp_path)
    frame = wire(b"m", causal=(b"a",), bloom=filter_of(), repair=(b"r",), content=b"hello")
    assert store.hear(bytes(frame)) is True
    assert store.hear(bytes(wire(b"m", content=b"other"))) is False
    found = store.by_id(CHANNEL, b"m")
    assert found is not None
    said = Said(found)
    assert (said.content, said.causal, said.bloom, said.requests) == (b"hello", [b"a"], None, [])
    assert store.by_id(CHANNEL, b"x") is None and store.by_id(b"other", b"m") is None


def test_history_by_hint(tmp_path: Path) -> None:
    store = node(tmp_path)
    store.hear(bytes(wire(b"a")))
    store.hear(bytes(wire(b"b", causal=(b"a",), hint=b"where a is")))
    found = store.by_hint(CHANNEL, b"where a is")
    assert found is not None and Said(found).id == b"a"
    assert store.by_hint(CHANNEL, b"elsewhere") is None


def test_history_by_time_page_by_page(tmp_path: Path) -> None:
    store = node(tmp_path)
    for number in range(ANSWERS_MAX + 50):
        store.hear(bytes(wire(b"m%03d" % number, lamport=START_MS + number // 2)))
    ids = []
    lamport, after = 0, b""
    while found := store.since(CHANNEL, lamport, after):
        said = [Said(frame) for frame in found]
        ids += [one.id for one in said]
        lamport, after = said[-1].lamport or 0, said[-1].id
    assert ids == [b"m%03d" % number for number in range(ANSWERS_MAX + 50)]


def test_it_survives_a_restart(tmp_path: Path) -> None:
    database = opened(ChannelDatabase(tmp_path / "node.db"))
    StoreNode(database).hear(bytes(wire(b"m")))
    database.commit()
    database.close()
    assert node(tmp_path).by_id(CHANNEL, b"m") is not None


def test_what_is_no_content_is_not_kept_and_what_is_malformed_refused(tmp_path: Path) -> None:
    store = node(tmp_path, messages_max=2)
    assert not store.hear(bytes(wire(b"sync", content=None)))
    assert not store.hear(bytes(wire(b"now", lamport=None)))
    for bad in (b"\x0a", bytes(wire(b"")), bytes(wire(b"m", sender=b"")), bytes(1 << 18)):
        with pytest.raises(PeerError):
            store.hear(bad)
    store.hear(bytes(wire(b"one")))
    store.hear(bytes(wire(b"two")))
    with pytest.raises(CapacityError):
        store.hear(bytes(wire(b"three")))
    assert store.refused == 1


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StorageError, match=r"node\.db"):
        node(tmp_path)


def test_a_participant_catches_up_from_a_store_node(tmp_path: Path) -> None:
    store = node(tmp_path)
    ann, ben = Talker(), Talker(b"ben", incoming_max=64)
    for number in range(12):
        ann.publish(b"x", b"m%02d" % number)
        [said] = ann.say()
        store.hear(said.wire)
    ben.hear(said.wire)
    assert ben.log == []
    assert catch_up(ben.channel, store, ben.now_ms) == 11
    ben.drain()
    assert ben.log == ann.log and len(ben.delivered) == 12
    assert catch_up(ben.channel, store, ben.now_ms) == 0


def test_what_a_channel_does_not_take_is_asked_for_once(tmp_path: Path) -> None:
    class Asked(StoreNode):
        count = 0

        def by_id(self, channel: bytes, message_id: bytes) -> bytes | None:
            self.count += 1
            return super().by_id(channel, message_id)

    database = opened(ChannelDatabase(tmp_path / "node.db"))
    store = Asked(database)
    store.hear(bytes(wire(b"m1", channel=CHANNEL)))
    other = bytes(wire(b"m1", channel=b"another"))
    database.write("UPDATE messages SET frame = ?", (other,))
    ann = Talker()
    ann.hear(wire(b"m2", causal=(b"m1",)))
    assert catch_up(ann.channel, store, ann.now_ms) == 0 and store.count == 1
    assert ann.channel.log.incoming.count == 1


def test_our_own_lost_message_comes_from_a_store_node(tmp_path: Path) -> None:
    store = node(tmp_path)
    store.hear(bytes(wire(b"mine", sender=b"ann")))
    ann = Talker()
    ann.hear(wire(b"dep", causal=(b"mine",), author=b"ann", lamport=START_MS + 1))
    assert catch_up(ann.channel, store, ann.now_ms) == 1
    assert ann.log == [b"mine", b"dep"]


def test_without_a_store_node_the_same_comes_later() -> None:
    ann, ben = Talker(), Talker(b"ben", seed=2)
    for number in range(12):
        ann.publish(b"x", b"m%02d" % number)
        [said] = ann.say()
    ben.hear(said.wire)
    for _ in range(200):
        for one in ann.later(30_000):
            ben.hear(one.wire)
        for one in ben.later(30_000):
            ann.hear(one.wire)
    assert ben.log == ann.log and len(ben.delivered) == 12


def test_a_channel_keeps_all_in_the_database(tmp_path: Path) -> None:
    database = opened(ChannelDatabase(tmp_path / "channel.db"))
    ann = Talker(ids_max=10, keeper=SqliteKeeper(database, CHANNEL))
    for number in range(60):
        ann.hear(wire(b"m%02d" % number, lamport=START_MS + number))
    ann.publish(b"x", b"mine")
    ann.say()
    for number in range(60):
        ann.hear(wire(b"m%02d" % number, lamport=START_MS + number))
    assert len(ann.delivered) == 60 and ann.channel.duplicates == 60
    ann.hear(wire(b"child", causal=(b"m00", b"m59"), lamport=START_MS + 100))
    assert ann.delivered[-1] == b"child"
    log = ann.log
    database.commit()
    database.close()
    again = Talker(
        ids_max=10, keeper=SqliteKeeper(opened(ChannelDatabase(tmp_path / "channel.db")), CHANNEL)
    )
    again.channel.restore(0)
    assert again.log == log and list(again.state) == [b"mine"]
    assert isinstance(again.channel, Channel) and isinstance(again.channel.bloom, Bloom)
