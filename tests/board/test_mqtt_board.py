"""The board's MQTT client on MicroPython in a 48 KB heap against brokers that mean harm."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from board.hostile import (
    CONNACK,
    SUBACK,
    TOPIC,
    HostileBroker,
    packet,
    publish,
    remaining,
)
from drupelet_host.broker import Broker
from drupelet_transports.host.mqtt_host import MqttClient, MqttTransport

DEVICE = Path(__file__).with_name("mqtt_device.py")
# Code and all: the client must live beside a node, so its own test gives it little.
HEAP = {"x86": "48K", "x64": "96K"}
LIFE_MS = 15_000
FRAME_SIZE = 1024


class Device:
    """A running interpreter; `report` is there once it has ended."""

    def __init__(self, command: list[str], firmware: Path, arch: str, *args: str) -> None:
        self._process = subprocess.Popen(
            [*command, "-X", f"heapsize={HEAP[arch]}", str(DEVICE), *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"MICROPYPATH": str(firmware)},
        )

    def report(self) -> dict[str, int]:
        out, _ = self._process.communicate(timeout=30)
        text = out.decode()
        assert self._process.returncode == 0, text
        found: dict[str, int] = json.loads(text)
        return found

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


Run = Callable[..., AbstractContextManager[Device]]


@pytest.fixture
def run(micropython: list[str], firmware: Path, arch: str) -> Run:
    @contextmanager
    def start(port: int, speed: int = 1, *more: str) -> Iterator[Device]:
        device = Device(micropython, firmware, arch, str(port), str(speed), str(LIFE_MS), *more)
        try:
            yield device
        finally:
            device.end()

    return start


def test_survives_what_a_broker_must_not_send(run: Run) -> None:
    frame = bytes(range(256)) * 4
    with HostileBroker() as broker, run(broker.port) as device:
        broker.serve()
        broker.echo(b"\x00")
        broker.echo(frame)
        # Longer than any frame: read past, whatever it is, and what follows still counts.
        broker.send(publish(bytes(1025)))
        broker.send(packet(0x30, bytes(200_000)))
        broker.send(packet(0xD0, bytes(5000)))
        broker.echo(frame)
        # Retained: an old frame. QoS 1 and 2 were not asked for.
        broker.send(publish(b"old", flags=1))
        broker.send(publish(b"once", flags=2, packet_id=b"\x00\x07"))
        broker.send(publish(b"twice", flags=4, packet_id=b"\x00\x08"))
        broker.send(publish(b"never", flags=6, packet_id=b"\x00\x09"))
        # Topics that are not ours, or not whole.
        broker.send(publish(b"x", topic=b"t/000000a1/000000b3"))
        broker.send(publish(b"x", topic=b"t/000000A1/000000b2"))
        broker.send(publish(b"x", topic=TOPIC + b"/more"))
        broker.send(publish(b"x", topic=b""))
        broker.send(publish(b"", topic=TOPIC))
        broker.send(packet(0x30, b"\xff\xff" + TOPIC))
        broker.send(packet(0x30, b"\x00"))
        broker.send(packet(0x30, b""))
        # Packets that make no sense now, or ever.
        for kind in (0x00, 0x10, 0x20, 0x40, 0x50, 0x62, 0x70, 0x82, 0x90, 0xB0, 0xE0, 0xF0):
            broker.send(packet(kind, b""))
            broker.send(packet(kind, b"\x00\x01\x80"))
        broker.echo(frame)
        broker.echo(b"quit")
        report = device.report()
    assert report["up"]
    assert (report["connects"], report["disconnects"]) == (1, 0)
    assert (report["skipped"], report["retained"], report["misdirected"]) == (3, 1, 11)
    assert (report["frames"], report["refused"]) == (5, 0)


def test_drips_and_floods(run: Run) -> None:
    frame = bytes(range(255, -1, -1)) * 4
    with HostileBroker() as broker, run(broker.port) as device:
        broker.serve()
        for byte in publish(b"drop by drop"):
            broker.send(bytes([byte]))
        assert broker.packet()[1].endswith(b"drop by drop")
        broker.send(publish(frame) * 40)
        for _ in range(40):
            assert broker.packet()[1][21:] == frame
        broker.echo(b"quit")
        assert device.report()["frames"] == 42


def test_a_length_of_five_bytes_ends_the_connection(run: Run) -> None:
    with HostileBroker() as broker, run(broker.port, 20) as device:
        broker.serve()
        broker.send(b"\x30\xff\xff\xff\xff\x01")
        assert broker.closed_by_device()
        broker.serve()
        broker.send(b"\x30" + remaining(268_435_455) + bytes(70_000))
        broker.hang_up()
        broker.serve()
        broker.echo(b"quit")
        assert device.report()["disconnects"] == 2


@pytest.mark.parametrize(
    "words",
    [
        b"",  # half open: accepted, then nothing
        CONNACK[:3],
        b"\x20\x02\x00\x05",  # not authorised
        CONNACK + b"\x90\x03\x00\x01\x80",  # subscription refused
        b"\x20\x03\x00\x00\x00",
        SUBACK,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_gives_up_on_a_broker_that_does_not_answer(run: Run, words: bytes) -> None:
    with HostileBroker() as broker, run(broker.port, 20) as device:
        broker.accept()
        broker.send(words)
        assert broker.closed_by_device()
        broker.serve()
        broker.echo(b"quit")
        report = device.report()
        assert (report["connects"], report["disconnects"]) == (1, 0)


def test_notices_a_connection_that_is_only_half_there(run: Run) -> None:
    with HostileBroker() as broker, run(broker.port, 50) as device:
        broker.serve()
        assert broker.packet() == (0xC0, b"")
        # No PINGRESP. A drip that never ends a packet is no answer either.
        broker.send(b"\x30\x7f\x00")
        assert broker.closed_by_device()
        broker.serve()
        broker.echo(b"quit")
        assert device.report()["disconnects"] == 1


def test_a_broker_that_comes_back_and_the_heap(run: Run, arch: str) -> None:
    """Frames allocate nothing; a connection at most 1 KB; a real broker may restart."""
    broker = Broker()
    broker.start()
    host = MqttClient("127.0.0.1", broker.port, "t")
    link = host.transport(b"000000b2/000000a1", b"000000a1/000000b2")
    try:
        with run(broker.port, 4, "locked") as device:
            echoed = _echo_rounds(host, link, 30)
            broker.stop()
            broker.start()
            echoed += _echo_rounds(host, link, 30)
            _echo_rounds(host, link, 1, b"quit")
            report = device.report()
    finally:
        host.close()
        broker.stop()
    print(f"{arch}: {report}")
    assert report["connects"] == 2
    assert echoed == 60
    assert report["locked_frames"] >= 50
    if arch == "x86":
        assert report["alloc_per_connect"] <= 1024


def _echo_rounds(host: MqttClient, link: MqttTransport, rounds: int, payload: bytes = b"") -> int:
    """Send frames until each has come back; the device may not be connected yet."""
    frame = bytearray(FRAME_SIZE)
    answer = bytearray(FRAME_SIZE)
    until = time.monotonic() + 12
    done = 0
    while done < rounds and time.monotonic() < until:
        host.maintain(int(time.monotonic() * 4000) & 0x3FFFFFFF)
        size = len(payload) or 1 + done * 34
        frame[:size] = payload or bytes((done + i) & 255 for i in range(size))
        if link.send(frame, size) != 0:
            time.sleep(0.01)
            continue
        again = time.monotonic() + 0.5
        while time.monotonic() < again:
            host.maintain(int(time.monotonic() * 4000) & 0x3FFFFFFF)
            got = link.receive_into(answer)
            if got == size and answer[:got] == frame[:size]:
                done += 1
                break
            time.sleep(0.001)
    return done
