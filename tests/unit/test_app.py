"""The owner's program on a board: what it may do wrong, and how often it is given a message."""

import gc
import json
import re
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boards.app import App
from boards.device import Device
from drupelet.base.events import CODE_ERROR
from drupelet.base.limits import APP_PAYLOAD_SIZE_MAX, FRAME_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID, TELEMETRY_CLIENT_ID, Author
from drupelet.engine.members import GROUP_TELEMETRY
from drupelet.node import CARRIER_SERIAL, INTERACTIVE, PROFILE_BSP_1, SHARED, Node
from drupelet.store.flash_store import FlashStore
from drupelet.telemetry.black_box import BlackBox
from drupelet_tools.sim.flash import AFTER, BEFORE, TORN, PowerCutError, SimFiles
from helpers import Draw, Member

ROOT = Path(__file__).resolve().parents[2]
EPOCH_MS = 1000
# Two messages in one frame, then one at a time: events that wait, and events that come alone.
COMMANDS = [b"portion %d" % number for number in range(5)]
BUILT_IN = [
    "ValueError('no answer')", "OSError(5)", "MemoryError()", "ZeroDivisionError()", "KeyError(1)",
    "AttributeError('x')", "NameError('x')", "TypeError()", "AssertionError()", "StopIteration()",
    "RuntimeError()", "NotImplementedError()", "EOFError()", "ImportError('x')", "OverflowError()",
    "UnicodeError()", "Own('mine')",
]  # fmt: skip


class Clock:
    """A board's port, as far as these tests go."""

    ms = 0
    console: "Board"

    def now_ms(self) -> int:
        return self.ms

    def timestamp_into(self, out: bytearray) -> None:
        out[:] = (1_700_000_000_000 + self.ms).to_bytes(8, "big")


class NotedBox(BlackBox):
    """A black box whose errors can be looked at."""

    def __init__(self) -> None:
        super().__init__(b"DEVI", 1, 2)
        self.errors: list[tuple[int, int, int]] = []

    def log(self, now_ms: int, code: int, a: int, b: int, high: int, low: int) -> None:
        if code == CODE_ERROR:
            self.errors.append((a, b, high << 16 | low))
        super().log(now_ms, code, a, b, high, low)


class Board:
    """A board's device with a program of the owner's, on files that survive a power cut."""

    def __init__(
        self,
        program: Path,
        files: SimFiles,
        clock: Clock,
        hung: bool = False,
        period_ms: int = EPOCH_MS,
    ) -> None:
        store = FlashStore(files)
        store.open()
        self.clock = clock
        self.lines: list[dict[str, Any]] = []
        self.box = NotedBox()
        self.node = node = Node(store, lambda: 7, 4, 4, 16, 16, self.box)
        readings = node.join(READINGS_CLIENT_ID, b"test")
        telemetry = node.join(TELEMETRY_CLIENT_ID, b"test", GROUP_TELEMETRY)
        peer = node.add_peer(b"A___")
        node.share(readings, peer, SHARED)
        node.boot(clock.ms)
        clock.console = self
        self.app = App(str(program), clock, self.box)
        author = Author(node, readings)
        author.recover()
        self.device = Device(
            node, self.box, clock, self.app.take, author, telemetry, period_ms,
            bytearray(FRAME_SIZE_MAX), [peer],
        )  # fmt: skip
        self.app.attach(self.device, "test", {peer: "415f5f5f"}, hung)
        self.link = node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, INTERACTIVE, clock.ms)

    def say(self, line: str) -> None:
        """Its console's lines."""
        self.lines.append(json.loads(line))

    def payloads(self) -> list[bytes]:
        """What it has published."""
        store = self.node.store
        handle, payloads = store.next(0), []
        while handle:
            store.load(handle)
            body = bytearray(store.size)
            store.read_into(handle, 0, body, 0, len(body))
            if store.source == 0:
                payloads.append(bytes(body[1 + 32 * body[0] :]))
            handle = store.next(handle)
        return payloads


