"""A broker that means harm, against the host's client; the board's is in tests/board."""

import contextlib
import resource
import select
import time
from collections.abc import Callable

import pytest

from board.hostile import CONNACK, SUBACK, HostileBroker, packet, publish, remaining
from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet_transports.board import mqtt_board
from drupelet_transports.host.mqtt_host import MqttClient, MqttTransport

INBOX, OUTBOX = b"000000a1/000000b2", b"000000b2/000000a1"
LATE_S = 20.0
SPEED = 2  # the client's milliseconds per real one


def now_ms() -> int:
    return int(time.monotonic() * 1000 * SPEED) & 0x3FFFFFFF


class Host:
    """The host's client and one carrier, moved on by `until`."""

    def __init__(self, broker: HostileBroker) -> None:
        self.client = MqttClient("127.0.0.1", broker.port, "t")
        self.link: MqttTransport = self.client.transport(INBOX, OUTBOX)
        self.frame = bytearray(FRAME_SIZE_MAX)
        self.frames: list[bytes] = []

    def step(self) -> None:
        self.client.maintain(now_ms())
        size = self.link.receive_into(self.frame)
        if size > 0:
            self.frames.append(bytes(self.frame[:size]))

    def until(self, done: Callable[[], object]) -> None:
        end = time.monotonic() + LATE_S
        while not done():
            assert time.monotonic() < end, f"late: {vars(self.client)}"
            self.step()
            time.sleep(0.001)

    def meet(self, broker: HostileBroker) -> None:
        """Up to SUBACK; the broker's calls block, so the client is moved on in between."""
        broker.serve_with(self.step)
        self.until(lambda: self.client.up)


class Broker(HostileBroker):
    """Lets the client move on while it waits for it."""

    def serve_with(
        self, step: Callable[[], None], connack: bytes = CONNACK, suback: bytes = SUBACK
    ) -> None:
        self.hang_up()
        self._listener.settimeout(0.01)
        end = time.monotonic() + LATE_S
        while self.sock is None:
            assert time.monotonic() < end, "nobody connects"
            step()
            try:
                self.sock, _ = self._listener.accept()
            except TimeoutError:
                continue
        self.sock.settimeout(LATE_S)
        self._after(step, 0x10, connack)
        self._after(step, 0x82, suback)

    def _after(self, step: Callable[[], None], kind: int, answer: bytes) -> None:
        """Answer the client's next packet, which is of this kind."""
        assert self.sock is not None
        end = time.monotonic() + LATE_S
        while not select.select([self.sock], [], [], 0.001)[0]:
            assert time.monotonic() < end, "nothing is said"
            step()
        assert self.packet()[0] == kind
        self.send(answer)


def test_a_host_survives_what_a_broker_must_not_send() -> None:
    frame = bytes(range(256)) * 4
    with Broker() as broker:
        host = Host(broker)
        host.meet(broker)
        broker.send(publish(b"\0"))
        broker.send(publish(bytes(1025)))  # longer than any frame
        broker.send(publish(b"old", flags=1))  # retained
        broker.send(publish(b"once", flags=2, packet_id=b"\0\7"))
        broker.send(publish(b"twice", flags=4, packet_id=b"\0\x08"))  # QoS 2
        broker.send(publish(b"x", topic=b"t/000000a1/000000b3"))
        broker.send(publish(b"x", topic=b"t/000000b2/000000a1"))  # our own, back again
        broker.send(publish(b""))
        broker.send(publish(frame) * 3)
        host.until(lambda: len(host.frames) == 4)
        assert host.frames == [b"\0", frame, frame, frame]
        assert host.client.retained == 1 and host.client.misdirected >= 4
        assert host.client.up
        host.client.close()


