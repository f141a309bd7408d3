"""Board client and host client against the embedded broker, both on CPython."""

import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_host.broker import Broker, BrokerError
from drupelet_transports.board import mqtt_board
from drupelet_transports.common.transport import E_CLOSED, Transport
from drupelet_transports.host import mqtt_host

# What stands behind the prefix in the topics of two members.
A, B = b"a", b"b"
DEADLINE_S = 8.0
Client = mqtt_board.MqttClient | mqtt_host.MqttClient
Make = Callable[[int], Client]


def now_ms(speed: int = 1) -> int:
    return int(time.monotonic() * 1000 * speed) & 0x3FFFFFFF


def board(port: int) -> Client:
    return mqtt_board.MqttClient("localhost", port, "t", lambda: random.randrange(256))


def host(port: int) -> Client:
    return mqtt_host.MqttClient("localhost", port, "t")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    made = Broker()
    made.start()
    yield made
    made.stop()


def wait(clients: list[Client], until: Callable[[], bool], seconds: float = DEADLINE_S) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for client in clients:
            client.maintain(now_ms())
        if until():
            return True
        time.sleep(0.002)
    return False


def receive(clients: list[Client], link: Transport, frame: bytearray) -> int:
    found: list[int] = []

    def some() -> bool:
        size = link.receive_into(frame)
        if size:
            found.append(size)
        return bool(size)

    wait(clients, some)
    return found[0] if found else 0


def receive_both(clients: list[Client], left: Transport, right: Transport) -> set[bytes]:
    """One frame from each; a frame waits for its own link, so both are asked in turn."""
    frame = bytearray(FRAME_SIZE_MAX)
    found: dict[Transport, bytes] = {}

    def both() -> bool:
        for link in (left, right):
            size = link.receive_into(frame)
            if size > 0:
                found[link] = bytes(frame[:size])
        return len(found) == 2

    wait(clients, both)
    return set(found.values())


def publish_raw(port: int, topic: bytes, payload: bytes, flags: int = 0) -> None:
    """What any other client of the same broker may do."""
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01z")
        assert sock.recv(4) == b"\x20\x02\x00\x00"
        body = struct.pack(">H", len(topic)) + topic + payload
        assert len(body) < 128
        sock.sendall(bytes([0x30 | flags, len(body)]) + body + b"\xe0\x00")
        while sock.recv(64):
            pass


KINDS = [(board, host), (host, board), (board, board), (host, host)]


@pytest.mark.parametrize(("first", "second"), KINDS)
def test_one_client_serves_several_peers(broker: Broker, first: Make, second: Make) -> None:
    hub, left, right = first(broker.port), second(broker.port), second(broker.port)
    clients = [hub, left, right]
    to_left, to_right = hub.transport(b"a/b", b"b/a"), hub.transport(b"a/c", b"c/a")
    from_left, from_right = left.transport(b"b/a", b"a/b"), right.transport(b"c/a", b"a/c")
    assert wait(clients, lambda: all(client.up for client in clients))
    frame = bytearray(FRAME_SIZE_MAX)
    for turn in range(20):
        assert from_left.send(bytearray([turn, 1]), 2) == OK
        assert from_right.send(bytearray([turn, 2]), 2) == OK
        assert receive_both(clients, to_left, to_right) == {bytes([turn, 1]), bytes([turn, 2])}
    assert to_left.send(bytearray(b"left"), 4) == OK
    assert receive(clients, from_left, frame) == 4
    assert from_right.receive_into(frame) == 0
    for client in clients:
        client.close()
    assert (hub.retained, hub.misdirected) == (0, 0)


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 5, 8])
def test_a_link_that_is_added_while_a_connection_comes_up_hears(
    broker: Broker, rounds: int
) -> None:
    """An agent's links come when they can: between the broker's answers, too."""
    there, here = host(broker.port), host(broker.port)
    sender = there.transport(b"x", b"late%d" % rounds)
    first = here.transport(b"early%d" % rounds, b"y")
    assert wait([there], lambda: there.up)
    for _ in range(rounds):
        here.maintain(now_ms())
        time.sleep(0.001)
    second = here.transport(b"late%d" % rounds, b"z")
    assert wait([here, there], lambda: here.up)
    frame = bytearray(FRAME_SIZE_MAX)
    got = 0
    for _ in range(50):  # the answer to a subscription may come after the first frames
        assert sender.send(bytearray(b"hello"), 5) == OK
        end = time.monotonic() + 0.1
        while not got and time.monotonic() < end:
            here.maintain(now_ms())
            there.maintain(now_ms())
            got = second.receive_into(frame)
        if got:
            break
    assert bytes(frame[: max(got, 0)]) == b"hello"
    for link in (sender, first, second):
        link.close()
    here.close()
    there.close()