@pytest.fixture(autouse=True)
def board_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython's collector does not tell, and has much to look at while tests run; a program's
    folder stays in the path of its test alone."""
    monkeypatch.setattr(gc, "mem_free", lambda: 50_000, raising=False)
    monkeypatch.setattr(gc, "collect", lambda: 0)
    monkeypatch.setattr(sys, "path", list(sys.path))


def write(folder: Path, text: str) -> Path:
    """A program; what an earlier test has loaded under its name is gone."""
    sys.modules.pop("owner", None)
    path = folder / "owner.py"
    path.write_text(text)
    return path


def commander() -> Member:
    """Whoever sends commands."""
    member = Member("A", Draw(1))
    member.peers.append("D")
    member.add("D")
    member.boot()
    return member


def exchange(member: Member, board: Board, rounds: int) -> None:
    """A second each: frames both ways over a line that loses none."""
    link = member.node.links[0] if member.node.links else member.node.link(
        member.numbers["D"], PROFILE_BSP_1, CARRIER_SERIAL, EPOCH_MS, INTERACTIVE
    )  # fmt: skip
    frame = bytearray(FRAME_SIZE_MAX)
    for _ in range(rounds):
        board.clock.ms += EPOCH_MS
        now_ms = board.clock.ms
        for one, other in ((link, board.link), (board.link, link)):
            size = one.poll_into(frame, now_ms)
            while size:
                other.receive(frame, size, now_ms)
                size = one.poll_into(frame, now_ms)
        member.consume()
        board.device.step()


@pytest.mark.parametrize("error", BUILT_IN)
def test_an_error_of_the_program_is_told_counted_and_passed_over(
    tmp_path: Path, error: str
) -> None:
    """And the board goes on: it carries messages, and asks again in the next epoch."""
    program = write(
        tmp_path,
        f"class Own(Exception): pass\ncalls = []\ndef sample(now):\n  calls.append(now)\n"
        f"  if len(calls) < 3: raise {error}\n  return b'fine'\n"
        f"def delivered(message):\n  raise {error}\n",
    )
    board, member = Board(program, SimFiles(), Clock()), commander()
    member.publish(b"to all")
    exchange(member, board, 6)
    author = board.device.author
    assert board.payloads() == [b"fine"] * author.own and author.own >= 3
    assert len(member.log()) >= 3, "readings came to the other"
    assert author.logged == author.own + 1, "the message of the other is in the log"
    kinds = [b for a, b, _ in board.box.errors if a == 5]
    assert sorted(kinds) == [1, 1, 4]
    assert [count for a, _, count in board.box.errors if a == 5] == [1, 2, 3]
    assert board.app.errors == 3
    assert {event["in"] for event in board.lines} == {"sample", "delivered"}
    name = error.partition("(")[0]
    assert all(event["error"].startswith(name + ":") for event in board.lines)


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        ("'text'", "TypeError: sample() returned str: return bytes, or None"),
        ("5", "TypeError: sample() returned int: return bytes, or None"),
        (
            f"bytes({APP_PAYLOAD_SIZE_MAX + 1})",
            "ValueError: sample() returned 4097 bytes: at most 4096",
        ),
    ],
)
def test_what_is_no_reading_is_refused(tmp_path: Path, returned: str, why: str) -> None:
    board = Board(write(tmp_path, f"def sample(now): return {returned}\n"), SimFiles(), Clock())
    board.device.step()
    assert board.payloads() == [] and [event["error"] for event in board.lines] == [why]


def test_readings_of_any_size_and_none(tmp_path: Path) -> None:
    sizes = [0, 1, 700, APP_PAYLOAD_SIZE_MAX]
    program = write(
        tmp_path,
        f"sizes = {sizes}\ndef sample(now):\n"
        "  return memoryview(bytearray(b'x' * sizes.pop(0))) if sizes else None\n",
    )
    board = Board(program, SimFiles(), Clock())
    for _ in range(6):
        board.clock.ms += EPOCH_MS
        board.device.step()
    assert [len(payload) for payload in board.payloads()] == sizes and not board.lines


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def sample(now) return 1\n", "SyntaxError"),
        ("import not_on_this_board\n", "ModuleNotFoundError: No module named 'not_on_this_board'"),
        ("def sampel(now): return b''\n", "ValueError: it has neither sample(now) nor delivered"),
    ],
)
def test_a_program_that_cannot_be_loaded_leaves_a_board_that_carries(
    tmp_path: Path, text: str, why: str
) -> None:
    board, member = Board(write(tmp_path, text), SimFiles(), Clock()), commander()
    member.publish(b"to all")
    exchange(member, board, 3)
    assert board.device.author.logged == 1 and board.box.errors == [(5, 5, 1)]
    assert board.lines[0]["in"] == "import" and board.lines[0]["error"].startswith(why)


def test_what_a_program_is_given(tmp_path: Path) -> None:
    """Messages of others alone; one that is too long without its payload."""
    program = write(
        tmp_path,
        "seen = []\ndef sample(now): return b'own'\n"
        "def delivered(message): seen.append(message)\n",
    )
    board, member = Board(program, SimFiles(), Clock()), commander()
    member.publish(b"short")
    member.publish(b"y" * (APP_PAYLOAD_SIZE_MAX + 1))
    exchange(member, board, 12)
    seen = sys.modules["owner"].seen
    assert [message.payload for message in seen] == [b"short", None]
    assert [message.size for message in seen] == [5, APP_PAYLOAD_SIZE_MAX + 1]
    assert {message.group for message in seen} == {"test"}
    assert {message.sender for message in seen} == {"415f5f5f"}
    assert all(len(message.id) == 32 and not message.again for message in seen)


def test_after_a_watchdog_messages_are_carried_before_the_program_is_called(
    tmp_path: Path,
) -> None:
    # An image takes a reset within this for a failed start, and three of them end the board.
    source = (ROOT / "firmware/boards/rp2/image/main.py").read_text("utf-8")
    steady_ms = int(re.search(r"^_STEADY_MS = (\d+)$", source, re.M)[1])
    program = write(
        tmp_path,
        "calls = []\ndef sample(now): calls.append('sample')\n"
        "def delivered(message): calls.append('delivered')\n",
    )
    clock, member = Clock(), commander()
    board = Board(program, SimFiles(), clock, hung=True, period_ms=10 * EPOCH_MS)
    member.publish(b"to all")
    exchange(member, board, int(1.5 * steady_ms / EPOCH_MS))
    assert len(member.log()) == board.node.delivered == 1, "carried"
    assert sys.modules["owner"].calls == []
    exchange(member, board, int(steady_ms / EPOCH_MS))
    assert set(sys.modules["owner"].calls) == {"sample", "delivered"}


@dataclass
class Course:
    """What a board did (payload, whether it came again), and where its power went."""

    acts: list[tuple[bytes, bool]]
    steps: int  # of its flash
    keeping: bool  # the power went while it noted a command as done


def run(program: Path, cut: tuple[int, int] | None) -> Course:
    """Send commands to a board whose power goes once."""
    sys.modules.pop("owner", None)
    files, clock, member = SimFiles(), Clock(), commander()
    board = Board(program, files, clock)
    start = files.steps
    if cut is not None:
        files.arm(cut[0], cut[1], Draw(cut[0]))
    sent = 0
    keeping = False
    for _ in range(40):
        if sent < len(COMMANDS) and clock.ms >= sent // 2 * 3 * EPOCH_MS:
            member.publish(COMMANDS[sent], clock.ms)
            sent += 1
        try:
            exchange(member, board, 1)
        except PowerCutError as gone:
            frames = traceback.extract_tb(gone.__traceback__)
            keeping = any(frame.name == "_keep" for frame in frames)
            files.power_off(Draw(clock.ms), True)
            board = Board(program, files, clock)
    return Course(list(sys.modules["owner"].acts), files.steps - start, keeping)


PROGRAM = "acts = []\ndef delivered(message): acts.append((message.payload, message.again))\n"


@pytest.mark.parametrize("moment", [BEFORE, TORN, AFTER])
@pytest.mark.parametrize("once", [True, False], ids=["once", "at least once"])
def test_the_power_goes_at_every_step_of_the_flash(
    tmp_path: Path, once: bool, moment: int
) -> None:
    """With ONCE nothing is done twice, and a cut costs one command at most: the one that the board
    was about to do. Without it nothing is lost, and what comes again says so."""
    program = write(tmp_path, f"ONCE = {once}\n" + PROGRAM)
    uncut = run(program, None)
    assert uncut.acts == [(command, False) for command in COMMANDS] and uncut.steps > 20
    lost = again = 0
    for step in range(1, uncut.steps + 1):
        course = run(program, (step, moment))
        count = Counter(payload for payload, _ in course.acts)
        assert list(count) == [one for one in COMMANDS if one in count], f"{step}: another order"
        missing = len(COMMANDS) - len(count)
        if once:
            assert max(count.values()) == 1, f"step {step}: done twice"
            assert missing <= course.keeping, f"step {step}: not done"
        else:
            assert not missing, f"step {step}: not done"
            flags = [flag for at, (one, flag) in enumerate(course.acts)
                     if one in [before for before, _ in course.acts[:at]]]  # fmt: skip
            assert all(flags), f"step {step}: done again, and not told so"
        lost += missing
        again += len(course.acts) - len(count)
    print(f"{uncut.steps} cuts: {lost} not done, {again} done again")
    assert (again > 0) != once
