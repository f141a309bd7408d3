"""Ports of microcontrollers, on MicroPython's unix port with fakes of their chips' modules."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boards.keys import BoardKeys
from drupelet.base.errors import OK
from drupelet.link.link import Link
from drupelet.node import CARRIER_SERIAL, INTERACTIVE, PROFILE_BSP_1
from drupelet.seal.record import RECORD_SIZE, finish
from drupelet_host.store.folder_files import HostFiles
from drupelet_tools.descriptor_line import DescriptorLine
from drupelet_tools.flash.build import micropython_command
from drupelet_tools.flash.sets import Choice, build_set
from helpers import Draw, Member, serve

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SOURCES = (ROOT / "firmware", ROOT / "transports")
TIMEOUT_S = 120
EPOCH_MS = 200
MESSAGES = 12
# What a kind of board has not got, so that the suite has nothing to try.
LEFT_OUT = {
    "rp2": set(), "esp32": set(), "stm32": {"wifi"}, "nrf": {"sleep", "watchdog", "wifi"},
}  # fmt: skip
# Each kind of board with the processors that MicroPython builds it for.
ARCHES = [
    ("rp2", "armv6m"), ("esp32", "xtensawin"), ("esp32", "rv32imc"), ("stm32", "armv7emsp"),
    ("nrf", "armv7emsp"), ("qemu", "armv7m"),
]  # fmt: skip
ESCAPE = b"\0\3\3\0"
CONNECT = 0x10  # of MQTT


def modules(port: str, *firmware: Path) -> dict[str, str]:
    """The environment in which `import machine` finds a fake of this port's."""
    path = ":".join(map(str, (HERE / "fake", *firmware)))
    return os.environ | {"FAKE_PORT": port, "MICROPYPATH": path}


