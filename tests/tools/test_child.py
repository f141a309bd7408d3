"""Children and cables of the demo: nothing outlives it, and what they say arrives."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet_tools.demo.cable import Cable
from drupelet_tools.demo.child import STOP_S, Child, Event, interrupts_held, run_to_end

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('{}', flush=True)\n"
WAIT_S = 20.0


def wait_for(fact: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < until, what
        time.sleep(0.01)


class Heard(list[tuple[str, Event]]):
    """What children said."""

    def tell(self, name: str, event: Event) -> None:
        self.append((name, event))


def child(tmp_path: Path, heard: Heard, code: str, by_signal: bool = False) -> Child:
    command = [sys.executable, "-c", code]
    return Child("kid", command, tmp_path / "log", heard.tell, {"MARK": "1"}, by_signal)


def test_lines_of_json_are_events_and_everything_is_logged(tmp_path: Path) -> None:
    heard = Heard()
    one = child(
        tmp_path, heard,
        "import os, sys; print('{\"event\": \"x\"}'); print('no json'); print('[1]');"
        "sys.stderr.write(os.environ['MARK'] + '\\n')",
    )  # fmt: skip
    wait_for(lambda: not one.running, "end")
    one.stop()
    assert heard == [("kid", {"event": "x"})]
    assert sorted((tmp_path / "log").read_text().split("\n")) == [
        *("", "1", "[1]", "no json", '{"event": "x"}')
    ]
    assert one.last_words() in ("[1]", "1")


def test_commands_arrive_and_stop_is_one(tmp_path: Path) -> None:
    heard = Heard()
    code = (
        "import sys, json\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps({'got': line.strip()}), flush=True)\n"
        "print(json.dumps({'got': 'end'}))\n"
    )
    one = child(tmp_path, heard, code)
    one.command("flush")
    wait_for(lambda: bool(heard), "an answer")
    begun = time.monotonic()
    one.stop()
    assert time.monotonic() - begun < STOP_S
    assert [event["got"] for _, event in heard] == ["flush", "stop", "end"]
    one.stop()
    one.command("nobody listens")


def test_one_that_listens_to_signals_gets_one(tmp_path: Path) -> None:
    heard = Heard()
    code = (
        "import signal, sys, time\n"
        "signal.signal(15, lambda *_: (print('{\"bye\": 1}', flush=True), sys.exit()))\n"
        "print('{}', flush=True)\n"
        "time.sleep(60)\n"
    )
    one = child(tmp_path, heard, code, by_signal=True)
    wait_for(lambda: bool(heard), "start")
    one.stop()
    assert heard[-1] == ("kid", {"bye": 1})


@pytest.mark.parametrize("by_signal", [False, True])
def test_one_that_does_not_listen_is_killed_within_a_second(
    tmp_path: Path, by_signal: bool
) -> None:
    heard = Heard()
    one = child(tmp_path, heard, DEAF + "time.sleep(60)", by_signal)
    wait_for(lambda: bool(heard), "start")
    begun = time.monotonic()
    one.stop()
    assert STOP_S * 0.9 < time.monotonic() - begun < STOP_S + 0.5
    assert not one.running


def test_five_that_do_not_listen_take_no_longer(tmp_path: Path) -> None:
    heard = Heard()
    kids = [child(tmp_path, heard, DEAF + "time.sleep(60)") for _ in range(5)]
    wait_for(lambda: len(heard) == 5, "starts")
    begun = time.monotonic()
    for kid in kids:
        kid.ask()
    for kid in kids:
        kid.stop(begun + STOP_S)
    assert time.monotonic() - begun < STOP_S + 0.5


def test_kill_gives_no_warning(tmp_path: Path) -> None:
    heard = Heard()
    one = child(tmp_path, heard, "import time; print('{}', flush=True)\ntime.sleep(60)")
    wait_for(lambda: bool(heard), "start")
    begun = time.monotonic()
    one.kill()
    assert time.monotonic() - begun < 0.5
    one.stop()


def test_ctrl_c_waits_while_a_child_begins() -> None:
    done: list[str] = []

    def begin(word: str) -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            done.append(word)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            begin("begun")
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        begin("not heeded")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["begun", "not heeded"]


def test_a_command_is_run_to_its_end() -> None:
    code, told = run_to_end([sys.executable, "-c", "import sys; sys.exit('no room')"], WAIT_S)
    assert (code, told) == (1, "no room\n")
    with pytest.raises(subprocess.TimeoutExpired):
        run_to_end([sys.executable, "-c", "import time; time.sleep(60)"], 0.1)


def test_ctrl_c_while_a_command_begins_leaves_nothing_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[subprocess.Popen[str]] = []

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[call-overload]
            begun.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_to_end([sys.executable, "-c", "import time; time.sleep(60)"], WAIT_S)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [process.returncode for process in begun] == [-signal.SIGKILL]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_child_ends_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from drupelet_tools.demo.child import Child\n"
        "command = [sys.executable, '-c', sys.argv[2]]\n"
        "one = Child('kid', command, Path(sys.argv[1]), lambda *_: None)\n"
        "print(one.pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log"), DEAF + "time.sleep(60)"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()

    def gone() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state == "Z"

    wait_for(gone, "end of the child")


def test_a_cable_carries_both_ways_and_survives_a_restart() -> None:
    cable = Cable()
    try:
        data = bytes(range(256))
        for left, right in (cable.ends, cable.ends[::-1], cable.ends):
            one, other = (os.open(end, os.O_RDWR | os.O_NOCTTY) for end in (left, right))
            os.write(one, data)
            got = b""
            while len(got) < len(data):
                got += os.read(other, 4096)
            assert got == data  # raw: no echo, no newline made of anything
            os.close(one)
            os.close(other)
        assert cable.wire_bytes == 3 * len(data)
    finally:
        begun = time.monotonic()
        cable.close()
    assert time.monotonic() - begun < 0.5
    assert not any(Path(end).exists() for end in cable.ends)


def test_a_cable_that_nobody_reads_drops_and_goes_on() -> None:
    cable = Cable()
    try:
        end = os.open(cable.ends[0], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        sent = 0
        until = time.monotonic() + WAIT_S
        while sent < 200_000 and time.monotonic() < until:
            try:
                sent += os.write(end, bytes(1024))
            except BlockingIOError:
                time.sleep(0.001)
        assert sent >= 200_000
        os.close(end)
    finally:
        cable.close()
