"""The remote store over frames that get lost, and over a real broker from an agent's SQLite."""

import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from drupelet.base.errors import CapacityError, StorageError
from drupelet_host.base import clock
from drupelet_host.broker import Broker
from drupelet_host.remote.content_store import FolderStore, SqliteRemoteStore, address_of
from drupelet_host.remote.log import LogReader, LogWriter, take_news
from drupelet_host.remote.log_bytes import FeedKeys
from drupelet_host.remote.store_over_mqtt import MqttService, exchange_over
from drupelet_host.remote.store_service import (
    CALLS_MAX,
    FRAMES_MAX,
    Assembler,
    StoreClient,
    StoreService,
    frames_of,
)
from drupelet_transports.host.mqtt_host import MqttClient
from helpers_remote import Device, upload
from host.remote_store_wire import CLIENT, KEY, SERVER, Wire, memory


def test_every_verb_through_frames() -> None:
    client = StoreClient(Wire(StoreService(memory(), KEY)), KEY, CLIENT)
    content = random.Random(1).randbytes(30_000)
    address = client.add(content)
    assert address == address_of(content)
    assert client.get(address) == content and client.get(address_of(b"")) is None
    assert client.fetch(b"name") is None
    assert client.update(b"name", bytes(8) + b"one")
    assert client.fetch(b"name") == bytes(8) + b"one"
    assert not client.update(b"name", bytes(8) + b"two")
    client.drop(address)
    assert client.get(address) is None


def test_lost_frames_are_asked_for_again() -> None:
    wire = Wire(StoreService(memory(), KEY), 0.2)
    client = StoreClient(wire, KEY, CLIENT)
    rng, held = random.Random(2), []
    failed = 0
    for _ in range(60):
        content = rng.randbytes(rng.choice((1, 500, 2500)))
        try:
            client.add(content)
            held.append(content)
        except StorageError:
            failed += 1
    wire.loss = 0
    assert held and failed < 30 and wire.calls > 60
    assert all(client.get(address_of(content)) == content for content in held)


def test_who_has_no_key_is_not_answered() -> None:
    service = StoreService(memory(), KEY)
    stranger = StoreClient(Wire(service), bytes(32), CLIENT)
    with pytest.raises(StorageError, match="does not answer"):
        stranger.add(b"spam")
    assert service.assembler.refused == 4
    rng = random.Random(1)
    good = frames_of(KEY, CLIENT, 1, bytes((1,)) + rng.randbytes(3000))
    for _ in range(5000):
        frame = bytearray(rng.choice(good))
        if rng.random() < 0.5:
            frame = bytearray(rng.randbytes(rng.randrange(1100)))
            frame[:1] = b"\x55"
        elif len(frame) > 11:
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        service.answer(bytes(frame))
    assert FRAMES_MAX < 50


def test_calls_that_nobody_ends_are_dropped_for_newer_ones() -> None:
    assembler = Assembler(KEY)
    content = bytes(1500)
    calls = [frames_of(KEY, CLIENT, number, content) for number in range(CALLS_MAX + 1)]
    for first, *_ in calls:
        assert assembler.take(first) is None
    for number, (_, *rest) in reversed(list(enumerate(calls))):
        taken = [assembler.take(frame) for frame in rest]
        assert taken[-1] == ((CLIENT, number, content) if number else None)


def test_a_full_store_and_a_failing_one_are_told_apart() -> None:
    small = memory(contents_max=1)
    client = StoreClient(Wire(StoreService(small, KEY)), KEY, CLIENT)
    client.add(b"one")
    with pytest.raises(CapacityError):
        client.add(b"two")
    gone = StoreClient(Wire(StoreService(FolderStore(Path("not there")), KEY)), KEY, CLIENT)
    with pytest.raises(StorageError, match="disk"):
        gone.add(b"one")


def test_an_answer_leaves_after_the_commit_only() -> None:
    def commit() -> None:
        raise StorageError("no")

    client = StoreClient(Wire(StoreService(memory(), KEY, commit)), KEY, CLIENT)
    with pytest.raises(StorageError):
        client.add(b"one")
    assert client.get(address_of(b"one")) == b"one"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[int]:
    """A broker and a host that serves its SQLite there; the broker's port."""
    broker = Broker()
    broker.start()
    stop = threading.Event()
    ready = threading.Event()

    def serve() -> None:
        connection = sqlite3.connect(tmp_path / "agent.db", isolation_level=None)
        client = MqttClient("localhost", broker.port, "t")
        service = StoreService(SqliteRemoteStore(connection), KEY)
        answering = MqttService(client, "t", SERVER, service)
        while not stop.is_set():
            client.maintain(clock.now_ms())
            answering.turn()
            if client.up:
                ready.set()
            stop.wait(0.002)
        answering.close()
        client.close()
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(20)
    yield broker.port
    stop.set()
    thread.join()
    broker.stop()


def test_a_wiped_device_recovers_from_an_agents_sqlite_over_mqtt(agent: int) -> None:
    ann = Device()
    for number in range(20):
        ann.put(b"%d" % number * (1 if number else 9000))
    client = MqttClient("localhost", agent, "t")
    store = StoreClient(exchange_over(client, SERVER, CLIENT), KEY, CLIENT)
    keys = FeedKeys(bytes(32))
    assert upload(LogWriter(ann.node, ann.group, keys, store)) == 20
    again = Device()
    assert take_news(LogReader(keys, store), again.node, again.group, None, 0) == 20
    assert again.log() == ann.log()
    client.close()