def run_contract(folder: Path, environment: dict[str, str]) -> list[dict[str, object]]:
    done = subprocess.run(
        [*micropython_command("x86"), "-X", "heapsize=4M", str(HERE / "contract.py")],
        env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    for row in rows:
        if row.get("ok") is False:
            print(row, done.stderr)
    return [row for row in rows if "event" not in row]


@pytest.mark.parametrize("port", LEFT_OUT)
def test_a_port_keeps_the_contract(tmp_path: Path, port: str) -> None:
    *rows, last = run_contract(tmp_path, modules(port, *SOURCES))
    assert last == {"checks": len(rows), "failed": 0, "port": port} and len(rows) >= 15
    assert {row["check"] for row in rows if row["ok"] is None} == LEFT_OUT[port]


# A fault of each kind, and the check that finds it.
FAULTS = [
    ("rp2", "boards/rp2/rtc.py", "machine.mem32[SCRATCH] = 0\n", "pass\n", "sleep"),
    ("rp2", "boards/rp2/rtc.py", "if page == 0", "if False", "sleep"),
    ("esp32", "boards/esp32/rtc.py", 'machine.RTC().memory(b"")', "pass", "sleep"),
    ("stm32", "boards/stm32/rtc.py", "stm.mem32[regulator] |=", "regulator |=", "sleep"),
    ("rp2", "boards/chip.py", "wait_ms >> 1", "wait_ms << 5", "watchdog"),
    ("nrf", "boards/nrf/port.py", "uart_rx_size = uart_tx_size = 0", "uart_tx_size = 9", "line"),
    ("stm32", "boards/stm32/port.py", "uart_tx_size = 0", "uart_tx_size = 9", "line"),
    ("esp32", "boards/wifi.py", "except OSError:  #", "except IndexError:  #", "wifi"),
    ("rp2", "boards/card.py", "self._card.readblocks(0, self._sector)", "pass", "card"),
]


@pytest.mark.parametrize(("port", "module", "right", "wrong", "check"), FAULTS)
def test_the_contract_finds_faults(
    tmp_path: Path, port: str, module: str, right: str, wrong: str, check: str
) -> None:
    shutil.copytree(ROOT / "firmware/boards", tmp_path / "boards")
    text = (tmp_path / module).read_text()
    assert right in text
    (tmp_path / module).write_text(text.replace(right, wrong))
    rows = run_contract(tmp_path, modules(port, tmp_path, *SOURCES))
    assert check in {row.get("check") for row in rows if row.get("ok") is False}


@pytest.mark.parametrize(("board", "arch"), ARCHES)
@pytest.mark.parametrize("name", ["small", "full"])
def test_sets_compile_for_each_kind_of_board(
    tmp_path: Path, board: str, arch: str, name: str
) -> None:
    built = build_set(tmp_path, arch, Choice(name, board=board))
    assert {"boards.setup", "boards.device", f"boards.{board}.main"} <= built.texts.keys()
    other = {name.split(".")[1] for name in built.texts if name.startswith("boards.")}
    assert not other & {"unix", "rp2", "esp32", "stm32", "nrf", "qemu"} - {board}
    for text in built.texts.values():
        assert "sys.argv" not in text and "termios" not in text
    assert (tmp_path / f"boards/{board}/main.mpy").is_file()


def console_of(process: "subprocess.Popen[bytes]") -> DescriptorLine:
    """Our end of a board's console."""
    assert process.stdin is not None and process.stdout is not None
    return DescriptorLine(process.stdout.fileno(), process.stdin.fileno(), 1024)


def exchange(line: DescriptorLine, member: Member, link: Link) -> None:
    """Until our log holds what the board wrote, and the board has what we wrote."""
    frame = bytearray(1024)
    end = time.monotonic() + 60
    published = 0
    while len(member.log()) < 2 * MESSAGES or member.node.outstanding(member.numbers["P"]):
        assert time.monotonic() < end, (len(member.log()), line.damaged)
        now_ms = int(time.monotonic() * 1000) & 0x3FFFFFFF
        if published < MESSAGES:  # bytes of all values: none may mean anything to the console
            published += (
                member.publish(bytes(range(256)) * (published % 3 + 1), now_ms) is not None
            )
        serve(line, link, frame, now_ms)
        member.consume()
        time.sleep(0.005)


@contextmanager
def console_board(
    folder: Path, peers: list[dict[str, str]], *carriers: str, port: str = "rp2", **more: object
) -> Iterator["subprocess.Popen[bytes]"]:
    """A board's program over the fake of its chip, its console on pipes; it has ended well."""
    config = {
        "name": "pico", "id": "c0000007", "flash": "/board/log", "group": "test",
        "epoch_ms": EPOCH_MS, "readings_max": MESSAGES, "peers_max": 2, "messages_max": 64,
        "offers_max": 32, "filter_size": 256, "telemetry_to": [], "led": 25, "peers": peers,
    }  # fmt: skip
    build_set(folder / "firmware", "x86", Choice("small", carriers=carriers, board=port))
    (folder / "drupelet.json").write_text(json.dumps(config | more))
    process = subprocess.Popen(
        [*micropython_command("x86"), "-X", "heapsize=1M", str(HERE / "console_board.py")],
        env=modules(port, folder / "firmware"), cwd=folder, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
        process.wait(TIMEOUT_S)
    finally:
        process.kill()
        error = process.communicate(timeout=10)[1]
    assert not error and process.returncode == 0


def escaped(process: "subprocess.Popen[bytes]") -> dict[str, int]:
    """What a board says last after the escape."""
    assert process.stdin is not None and process.stdout is not None
    os.write(process.stdin.fileno(), ESCAPE)
    os.set_blocking(process.stdout.fileno(), True)
    output = process.stdout.read()
    last: dict[str, int] = json.loads(output.split(b"\n")[-2].split(b"\0")[-1])
    return last


def test_a_pico_joins_over_its_console(tmp_path: Path) -> None:
    """`console:` carries frames until the escape; then the console is a console again."""
    peers = [{"id": "57000000", "url": "console:?plain=1", "mode": "interactive"}]
    with console_board(tmp_path, peers) as process:
        line = console_of(process)
        member = Member("W", Draw(1))
        member.peers.append("P")
        member.add("P")
        member.boot(0)
        link = member.node.link(
            member.numbers["P"], PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, INTERACTIVE
        )
        exchange(line, member, link)
        assert process.poll() is None
        last = escaped(process)
    assert last["returned"] == 0 and last["files"] > 0


def keep_keys(folder: Path, peer_id: bytes) -> None:
    """Keys of a board for a peer, which no peer has."""
    keys = BoardKeys(HostFiles(folder), bytes.fromhex("c0000007"), peer_id, [])
    for row in (0, 2, 4, 6):
        record = bytearray(RECORD_SIZE)
        record[0], record[16] = 1, row + 1
        finish(record)
        assert keys.save(row, record) == OK


def test_bytes_of_a_refused_peer_do_not_stop_a_pico(tmp_path: Path) -> None:
    """Its console stays a line: a byte 03, a command, a frame are dropped; the escape is heard."""
    keep_keys(tmp_path, b"\x57\0\0\2")  # of another peer: who has keys is asked for none
    peers = [
        {"id": "57000001", "url": "console:", "mode": "batch"},
        {"id": "57000002", "url": "uart:1?tx=4&rx=5", "mode": "batch"},
    ]
    with console_board(tmp_path, peers, "serial-sealed") as process:
        assert process.stdin is not None and process.stdout is not None
        text = b""
        while b'"refused"' not in text:
            part = process.stdout.readline()
            assert part, text
            text += part
        assert b'"57000001"' in text
        for _ in range(5):
            os.write(process.stdin.fileno(), b"\x03\nstop\n\0\x03\x01\0")
            time.sleep(EPOCH_MS / 1000)
        assert process.poll() is None
        assert escaped(process)["returned"] == 0


def read_until(process: "subprocess.Popen[bytes]", wanted: str) -> str:
    """What a board says, up to a line that has what is wanted."""
    assert process.stdout is not None
    lines = []
    while not lines or wanted not in lines[-1]:
        lines.append(process.stdout.readline().decode())
        assert lines[-1], lines
    return "".join(lines)


def test_an_esp32_takes_readings_without_a_network_and_joins_it_later(tmp_path: Path) -> None:
    """No network at the start is no end; when it is there, the board connects to its broker."""
    keep_keys(tmp_path, b"\x57\0\0\1")
    (tmp_path / "password").write_text("green apples")
    with socket.socket() as broker:
        broker.bind(("127.0.0.1", 0))  # nobody listens there yet
        broker.settimeout(TIMEOUT_S)
        url = f"mqtt://127.0.0.1:{broker.getsockname()[1]}/orchard"
        peers = [{"id": "57000001", "url": url, "mode": "batch"}]
        wifi = {"ssid": "orchard", "password_file": "password"}
        with console_board(tmp_path, peers, "mqtt", port="esp32", wifi=wifi) as process:
            assert process.stdin is not None
            assert '"event":"network"' not in read_until(process, f'"logged": {MESSAGES}')
            broker.listen()
            (tmp_path / "network-is-there").touch()
            assert '"up":true' in read_until(process, '"event":"network"')
            line, _ = broker.accept()
            with line:
                assert line.recv(1)[0] == CONNECT
            os.write(process.stdin.fileno(), b"stop\n")
            assert '"returned": 0' in read_until(process, "returned")
