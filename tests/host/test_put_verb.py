"""`drupelet put`: standard input, each line of it, and the short way that most calls take."""

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet_host.cli import exit_codes, publishing
from drupelet_host.cli.app import app
from drupelet_host.store import database, outbox
from host.conftest import COMMAND, WAIT_S, Home, wait_for

MakeHome = Callable[..., Home]


def put(home: Home, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*COMMAND, "put", "--home", str(home.path), *words]
    return subprocess.run(command, input=given, capture_output=True, timeout=WAIT_S, check=False)


def waiting(home: Home) -> list[bytes]:
    connection = database.connect(home.path / "store.db")
    try:
        return [letter.payload for letter in outbox.letters(connection, 10_000)]
    finally:
        connection.close()


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    return make_home("alice", 0xA1)


def test_each_line_is_a_message(home: Home) -> None:
    given = b"one\n\n two \r\n\xff\xfe\nlast"
    done = put(home, "--each-line", "--json", given=given)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"messages": 4, "running": False}
    assert waiting(home) == [b"one", b" two ", b"\xff\xfe", b"last"]
    done = put(home, "--each-line", "-", given=b"")
    assert done.returncode == 0 and done.stdout.startswith(b"0 messages accepted")


def test_a_line_is_there_before_the_next_one_comes(home: Home) -> None:
    words = [*COMMAND, "put", "--home", str(home.path), "--each-line"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:
        assert sender.stdin is not None and sender.stdout is not None
        for number in range(3):
            sender.stdin.write(b"line %d\nhalf" % number)
            sender.stdin.flush()
            wait_for(lambda count=number + 1: len(waiting(home)) == count, "line in the outbox")
        sender.stdin.close()
        assert sender.stdout.read().startswith(b"4 messages accepted")
        assert sender.wait(timeout=WAIT_S) == 0
    assert waiting(home) == [b"line 0", b"halfline 1", b"halfline 2", b"half"]


def test_a_line_that_is_too_long_stops_behind_those_before_it(home: Home) -> None:
    long = b"x" * (outbox.PAYLOAD_SIZE_MAX + 1)
    fits = b"y" * outbox.PAYLOAD_SIZE_MAX
    for end in (b"\nafter\n", b""):
        done = put(home, "--each-line", given=b"a\n" + fits + b"\n" + long + end)
        assert done.returncode == 1 and done.stdout == b""
        assert b"2 messages of standard input accepted; the next line has" in done.stderr
        assert done.stderr.count(b"\n") == 1
    assert waiting(home) == [b"a", fits] * 2


def test_more_lines_than_have_room_wait_for_the_agent(home: Home) -> None:
    lines = [b"%d" % number for number in range(outbox.OUTBOX_MAX + 500)]
    given = b"\n".join(lines)
    done = put(home, "--each-line", given=given)
    assert done.returncode == 1
    assert b"4,096 messages of standard input accepted, and no more have room" in done.stderr
    home.start()
    done = put(home, "--each-line", given=given)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: not waiting(home), "empty outbox")
    texts = [entry["text"].encode() for entry in home.log()]
    assert texts == lines[: outbox.OUTBOX_MAX] + lines
    home.stop()


# --- the short way ---


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_short_way_understands_what_typer_does(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that the short way takes, of so many words, is the same call for typer."""
    file = tmp_path / "file"
    calls: list[publishing.Call] = []
    monkeypatch.setattr(publishing, "publish", calls.append)
    words = [
        "text", "-", "--", "-5", "--json", "--wait", "--each-line", "--file", f"--file={file}",
        "--home", f"--home={tmp_path}", "--help", "--jso", "",
    ]  # fmt: skip
    taken = 0
    draw = random.Random(1)
    for call_words in itertools.product(words, repeat=count):
        if count == 4 and draw.randrange(8):
            continue  # a sample: typer takes its time
        short = publishing.from_words(call_words)
        if short is None:
            continue
        taken += 1
        calls.clear()
        done = CliRunner().invoke(app, ["put", *call_words])
        assert done.exit_code == 0, (call_words, done.output)
        assert calls == [short], call_words
    assert taken > 0


def test_a_script_pays_for_no_command_line(home: Home) -> None:
    """What is loaded by a call that is well formed; typer alone takes as long as all of it."""
    code = (
        "import sys\n"
        f"sys.argv = ['drupelet', 'put', '--home', {str(home.path)!r}, 'x']\n"
        "from drupelet_host import entry\n"
        "entry.main()\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = set(done.stdout.decode().split())
    assert "drupelet_host.store.outbox" in loaded
    heavy = {"typer", "rich", "drupelet.node", "importlib.metadata", "tempfile", "asyncio"}
    assert not heavy & loaded
    assert waiting(home) == [b"x"]


@pytest.mark.parametrize(
    ("words", "says", "status"),
    [
        (["x"], "no such folder", exit_codes.NOT_THERE),
        (["--file", "/nowhere/at/all"], "cannot be read", exit_codes.NOT_THERE),
        (["--home=s3://bucket/x", "x"], "only files and folders of this", exit_codes.USAGE),
    ],
)
def test_its_failures_are_the_usual_line(
    tmp_path: Path, words: list[str], says: str, status: int
) -> None:
    environment = dict(os.environ, XDG_STATE_HOME=str(tmp_path))
    command = [*COMMAND, "put", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert done.returncode == status and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("drupelet: ")
    assert says in line or "no such" in line or "drupelet init" in line
