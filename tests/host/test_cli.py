"""The command line by subprocess: answers, exit status, and one line for what goes wrong."""

import contextlib
import io
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import drupelet
from drupelet_host.agent.loop import Agent, visit_alone
from drupelet_host.base import clock, output
from drupelet_host.cli import exit_codes
from drupelet_host.cli.app import app
from drupelet_host.cli.common import table
from drupelet_host.home import config
from drupelet_host.home.config import Peer
from drupelet_host.member.author_name import author_of
from drupelet_host.store import database, outbox
from drupelet_transports.stick.stick import Stick
from host.command_line import assert_refused, run
from host.conftest import COMMAND, Home, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B = 0xA0000001, b"\xb0\0\0\2"


def test_version() -> None:
    assert run("version").stdout.strip() == drupelet.__version__
    assert json.loads(run("version", "--json").stdout) == {"version": drupelet.__version__}


@pytest.mark.parametrize(
    "words",
    [["nonsense"], ["put"], ["log", "--group", "x"], ["stick"], ["put", "a", "--file", "b"]],
)
def test_wrong_usage_is_status_2(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_init_put_log_status(tmp_path: Path) -> None:
    home = ["--home", str(tmp_path / "home")]
    made = run("init", *home, "--name", "field", "--group", "orchard", "--id", "0a0b0c0d")
    assert made.returncode == 0
    assert (tmp_path / "home/keys").stat().st_mode & 0o777 == 0o700
    assert run("put", *home, "hello").returncode == 0
    status = json.loads(run("status", *home, "--json").stdout)
    assert (status["name"], status["id"], status["outbox"]) == ("field", "0a0b0c0d", 1)
    assert (status["running"], status["delivered"]) == (False, 0)
    assert "agent not running" in run("status", *home).stdout
    assert_refused(
        run("init", *home, "--name", "b", "--group", "g"),
        "is there already",
        status=exit_codes.USAGE,
    )
    file = tmp_path / "file"
    file.touch()
    refused = run("init", "--home", str(file), "--name", "b", "--group", "g")
    assert_refused(refused, f"{file}: is there already", status=exit_codes.USAGE)
    assert_refused(
        run("init", "--home", str(tmp_path / "x"), "--name", "b c", "--group", "g"),
        status=exit_codes.USAGE,
    )
    assert not (tmp_path / "x" / "drupelet.toml").exists()


def test_a_reading_below_zero_is_no_option(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A)
    texts = {("-5.2C",): 5, ("-.5", "--json"): 3, ("--", "-5"): 2, ("--", "--json"): 6}
    for words, size in texts.items():
        done = home.run("put", "--json", *words)
        assert done.returncode == 0 and json.loads(done.stdout)["size"] == size
    file = tmp_path / "-1.txt"
    file.write_text("from a file")
    done = home.run("put", "--json", "--file", "-1.txt", cwd=tmp_path)
    assert json.loads(done.stdout)["size"] == 11, done.stderr
    for words in (("--jsno",), ("-x",), ("-5", "-6")):
        assert home.run("put", *words).returncode == 2


def test_a_dash_is_standard_input(make_home: MakeHome) -> None:
    home = make_home("a", A)
    done = run("put", "--home", str(home.path), "-", input="frost\n-2.5 C")
    assert done.returncode == 0 and done.stdout.startswith("12 bytes accepted")
    with contextlib.closing(database.connect(home.path / "store.db")) as connection:
        assert [letter.payload for letter in outbox.letters(connection, 9)] == [b"frost\n-2.5 C"]
    assert_refused(run("put", "--home", str(home.path), "-", input=""), "an empty message")


def test_a_clock_before_1970_spoils_only_the_timestamp(
    make_home: MakeHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = [make_home("a", A, Peer("b", B, "stick:")), make_home("b", 0xB0000002)]
    share_keys(*homes)
    monkeypatch.setattr(time, "time_ns", lambda: -86_400_000_000_000)
    stick = tmp_path / "stick"
    stick.mkdir()
    for words in (["put", "--home", str(homes[0].path), "cold"],
                  ["stick", str(stick), "--home", str(homes[0].path)]):  # fmt: skip
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    [entry] = homes[0].log()
    assert entry["time"] == "1970-01-01T00:00:00.000Z" and entry["text"] == "cold"


def test_the_log_shows_whom_a_message_came_from(make_home: MakeHome, tmp_path: Path) -> None:
    """A body may claim any author, even the reader herself."""
    alice = make_home("alice", A, Peer("bob", B, "stick:"))
    bob = make_home("bob", int.from_bytes(B), Peer("alice", A.to_bytes(4), "stick:"))
    share_keys(alice, bob)
    stick = tmp_path / "stick"
    stick.mkdir()
    alice.put('{"board":"alice","n":1}')
    for author in ("alice", "bob"):
        bob.put(json.dumps({"board": author}))
    for home in (bob, alice):
        visit_alone(config.load(home.path), stick)
    assert [(entry["author"], entry["via"]) for entry in alice.log()] == [
        ("alice", "alice"), ("alice", "bob"), ("bob", "bob"),
    ]  # fmt: skip
    shown = alice.run("log").stdout.splitlines()[1:]
    assert "  alice  " in shown[0] and "  bob  " in shown[2]
    assert "  alice via bob  " in shown[1]


def test_of_a_long_message_people_are_shown_the_start_and_programs_all(
    make_home: MakeHome, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the agent and in both forms of the log; anybody in the group may write 32 KB."""
    text = "Q" * 32_000
    start = f"{'Q' * 400}… (31,600 more characters; --json has them)"
    home = make_home("a", A)
    for as_json, wanted in ((False, start), (True, f'"{text}"')):
        home.put(text)
        agent = Agent(config.load(home.path), output.Output(as_json), True)
        try:
            agent.turn()
            agent.report_channel({"channel": "c", "from": "b0000002", "text": text})
        finally:
            agent.channels.close()
            agent.member.close(clock.now_ms())
            agent.member.sealing.close()
        said = [row for row in capsys.readouterr().out.splitlines() if "QQQ" in row]
        assert len(said) == 2
        assert all(wanted in row for row in said), [row[:600] for row in said]
    shown = home.run("log").stdout
    assert shown.count("Q") == 2 * 400 and shown.count("31,600 more") == 2
    entries = home.run("log", "--json").stdout.splitlines()
    assert [json.loads(entry)["text"] for entry in entries] == [text, text]


def test_firmware_is_not_built_into_a_folder_without_a_name(tmp_path: Path) -> None:
    for more in ([""], [str(tmp_path / "x"), "--config", ""]):
        done = run("flash", "build", "--arch", "x86", *more)
        assert done.returncode == 2 and "is empty" in done.stderr
    assert not (tmp_path / "x").exists()


def test_what_a_member_tells_of_itself(make_home: MakeHome) -> None:
    home = make_home("a", A)
    said = json.loads(home.run("id", "--json").stdout)
    assert said == {
        "id": "a0000001", "name": "a", "group": "orchard",
        "pair": "drupelet:a0000001?name=a&group=orchard",
    }  # fmt: skip
    plain = home.run("id").stdout.splitlines()
    assert plain == ["a0000001  a in group orchard", said["pair"]]
    drawn = home.run("id", "--qr").stdout.splitlines()
    assert drawn[:2] == plain
    assert len(drawn) > 12 and set("".join(drawn[2:])) <= set(" █▀▄\x1b[0123456789;m")


def test_a_missing_home(tmp_path: Path) -> None:
    for words in (["agent"], ["put", "x"], ["log"], ["status"], ["stick", "/tmp"]):
        done = run(words[0], "--home", str(tmp_path / "no"), *words[1:])
        assert_refused(done, str(tmp_path / "no"), "drupelet init", status=exit_codes.NOT_THERE)


def test_no_store_yet(make_home: MakeHome) -> None:
    """Right after `init` there is nothing to show, and nothing wrong."""
    home = make_home("a", A)
    assert (home.log(), home.status()["delivered"], home.status()["store_bytes"]) == ([], 0, 0)
    said = home.run("status")
    assert (said.returncode, said.stderr) == (0, "")
    assert "no store yet: `drupelet agent` makes one" in said.stdout
    assert not (home.path / "store.db").exists()


def test_what_cannot_be_put(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A)
    assert_refused(home.run("put", ""), "empty message")
    assert_refused(
        home.run("put", "--file", str(tmp_path / "none")),
        "none: cannot be read",
        status=exit_codes.NOT_THERE,
    )
    assert_refused(home.run("put", "--file", str(tmp_path)), "cannot be read")
    (tmp_path / "big").write_bytes(b"x" * 40000)
    assert_refused(home.run("put", "--file", str(tmp_path / "big")), "too long")


def test_a_damaged_store(make_home: MakeHome) -> None:
    home = make_home("a", A)
    (home.path / "store.db").write_bytes(b"garbage" * 1000)
    for words in (["agent"], ["put", "x"], ["log"], ["status"]):
        assert_refused(home.run(*words), "store.db", "not a database", status=exit_codes.DAMAGED)


def test_a_serial_device_that_is_not_there(make_home: MakeHome) -> None:
    home = make_home("a", A, Peer("b", B, "serial:///dev/nothing-here?plain=1"))
    done = home.run("agent")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "there is no device /dev/nothing-here" in done.stderr
    home.start("--wait")
    assert "no device" in wait_for(lambda: home.events("carrier"), "carrier")[0]["reason"]
    home.stop()


def test_a_broker_that_is_not_there(make_home: MakeHome) -> None:
    home = make_home("a", A, Peer("b", B, "mqtt://127.0.0.1:1/t"))
    share_keys(home, make_home("b", int.from_bytes(B)))
    done = home.run("agent")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "nobody listens there" in done.stderr


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        (
            "mqtt://192.0.2.1:1883/t",
            "b: no keys, and mqtt goes sealed only; make them with `drupelet",
        ),
        ("serial:///dev/nothing-here", "or write plain=1 into the URL of its cable"),
        ("gopher://x", "gopher"),
        ("udp://239.0.0.1:7447", "serial, mqtt and stick"),
    ],
)
def test_a_carrier_that_is_refused(make_home: MakeHome, url: str, complaint: str) -> None:
    home = make_home("a", A)
    with (home.path / config.CONFIG_NAME).open("a") as file:
        file.write(f'[[peers]]\nname = "b"\nid = "{B.hex()}"\nurl = "{url}"\n')
    done = home.run("agent")
    assert done.returncode == (exit_codes.REFUSED if "keys" in done.stderr else exit_codes.USAGE)
    assert len(done.stderr.splitlines()) == 1
    assert complaint in done.stderr


def test_peers_without_an_agent(make_home: MakeHome) -> None:
    home = make_home("a", A)
    assert_refused(home.run("peer", "add", "b", "b0000002", "gopher://x"), "gopher")
    assert_refused(
        home.run("peer", "add", "b", "b0", "stick:"),
        "id: must be 8 hex digits",
        status=exit_codes.USAGE,
    )
    assert_refused(
        home.run("peer", "remove", "b"),
        "no peer 'b'; there are: none",
        status=exit_codes.NOT_THERE,
    )
    done = home.run("peer", "add", "b", "b0000002", "stick:", "--json")
    assert json.loads(done.stdout) == {"running": False}
    home.start()
    home.stop()
    assert [(peer["name"], peer["profile"]) for peer in home.status()["peers"]] == [("b", "bsp-1")]
    assert "bsp-1" in home.run("status").stdout
    assert home.run("peer", "remove", "b").stdout == "b removed; the agent does not run\n"
    assert home.status()["peers"] == []


def small_files() -> None:
    """As a full disk: no file of the child grows beyond 100 KB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_a_full_disk(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A)
    (tmp_path / "big").write_bytes(b"x" * 30000)
    answers = [
        home.run("put", "--file", str(tmp_path / "big"), preexec_fn=small_files) for _ in range(6)
    ]
    refused = [done for done in answers if done.returncode]
    assert refused
    for done in refused:
        assert_refused(done, "store.db", "disk")
    accepted = len(answers) - len(refused)
    assert home.status()["outbox"] == accepted
    agent = home.run("agent", preexec_fn=small_files)
    assert agent.returncode == 1
    assert len(agent.stderr.splitlines()) == 1
    assert "disk" in agent.stderr
    # With room again nothing that was accepted is missing, and nothing is there twice.
    home.start()
    wait_for(lambda: len(home.log()) == accepted, "messages")
    home.stop()


def test_a_store_that_cannot_be_opened(make_home: MakeHome) -> None:
    home = make_home("a", A)
    (home.path / "store.db").mkdir()
    for words in (["agent"], ["put", "x"], ["log"], ["stick", "/tmp"]):
        assert_refused(home.run(*words), "store.db", "cannot be opened")


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run("init", "--home", str(tmp_path / "file" / "h"), "--name", "a", "--group", "g")
    assert_refused(done, "cannot be made")
    done = run("init", "--home", "/proc/1/h", "--name", "a", "--group", "g")
    assert_refused(done, "cannot be made", status=exit_codes.NOT_THERE)


@pytest.mark.parametrize("free_size", [0, 5_000])
def test_a_stick_without_room_for_everything_is_told_by_the_exit_status(
    make_home: MakeHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_size: int
) -> None:
    alice = make_home("alice", A, Peer("bob", B, "stick:"))
    bob = make_home("bob", int.from_bytes(B), Peer("alice", A.to_bytes(4), "stick:"))
    share_keys(alice, bob)
    for number in range(9):
        assert alice.run("put", f"{number}" * 1_000).returncode == 0
    (tmp_path / "stick").mkdir()
    words = ["stick", str(tmp_path / "stick"), "--home", str(alice.path)]
    with monkeypatch.context() as patched:
        patched.setattr(Stick, "free", lambda _: free_size)
        full = CliRunner().invoke(app, words)
    assert full.exit_code == exit_codes.REFUSED, full.output
    assert "messages for bob waiting: the stick has no more room" in full.stderr
    assert full.stdout.endswith("safe to unplug\n")
    with_room = CliRunner().invoke(app, words)
    assert with_room.exit_code == 0 and not with_room.stderr, with_room.output


def test_a_stick_that_is_not_there(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B, "stick:"))
    share_keys(home, make_home("b", int.from_bytes(B)))
    assert_refused(home.run("stick", str(tmp_path / "usb")), "usb", "plug it in")
    home.start()
    assert_refused(home.run("stick", str(tmp_path / "usb")), "usb", "plug it in")
    home.stop()


def test_export_where_nothing_can_be_written(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A)
    home.put("x")
    (tmp_path / "file").write_text("in the way")
    assert_refused(home.run("export-telemetry", str(tmp_path / "file")), "cannot be written")
    assert_refused(
        home.run("export-telemetry", "/proc/x"), "cannot be written", status=exit_codes.NOT_THERE
    )


def test_the_own_black_box_is_exported(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B, "stick:", board="esp32"))
    home.put("something to log")
    for _ in range(2):
        home.start()
        wait_for(home.log, "message")
        home.stop()
    out = tmp_path / "out"
    done = home.run("export-telemetry", str(out), "--json")
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in out.glob("*.dbx"))
    assert json.loads(done.stdout)["segments"] == len(names) >= 1
    assert names[0].startswith("a0000001-00001-")
    assert (out / names[0]).read_bytes().startswith(b"DRBX")
    assert json.loads((out / "names.json").read_text()) == {
        "a0000001": {"name": "a", "carrier": "", "board": "host"},
        "b0000002": {"name": "b", "carrier": "stick", "board": "esp32"},
    }
    before = {name: (out / name).read_bytes() for name in names}
    home.run("export-telemetry", str(out))
    assert {name: (out / name).read_bytes() for name in names} == before


