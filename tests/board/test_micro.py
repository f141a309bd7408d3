"""The micro set: it agrees with whole nodes, allocates nothing, and fits where it should."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drupelet.link.link import Link
from drupelet.node import BATCH, CARRIER_SERIAL, INTERACTIVE, PROFILE_BSP_1
from drupelet_tools.descriptor_line import DescriptorLine
from drupelet_tools.flash.build import micropython_command
from drupelet_tools.flash.sets import Choice, build_set
from drupelet_tools.terminal import Terminal
from helpers import Draw, Member, serve
from unit.numbered_messages import log_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOURCES = f"{ROOT}/firmware:{ROOT}/transports:{ROOT}/tests"
TIMEOUT_S = 120
FRAME_SIZE = 251
NETWORKS = 12  # of each seed
SEEDS = 2
# docs/DESIGN.md 20: 4 peers, 16 offered ids and 32 messages, two buffers of 256 bytes.
STATE_SIZE_MAX = 4608
RECORDS = {"records": 1000, "idle": 0, "invalid": 2500}
EPOCH_MS = 200
READINGS = 12


@pytest.fixture(scope="session")
def micro(arch: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Module path of the micro set."""
    target = tmp_path_factory.mktemp(f"micro-{arch}")
    # What the scripts here call beside the board.
    build_set(target, arch, Choice("micro", keep=("outstanding",)))
    return target


def run(command: list[str], *arguments: str, path: Path | None = None) -> str:
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        env=os.environ | ({"MICROPYPATH": str(path)} if path else {}),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def flashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("flashed")
    build_set(target, "x86", Choice("micro"))
    return target


@pytest.mark.parametrize("mode", ["batch", "interactive"])
def test_a_micro_member_allocates_nothing(micropython: list[str], micro: Path, mode: str) -> None:
    command = [*micropython, "-X", "heapsize=128K", str(HERE / "micro_heap.py"), mode]
    *lines, last = run(command, path=micro).splitlines()
    rows = [line.split() for line in lines]
    assert [row[0] for row in rows] == list(RECORDS)
    for name, calls, records, used in rows:
        assert int(used) == 0, f"{name}: {used} B"
        assert int(records) >= RECORDS[name]
        assert name != "idle" or int(calls) >= 1000
    assert last.startswith("delivered ")


def test_with_whole_nodes_over_bad_lines() -> None:
    """On 32 bits and on CPython the same, to the byte on the line."""
    script = str(HERE / "micro_network.py")
    expected = run([sys.executable, script, SOURCES, str(SEEDS)])
    command = [*micropython_command("x86"), "-X", "heapsize=4M", script, SOURCES, str(SEEDS)]
    assert run(command) == expected
    assert len(expected.splitlines()) == NETWORKS * SEEDS


def test_what_it_takes_of_a_small_heap(flashed: Path) -> None:
    """`pytest -s` shows it; on 32 bits the code as .mpy and the tables fit 32 KB."""
    command = [*micropython_command("x86"), "-X", "heapsize=64K", str(HERE / "micro_state.py")]
    told = json.loads(run(command, path=flashed))
    print(f"\n{told}")
    assert told["state_bytes"] <= STATE_SIZE_MAX
    assert told["largest_slab"] <= 32 * 1024 // 4
    assert told["code_bytes"] <= 22 * 1024


def test_ids_on_flash_are_bounded_and_survive(tmp_path: Path, flashed: Path) -> None:
    """The last 4,000 at least, whatever a power cut tears; no allocation but for new files."""
    prefixes = [number.to_bytes(2, "big") + b"\0\0\7" for number in range(3980)]
    (tmp_path / "ids").write_bytes(b"".join(prefixes))
    command = [*micropython_command("x86"), "-X", "heapsize=64K", str(HERE / "micro_ids.py")]
    said = run([*command, str(tmp_path)], path=flashed).splitlines()
    assert said == [  # each 50th is looked for
        "all 80", "kept 80 2", "again 80 3", "unknown False", "sizes 510 20000", "third 5 20000",
    ]  # fmt: skip


CONFIG = f"""
GROUP = b"test"
EPOCH_MS = {EPOCH_MS}
LINES = ((0, 115200, %d),)
IDS = "%s"


def reading(number):
    return b'{{"life":%d,"n":%%d}}' %% number if number < {READINGS} else b""


def taken(node, row):
    with open(IDS + ".txt", "a") as stream:
        at = node.body_at(row)
        stream.write("%%s\\n" %% bytes(node.bodies[at : at + node.body_size(row)])[-16:].decode())
"""


class Board:
    """A micro board as a process with a heap of 32 KB, its UART a pseudo-terminal."""

    def __init__(self, folder: Path, firmware: Path, mode: int) -> None:
        self.folder = folder
        self.ids = folder / "ids"
        self._mode = mode
        self._path = f"{folder}:{firmware}"
        shutil.copy(HERE / "micro_machine.py", folder / "machine.py")
        self._terminal = Terminal()
        self.line = DescriptorLine(self._terminal.fd, self._terminal.fd, FRAME_SIZE)
        self._lives = 0
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        config = CONFIG % (self._mode, self.ids, self._lives)
        (self.folder / "micro_config.py").write_text(config)
        self._lives += 1
        command = [*micropython_command("x86"), "-X", "heapsize=32K", "-m", "boards.micro.main"]
        environment = os.environ | {"MICROPYPATH": self._path, "UART0": self._terminal.path}
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def kill(self) -> None:
        running = self.process.poll() is None
        self.process.kill()
        error = self.process.communicate(timeout=10)[1]
        assert running, error

    def restart(self) -> None:
        self.kill()
        with self.ids.open("ab") as stream:
            stream.write(b"cut")  # an append that a power cut tore
        self.process = self.start()

    def close(self) -> None:
        self._terminal.close()


@pytest.mark.parametrize("mode", [BATCH, INTERACTIVE], ids=["batch", "interactive"])
def test_a_board_of_32_kb_and_a_whole_node(tmp_path: Path, flashed: Path, mode: int) -> None:
    """Killed and started again it takes nothing twice, and asks for nothing that it had."""
    board = Board(tmp_path, flashed, mode)
    try:
        member = Member("W", Draw(1))
        member.peers.append("M")
        member.add("M")
        member.boot(0)
        link = member.node.link(
            member.numbers["M"], PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, INTERACTIVE
        )
        exchange(board, member, link, 2 * READINGS)
        board.restart()
        exchange(board, member, link, 4 * READINGS)
        board.kill()
    finally:
        board.process.kill()
        board.close()
    taken = Path(f"{board.ids}.txt").read_text().split()
    assert taken == [f"host:{number}" for number in range(2 * READINGS)]
    bodies = [member.body(handle) for handle in log_of(member.store)]
    for life in range(2):
        assert sum(b'{"life":%d' % life in body for body in bodies) == READINGS


def exchange(board: Board, member: Member, link: Link, count: int) -> None:
    """Publish and exchange until the log has `count` messages and the board has them all."""
    frame = bytearray(FRAME_SIZE)
    line = board.line
    end = time.monotonic() + 30
    published = count // 2 - READINGS
    while len(member.log()) < count or member.node.outstanding(member.numbers["M"]):
        assert time.monotonic() < end, (len(member.log()), line.damaged, board.process.poll())
        now_ms = int(time.monotonic() * 1000) & 0x3FFFFFFF
        if published < count // 2:
            payload = b"host:%d" % published
            published += member.publish(b" " * (16 - len(payload)) + payload, now_ms) is not None
        serve(line, link, frame, now_ms)
        member.consume()
        time.sleep(0.01)
