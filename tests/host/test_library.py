"""The library: what a program of an owner does with `from drupelet_host import open_home`."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import drupelet_host
from drupelet_host import (
    AgentStoppedError,
    CapacityError,
    ClosedError,
    ConfigError,
    DrupeletError,
    LockedError,
    ReaderBusyError,
    create_home,
    open_home,
)
from drupelet_host import api as library
from drupelet_host.home import config
from drupelet_host.store import database, outbox
from host.conftest import Cable, Home, Peer, wait_for

A, B = 0xA0000001, 0xB0000002


def texts(home: library.Home, reader: str = "program") -> list[str]:
    return [message.text for message in home.messages(reader)]


def test_a_message_is_published_and_read_until_it_is_done(tmp_path: Path) -> None:
    with create_home(tmp_path / "gate", "gate", "orchard") as home:
        assert (home.name, home.group, home.path) == ("gate", "orchard", tmp_path / "gate")
        assert list(home.messages()) == [], "there is no store yet"
        home.publish(b"21.5")
        taken_at = datetime(2026, 3, 1, 12, 0, 0, 250_000, UTC)
        home.publish(b'{"board":"well","level_mm":1200}', time=taken_at)
        home.publish(b"\xff\x00")
        with home.agent():
            wait_for(lambda: len(texts(home)) == 3, "three messages in the log")
        first, second, third = home.messages()
        assert (first.group, first.author, first.via) == ("readings", "gate", "gate")
        assert (first.text, first.body, len(first.id)) == ("21.5", b"21.5", 64)
        assert abs(datetime.now(UTC) - first.time) < timedelta(minutes=5)
        assert (second.time, third.text) == (taken_at, "\ufffd\x00")
        with pytest.raises(FrozenInstanceError):
            first.body = b""  # type: ignore[misc]
        second.done()
        second.done()
        assert texts(home) == ["21.5", "\ufffd\x00"]
        first.done()
        assert texts(home) == ["\ufffd\x00"] and len(texts(home, "another")) == 3
    with pytest.raises(ClosedError, match="open it again"):
        third.done()
    with open_home(tmp_path / "gate") as home:
        assert texts(home) == ["\ufffd\x00"], "what was done stays done"
        home.publish(b"the fourth")
        with home.agent():
            wait_for(lambda: texts(home)[1:] == ["the fourth"], "a message behind one undone")


def test_messages_come_while_the_agent_of_the_process_runs(
    make_home: Callable[..., Home], cable: Cable
) -> None:
    a = make_home("a", A, Peer("b", B.to_bytes(4), cable.url(0), "interactive", 50))
    b = make_home("b", B, Peer("a", A.to_bytes(4), cable.url(1), "interactive", 50))
    b.start()

    async def program() -> list[str]:
        got = []
        with open_home(a.path) as home:
            async with home.agent():
                home.publish(b"from a program")
                assert a.run("put", "beside it").returncode == 0  # another process
                b.put("from b")
                with pytest.raises(LockedError, match="already owns this home"):
                    async with open_home(a.path).agent():
                        raise AssertionError("two agents of one home")
                async for message in home.arrivals():
                    got.append(f"{message.via}: {message.text}")
                    message.done()
                    if len(got) == 3:
                        break
                # The agent ends with the block, whatever the other one has by then.
                wait_for(lambda: len(b.log()) == 3, "all three at the other agent")
        return sorted(got)

    assert asyncio.run(program()) == ["a: beside it", "a: from a program", "b: from b"]
    assert not config.locked(a.path)
    with open_home(a.path) as home:
        assert texts(home) == []


def test_an_agent_of_the_process_stops_while_it_sleeps(tmp_path: Path) -> None:
    took_s = []
    with create_home(tmp_path / "h", "h", "g") as home:
        for _ in range(5):
            with home.agent():
                time.sleep(0.15)  # it has nothing to do, and sleeps for a second
                begun_s = time.monotonic()
            took_s.append(time.monotonic() - begun_s)
    assert min(took_s) < 0.4


def test_a_second_process_is_refused_at_once_under_the_same_name(tmp_path: Path) -> None:
    create_home(tmp_path / "h", "h", "g").close()
    program = (
        "import sys; from drupelet_host import open_home\n"
        f"home = open_home({str(tmp_path / 'h')!r}); home.messages('logger')\n"
        "print('reads', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "reads\n"
        with open_home(tmp_path / "h") as home:
            with pytest.raises(ReaderBusyError, match="stop it or choose another name") as refused:
                home.messages("logger")
            assert "\n" not in str(refused.value)
            assert list(home.messages("program")) == []
            other.send_signal(signal.SIGKILL)
            other.wait()
            assert list(home.messages("logger")) == [], "the kernel freed the name"


KILLED = """
import os, signal, sys
from drupelet_host import open_home
home = open_home(sys.argv[1])
with open(sys.argv[2], "a") as file:
    for number, message in enumerate(home.messages("logger")):
        print(message.text, file=file, flush=True)
        message.done()
        if number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_is_done_stays_done_over_kills(tmp_path: Path) -> None:
    said = [f"reading {number}" for number in range(10)]
    with create_home(tmp_path / "h", "h", "g") as home:
        for text in said:
            home.publish(text.encode())
        with home.agent():
            wait_for(lambda: len(texts(home)) == len(said), "all in the log")
    program = [sys.executable, "-c", KILLED, str(tmp_path / "h"), str(tmp_path / "out.txt")]
    codes = [subprocess.run(program, check=False, timeout=60).returncode for _ in range(4)]
    assert codes == [-signal.SIGKILL] * 3 + [0]
    assert (tmp_path / "out.txt").read_text().splitlines() == said


