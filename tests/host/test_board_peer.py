"""A board that knows bsp-1 only, on MicroPython, and an agent that tries compact-1."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet_host.home.config import Peer
from drupelet_tools.demo.child import Child, Event
from drupelet_tools.flash import rom
from host.conftest import Cable, Home, wait_for

BOARD = 0xA0000001
HOST = 0x40000000
READINGS = 12
# What a busy machine has not acknowledged two epochs later comes again.
EPOCH_MS = 200


@pytest.mark.parametrize("mode", ["batch", "interactive"])
def test_an_agent_falls_back_to_what_a_board_speaks(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path, full_image: Path, mode: str
) -> None:
    (tmp_path / "flash").mkdir()
    end = cable.url(0).replace("baud=115200&", "")
    settings = {
        "name": "A", "id": f"{BOARD:08x}", "flash": str(tmp_path / "flash"), "group": "orchard",
        "epoch_ms": EPOCH_MS, "readings_max": READINGS, "rows": None, "heap_limit": 128 * 1024,
        "telemetry_to": [], "peers_max": 2, "messages_max": 24, "offers_max": 24,
        "filter_size": 1024,
        "peers": [{"id": f"{HOST:08x}", "url": end, "mode": mode}],
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings))
    peer = Peer("A", BOARD.to_bytes(4), cable.url(1), mode, EPOCH_MS, profile="compact-1")
    home = make_home("host", HOST, peer)
    home.put("before the board was there")
    home.start()
    said: list[Event] = []
    board = Child(
        "A",
        rom.board_command(full_image, 128, [str(tmp_path / "config.json")]),
        tmp_path / "log", lambda _name, event: said.append(event),
    )  # fmt: skip
    try:
        wait_for(lambda: not board.running or len(home.log()) == READINGS + 1, "all readings")
        assert board.running, board.last_words()
        home.put("and after")
        wait_for(lambda: home.status()["delivered"] == READINGS + 2, "its own")
        home.settle()
        assert home.status()["peers"][0]["profile"] == "bsp-1"
        # The fall-back makes nobody begin anew; what a busy machine answers late comes twice.
        assert home.status()["peers"][0]["duplicates"] < READINGS
    finally:
        board.stop()
