"""What a port promises, on the emulated Pico: fakes that other tests run on must agree with it."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drupelet_tools.flash.build import ROOT
from drupelet_tools.flash.fold import collect, fold
from drupelet_tools.pico.emulator import Pico
from drupelet_tools.pico.repl import prompt
from pico.board import flash_image

CONTRACT = Path(__file__).parents[1] / "board/hal/contract.py"
CONTRACT_S = 300
SPEED = 0.2  # the joined pins answer in this machine's time
# What needs a wire, a radio or a reset, which this image or this emulator has not got.
LEFT_OUT = {"restart", "watchdog", "lamp", "wifi", "card"}
# The suite takes pins that are silent for 0.3 s for pins that are not joined. On a busy machine
# ours may answer later: this does the same with more patience.
LINE = """
from boards.rp2.port import Port
port = Port({"flash": "/hal-contract", "name": "hal", "peers": []})
carrier = port.open_line("uart:1?tx=4&rx=5&baud=115200&frame=251")
carrier.maintain(port.now_ms())
port.watch(None, carrier.poll_object)
frame, heard = bytearray(range(251)), bytearray(251)
sizes = []
for _ in range(4):
    sizes.append(carrier.send(frame, 200))
    began_ms = port.now_ms()
    size = 0
    while port.now_ms() - began_ms < 5000 and not size:
        size = max(carrier.receive_into(heard), 0)
        port.wait(5)
    sizes.append(size if heard[:size] == frame[:size] else -1)
"""


def folded(program: Path) -> str:
    """The program with constants of the core as numbers: an image has no names for them."""
    names = ("drupelet.base.compat", "drupelet.base.events", "drupelet.base.errors")
    sources = [(name, ROOT / "firmware" / f"{name.replace('.', '/')}.py") for name in names]
    constants = {**collect(sources), "contract": {}}
    return fold("contract", program.read_text("utf-8"), constants)


@contextmanager
def loop_back(port: int) -> Iterator[None]:
    """A UART whose two pins are joined."""
    with socket.create_connection(("127.0.0.1", port), 10) as line:

        def echo() -> None:
            with suppress(OSError):  # the emulator ends
                while data := line.recv(4096):
                    line.sendall(data)

        thread = threading.Thread(target=echo, daemon=True)
        thread.start()
        yield
        line.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_the_emulated_pico_keeps_the_contract(
    make_pico: Callable[..., Pico], tmp_path: Path
) -> None:
    pico = make_pico(speed=SPEED, uf2=flash_image(tmp_path / "full.uf2", "--set", "full"))
    pico.wait("usb")
    with loop_back(pico.uart_ports[1]), prompt(pico) as repl:
        repl.exec_raw_no_follow(folded(CONTRACT).encode())
        output, errors = repl.follow(CONTRACT_S)
        repl.exec_raw_no_follow(LINE)
        _, line_errors = repl.follow(CONTRACT_S)
        assert not line_errors, line_errors.decode()
        assert repl.eval("sizes") == [0, 200] * 4
    assert not errors, errors.decode()
    rows = [json.loads(line) for line in output.splitlines() if line.startswith(b'{"')]
    *rows, last = [row for row in rows if "event" not in row]
    assert not [row for row in rows if row["ok"] is False]
    assert last == {"checks": len(rows), "failed": 0, "port": "rp2"} and len(rows) >= 15
    silent = {row["check"] for row in rows if row["ok"] is None}
    assert silent - {"line"} == LEFT_OUT
