"""What every carrier promises, one suite for all of them (common.transport)."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from random import Random

import pytest

from drupelet.base.errors import E_CAPACITY, OK
from drupelet.base.limits import FRAME_SIZE_MAX, HOST_FRAME_SIZE_MAX
from drupelet_host.broker import Broker
from drupelet_transports.board import mqtt_board
from drupelet_transports.common import in_process
from drupelet_transports.common.faulty import FaultyTransport
from drupelet_transports.common.transport import E_CLOSED, Transport
from drupelet_transports.host import mqtt_host
from drupelet_transports.host.serial_line import open_serial
from transports.cable import Cable

A, B = b"\0\0\0\x0a", b"\0\0\0\x0b"
DEADLINE_S = 8.0


class Ends:
    """Both ends of a carrier and what keeps it going while a test waits."""

    def __init__(self, here: Transport, there: Transport, step: Callable[[], None]) -> None:
        self.here, self.there, self.step = here, there, step

    def send(self, sender: Transport, data: bytes) -> int:
        """Send as soon as there is room; a caller's buffer is its own again at once."""
        frame = bytearray(data)
        code = OK
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            code = sender.send(frame, len(data))
            if code != E_CAPACITY:
                break
            self.step()
        frame[:] = bytes(len(frame))
        return code

    def receive(self, receiver: Transport, wait_s: float = DEADLINE_S) -> bytes | None:
        frame = bytearray(receiver.frame_size_max)
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            self.step()
            size = receiver.receive_into(frame)
            assert size >= 0
            if size:
                return bytes(frame[:size])
        return None


def rest() -> None:
    time.sleep(0.001)


@contextmanager
def loop_ends() -> Iterator[Ends]:
    yield Ends(*in_process.pair(), rest)


@contextmanager
def faultless_ends() -> Iterator[Ends]:
    here, there = in_process.pair()
    random = Random(1)
    yield Ends(
        FaultyTransport(here, random.randrange), FaultyTransport(there, random.randrange), rest
    )


@contextmanager
def serial_ends() -> Iterator[Ends]:
    with closing(Cable()) as cable:
        first, second = (open_serial(f"serial://{name}?baud=115200") for name in cable.names)
        with closing(first), closing(second):
            yield Ends(first, second, rest)


Client = mqtt_board.MqttClient | mqtt_host.MqttClient


@contextmanager
def _mqtt_ends(first: Client, second: Client, *sizes: int) -> Iterator[Ends]:
    def step() -> None:
        now_ms = int(time.monotonic() * 1000) & 0x3FFFFFFF
        first.maintain(now_ms)
        second.maintain(now_ms)
        time.sleep(0.001)

    end = time.monotonic() + DEADLINE_S
    carriers = (first.transport(b"b", b"a", *sizes), second.transport(b"a", b"b", *sizes))
    ends = Ends(*carriers, step)
    while not (first.up and second.up):
        assert time.monotonic() < end, "no connection"
        step()
    with closing(first), closing(second):
        yield ends


@contextmanager
def mqtt_host_ends() -> Iterator[Ends]:
    broker = Broker()
    broker.start()
    try:
        first = mqtt_host.MqttClient("localhost", broker.port, "contract")
        second = mqtt_host.MqttClient("localhost", broker.port, "contract")
        with _mqtt_ends(first, second) as ends:
            yield ends
    finally:
        broker.stop()


@contextmanager
def mqtt_board_ends() -> Iterator[Ends]:
    broker = Broker()
    broker.start()
    try:
        first = mqtt_board.MqttClient("localhost", broker.port, "contract", lambda: 3)
        second = mqtt_host.MqttClient("localhost", broker.port, "contract")
        with _mqtt_ends(first, second) as ends:
            yield ends
    finally:
        broker.stop()


@contextmanager
def long_loop_ends() -> Iterator[Ends]:
    yield Ends(*in_process.pair(HOST_FRAME_SIZE_MAX), rest)


