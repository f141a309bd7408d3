"""Keys over a cable whose device goes away, or says what it likes: one line for a person."""

import errno
import json
import os
import pty
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import serial

from drupelet_host.home.config import Peer
from drupelet_host.keys.key_folder import KeysError
from drupelet_host.keys.provision_serial import SerialKeys
from drupelet_tools.flash import rom
from drupelet_transports.common.transport import TransportError
from host.conftest import Cable, Home, wait_for

BOARD, HOST = 0xA0000001, 0x40000000
READINGS = 5
EPOCH_MS = 200
OWN, PEER = b"\xa0\0\0\1", b"\xb0\0\0\1"
# Colour, title of the window, a line that is written over, C1 in one character and as a byte.
HOSTILE = "\x1b[31m\x1b]0;t\x07\rok\x9b2J\udc9b2J\u202e"


def gone(*_: object, **__: object) -> None:
    """pyserial lets the terminal's own error through, which is no OSError."""
    raise termios.error(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def terminal() -> Iterator[str]:
    ends = pty.openpty()
    yield os.ttyname(ends[1])
    for end in ends:
        os.close(end)


def test_a_device_that_goes_while_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, terminal: str
) -> None:
    monkeypatch.setattr(serial, "Serial", gone)
    with pytest.raises(TransportError, match=f"serial://{terminal}: .* does not answer"):
        SerialKeys(f"serial://{terminal}", OWN, PEER)


def test_a_device_that_goes_while_it_is_written_to(
    monkeypatch: pytest.MonkeyPatch, terminal: str
) -> None:
    monkeypatch.setattr(serial.Serial, "flush", gone)
    with pytest.raises(TransportError, match=f"serial://{terminal}: the device went away"):
        SerialKeys(f"serial://{terminal}", OWN, PEER)


def a_board_that_says(answer: dict[str, object], master: int) -> threading.Thread:
    """Reads one line and answers with one, as whoever holds the other end of a cable may."""

    def speak() -> None:
        os.read(master, 200)
        os.write(master, json.dumps(answer).encode() + b"\n")

    thread = threading.Thread(target=speak)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "answer",
    [
        {"event": "keys", "step": "no", "why": HOSTILE},
        {"event": "keys", "step": "hello", "id": HOSTILE},
        {"event": "keys", "step": "hello", "id": [HOSTILE]},
    ],
)
def test_what_a_board_says_steers_no_terminal(answer: dict[str, object]) -> None:
    master, slave = pty.openpty()
    try:
        thread = a_board_that_says(answer, master)
        with pytest.raises(KeysError) as refused:
            SerialKeys(f"serial://{os.ttyname(slave)}", OWN, PEER)
        thread.join()
    finally:
        os.close(master)
        os.close(slave)
    assert str(refused.value).isprintable(), repr(str(refused.value))
    assert "x1b" in str(refused.value), "it is shown, escaped"


@contextmanager
def board_on_its_line(folder: Path, image: Path, device: str, url: str) -> Iterator[Path]:
    """A board as a process whose input and output are the line to its peer; its error output."""
    (folder / "flash").mkdir(exist_ok=True)
    settings = {
        "name": "A", "id": f"{BOARD:08x}", "flash": str(folder / "flash"), "group": "orchard",
        "epoch_ms": EPOCH_MS, "readings_max": READINGS, "rows": None, "heap_limit": 128 * 1024,
        "telemetry_to": [], "peers_max": 2, "messages_max": 24, "offers_max": 24,
        "filter_size": 1024,
        "peers": [{"id": f"{HOST:08x}", "url": url, "mode": "batch"}],
    }  # fmt: skip
    config_path, errors_path = folder / "config.json", folder / "errors"
    config_path.write_text(json.dumps(settings))
    with (
        open(device, "r+b", buffering=0) as line,
        errors_path.open("ab") as errors,
        subprocess.Popen(
            rom.board_command(image, 128, [str(config_path)]),
            stdin=line, stdout=line, stderr=errors, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield errors_path
            assert process.poll() is None, errors_path.read_text()
        finally:
            process.kill()


def test_keys_and_then_messages_over_one_cable(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path, full_image: Path
) -> None:
    """`provision`, then `agent`, while the board goes on; and again after it was restarted."""
    line = cable.url(1, plain=False)
    peer = Peer("A", BOARD.to_bytes(4), line, "batch", EPOCH_MS, board="esp32")
    home = make_home("host", HOST, peer)
    board_url = cable.url(0, plain=False).replace("?baud=115200", "")
    cooked = termios.tcgetattr(cable.device_fd(0))
    cooked[3] |= termios.ICANON | termios.ECHO | termios.ISIG  # as a login leaves a terminal
    termios.tcsetattr(cable.device_fd(0), termios.TCSANOW, cooked)
    with board_on_its_line(tmp_path, full_image, cable.devices[0], board_url):
        done = home.run("provision", "A", "--to", line)
        assert done.returncode == 0, done.stderr
        home.put("first")
        home.start()
        wait_for(lambda: len(home.log()) == READINGS + 1, "what the board measured")
        wait_for(lambda: home.status()["peers"][0]["outstanding"] == 0, "what the board took")
        first = home.log()
    with board_on_its_line(tmp_path, full_image, cable.devices[0], board_url):
        home.put("second")
        wait_for(lambda: home.status()["delivered"] == READINGS + 2, "ours")
        wait_for(lambda: home.status()["peers"][0]["outstanding"] == 0, "a board with keys")
    assert home.log()[: len(first)] == first