def test_a_host_takes_drips_and_floods() -> None:
    with Broker() as broker:
        host = Host(broker)
        host.meet(broker)
        for byte in publish(b"drop by drop"):
            broker.send(bytes([byte]))
            host.step()
        host.until(lambda: host.frames)
        broker.send(publish(bytes(100)) * 2000)
        host.until(lambda: len(host.frames) + host.client.overflowed == 2001)
        assert host.frames[0] == b"drop by drop" and len(host.frames) >= 256
        host.client.close()


@pytest.mark.parametrize(
    "words",
    [
        b"\x30\xff\xff\xff\xff\x01",  # five length bytes
        packet(0x20, b"\0\5"),  # not authorised, once more
        b"\xf0\x00",
    ],
)
def test_a_host_comes_back_after_nonsense(words: bytes) -> None:
    with Broker() as broker:
        host = Host(broker)
        host.meet(broker)
        broker.send(words)
        for _ in range(50):
            host.step()
            time.sleep(0.001)
        broker.hang_up()
        host.until(lambda: not host.client.up)
        host.meet(broker)
        broker.send(publish(b"again"))
        host.until(lambda: host.frames == [b"again"])
        host.client.close()


def test_a_broker_cannot_make_a_host_read_more_than_a_frame() -> None:
    """A PUBLISH of 256 MiB, of which as much is sent as the client takes."""
    with Broker() as broker:
        host = Host(broker)
        host.meet(broker)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        broker.send(b"\x30" + remaining(268_435_455) + b"\0\x13t/000000a1/000000b2")
        assert broker.sock is not None
        broker.sock.settimeout(0.02)
        sent = 0
        piece = bytes(1 << 16)
        try:
            while sent < 64 << 20 and host.client.up:
                with contextlib.suppress(TimeoutError):
                    sent += broker.sock.send(piece)
                host.step()
        except ConnectionError:
            pass
        host.until(lambda: not host.client.up)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 16 << 10, f"{grown} KiB more"
        assert host.client.skipped == 1
        host.client.close()


def connected(client: mqtt_board.MqttClient, broker: HostileBroker, now_ms: int) -> None:
    """A client has sent its CONNECT to the broker."""
    client.maintain(now_ms)
    broker.accept()
    end = time.monotonic() + LATE_S
    while client.poll_object is None and time.monotonic() < end:
        client.maintain(now_ms)


def test_who_is_thrown_out_at_once_comes_back_ever_later() -> None:
    """A twin with our client id would evict us in a loop: ids are random, and waits grow."""
    draws = iter(range(256))
    greetings = set()
    with HostileBroker() as broker:
        for _ in range(8):
            client = mqtt_board.MqttClient("127.0.0.1", broker.port, "t", lambda: next(draws))
            client.transport(INBOX, OUTBOX)
            connected(client, broker, 0)
            greetings.add(broker.packet())
            client.close()
        assert len(greetings) == 8 and {kind for kind, _ in greetings} == {0x10}
        client = mqtt_board.MqttClient("127.0.0.1", broker.port, "t", lambda: 0)
        client.transport(INBOX, OUTBOX)
        now = 0
        waits = []
        for _ in range(6):
            connected(client, broker, now)
            broker.hang_up()
            end = time.monotonic() + LATE_S
            while client.poll_object is not None and time.monotonic() < end:
                now += 1
                client.maintain(now)
                time.sleep(0.001)
            waits.append(client.wait_ms(now))
            now += waits[-1]
        assert waits == sorted(waits) and waits[-1] >= 16 * waits[0]
        client.close()


def test_a_broker_that_lets_nobody_read_is_told_of_at_once() -> None:
    with Broker() as broker:
        host = Host(broker)
        broker.serve_with(host.step, suback=packet(0x90, b"\0\1\x80"))
        host.until(lambda: host.client.trouble)
        assert host.client.trouble.startswith("not authorised to read t/#")
        broker.serve_with(host.step)
        host.until(lambda: host.client.up)
        assert not host.client.trouble
        broker.hang_up()
        host.until(lambda: not host.client.up)
        assert "broke" in host.client.trouble