def test_what_was_done_is_not_read_again_from_a_store_that_was_put_back(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with create_home(path, "h", "g") as home:
        home.publish(b"before the backup")
        with home.agent():
            wait_for(lambda: texts(home) == ["before the backup"], "the first in the log")
        next(home.messages()).done()
        with contextlib.closing(database.connect(path / "store.db")) as connection:
            connection.execute("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
        home.publish(b"after the backup")
        with home.agent():
            wait_for(lambda: texts(home) == ["after the backup"], "the second in the log")
        next(home.messages()).done()
    for file in path.glob("store.db*"):
        file.unlink()
    shutil.copyfile(tmp_path / "backup.db", path / "store.db")
    with open_home(path) as home:
        home.publish(b"new")  # has the handle that the lost one had
        with home.agent():
            wait_for(lambda: texts(home) == ["new"], "the new one alone")


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file; make a home with `drupelet init`"):
        open_home(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="must be 4 bytes"):
        create_home(tmp_path / "h", "h", "g", b"too long")
    with create_home(tmp_path / "h", "h", "g", bytes.fromhex("a0000001")) as home:
        assert config.load(tmp_path / "h").id.hex() == "a0000001"
        with pytest.raises(ConfigError, match="is there already"):
            create_home(tmp_path / "h", "h", "g")
        for body, reason in ((b"", "empty message"), (bytes(40_000), "at most")):
            with pytest.raises(CapacityError, match=reason):
                home.publish(body)
        with pytest.raises(CapacityError, match="no time zone"):
            home.publish(b"x", time=datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(CapacityError, match="before 1970"):
            home.publish(b"x", time=datetime(1969, 1, 1, tzinfo=UTC))
        with pytest.raises(ConfigError, match="readings or telemetry"):
            home.messages(group="commands")
        (tmp_path / "h" / "drupelet.toml").write_text(
            (tmp_path / "h" / "drupelet.toml").read_text().replace("a0000001", "a0000002")
        )
    with create_home(tmp_path / "m", "m", "g", family="mvds") as home:
        home.add_peer("p", bytes.fromhex("a0000009"), "serial://127.0.0.1:1?plain=1")
        assert config.load(home.path).peers[0].profile == "mvds-1"
        with pytest.raises(ConfigError, match="used twice"):
            home.add_peer("p", bytes.fromhex("a000000a"), "serial://127.0.0.1:1?plain=1")
        with pytest.raises(DrupeletError, match="x:"):
            home.add_peer("q", bytes.fromhex("a000000a"), "x:")
        with config.lock(home.path), pytest.raises(LockedError):
            home.add_peer("q", bytes.fromhex("a000000a"), "serial://127.0.0.1:1?plain=1")
    for use in (lambda: home.publish(b"x"), home.messages, home.agent):
        with pytest.raises(ClosedError):
            use()


def test_a_full_outbox_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "OUTBOX_MAX", 2)
    with create_home(tmp_path / "h", "h", "g") as home:
        home.publish(b"1")
        home.publish(b"2")
        for wait in (False, True):  # nobody makes room
            with pytest.raises(CapacityError, match="2 entries wait already"):
                home.publish(b"3", wait=wait)
        with home.agent():
            for number in range(3, 20):
                home.publish(b"%d" % number, wait=True)
            wait_for(lambda: len(texts(home)) == 19, "each of them in the log")


def test_so_many_may_be_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "UNDONE_MAX", 3)
    with create_home(tmp_path / "h", "h", "g") as home:
        for number in range(5):
            home.publish(b"%d" % number)
        with home.agent():
            wait_for(lambda: _count(home.path) == 5, "five in the log")
        got = []
        with pytest.raises(CapacityError, match="3 messages were handed to reader 'program'"):
            got.extend(home.messages())
        for _ in range(2):  # a new iteration hands out the same ones
            iteration = home.messages()
            assert [next(iteration).text for _ in range(3)] == ["0", "1", "2"]
        next(home.messages()).done()
        iteration = home.messages()
        assert [next(iteration).text for _ in range(3)] == ["1", "2", "3"]


def _count(path: Path) -> int:
    with contextlib.closing(database.connect(path / "store.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM log").fetchone()[0])


def test_an_agent_that_fails_ends_the_block_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drupelet_host.agent.loop import Agent

    def fail(_agent: Agent) -> int:
        raise drupelet_host.StorageError("store.db: the disk is full")

    with create_home(tmp_path / "h", "h", "g") as home:
        config.add_peer(
            home.path, Peer("p", bytes.fromhex("a0000009"), "serial:///dev/nothing?plain=1")
        )
        with open_home(tmp_path / "h") as patient, patient.agent():
            pass
        with (
            open_home(tmp_path / "h") as strict,
            pytest.raises(DrupeletError, match="--wait starts without it"),
            strict.agent(wait=False),
        ):
            raise AssertionError("the carrier is not there")
        monkeypatch.setattr(Agent, "turn", fail)
        messages = home.messages(follow=True)
        with pytest.raises(AgentStoppedError, match=r"store.db: the disk is full"), home.agent():
            next(messages)
        with pytest.raises(AgentStoppedError, match="the disk is full"), home.agent():
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_mistake_of_the_agent_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drupelet_host.agent.loop import Agent

    def fail(_agent: Agent) -> int:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(Agent, "turn", fail)
    with (
        create_home(tmp_path / "h", "h", "g") as home,
        pytest.raises(AgentStoppedError, match="has a mistake"),
        home.agent(),
    ):
        asyncio.run(_next_arrival(home))


async def _next_arrival(home: library.Home) -> library.Message:
    """Without a bound a follower would wait for ever."""
    return await asyncio.wait_for(anext(home.arrivals()), 20)


def test_the_package_loads_nothing_before_it_is_used() -> None:
    program = (
        "import sys, drupelet_host\n"
        "assert not [m for m in sys.modules if m.startswith('drupelet_host.')], sys.modules\n"
        "assert 'sqlite3' not in sys.modules and 'asyncio' not in sys.modules\n"
        "for name in drupelet_host.__all__: assert getattr(drupelet_host, name)\n"
        "assert 'drupelet_host.agent.loop' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        drupelet_host.nothing  # noqa: B018