@pytest.mark.parametrize(("make", "inbox"), [(board, b"in0"), (host, b"in1")])
def test_strangers_and_retained_frames_are_dropped(
    broker: Broker, make: Make, inbox: bytes
) -> None:
    topic = b"t/" + inbox
    publish_raw(broker.port, topic, b"old", flags=1)
    client = make(broker.port)
    link = client.transport(inbox, B)
    assert wait([client], lambda: client.up)
    publish_raw(broker.port, topic + b"/x", b"for somebody else")
    publish_raw(broker.port, topic, b"")
    publish_raw(broker.port, topic, b"good")
    frame = bytearray(FRAME_SIZE_MAX)
    assert (receive([client], link, frame), bytes(frame[:4])) == (4, b"good")
    # Twice where the broker was still handing it out while we subscribed.
    assert client.retained in (1, 2)
    assert client.misdirected == 1
    client.close()


@pytest.mark.parametrize("make", [board, host])
def test_the_broker_goes_and_comes_back(make: Make) -> None:
    broker = Broker()
    broker.start()
    client = make(broker.port)
    link = client.transport(A, B)
    frame = bytearray(FRAME_SIZE_MAX)
    try:
        assert wait([client], lambda: client.up)
        assert link.poll_object is not None
        started = time.monotonic()
        broker.stop()
        assert time.monotonic() - started < 1.0
        assert wait([client], lambda: not client.up)
        assert link.send(frame, 10) == E_CLOSED
        assert link.receive_into(frame) == 0
        assert link.poll_object is None
        assert 0 < client.wait_ms(now_ms()) <= 1300
        broker.start()
        assert wait([client], lambda: client.up)
        assert (client.connects, client.disconnects) == (2, 1)
        assert link.send(frame, 10) == OK
    finally:
        client.close()
        broker.stop()
    assert link.send(frame, 10) == E_CLOSED
    assert link.receive_into(frame) == E_CLOSED
    assert client.maintain(now_ms()) == E_CLOSED


def test_a_board_that_could_not_sleep_connects_again() -> None:
    broker = Broker()
    broker.start()
    client = board(broker.port)
    link = client.transport(A, B)
    try:
        assert wait([client], lambda: client.up) and link.up
        client.close()
        assert not link.up
        client.reopen()
        assert wait([client], lambda: client.up) and link.up
    finally:
        client.close()
        broker.stop()


