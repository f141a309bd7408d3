"""`drupelet log` and `drupelet get`: which messages, in which form, and how they come."""

import contextlib
import json
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet_host import open_home
from drupelet_host.base import clock
from drupelet_host.cli import app
from drupelet_host.home import config
from drupelet_host.member.member import Member
from drupelet_host.view.log_view import LogView
from drupelet_host.view.web_page import page
from host.conftest import COMMAND, Home, wait_for

MakeHome = Callable[..., Home]
DAY_MS = 86_400_000


def fill(home: Home, payloads: list[bytes], first_ms: int, step_ms: int = DAY_MS) -> None:
    """Publish messages, written at times that far apart."""
    member = Member(config.load(home.path))
    member.store.write("DELETE FROM outbox")
    for at, payload in enumerate(payloads):
        member.store.write(
            "INSERT INTO outbox (timestamp, payload) VALUES (?, ?)",
            clock.timestamp8(first_ms + at * step_ms), payload,
        )  # fmt: skip
    member.commit()
    while member.publish_letters(clock.now_ms()):
        for event in member.events():
            member.take_delivered(event)
    member.close(clock.now_ms())
    member.sealing.close()


@pytest.fixture
def home(make_home: MakeHome) -> Home:
    """Ten readings, a day apart, the last one of now; those of two boards by their JSON."""
    home = make_home("alice", 0xA1)
    payloads = [b"reading %d" % number for number in range(10)]
    payloads[3] = b'{"board":"well","n":3}'
    payloads[7] = b'{"board":"well","n":7}'
    fill(home, payloads, clock.wall_ms() - 9 * DAY_MS)
    return home


def shown(home: Home, *words: str) -> list[int]:
    """The places in the log of the messages that a call shows."""
    done = home.run("log", *words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["order"] for line in done.stdout.splitlines()]


def test_the_newest(home: Home) -> None:
    assert shown(home, "--limit", "3") == [8, 9, 10]
    assert shown(home, "--limit", "0") == []
    assert shown(home, "--limit", "99") == shown(home) == list(range(1, 11))
    assert home.run("log", "--limit", "-1").returncode == 2


@pytest.mark.parametrize(
    ("since", "orders"),
    [("60h", [8, 9, 10]), ("1d", [10]), ("2w", list(range(1, 11))), ("30min", [10]), ("0s", [])],
)
def test_since_a_duration(home: Home, since: str, orders: list[int]) -> None:
    assert shown(home, "--since", since)[: len(orders)] == orders
    assert len(shown(home, "--since", since)) == len(orders)


def test_since_a_time(home: Home) -> None:
    entries = [json.loads(line) for line in home.run("log", "--json").stdout.splitlines()]
    fourth = entries[3]["time"]
    assert shown(home, "--since", fourth) == list(range(4, 11))
    assert shown(home, "--since", fourth.removesuffix("Z")) == list(range(4, 11))
    assert shown(home, "--since", fourth[:10])[-1] == 10
    assert shown(home, "--since", "2099-01-01") == []
    for text in ("yesterday", "3", "3 years", "2026-13-01", "9999999999d"):
        done = home.run("log", "--since", text)
        assert done.returncode == 2 and "2026-11-05T06:30" in done.stderr


def test_of_an_author_and_by_id(home: Home) -> None:
    # The boards' own words: handed over by this host, so it is not their author.
    assert shown(home, "--author", "alice") == list(range(1, 11))
    assert shown(home, "--author", "well") == []
    entries = [json.loads(line) for line in home.run("log", "--json").stdout.splitlines()]
    for size in (8, 9, 64):
        assert shown(home, "--id", entries[4]["id"][:size].upper()) == [5]
    assert home.run("log", "--id", "no hex").returncode == 2
    assert shown(home, "--limit", "1", "--id", entries[4]["id"][:8]) == [5]


def test_an_author_may_be_another_than_who_handed_it_over(home: Home) -> None:
    with contextlib.closing(sqlite3.connect(home.path / "store.db")) as store:
        store.execute("INSERT INTO members VALUES (2, 5, x'b0000002')")
        store.execute("UPDATE log SET source = 5, checksum = checksum WHERE handle = 4")
        store.commit()
    [line] = home.run("log", "--limit", "7", "--json").stdout.splitlines()[:1]
    assert json.loads(line)["damaged"] and json.loads(line)["payload"] == ""
    assert "(damaged; `drupelet doctor` says what to do)" in home.run("log").stdout


def test_a_damaged_message_is_handed_to_no_program(home: Home, tmp_path: Path) -> None:
    """It would be an empty message of whoever handed it over."""
    with contextlib.closing(sqlite3.connect(home.path / "store.db")) as store:
        store.execute("UPDATE log SET body = x'0000' WHERE handle IN (4, 10)")
        store.commit()
    lines = []
    for to in ("-", str(tmp_path / "out.ndjson")):
        done = home.run("export", to, "--format", "ndjson")
        assert done.returncode == 0 and done.stderr.count("is damaged and left out") == 2
        lines.append(done.stdout if to == "-" else Path(to).read_text())
    assert lines[0] == lines[1] and lines[0].count("\n") == 8
    with open_home(home.path) as program:
        assert [message.body for message in program.messages()].count(b"") == 0
    with contextlib.closing(LogView(home.path)) as view:
        shown = page(view.status(), view.newest("readings", 50))
    assert shown.count("(damaged; `drupelet doctor` says what to do)") == 2


def test_get_of_a_store_of_an_early_release_and_of_a_foreign_group(home: Home) -> None:
    with contextlib.closing(sqlite3.connect(home.path / "store.db")) as store:
        store.execute("DROP TABLE gone")
        store.execute("UPDATE log SET member_group = 77 WHERE handle = 1")
        [(id,)] = store.execute("SELECT hex(id) FROM log WHERE handle = 1")
        store.commit()
    for prefix, says in (("0" * 63, b"has no message with"), (id, b"is not in")):
        done = get(home, prefix)
        assert done.returncode == 1 and says in done.stderr and done.stderr.count(b"\n") == 1


