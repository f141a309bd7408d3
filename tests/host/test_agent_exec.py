"""`drupelet agent --exec`: each message that was received is handled, in order and to its end."""

import json
import os
import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet_host.broker import Broker
from drupelet_host.home.config import Peer
from host.conftest import Home, share_keys, wait_for

MakeHome = Callable[..., Home]
# A handler's program: what it was given goes into a file, then it does what the test says.
PROGRAM = """
import json, os, sys, time
folder = sys.argv[1]
body = sys.stdin.buffer.read()
given = {name: value for name, value in os.environ.items() if name.startswith("DRUPELET_")}
with open(folder + "/begun", "a") as file:
    file.write(json.dumps({"body": body.hex(), "pid": os.getpgrp(), **given}) + "\\n")
if b"fails" in body and not os.path.exists(folder + "/mended"):
    sys.exit(3)
if b"hangs" in body and not os.path.exists(folder + "/mended"):
    time.sleep(600)
with open(folder + "/done", "a") as file:
    file.write(body.hex() + "\\n")
"""
QUICK = {"drupelet_host.agent.handler.RETRY_MS": 50, "drupelet_host.agent.handler.END_MS": 500}


class Bench:
    """Alice sends, bob's agent handles."""

    def __init__(self, make_home: MakeHome, broker: Broker, folder: Path) -> None:
        url = f"mqtt://localhost:{broker.port}/exec"
        self.alice = make_home("alice", 0xA1, Peer("bob", b"\0\0\0\xb1", url))
        self.bob = make_home("bob", 0xB1, Peer("alice", b"\0\0\0\xa1", url))
        share_keys(self.alice, self.bob)
        self.folder = folder / "handled"
        self.folder.mkdir()
        (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
        words = (sys.executable, str(folder / "program.py"), str(self.folder))
        self.command = shlex.join(words)

    def start_bob(self, *words: str) -> None:
        self.bob.start("--wait", "--exec", self.command, *words, **QUICK)

    def begun(self) -> list[dict[str, str]]:
        path = self.folder / "begun"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def done(self) -> list[str]:
        path = self.folder / "done"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [bytes.fromhex(line).decode() for line in lines if line.endswith("\n")]

    def mend(self) -> None:
        (self.folder / "mended").touch()


@pytest.fixture
def bench(make_home: MakeHome, broker: Broker, tmp_path: Path) -> Bench:
    broker.start()
    bench = Bench(make_home, broker, tmp_path)
    bench.alice.start("--wait")
    return bench


def test_each_message_in_order_and_once(bench: Bench) -> None:
    texts = [f"message {number}" for number in range(8)]
    texts[3] = '{"board":"well","n":1}'
    for text in texts[:5]:
        bench.alice.put(text)
    bench.start_bob()
    bench.bob.put("of its own")
    wait_for(lambda: len(bench.done()) == 5, "handled messages")
    bench.bob.stop()
    for text in texts[5:]:
        bench.alice.put(text)
    bench.start_bob()
    wait_for(lambda: len(bench.done()) == 8, "handled messages")
    bench.bob.settle()
    bench.bob.stop()
    assert bench.done() == texts
    begun = bench.begun()
    assert len(begun) == 8
    entries = {entry["id"]: entry for entry in bench.bob.log() if entry["via"] == "alice"}
    for text, given in zip(texts, begun, strict=True):
        entry = entries[given["DRUPELET_ID"]]
        assert bytes.fromhex(given["body"]).decode() == text == entry["text"]
        assert given["DRUPELET_AUTHOR"] == ("well" if "well" in text else "alice")
        assert given["DRUPELET_VIA"] == "alice" and given["DRUPELET_GROUP"] == "orchard"
        assert given["DRUPELET_TIME"] == entry["time"]
        assert int(given["DRUPELET_TIMESTAMP_MS"]) == entry["timestamp_ms"]
        assert given["DRUPELET_HOME"] == str(bench.bob.path)


def test_what_fails_is_tried_again_and_those_behind_it_wait(bench: Bench) -> None:
    bench.start_bob()
    for text in ("first", "this fails", "third"):
        bench.alice.put(text)
    wait_for(lambda: len(bench.begun()) >= 5, "tries")
    assert bench.done() == ["first"]
    events = bench.bob.events("exec")
    assert [event["id"] for event in events[:3]] == [bench.bob.log()[1]["id"]] * 3
    bench.mend()
    wait_for(lambda: len(bench.done()) == 3, "handled messages")
    assert bench.done() == ["first", "this fails", "third"]
    bench.bob.stop()
    printed = (bench.bob.path / "out.txt").read_text()
    assert printed.count('"exec"') == len(bench.begun()) - 3


def test_an_agent_that_is_killed_meanwhile_loses_nothing(bench: Bench) -> None:
    """Cut while a program runs: its message is given again, and none before it."""
    bench.start_bob()
    for text in ("first", "this hangs", "third"):
        bench.alice.put(text)
    for tries in (2, 3, 4):
        wait_for(lambda count=tries: len(bench.begun()) == count, "begun programs")
        bench.bob.kill()
        os.killpg(int(bench.begun()[-1]["pid"]), 9)  # what no agent sees to any more
        if tries == 3:
            bench.mend()
        bench.start_bob()
        if tries == 3:
            break
    wait_for(lambda: bench.done() == ["first", "this hangs", "third"], "handled messages")
    bench.bob.settle()
    bench.bob.stop()
    handled = [bytes.fromhex(given["body"]).decode() for given in bench.begun()]
    assert handled == ["first", *["this hangs"] * 3, "third"]


def test_the_agent_serves_its_carriers_while_a_program_runs(bench: Bench) -> None:
    """And ends what takes too long."""
    bench.start_bob("--exec-timeout", "3")
    bench.alice.put("this hangs")
    wait_for(lambda: len(bench.begun()) == 1, "begun program")
    for number in range(20):
        bench.alice.put(f"behind {number}")
    wait_for(lambda: len(bench.bob.log()) == 21, "messages")
    bench.alice.settle()
    assert len(bench.begun()) == 1 and not bench.bob.events("exec"), "it ran all the while"
    [first, *_] = wait_for(lambda: bench.bob.events("exec"), "end of the first program")
    assert first["reason"].endswith("--exec took longer than 3 s; again in 0.05 s")
    bench.mend()
    wait_for(lambda: len(bench.done()) == 21, "handled messages")
    assert bench.done() == ["this hangs", *(f"behind {number}" for number in range(20))]
    bench.bob.stop()


def test_a_clean_stop_lets_the_program_finish_or_ends_it(bench: Bench) -> None:
    bench.start_bob()
    bench.alice.put("this hangs")
    wait_for(lambda: len(bench.begun()) == 1, "begun program")
    assert bench.bob.stop() < 30
    pid = int(bench.begun()[0]["pid"])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    bench.mend()
    bench.start_bob()
    wait_for(lambda: bench.done() == ["this hangs"], "handled message")
    bench.bob.stop()


def test_a_command_that_is_not_there(bench: Bench) -> None:
    bench.bob.start("--wait", "--exec", "/nowhere/at/all", **QUICK)
    bench.alice.put("text")
    wait_for(lambda: len(bench.bob.events("exec")) > 2, "failures")
    bench.bob.stop()
    assert bench.bob.log()[0]["text"] == "text"
    assert "ended with 127" in bench.bob.events("exec")[0]["reason"]
