"""`drupelet flash TARGET` onto a board of this machine: the real interpreter behind a terminal."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import serial

from drupelet.base.errors import DrupeletError
from drupelet_host.home import config
from drupelet_tools.flash import alive, repl, steps
from drupelet_tools.flash.errors import CableError, FlashError
from drupelet_tools.flash.flatten import TRACE
from drupelet_tools.flash.selftest import uart_of
from drupelet_tools.flash.sets import table
from drupelet_tools.flash.settings import Wish
from flash.flashing import Lines, build_once
from flash.pty_board import PtyBoard

GROUP = "orchard"


@pytest.fixture(autouse=True)
def _built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "build", build_once)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def order(board: PtyBoard, home: Path, **fields: Any) -> steps.Order:
    return replace(steps.Order(board.target, home, "rp2", wish=Wish("well-7", GROUP)), **fields)


def refused(order_: steps.Order) -> str:
    """The one line that it ends with."""
    with pytest.raises(DrupeletError) as caught:
        steps.flash(order_, Lines())
    text = str(caught.value)
    assert "\n" not in text
    return text


def on_board(board: PtyBoard, call: str) -> Any:
    with repl.BoardRepl(board.target) as prompt:
        prompt.enter()
        return prompt.call("files", call)


@pytest.mark.parametrize(("rom_blocks", "over_socket"), [(0, False), (64, True)])
def test_fresh_again_and_changed(
    tmp_path: Path, home: Path, rom_blocks: int, over_socket: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PtyBoard(tmp_path, rom_blocks=rom_blocks, over_socket=over_socket) as board:
        first = steps.flash(order(board, home), Lines())
        assert first.code.parts_sent == first.code.parts > 20
        assert (first.configured, first.keyed, first.in_place) == (True, True, rom_blocks > 0)
        assert [row.name for row in first.checks if row.passed is not True] == ["uart"]
        assert '"board":"well-7"' in first.reading
        peer = config.load(home).peers[0]
        assert (peer.name, peer.id.hex(), peer.board) == ("well-7", first.id, "rp2040")

        # Once more: the node is stopped for it, nothing is sent, it goes on.
        report = Lines()
        before = board.to_board
        again = steps.flash(order(board, home), report)
        assert (again.code.parts_sent, again.configured, again.keyed) == (0, False, False)
        assert any(line.endswith("nothing to do") for line in report.lines)
        assert board.to_board - before < 20_000 and again.id == first.id
        assert number(again.reading) > number(first.reading)  # its log was kept

        # One module is another one: it is sent, or the block that holds it; then it is put back.
        def changed(set_name: str, facts: Any, wanted: dict[str, Any]) -> dict[str, bytes]:
            files = build_once(set_name, facts, wanted)
            name = [path for path in files if path != TRACE][-1]
            files[name] += b"\0"  # behind its code: it runs as before
            return files

        monkeypatch.setattr(steps, "build", changed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "selftest", _enough)
            with pytest.raises(Enough):
                steps.flash(order(board, home), report)
        # With it goes what starts it: main.py, or the first block.
        assert " 2 sent (" in report.lines[-1]
        monkeypatch.setattr(steps, "build", build_once)
        back = steps.flash(order(board, home), Lines())
        assert back.code.parts_sent == 2 and not back.keyed


class Enough(DrupeletError):
    """A test needs no more of it."""


def _enough(*_: object) -> None:
    raise Enough("selftest")


def number(reading: str) -> int:
    return int(json.loads(reading)["n"])


def test_an_agent_that_goes_on_sending_does_not_stop_a_board_that_starts(
    tmp_path: Path, home: Path
) -> None:
    """A frame may have the byte of Ctrl-C, also before the node has taken over its console."""
    with PtyBoard(tmp_path) as board:
        flashed = steps.flash(order(board, home), Lines())
        with repl.BoardRepl(board.target) as prompt:
            prompt.enter()
            prompt.start()
            for _ in range(600):
                prompt.port.write(b"\x03")
                time.sleep(0.005)
        settings = config.load(home)
        reading = alive.first_reading(settings, settings.peers[0], 5.0)
        assert number(reading) > number(flashed.reading)
        assert number(reading) > number(flashed.reading)


@pytest.mark.parametrize("rom_blocks", [0, 64])
def test_pulled_cable_then_the_rest(
    tmp_path: Path, home: Path, rom_blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "selftest", _enough)
    sent = 0
    with PtyBoard(tmp_path, rom_blocks=rom_blocks) as board:
        board.cut_after = 60_000
        with pytest.raises(
            CableError, match="plug it in and repeat: only what is missing is sent"
        ):
            steps.flash(order(board, home), Lines())
    with PtyBoard(tmp_path, rom_blocks=rom_blocks) as board:
        # A board that was left in the middle starts nothing.
        assert "main.py" not in on_board(board, "print(*os.listdir('/')) or os.listdir('/')")
        report = Lines()
        with pytest.raises(Enough):
            steps.flash(order(board, home), report)
        code = next(line for line in report.lines if line.startswith("code:"))
        words = code.replace(",", "").split()
        whole, sent = int(words[3]), int(words[7])
        assert 0 < sent < whole, code
        places = ["/"] if rom_blocks else ["/", "/lib/drupelet", "/lib/boards/rp2"]
        names = on_board(board, f"[name for place in {places} for name in os.listdir(place)]")
        assert not [name for name in names if name.endswith(".new")]


def test_uart_without_a_wire_and_with_one(tmp_path: Path, home: Path) -> None:
    """A board that fails its self-test gets no keys; the next call goes on from there."""
    with PtyBoard(tmp_path) as board:
        report = Lines()
        with pytest.raises(FlashError) as caught:
            steps.flash(order(board, home, uart=uart_of("1,8,9")), report)
        assert "its self-test failed (uart): see the table above" in str(caught.value)
        assert report.checks["uart"] == (False, "0 of 32 bytes")
        assert not any(line.startswith("keys:") for line in report.lines)
        done = steps.flash(order(board, home, uart=uart_of("1,4,5")), report)
        assert (done.code.parts_sent, done.keyed) == (0, True)
        assert report.checks["uart"] == (True, "32 of 32 bytes")


@pytest.mark.parametrize("text", ["one", "1,4", "1,4,5,6", "1,tx,rx", "-1", "1,,"])
def test_uart_that_is_none(text: str) -> None:
    with pytest.raises(FlashError, match="give number, TX pin and RX pin, as in 1,4,5"):
        uart_of(text)


def test_command_line_in_a_process_of_its_own(tmp_path: Path, home: Path) -> None:
    with PtyBoard(tmp_path) as board:
        done = subprocess.run(
            [sys.executable, "-m", "drupelet_host", "flash", board.target, "--board", "esp32",
             "--home", str(home), "--group", GROUP],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done
    assert done.stderr.splitlines() == [
        f"drupelet: {board.target}: is rp2 (Raspberry Pi Pico with RP2040), not esp32: leave"
        " --board out, or plug in the other board"
    ]


def test_too_little_memory_says_how_much_is_missing(tmp_path: Path, home: Path) -> None:
    with PtyBoard(tmp_path, heap_kib=100) as board:
        text = refused(order(board, home))
        heap, needed, missing = (
            int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d{2},\d{3}", text)
        )
        assert needed == table()["sets"]["small"]["heap_size"] and missing == needed - heap > 0
        assert "are missing" in text
        assert on_board(board, "os.listdir('/')") == []


def test_full_drive_is_known_before_anything_is_written(tmp_path: Path, home: Path) -> None:
    with PtyBoard(tmp_path, blocks=60) as board:
        text = refused(order(board, home))
        assert "its drive is full:" in text and "bytes are missing; delete files" in text
        assert on_board(board, "os.listdir('/')") == []


def test_drive_that_fills_up_meanwhile(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = repl.BoardRepl.call

    def roomy(self: Any, program: str, text: str, line: Any = None) -> Any:
        is_room = text.startswith("free_bytes")
        return 1 << 30 if is_room else call(self, program, text, line)

    monkeypatch.setattr(repl.BoardRepl, "call", roomy)
    with PtyBoard(tmp_path, blocks=60) as board:
        assert "its drive is full" in refused(order(board, home))
        assert on_board(board, "'main.py' in os.listdir('/')") is False


def test_another_micropython(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = repl.BoardRepl.call

    def older(self: Any, program: str, text: str, line: Any = None) -> Any:
        answer = call(self, program, text, line)
        if program == "probe":
            answer.update(version=[1, 19, 1], mpy=[6, 0, 1])
        return answer

    monkeypatch.setattr(repl.BoardRepl, "call", older)
    with PtyBoard(tmp_path) as board:
        text = refused(order(board, home))
    assert "has MicroPython 1.19.1 (.mpy 6.0), the firmware is for 1.24 and later" in text
    assert "drupelet flash image" in text


def test_owners_program_is_not_replaced(tmp_path: Path, home: Path) -> None:
    with PtyBoard(tmp_path) as board:
        on_board(board, "open('/main.py', 'w').write('print(1)') and 0")
        assert "has a /main.py of its owner's: rename it" in refused(order(board, home))


def test_settings_of_another_member_stay(tmp_path: Path, home: Path) -> None:
    settings = {"name": "gate", "id": "c0000001", "group": GROUP, "flash": "/log"}
    settings |= {"epoch_ms": 1000, "peers": []}
    with PtyBoard(tmp_path) as board:
        text = json.dumps(settings)
        on_board(board, f"open('/drupelet.json', 'w').write({text!r}) and 0")
        assert "says name 'gate', not 'well-7'" in refused(order(board, home))
        assert "--group west: the home" in refused(order(board, home, wish=Wish("gate", "west")))
        on_board(board, "open('/drupelet.json', 'w').write('{') and 0")
        assert "is no JSON object; repair it" in refused(order(board, home))
        on_board(board, "open('/drupelet.json', 'w').write('{\"name\": 1}') and 0")
        assert "lacks a key or has one wrong" in refused(order(board, home))


def test_what_no_board_could_have_is_refused_before_one_is_touched(home: Path) -> None:
    nowhere = steps.Order("/dev/none", home, "rp2", wish=Wish("well-7", GROUP))
    for order_, why in (
        (replace(nowhere, set_name="tiny"), "--set tiny: give small or full"),
        (replace(nowhere, wish=Wish("well 7", GROUP)), "--name well 7: give 1 to 32 letters"),
        (replace(nowhere, wish=Wish("", GROUP, "mqtt://a/b")), "--link mqtt://a/b: give console:"),
        (replace(nowhere, wish=Wish("", GROUP, "uart:x")), "uart:x"),
        (replace(nowhere, wish=Wish("", GROUP, "uart:1")), "say with --at serial:///dev/..."),
        (replace(nowhere, at="stick:///a"), "--at stick:///a: give the serial port here"),
    ):
        assert why in refused(order_)
        assert not home.exists()


def test_keys_that_a_cut_left_and_a_second_home(tmp_path: Path, home: Path) -> None:
    with PtyBoard(tmp_path, over_socket=True) as board:
        first = steps.flash(order(board, home), Lines())
        host = config.load(home).id.hex()
        path = f"/log/{host.upper()}.KEY"

        # The second home would need the board's console, and the keys of the first.
        before = on_board(board, "read('/drupelet.json')")
        other = order(board, tmp_path / "other", wish=Wish("", GROUP))
        assert f"its console is its line to {host}" in refused(other)
        wish = Wish("", GROUP, "uart:1?tx=4&rx=5")
        other = replace(other, wish=wish, at="serial:///dev/ttyUSB0")
        assert f"has keys for {host} and none for this home: --again" in refused(other)
        assert on_board(board, "read('/drupelet.json')") == before

        # The power went when one record of ten was written.
        cut = f"open({path!r}, 'r+b').write(bytes(416)) and 0"
        on_board(board, cut)
        again = steps.flash(order(board, home), Lines())
        assert again.keyed and again.id == first.id and again.code.parts_sent == 0


# --- ports ---


@pytest.fixture
def silent() -> Iterator[str]:
    """A socket that takes a connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve() -> None:
            connection = server.accept()[0]
            stop.wait(60)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"socket://127.0.0.1:{server.getsockname()[1]}"
        stop.set()
        thread.join()


