"""`drupelet demo` as a user runs it: what it shows, what it refuses, how it is interrupted."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from drupelet_host.home import config
from drupelet_host.keys import overview
from drupelet_tools.demo import keys, plan
from repeats import few

COMMAND = [sys.executable, "-m", "drupelet_host", "demo"]
# What the demo may take on two cores, and the slack of a machine that does other things too.
RUN_S_MAX = 150
REFUSAL_S_MAX = 60
INTERRUPT_S_MAX = 2.0
TRIES = 3
MARK = "DRUPELET_TEST_MARK"


def alive(mark: str) -> list[str]:
    """Command lines of the processes that carry this mark in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(f"{folder.name} {command.decode(errors='replace')}")
            except OSError:
                continue
    return found


class Ended:
    """A demo that is over."""

    def __init__(self, done: subprocess.CompletedProcess[str], took_s: float, mark: str) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        self.took_s = took_s
        self.left = alive(mark)


def run(*args: str, timeout_s: float = REFUSAL_S_MAX) -> Ended:
    mark = uuid4().hex
    begun = time.monotonic()
    done = subprocess.run(
        [*COMMAND, *args], env=os.environ | {MARK: mark}, timeout=timeout_s,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Ended(done, time.monotonic() - begun, mark)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Return one whole run, with --json."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return run("--json", "--out", str(out), timeout_s=2 * RUN_S_MAX)


@pytest.fixture(scope="module")
def said(whole: Ended) -> dict[str, Any]:
    """Return what it printed."""
    assert whole.code == 0, whole.err
    found: dict[str, Any] = json.loads(whole.out)
    return found


def test_it_ends_well_and_in_time(whole: Ended) -> None:
    print(f"{whole.took_s:.1f} s")
    print(whole.err)
    assert whole.code == 0, whole.err
    assert whole.took_s <= RUN_S_MAX
    assert whole.left == []
    progress = [line for line in whole.err.splitlines() if re.match(r" *\d+\.\d s  \S", line)]
    assert len(progress) >= 10
    assert "Traceback" not in whole.err


def test_every_member_has_every_message_exactly_once(said: dict[str, Any]) -> None:
    assert [member["name"] for member in said["members"]] == ["host", "A", "B", "C", "D"]
    # One reading an epoch from four boards, and what was put at the host.
    assert said["members"][0]["expected"] == len(plan.BOARDS) * plan.READINGS + 2
    for member in said["members"]:
        assert member["expected"] == said["members"][0]["expected"]
        assert member["delivered"] == member["expected"], member["name"]
        assert member["duplicates"] == 0, member["name"]
        assert member["out_of_order"] == 0, member["name"]


def test_keys_and_figures(said: dict[str, Any]) -> None:
    keys = {"members", "bytes_per_message", "kills", "stick_pulls", "lake", "report"}
    assert keys <= said.keys()
    keys = {"name", "carrier", "expected", "delivered", "duplicates", "out_of_order"}
    keys |= {"heap_limit", "heap_peak", "interpreter"}
    for member in said["members"]:
        assert keys <= member.keys()
        print(member)
    assert (said["kills"], said["stick_pulls"]) == (1, 1)
    assert 50 < said["bytes_per_message"] < 1000
    carriers = {member["name"]: member["carrier"] for member in said["members"]}
    assert carriers["A"] == "serial"
    assert carriers["B"] == "mqtt"
    assert "stick" in carriers["C"]


def test_boards_are_small(said: dict[str, Any]) -> None:
    host, *boards = said["members"]
    assert host["interpreter"].startswith("cpython 3.")
    assert len(boards) == 4
    for board in boards:
        assert re.fullmatch(r"micropython 1\.\d+\.\d+, 32-bit", board["interpreter"])
        assert board["heap_limit"] == 128 * 1024
        assert 64 * 1024 < board["heap_peak"] <= board["heap_limit"]


def test_the_killed_board_went_on(said: dict[str, Any]) -> None:
    """Its second life began with its readings, and ended with all of them, none twice."""
    output = Path(said["report"]).parent / "boards" / "B" / "output.log"
    events = [json.loads(line) for line in output.read_text().splitlines() if line[0] == "{"]
    starts = [event for event in events if event.get("event") == "started"]
    assert [start["boot"] for start in starts] == [1, 2]
    assert starts[0]["own"] == 0
    assert 8 <= starts[1]["own"] < plan.READINGS
    assert events[-1]["event"] == "stopped"
    assert events[-1]["own"] == plan.READINGS


def test_the_report_stands_alone(said: dict[str, Any]) -> None:
    html = Path(said["report"]).read_text("utf-8")
    assert Path(said["report"]).is_absolute()
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", html)
    assert not re.search(r"""<link[^>]+href=["'](?!data:|#)""", html)
    assert not re.search(r"""url\(\s*["']?(?!data:|#)[^)]*//""", html)
    assert "@import" not in html
    for member in said["members"]:
        assert re.search(rf"\b{member['name']}\b", html)
    assert re.search(r"mAh", html)
    assert list(Path(said["lake"]).rglob("*.parquet"))


def test_everything_went_sealed_and_no_key_is_in_what_was_written(
    said: dict[str, Any], whole: Ended
) -> None:
    folders = plan.Folders(Path(said["report"]).parent)
    rows = overview.peer_rows(config.load(folders.host))
    assert [(row["name"], row["keys"]) for row in rows] == [(name, "sealed") for name in "ABC"]
    for row, used in zip(rows, ("live", "live", "bundle"), strict=True):
        chain = row["classes"][used]
        assert min(chain["out_epoch"], chain["in_epoch"]) > 0, row
    secrets = keys.kept_secrets(folders)
    assert len(secrets) == 4 * 10  # four pairs, two ends; four chains and a name key at each
    texts = [whole.out.encode(), whole.err.encode()]
    texts += [
        path.read_bytes() for path in folders.out.rglob("*")
        if path.is_file() and path.suffix not in keys.KEY_FILES
    ]  # fmt: skip
    for secret in secrets:
        assert not any(secret in text or secret.hex().encode() in text for text in texts)


def test_the_folder_may_be_used_again(said: dict[str, Any]) -> None:
    folders = plan.Folders(Path(said["report"]).parent)
    assert (folders.out / plan.MARKER).is_file()
    assert folders.lake == Path(said["lake"])


# --- what it refuses ---


def refused(ended: Ended, *words: str, status: int = 1) -> None:
    assert ended.code == status, ended.err
    assert ended.out == ""
    lines = ended.err.strip().splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("drupelet: ")
    for word in words:
        assert word in lines[0]
    assert ended.left == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mqtt://localhost:1/demo", "no answer"),
        ("mqtt://192.0.2.7:1883/demo", "not on this machine"),
        ("http://localhost/", "http"),
    ],
)
def test_a_broker_that_is_no_use(tmp_path: Path, url: str, why: str) -> None:
    refused(run("--json", "--out", str(tmp_path / "out"), "--broker", url), why)
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_is_no_use(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(run("--out", str(tmp_path / "file" / "out")), "cannot be written", "--out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    refused(run("--out", str(tmp_path / "full")), "not from a demo", "--out")
    refused(run("--out", "/proc/drupelet"), "cannot be written", "--out", status=4)


def test_an_input_that_is_no_use(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "binary.ndjson").write_bytes(bytes(range(256)))
    for name, why in (
        ("missing.csv", "no such file"),
        ("empty.csv", "empty"),
        ("binary.ndjson", "zero bytes"),
        (".", "is a folder"),
    ):
        ended = run("--out", str(tmp_path / "out"), "--input", str(tmp_path / name))
        refused(ended, why, "--input")
        assert not (tmp_path / "out").exists()


# --- Ctrl-C ---


@contextmanager
def started(out: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--json", "--out", str(out)], start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {MARK: mark},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def slowdown() -> float:
    """How many times longer than alone a process takes on this machine just now, at least 1."""
    begun, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < 0.1:
        pass
    return max(1.0, (time.monotonic() - begun) / 0.1)


def interrupted(out: Path, moment: str, at_least: int) -> bool:
    """Start a demo, interrupt it once a line with `moment` has come, look at what is left; whether
    it ended in time."""
    mark = uuid4().hex
    with started(out, mark) as process:
        assert process.stderr is not None
        seen = ""
        for line in process.stderr:
            seen += line
            if moment in line:
                break
        assert moment in seen, seen
        assert len(alive(mark)) >= at_least
        limit_s = INTERRUPT_S_MAX * slowdown()
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        took_s = time.monotonic() - begun
        while (left := alive(mark)) and time.monotonic() - begun < limit_s:
            time.sleep(0.02)
        said = seen + process.stderr.read()
        assert process.stdout is not None
        assert process.stdout.read() == ""
    print(f"{moment}: {took_s:.2f} s")
    assert process.returncode == 130, said
    assert left == []
    assert "Traceback" not in said
    assert "interrupted" in said.splitlines()[-1]
    return took_s < limit_s


# The broker is up and boards are not; Spark is on its way up beside all; all boards are up.
MOMENTS = (("MQTT broker at", 2), ("stick was at host", 8), ("are up", 7))


@pytest.mark.parametrize(("moment", "at_least"), few(2, MOMENTS))
def test_ctrl_c_leaves_nothing_behind_and_the_folder_usable(
    moment: str, at_least: int, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # The machine may have been free when it was measured, and busy then.
    assert any(interrupted(out, moment, at_least) for _ in range(TRIES)), moment
    assert plan.prepare(out).out == out.resolve()
