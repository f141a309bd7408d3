"""From the UF2 file to a member of the group with `drupelet provision` alone: no other tool."""

import json
import subprocess
from collections.abc import Callable

from drupelet_host.home.config import Peer
from drupelet_tools.pico.emulator import Pico
from drupelet_tools.pico.repl import interrupt
from drupelet_tools.pico.wire import Wire
from host.conftest import COMMAND, Home, wait_for
from pico.board import BOARD, EPOCH_MS, HOST, allow, ask

WHOLE_S = 600


def test_a_blank_pico_gets_its_configuration_and_keys_over_its_cable(
    make_pico: Callable[..., Pico], make_home: Callable[..., Home]
) -> None:
    allow(WHOLE_S)
    pico = make_pico()
    pico.wait("usb")
    wire = Wire(pico.console_port)
    url = f"serial://{wire.device}"
    peer = Peer("well-7", BOARD.to_bytes(4), url, "batch", EPOCH_MS, "rp2040")
    home = make_home("host", HOST, peer)
    provisioned = subprocess.run(
        [*COMMAND, "provision", "well-7", "--home", str(home.path), "--to", url],
        capture_output=True, text=True, check=False, timeout=WHOLE_S,
    )  # fmt: skip
    assert provisioned.returncode == 0, provisioned.stderr
    home.start()
    wait_for(lambda: len(home.log()) >= 3, "three readings", WHOLE_S / 2)
    readings = [json.loads(entry["text"]) for entry in home.log()]
    assert [reading["n"] for reading in readings] == list(range(len(readings)))
    assert all(reading["board"] == "well-7" for reading in readings)
    # The emulator has half of 3.3 V at each pin, and a Pico divides its supply by three.
    assert all(4900 < reading["supply_mv"] < 5000 for reading in readings)
    home.stop()
    wire.close()
    interrupt(pico)
    assert ask(pico, "json.load(open('/drupelet.json'))")["flash"] == "/log"