def _refused_port(target: str, home: Path) -> str:
    return refused(steps.Order(target, home, wish=Wish("well-7", GROUP)))


def test_no_such_port(home: Path, tmp_path: Path) -> None:
    assert "there is no device /dev/ttyACM77; plug it in" in _refused_port("a77", home)
    assert "/dev/nothing; plug it in" in _refused_port("/dev/nothing", home)
    assert "names no port; give auto" in _refused_port("COM5", home)
    assert "no board with this serial number; there are:" in _refused_port("id:E6", home)
    file = tmp_path / "file"
    file.touch()
    assert "is no serial port" in _refused_port(str(file), home)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "nothing answers there" in _refused_port(f"socket://127.0.0.1:{port}", home)


@pytest.mark.parametrize(
    ("boards", "text"),
    [
        ([], "auto: no board is plugged in; there are: none"),
        (["/dev/ttyACM0", "/dev/ttyUSB1"], "name one of there are: /dev/ttyACM0, /dev/ttyUSB1"),
    ],
)
def test_auto(home: Path, boards: list[str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from drupelet_tools.flash import target

    def plug_in(names: list[str]) -> None:
        """Beside a serial port of the machine itself."""
        ports = [SimpleNamespace(device=name, vid=0x2E8A) for name in names]
        ports.append(SimpleNamespace(device="/dev/ttyS0", vid=None))
        monkeypatch.setattr(serial.tools.list_ports, "comports", lambda: ports)

    plug_in(boards)
    assert text in _refused_port("auto", home)
    plug_in(["/dev/ttyACM3"])
    assert target.device_of("auto") == "/dev/ttyACM3"


def test_port_without_permission(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, who is never refused: the system's answer is put in its place."""

    def denied(*_: object, **__: object) -> None:
        raise serial.SerialException(13, "Permission denied")

    with PtyBoard(tmp_path) as board:
        monkeypatch.setattr(serial, "serial_for_url", denied)
        assert "join the group that owns it (often dialout)" in refused(order(board, home))


def test_busy_port(tmp_path: Path, home: Path) -> None:
    with PtyBoard(tmp_path) as board, serial.Serial(board.target, exclusive=True):
        assert f"another program uses {board.target}; close it" in refused(order(board, home))


def test_no_answer(silent: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repl, "BOOT_S_MAX", 1.0)
    assert "no MicroPython answers there; press the board's reset" in _refused_port(silent, home)


def test_answer_that_takes_longer_than_a_board_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repl, "ANSWER_S_MAX", 1.0)
    with PtyBoard(tmp_path) as board, repl.BoardRepl(board.target) as prompt:
        prompt.enter()
        assert prompt.call("files", "__import__('time').sleep(0.1)") is None
        with pytest.raises(CableError, match="the board stopped to answer"):
            prompt.call("files", "__import__('time').sleep(4)")


def test_agent_that_runs(tmp_path: Path, home: Path) -> None:
    with PtyBoard(tmp_path) as board:
        config.create(config.Config(home, "host", bytes.fromhex("40000000"), GROUP))
        with config.lock(home):
            assert "its agent runs: stop it" in refused(order(board, home))


def test_programs_of_a_board_share_no_name() -> None:
    """They run in one namespace: a second `show` would be the first one's."""
    import ast

    folder = Path(steps.__file__).with_name("on_board")
    names: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                assert node.name not in names, (node.name, path.name, names[node.name])
                names[node.name] = path.name


def test_what_a_board_says_is_escaped(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = repl.BoardRepl.call

    def hostile(self: Any, program: str, text: str, line: Any = None) -> Any:
        answer = call(self, program, text, line)
        if program == "probe":
            answer.update(machine="\x1b[2J" + "x" * 500, platform="\x1b]0;")
        return answer

    monkeypatch.setattr(repl.BoardRepl, "call", hostile)
    with PtyBoard(tmp_path) as board:
        text = refused(order(board, home))
    assert "\x1b" not in text and "\\x1b]0;" in text and len(text) < 300


def test_lies_of_a_board_are_one_line(tmp_path: Path, home: Path) -> None:
    call = repl.BoardRepl.call
    for lie in ({"heap": "much"}, {"mpy": None}, {"version": 7}):
        with pytest.MonkeyPatch.context() as patch, PtyBoard(tmp_path) as board:

            def lying(self: Any, program: str, text: str, line: Any = None, lie: Any = lie) -> Any:
                return {**call(self, program, text, line), **lie}

            patch.setattr(repl.BoardRepl, "call", lying)
            with pytest.raises(FlashError, match="does not say what it is"):
                steps.flash(order(board, home), Lines())