@contextmanager
def long_mqtt_ends() -> Iterator[Ends]:
    """As for peers that may know no segments."""
    broker = Broker()
    broker.start()
    try:
        first = mqtt_host.MqttClient("localhost", broker.port, "contract")
        second = mqtt_host.MqttClient("localhost", broker.port, "contract")
        with _mqtt_ends(first, second, HOST_FRAME_SIZE_MAX) as ends:
            yield ends
    finally:
        broker.stop()


KINDS = [
    loop_ends, long_loop_ends, faultless_ends, serial_ends, mqtt_host_ends,
    long_mqtt_ends, mqtt_board_ends,
]  # fmt: skip


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__.removesuffix("_ends"))
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    with request.param() as made:
        yield made


def test_the_two_facts(ends: Ends) -> None:
    for end in (ends.here, ends.there):
        assert end.frame_size_max in (FRAME_SIZE_MAX, HOST_FRAME_SIZE_MAX)
        assert end.duplex


def test_whole_frames_in_order_both_ways(ends: Ends) -> None:
    random = Random(7)
    sizes = [1, 2, 3, 127, 128, 253, 254, 255, ends.here.frame_size_max]
    for size in sizes:
        for sender, receiver in ((ends.here, ends.there), (ends.there, ends.here)):
            data = random.randbytes(size)
            assert ends.send(sender, data) == OK
            sent_wire_size = sender.last_wire_size
            assert sent_wire_size >= size
            assert ends.receive(receiver) == data
            # A serial line's first frame has a delimiter in front of it that is no part of it.
            assert sent_wire_size - receiver.last_wire_size in (0, 1)
    for turn in range(40):
        assert ends.send(ends.here, bytes([turn]) * (turn + 1)) == OK
        assert ends.send(ends.there, bytes([255 - turn]) * (turn + 1)) == OK
        assert ends.receive(ends.there) == bytes([turn]) * (turn + 1)
        assert ends.receive(ends.here) == bytes([255 - turn]) * (turn + 1)


def test_every_byte_is_carried(ends: Ends) -> None:
    for data in (
        bytes(range(256)) * 4,
        bytes(1024),
        b"\xff" * 1024,
        b"\x11\x13" * 512,  # XON, XOFF
        b"\x03\x04\x1a\x00" * 256,
        b"DRP1\r\n\x30\x95\x08" * 100,
    ):
        assert ends.send(ends.here, data) == OK
        assert ends.receive(ends.there) == data


def test_a_burst_is_carried_or_refused_but_never_cut(ends: Ends) -> None:
    random = Random(3)
    sent = [random.randbytes(900) for _ in range(60)]
    accepted, received = [], []
    frame = bytearray(ends.there.frame_size_max)
    for data in sent:
        code = ends.here.send(bytearray(data), len(data))
        assert code in (OK, E_CAPACITY)
        if code == OK:
            accepted.append(data)
        size = ends.there.receive_into(frame)
        if size:
            received.append(bytes(frame[:size]))
    while len(received) < len(accepted) and (data_in := ends.receive(ends.there)) is not None:
        # The sender's own calls move what its carrier had not taken yet.
        ends.here.receive_into(frame)
        received.append(data_in)
    assert received == accepted
    assert ends.there.receive_into(frame) == 0


def test_nothing_there_is_zero_at_once(ends: Ends) -> None:
    frame = bytearray(ends.here.frame_size_max)
    took_s = []
    for _ in range(3):  # who waits does so each time; a busy machine does not
        started = time.monotonic()
        for _ in range(100):
            assert ends.here.receive_into(frame) == 0
            assert ends.there.receive_into(frame) == 0
        took_s.append(time.monotonic() - started)
    assert min(took_s) < 1.0


def test_closed_is_closed(ends: Ends) -> None:
    frame = bytearray(ends.here.frame_size_max)
    ends.here.close()
    ends.here.close()
    assert ends.here.send(frame, 10) == E_CLOSED
    assert ends.here.receive_into(frame) == E_CLOSED
    ends.step()
    assert ends.there.receive_into(frame) in (0, E_CLOSED)
    ends.there.close()
    assert ends.there.send(frame, 10) == E_CLOSED
    assert ends.there.receive_into(frame) == E_CLOSED