def test_followed_from_the_newest_on(home: Home) -> None:
    """What arrives later is shown once, in its order, until Ctrl-C."""
    follow = subprocess.Popen(
        [*COMMAND, "log", "--home", str(home.path), "--follow", "--json", "--limit", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines: list[str] = []
    assert follow.stdout is not None
    reader = threading.Thread(target=lambda: lines.extend(follow.stdout))  # type: ignore[arg-type]
    reader.start()
    wait_for(lambda: len(lines) == 2, "newest messages")
    home.start()
    for number in range(300):
        home.put(f"later {number}")
    wait_for(lambda: len(lines) == 302, "messages that arrived later")
    home.stop()
    for _ in range(3):
        follow.send_signal(2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            follow.wait(timeout=10)
            break
    assert follow.wait(timeout=1) == 130
    reader.join()
    assert follow.stderr is not None and "Traceback" not in follow.stderr.read()
    follow.stderr.close()
    follow.stdout.close()
    assert [json.loads(line)["order"] for line in lines] == list(range(9, 311))


def test_memory_and_the_agent_do_not_wait_for_a_slow_reader(home: Home) -> None:
    """No query stays open between two batches, so the WAL can be taken into the database."""
    fill(home, [b"x" * 100] * 1000, clock.wall_ms(), 1)
    with contextlib.closing(LogView(home.path)) as view:
        entries = view.entries()
        assert next(entries).order == 1
        with contextlib.closing(sqlite3.connect(home.path / "store.db")) as writer:
            writer.execute("INSERT INTO meta VALUES ('test', 1)")
            writer.commit()
            busy, _, _ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert not busy
        assert sum(1 for _ in entries) == 1009


def test_a_reader_that_has_had_enough(home: Home) -> None:
    fill(home, [b"y" * 2000] * 300, clock.wall_ms(), 1)
    words = [*COMMAND, "log", "--home", str(home.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as log:
        assert log.stdout is not None and log.stderr is not None
        assert log.stdout.readline().lstrip().startswith(b"#")
        log.stdout.close()
        assert log.stderr.read() == b""
        assert log.wait(timeout=60) == 0


def test_ten_thousand_messages_take_half_a_second(home: Home) -> None:
    """Beside the start of the interpreter and of the command; measured by `drupelet bench agent`.

    A third is room for a machine that does other things, too.
    """
    fill(home, [b"reading %d of the cold store: -5.2 C" % n for n in range(9990)], 0, 1000)
    words = ["log", "--home", str(home.path)]
    assert (
        CliRunner().invoke(app.app, [*words, "--limit", "1"]).exit_code == 0
    )  # loads its modules
    before = resource.getrusage(resource.RUSAGE_SELF)
    done = CliRunner().invoke(app.app, words)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert done.exit_code == 0 and done.output.count("\n") == 10_001
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


# --- get ---


def get(home: Home, id: str) -> subprocess.CompletedProcess[bytes]:
    words = [*COMMAND, "get", "--home", str(home.path), id]
    return subprocess.run(words, capture_output=True, timeout=60, check=False)


def ids_of(home: Home) -> list[str]:
    return [json.loads(line)["id"] for line in home.run("log", "--json").stdout.splitlines()]


def test_a_message_comes_out_as_it_went_in(make_home: MakeHome) -> None:
    home = make_home("alice", 0xA1)
    payloads = [b"text\n", bytes(range(256)) * 100, b"\xff\xfe\x00"]
    fill(home, payloads, clock.wall_ms())
    for id, payload in zip(ids_of(home), payloads, strict=True):
        for start in (id, id[:9].upper()):
            done = get(home, start)
            assert (done.returncode, done.stdout, done.stderr) == (0, payload, b"")


def test_what_cannot_be_given_out(home: Home) -> None:
    fill(home, [b"more %d" % number for number in range(40)], clock.wall_ms(), 1)
    ids = ids_of(home)
    twice = next(id[0] for id in ids if sum(other[0] == id[0] for other in ids) > 1)
    refusals = {
        twice: b"more than one message begins so",
        "0" * 63: b"the log has no message with this id",
    }
    with contextlib.closing(sqlite3.connect(home.path / "store.db")) as store:
        store.execute("UPDATE log SET body = x'00' WHERE id = ?", (bytes.fromhex(ids[0]),))
        store.execute("UPDATE log SET state = 2 WHERE id = ?", (bytes.fromhex(ids[1]),))
        store.execute("UPDATE log SET state = 3 WHERE id = ?", (bytes.fromhex(ids[2]),))
        store.execute(
            "INSERT INTO gone (id, member_group, state) VALUES (?, 1, 1)", (b"\xee" * 32,)
        )
        store.commit()
    refusals |= {
        ids[0]: b"is damaged; get it from another member, or from a backup",
        ids[1]: b"it waits for a message that it depends on",
        ids[2]: b"it was deleted",
        "ee" * 32: b"any more: it made room for others",
    }
    for id, says in refusals.items():
        done = get(home, id)
        assert done.returncode == 1 and done.stdout == b"" and says in done.stderr
        assert done.stderr.count(b"\n") == 1
    assert get(home, "xyz").returncode == get(home, "").returncode == 2


def test_log_and_get_need_no_node() -> None:
    """Nor what other rooms load for their verbs: each call of a script pays for it."""
    code = "import sys, drupelet_host.view.log_view; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not {b"drupelet.node", b"rich", b"importlib.metadata"} & set(done.stdout.split())
