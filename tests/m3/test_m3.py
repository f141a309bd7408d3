"""Both firmware sets on a Cortex-M3 without an operating system, in QEMU: they boot from an image
that is built here, keep their log on a flash, and exchange messages over a UART."""

import json
import os
import time
import tty
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.node import BATCH, CARRIER_SERIAL, INTERACTIVE, PROFILE_BSP_1
from drupelet_host.home.config import Peer
from drupelet_tools.descriptor_line import DescriptorLine
from drupelet_tools.m3 import drive
from drupelet_tools.m3.image import compiled, image
from drupelet_tools.m3.machine import Machine, Start
from helpers import Draw, Member
from host.conftest import Home, wait_for
from host.conftest import make_home as make_home
from unit.numbered_messages import log_of

BOARD = 0xA0000001
HOST = 0x40000000
READINGS = 8
LIVES = 3
PUTS = 3  # of the host, in each
EPOCH_MS = 500
# A machine that does other things, too, may take so long.
BOOT_S = 240
EXCHANGE_S = 240
KB = 1024
MICRO_FRAME_SIZE = 251
RUN = b"import boards.qemu.main\nboards.qemu.main.run()\n"

# Filled in with a link's mode.
MICRO_CONFIG = f"""
GROUP = b"test"
EPOCH_MS = {EPOCH_MS}
LINES = ((1, 115200, %d),)
IDS = "ids"

# Without a clock of its own it says which boot a reading is of: equal messages are one.
with open("boots", "a") as stream:
    stream.write(".")
with open("boots") as stream:
    boot = len(stream.read())


def reading(number):
    return b'{{"boot":%%d,"n":%%d}}' %% (boot, number) if number < {READINGS} else b""


def taken(node, row):
    at = node.body_at(row)
    print("took", bytes(node.bodies[at : at + node.body_size(row)])[-16:].decode())
"""


def settings(**more: object) -> bytes:
    """A small board's configuration."""
    plain = {
        "name": "M", "id": f"{BOARD:08x}", "flash": "/log", "group": "orchard",
        "epoch_ms": EPOCH_MS, "readings_max": READINGS, "rows": None, "heap_limit": 0,
        "telemetry_to": [], "peers_max": 4, "messages_max": 32, "offers_max": 16,
        "filter_size": 1024,
        "peers": [{"id": f"{HOST:08x}", "url": "uart:1?plain=1", "mode": "batch"}],
    }  # fmt: skip
    return json.dumps(plain | more).encode()


@pytest.fixture
def flash(tmp_path: Path) -> Path:
    return tmp_path / "drive"


def small(flash: Path, heap_kb: int) -> Machine:
    return Machine(Start(image("small"), flash, heap_kb * KB))


def test_the_small_set_and_an_agent_over_power_cuts(
    make_home: Callable[..., Home], flash: Path, tmp_path: Path
) -> None:
    """Its power is cut twice while messages go both ways: everything is there once, in order."""
    drive.write(flash, {"/drupelet.json": settings(), "/main.py": RUN})
    cable = tmp_path / "cable"  # the terminal has another name in each life
    peer = Peer("M", BOARD.to_bytes(4), f"serial://{cable}?plain=1", "batch", EPOCH_MS)
    home = make_home("host", HOST, peer)
    for life in range(LIVES):
        with small(flash, 128) as board:
            board.wait_for(b'"event": "started"', BOOT_S)
            cable.unlink(missing_ok=True)
            cable.symlink_to(board.line)
            if not life:
                home.start()
            for number in range(PUTS):
                home.put(f"host:{life * PUTS + number}")
            enough = LIVES * PUTS + READINGS if life == LIVES - 1 else (life + 1) * PUTS + 1
            wait_for(lambda enough=enough: len(home.log()) >= enough, "all", EXCHANGE_S)
            if life == LIVES - 1:
                home.settle()
                board.write(b"stop\n")
                board.wait_for(b'"event": "stopped"', BOOT_S)
    texts = [entry["text"] for entry in home.log()]
    assert sorted(text for text in texts if text.startswith("host:")) == [
        f"host:{number}" for number in range(LIVES * PUTS)
    ]
    numbers = [json.loads(text)["n"] for text in texts if not text.startswith("host:")]
    assert numbers == list(range(READINGS))


@pytest.fixture
def member() -> Member:
    member = Member("W", Draw(1))
    member.peers.append("M")
    member.add("M")
    member.boot(0)
    return member


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
def test_the_micro_set_and_a_whole_node(flash: Path, member: Member, mode: int) -> None:
    """In 20 KB of heap; switched off and on again it takes nothing twice."""
    files = {"/micro_config.mpy": compiled("micro_config.py", MICRO_CONFIG % mode)}
    drive.write(flash, files | {"/main.py": b"import boards.micro.main\n"})
    link = member.node.link(
        member.numbers["M"], PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, INTERACTIVE
    )
    taken: list[str] = []
    for life in range(2):
        with Machine(Start(image("micro"), flash, 20 * KB)) as board:
            exchange(board, member, link, READINGS * (life + 1))
            lines = board.text().decode().splitlines()
        taken += [line.split()[1] for line in lines if line.startswith("took ")]
    assert taken == [f"host:{number}" for number in range(2 * READINGS)]
    bodies = [member.body(handle) for handle in log_of(member.store)]
    for boot in range(2):
        assert sum(b'{"boot":%d' % (boot + 1) in body for body in bodies) == READINGS


def exchange(board: Machine, member: Member, link: object, count: int) -> None:
    """Publish until the host wrote `count` messages and all is at the other end."""
    terminal = os.open(board.line, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(terminal)
    line = DescriptorLine(terminal, terminal, MICRO_FRAME_SIZE)
    frame = bytearray(MICRO_FRAME_SIZE)
    end = time.monotonic() + EXCHANGE_S
    # What the lives before sent, half of what is there, is not of this one.
    heard = len(log_of(member.store)) // 2
    try:
        while len(log_of(member.store)) < 2 * count or member.node.outstanding(
            member.numbers["M"]
        ):
            assert time.monotonic() < end, (heard, len(log_of(member.store)), board.text())
            now_ms = int(time.monotonic() * 1000) & 0x3FFFFFFF
            published = len(log_of(member.store)) - heard
            if published < count:
                payload = b"host:%d" % published
                member.publish(b" " * (16 - len(payload)) + payload, now_ms)
            size = line.receive_into(frame)
            while size > 0:
                before = len(log_of(member.store))
                assert link.receive(frame, size, now_ms) == 0
                heard += len(log_of(member.store)) - before
                size = line.receive_into(frame)
            while not line.pending_size and (size := link.poll_into(frame, now_ms)):
                line.send(frame, size)
            member.consume()
            time.sleep(0.01)
    finally:
        line.close()