def test_a_resolver_that_does_not_answer_is_seldom_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks for seconds, in which nothing else runs: the wait begins when it has ended."""
    asked = []

    def resolve(*_: object) -> None:
        asked.append(now)
        raise OSError(-3)

    monkeypatch.setattr(mqtt_board.socket, "getaddrinfo", resolve)
    client, now = board(1), 0
    client.maintain(now)
    now = 10_000  # so long it took
    client.maintain(now)
    assert len(asked) == 1 and client.wait_ms(now) >= 1000
    monkeypatch.undo()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = board(port)
    real = socket.getaddrinfo

    def resolve_well(*where: object) -> object:
        asked.append(now)
        return real(*where)  # type: ignore[arg-type]

    tries = []
    real_socket = socket.socket

    def tried(*kind: int) -> socket.socket:
        tries.append(now)
        return real_socket(*kind)

    monkeypatch.setattr(mqtt_board.socket, "getaddrinfo", resolve_well)
    monkeypatch.setattr(mqtt_board.socket, "socket", tried)
    asked.clear()
    for _ in range(48):
        client.maintain(now)
        now += client.wait_ms(now) + 1
    assert len(tries) >= 16 and len(asked) <= 1 + len(tries) // 8


@pytest.mark.parametrize("make", [board, host])
def test_back_off_doubles_and_is_bounded(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = make(port)  # nobody listens there now
    now, waits = 0, []
    for _ in range(12):
        client.maintain(now)
        client.maintain(now)
        waits.append(client.wait_ms(now))
        now += waits[-1]
    client.close()
    assert all(later >= earlier * 1.5 for earlier, later in pairwise(waits[:6]))
    assert max(waits) <= 80_000


@pytest.mark.parametrize("make", [board, host])
def test_a_full_socket_refuses_whole_frames(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = make(listener.getsockname()[1])
        link = client.transport(A, b"0000000b/0000000a")
        client.maintain(now_ms())
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(5)
            hello = sock.recv(64)
            sock.sendall(b"\x20\x02\x00\x00\x90\x03\x00\x01\x00")
            assert wait([client], lambda: client.up)
            frame = bytearray(b"\x5a" * FRAME_SIZE_MAX)
            accepted = 0
            while accepted < 20_000 and link.send(frame, FRAME_SIZE_MAX) == OK:
                accepted += 1
            assert 0 < accepted < 20_000
            assert link.send(frame, FRAME_SIZE_MAX) == E_CAPACITY
            # All that was accepted arrives whole once the broker reads again.
            got = bytearray(hello)
            end = time.monotonic() + DEADLINE_S
            while not (got.endswith(frame) and got.count(b"\x30\x95\x08") == accepted):
                assert time.monotonic() < end
                got += sock.recv(1 << 20)
                client.maintain(now_ms())
        client.close()


@pytest.mark.parametrize("name", ["broker..local", "a" * 64 + ".local", "ß" * 63, "a\0b"])
def test_a_broker_whose_name_cannot_be_looked_up_is_waited_for(name: str) -> None:
    """Python refuses such a name with something else than OSError; here it is a broker that is
    not there."""
    client = mqtt_host.MqttClient(name, 1883, "t")
    assert client.maintain(0) == E_CLOSED and not client.connecting
    assert client.wait_ms(0) > 0
    client.close()


def test_a_topic_that_is_no_text_is_not_ours() -> None:
    """A broker should not let it through; one that does must not end the agent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = host(listener.getsockname()[1])
        link = client.transport(A, B)
        client.maintain(now_ms())
        sock, _ = listener.accept()
        with sock:
            sock.sendall(b"\x20\x02\x00\x00\x90\x03\x00\x01\x00")
            sock.sendall(b"\x30\x09\x00\x04t/\xff\xfehey" + b"\x30\x06\x00\x03t/ay")
            frame = bytearray(FRAME_SIZE_MAX)
            assert (receive([client], link, frame), bytes(frame[:1])) == (1, b"y")
            assert client.misdirected == 1 and client.up
        client.close()


def test_a_slow_reader_loses_its_oldest_frames(broker: Broker) -> None:
    receiver = mqtt_host.MqttClient("localhost", broker.port, "t", queue_frames_max=4)
    sender = host(broker.port)
    link, out = receiver.transport(A, B), sender.transport(B, A)
    clients: list[Client] = [receiver, sender]
    assert wait(clients, lambda: receiver.up and sender.up)
    for turn in range(10):
        assert out.send(bytearray([turn]), 1) == OK
    assert wait(clients, lambda: receiver.overflowed == 6)
    frame = bytearray(FRAME_SIZE_MAX)
    kept = []
    while link.receive_into(frame):
        kept.append(frame[0])
    assert kept == [6, 7, 8, 9]
    receiver.close()
    sender.close()


def test_a_broker_that_cannot_start_says_why(broker: Broker) -> None:
    with pytest.raises(BrokerError, match="in use"):
        Broker(broker.port).start()


def listens(port: int) -> bool:
    """Whether something accepts connections at this port."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


STARTER = """
from drupelet_host.broker import Broker
broker = Broker()
broker.start()
print(broker.port, flush=True)
input()
"""


def test_a_broker_ends_with_its_starter() -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        port = int(starter.stdout.readline())
        assert listens(port)
        starter.kill()
    end = time.monotonic() + DEADLINE_S
    while listens(port):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_look_at_the_socket_is_for_all_peers_of_a_host(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = host(broker.port), host(broker.port)
    names = [b"00000001/%08x" % number for number in range(8)]
    peers = [client.transport(name, b"x") for name in names]
    sender = other.transport(b"x", names[5])
    assert wait([client, other], lambda: client.up and other.up)
    looks = []
    poll = select.poll
    monkeypatch.setattr(select, "poll", lambda: looks.append(1) or poll())
    frame = bytearray(1024)
    client.maintain(now_ms())
    assert [peer.receive_into(frame) for peer in peers] == [0] * 8 and len(looks) == 1
    assert not any(peer.may_receive for peer in peers)
    sender.send(bytearray(b"hello"), 5)
    assert wait([client, other], lambda: peers[5].may_receive)
    assert [peer.receive_into(frame) for peer in peers] == [0] * 5 + [5] + [0] * 2
    for each in (client, other):
        each.close()
