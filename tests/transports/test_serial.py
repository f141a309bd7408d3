"""Serial carriers over a real pty pair: host to host, and host to a MicroPython process."""

import errno
import os
import select
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest
import serial

from drupelet.base.errors import E_CAPACITY, OK
from drupelet_transports.common.transport import E_CLOSED, Transport, TransportError
from drupelet_transports.host.serial_line import SerialHost, open_serial
from transports.cable import DEADLINE_S, Cable

ROOT = Path(__file__).parents[2]
SOURCES = f"{ROOT}/firmware:{ROOT}/transports"


@pytest.fixture
def cable() -> Iterator[Cable]:
    made = Cable()
    yield made
    made.close()


@pytest.fixture
def ends(cable: Cable) -> Iterator[tuple[SerialHost, SerialHost]]:
    here, there = (open_serial(f"serial://{name}?baud=115200") for name in cable.names)
    yield here, there
    here.close()
    there.close()


def send(transport: Transport, data: bytes) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while transport.send(bytearray(data), len(data)) == E_CAPACITY:
        assert time.monotonic() < deadline, "the line stays full"
        time.sleep(0.001)


def receive(transport: Transport, wait_s: float = DEADLINE_S) -> bytes | None:
    """Return the next frame, None if there is none for so long."""
    frame = bytearray(transport.frame_size_max)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        size = transport.receive_into(frame)
        assert size >= 0
        if size:
            return bytes(frame[:size])
        select.select([transport.poll_object], [], [], 0.01)
    return None


def test_frames_of_every_size_cross_both_ways(ends: tuple[SerialHost, SerialHost]) -> None:
    here, there = ends
    random = Random(1)
    for size in [1, 2, 251, 252, 253, 254, 255, 511, 1023, 1024]:
        for frame in (random.randbytes(size), bytes(size), b"\x01" * size):
            send(here, frame)
            send(there, frame[::-1])
            assert receive(there) == frame
            assert receive(here) == frame[::-1]
            assert here.last_wire_size == there.last_wire_size >= size + 4
    assert here.damaged == there.damaged == 0


def test_a_full_line_refuses_and_loses_nothing(ends: tuple[SerialHost, SerialHost]) -> None:
    here, there = ends
    random = Random(2)
    sent: list[bytes] = []
    for _ in range(1000):
        frame = random.randbytes(1024)
        code = here.send(bytearray(frame), 1024)
        if code == E_CAPACITY:
            break
        assert code == OK
        sent.append(frame)
    else:
        raise AssertionError("a terminal without end")
    assert here.pending_size > 0
    for frame in sent:
        here.flush()
        assert receive(there) == frame
    assert here.flush() == OK and here.pending_size == 0


def test_noise_on_the_line_costs_the_frames_it_hits(
    cable: Cable, ends: tuple[SerialHost, SerialHost]
) -> None:
    here, there = ends
    send(here, b"before")
    assert receive(there) == b"before"
    cable.inject(1, b"\xa5\x5a" * 700 + b"\x11\x13\x03\x04")  # no delimiter
    assert receive(there, 0.05) is None
    send(here, b"hit")  # runs into the noise
    send(here, b"after")
    assert receive(there) == b"after"
    assert there.damaged == 1
    cable.inject(1, b"\x00\x05ab\x00")  # half a frame between delimiters
    send(here, b"clean")
    assert receive(there) == b"clean"
    assert there.damaged == 2


def test_a_reset_in_the_middle_of_a_frame_spoils_only_that_frame(
    cable: Cable, ends: tuple[SerialHost, SerialHost]
) -> None:
    here, there = ends
    cable.inject(1, b"\x20half a fra")  # and then the board restarts
    assert receive(there, 0.05) is None
    here.close()
    with closing(open_serial(f"serial://{cable.names[0]}?baud=115200")) as again:
        send(again, b"first of the new life")
        assert receive(there) == b"first of the new life"
    assert there.damaged == 1


def test_a_line_that_loses_and_turns_bytes_delivers_only_what_was_sent(
    cable: Cable, ends: tuple[SerialHost, SerialHost]
) -> None:
    here, there = ends
    random = Random(3)

    def worn(data: bytes) -> bytes:
        kept = (byte for byte in data if random.random() > 0.0005)
        return bytes(byte ^ (random.random() < 0.0005) for byte in kept)

    cable.spoil = worn
    sent = [i.to_bytes(2, "big") + random.randbytes(150) for i in range(200)]
    found = []
    for frame in sent:
        send(here, frame)
        while (got := receive(there, 0.005)) is not None:
            found.append(got)
    assert set(found) <= set(sent)
    assert 120 < len(found) < 200
    assert there.damaged > 0


