"""Deep sleep of a Pico, which ends with a reset: one reading a wake, whatever happens then."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from drupelet_host.home.config import Peer
from drupelet_tools.pico.emulator import Pico
from drupelet_tools.pico.repl import put
from drupelet_tools.pico.wire import Wire
from host.conftest import Home, wait_for
from pico.board import BOARD, EPOCH_MS, HOST, allow, configuration, start_again

# A wake takes the emulator about 6 s. DRUPELET_WAKES=100 is the long run (docs/boards.md).
WAKES = int(os.environ.get("DRUPELET_WAKES", "4"))
UART = "uart:1?tx=4&rx=5&baud=115200"
PERIOD_MS = 60_000
# Nobody is at the other end until all readings are taken: a wake listens for no longer than this.
WINDOW_MS = 20
WAKE_S = 120
DELIVERY_S = 600.0
# A sleeping chip costs this machine nothing: an hour of it goes by in a few seconds.
SPEED = 200.0


def test_wakes_have_a_reading_each(
    make_pico: Callable[..., Pico], make_home: Callable[..., Home], tmp_path: Path
) -> None:
    allow(WAKES * WAKE_S)
    rows = b"".join(b"reading %d\n" % number for number in range(WAKES))
    sleep = {"window_ms": WINDOW_MS, "contact_ms": WINDOW_MS}
    awake = {"rows": "/rows", "readings_max": WAKES}
    asleep = {**awake, "epoch_ms": PERIOD_MS, "sleep": sleep}
    pico = make_pico()
    pico.wait("usb")
    put(pico, {"/drupelet.json": configuration(UART, **asleep), "/rows": rows})
    start_again(pico)
    wires = [Wire(port) for port in (pico.console_port, pico.uart_ports[1])]
    urls = [f"serial://{wire.device}" for wire in wires]
    peer = Peer("A", BOARD.to_bytes(4), urls[1], "batch", EPOCH_MS, "rp2040")
    home = make_home("host", HOST, peer)
    provisioned = home.run("provision", "A", "--to", urls[0])
    assert provisioned.returncode == 0, provisioned.stderr
    pico.command("speed", speed=SPEED)
    before = pico.status()
    for wake in range(1, WAKES + 1):
        now = pico.wait("reset", timeout_s=WAKE_S)
        assert now["snapshots"] - before["snapshots"] <= 1, f"wake {wake}"
        assert now["sim_ms"] - before["sim_ms"] >= 0.9 * PERIOD_MS, f"wake {wake} came early"
        before = now
    pico.wait("usb")
    lines = (tmp_path / "console.log").read_bytes().split(b"\n")
    statuses = [json.loads(line) for line in lines if line.startswith(b'{"') and b'"own"' in line]
    started = [line for line in statuses if line["event"] == "started"]
    assert len(started) == 1, "every boot but the first went on where the sleep began"
    assert {line["boot"] for line in statuses} == {1}
    pico.power_off()
    wires[0].close()
    hand_over(pico, home, configuration(UART, **awake))
    wires[1].close()


def hand_over(pico: Pico, home: Home, awake: bytes) -> None:
    """Let the board talk to the host; every reading is there once, in order."""
    pico.command("speed", speed=1)
    pico.power_on()
    pico.wait("usb")
    put(pico, {"/drupelet.json": awake})
    start_again(pico)
    home.start()
    wait_for(lambda: len(home.log()) >= WAKES, "all readings", DELIVERY_S)
    assert [entry["text"] for entry in home.log()] == [f"reading {n}" for n in range(WAKES)]
    assert home.status()["peers"][0]["seals"]["live"]["forged"] == 0