def test_ctrl_c_ends_a_follow_with_130(make_home: MakeHome) -> None:
    home = make_home("a", A)
    home.put("x")
    home.start()
    wait_for(home.log, "message")
    home.stop()
    follow = subprocess.Popen(
        [*COMMAND, "log", "--home", str(home.path), "--follow", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert follow.stdout is not None
    assert json.loads(follow.stdout.readline())["text"] == "x"
    # As people do: once more if the first one fell into a moment that Python does not break off.
    for _ in range(3):
        follow.send_signal(2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            follow.wait(timeout=10)
            break
    if follow.poll() is None:
        follow.kill()
    _, complaint = follow.communicate(timeout=60)
    assert follow.returncode == 130
    assert "Traceback" not in complaint


def test_the_log_as_a_table(make_home: MakeHome) -> None:
    home = make_home("a", A)
    home.put("[bold]not markup[/bold] \x1b[31m")
    home.put("second")
    home.start()
    wait_for(lambda: len(home.log()) == 2, "messages")
    home.stop()
    table = home.run("log").stdout
    assert "[bold]not markup[/bold] \\x1b[31m" in table
    assert "\x1b" not in table
    first = home.log()[0]["id"][:8]
    assert first in table.splitlines()[-1]


def test_docs_are_what_the_program_says() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "drupelet_host.cli.docs"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    assert page.read_text() == done.stdout, "run: python -m drupelet_host.cli.docs > docs/cli.md"


@pytest.mark.parametrize(
    ("payload", "author"),
    [
        (b'{"board":"A","n":1}', "A"),
        (b'{"board":5}', ""),
        (b'{"board":"%s"}' % (b"A" * 32), "A" * 32),
        (b'{"board":"%s"}' % (b"A" * 33), ""),
        (b'{"board":"\\ud800"}', ""),
        (b'{"n":1}', ""),
        (b"{" * 5000, ""),
        (b'{"board"', ""),
        (b"\xff\xfe", ""),
        (b"", ""),
        (b'[{"board":"A"}]', ""),
    ],
)
def test_who_wrote_a_reading(payload: bytes, author: str) -> None:
    assert author_of(payload) == author


def test_init_makes_no_home_that_others_can_read(tmp_path: Path) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o755)
    words = ("init", "--home", str(open_folder), "--name", "a", "--group", "g")
    assert_refused(
        run(*words),
        f"{open_folder}: others can get at it (mode 0755); run chmod 700",
        status=exit_codes.USAGE,
    )
    assert list(open_folder.iterdir()) == []
    open_folder.chmod(0o700)
    assert run(*words).returncode == 0
    deep = tmp_path / "new" / "h"
    assert run("init", "--home", str(deep), "--name", "a", "--group", "g").returncode == 0
    assert deep.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("as_json", [False, True])
def test_events_that_are_told_together_are_one_write(
    as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    printer = output.Output(as_json)
    printer.event("started", "first")
    assert written.getvalue().count(b"\n") == 1, "alone it is printer at once"
    with printer.together():
        printer.event("delivered", "second")
        printer.event("delivered", "third")
        assert written.getvalue().count(b"\n") == 1
    assert written.getvalue().count(b"\n") == 3
    printer.event("stopped", "last")
    assert written.getvalue().count(b"\n") == 4


def test_a_line_for_people_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2Jé\x9b\udc9b\u202e\n"
    output.line(hostile)
    output.complain(hostile)
    output.Output(False).event("delivered", hostile)
    table((hostile,), [(hostile,)])
    captured = capsys.readouterr()
    lines = (captured.out + captured.err).splitlines()
    assert len(lines) == 5
    assert all(line.isprintable() for line in lines), lines
    assert "\\x1b[2Jé\\x9b\\x9b\\u202e" in lines[0]
