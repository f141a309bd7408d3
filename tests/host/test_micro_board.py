"""An agent serves a `micro` board, whose frames have 251 bytes at most: `frame=251` in its URL."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet_host.home.config import Peer
from drupelet_tools.flash.build import micropython_command
from drupelet_tools.flash.sets import Choice, build_set
from host.conftest import Cable, Home, wait_for

MACHINE = Path(__file__).parents[1] / "board/micro_machine.py"
EPOCH_MS = 100
READINGS = 10
AGENT, BOARD = 0x40000000, 0xC0000007
CONFIG = f"""
GROUP = b"orchard"
EPOCH_MS = {EPOCH_MS}
LINES = ((0, 115200, 1),)
IDS = "ids"


def reading(number):
    return b"reading %d" % number if number < {READINGS} else b""


def taken(node, row):
    with open("taken.txt", "a") as stream:
        at = node.body_at(row)
        body = bytes(node.bodies[at : at + node.body_size(row)])
        stream.write(body.hex() + "\\n")
"""


def start_board(folder: Path, terminal: str) -> subprocess.Popen[str]:
    """A micro board as a process with a heap of 32 KB, its UART this terminal."""
    build_set(folder / "firmware", "x86", Choice("micro"))
    shutil.copy(MACHINE, folder / "machine.py")
    (folder / "micro_config.py").write_text(CONFIG)
    return subprocess.Popen(
        [*micropython_command("x86"), "-X", "heapsize=32K", "-m", "boards.micro.main"],
        env=os.environ | {"MICROPYPATH": ".:firmware", "UART0": terminal}, cwd=folder,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["batch", "interactive"])
def test_an_agent_and_a_micro_board(
    make_home: Callable[..., Home], cable: Cable, tmp_path: Path, mode: str
) -> None:
    url = cable.url(0) + "&frame=251"
    home = make_home("host", AGENT, Peer("well", BOARD.to_bytes(4), url, mode, EPOCH_MS))
    texts = [f"host says {number}" for number in range(READINGS)]
    for text in texts:
        home.put(text)
    folder = tmp_path / "board"
    folder.mkdir()
    board = start_board(folder, cable.devices[1])
    taken = folder / "taken.txt"
    try:
        home.start()

        def is_exchanged() -> bool:
            home.check_alive()
            assert board.poll() is None
            there = len(taken.read_text().splitlines()) if taken.exists() else 0
            return there >= READINGS and len(home.log()) >= 2 * READINGS

        wait_for(is_exchanged, "ten messages both ways")
        home.settle()
        home.stop()
    finally:
        board.kill()
        error = board.communicate(timeout=10)[1]
    assert not error
    log = home.log()
    assert sorted(entry["text"] for entry in log) == sorted(
        texts + [f"reading {number}" for number in range(READINGS)]
    )
    bodies = [bytes.fromhex(line) for line in taken.read_text().splitlines()]
    assert len(bodies) == READINGS
    assert [body[-len(text) :].decode() for body, text in zip(bodies, texts, strict=True)] == texts