def test_a_pulled_cable_is_a_code_and_close_may_come_twice(
    cable: Cable, ends: tuple[SerialHost, SerialHost]
) -> None:
    here, _ = ends
    cable.pull()
    frame = bytearray(1024)
    assert here.receive_into(frame) == E_CLOSED
    assert here.send(frame, 10) == E_CLOSED
    here.close()
    here.close()
    assert here.receive_into(frame) == here.send(frame, 10) == E_CLOSED


@pytest.mark.parametrize(
    ("number", "remedy"), [(errno.EIO, "does not answer"), (errno.EACCES, "no permission")]
)
def test_a_device_that_goes_while_it_is_opened_says_so(
    monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """pyserial lets the terminal's own error through, which is no OSError."""

    def gone(*_: object, **__: object) -> None:
        raise termios.error(number, os.strerror(number))

    monkeypatch.setattr(serial, "Serial", gone)
    with pytest.raises(TransportError, match=f"^serial:///dev/ttyACM0: .*{remedy}"):
        open_serial("serial:///dev/ttyACM0")


def test_what_cannot_be_opened_says_so_in_one_line(cable: Cable, tmp_path: Path) -> None:
    plain = tmp_path / "file"
    plain.write_text("")
    held = open_serial(f"serial://{cable.names[0]}")
    for url, remedy in [
        ("serial:///dev/drupelet-none", "plug it in"),
        (f"serial://{plain}", "check the path"),
        (f"serial://{cable.names[0]}", "another program"),
    ]:
        with pytest.raises(TransportError) as caught:
            open_serial(url)
        message = str(caught.value)
        assert remedy in message and message.startswith(url) and "\n" not in message
    held.close()


def host_end(cable: Cable) -> SerialHost:
    return open_serial(f"serial://{cable.names[0]}")


@contextmanager
def board(micropython: list[str], device: str, frames: int) -> Iterator[subprocess.Popen[str]]:
    """Run the echoing board; it is up when the block begins and gone when it ends."""
    script = str(ROOT / "tests/board/serial_echo.py")
    with subprocess.Popen(
        [*micropython, script, SOURCES, device, str(frames), "5000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready micropython\n"
            yield process
        finally:
            process.kill()


def end_of(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, out + err
    return out.splitlines()[-1]


def test_a_board_answers_every_frame_without_allocating(
    cable: Cable, micropython: list[str]
) -> None:
    random = Random(4)
    with closing(host_end(cable)) as here, board(micropython, cable.names[1], 60) as process:
        for i in range(60):
            frame = random.randbytes([1, 64, 254, 1024][i % 4])
            send(here, frame)
            assert receive(here) == bytes(byte ^ 255 for byte in frame)
        assert end_of(process) == "damaged 0 left 0 code 1"


def test_a_board_takes_a_burst_and_noise(cable: Cable, micropython: list[str]) -> None:
    random = Random(5)
    frames = [random.randbytes(1024) for _ in range(24)]
    with closing(host_end(cable)) as here, board(micropython, cable.names[1], 24) as process:
        cable.inject(1, bytes(range(1, 256)) * 3 + b"\x00")
        found = []
        for frame in frames:  # both directions fill up: neither side may wait for the other
            send_while_receiving(here, frame, found)
        while len(found) < len(frames):
            got = receive(here)
            assert got is not None
            found.append(got)
        assert found == [bytes(byte ^ 255 for byte in frame) for frame in frames]
        assert end_of(process) == "damaged 1 left 0 code 1"


def test_a_board_learns_that_the_line_is_gone(cable: Cable, micropython: list[str]) -> None:
    with board(micropython, cable.names[1], 5) as process:
        cable.pull()
        assert end_of(process) == "damaged 0 left 5 code -11"


def send_while_receiving(transport: SerialHost, frame: bytes, found: list[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while transport.send(bytearray(frame), len(frame)) == E_CAPACITY:
        assert time.monotonic() < deadline, "the line stays full"
        got = receive(transport, 0.01)
        if got is not None:
            found.append(got)
