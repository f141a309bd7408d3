"""Exploding and ephemeral messages of a home: agents as processes, over MQTT and by stick."""

import asyncio
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drupelet.base.errors import CapacityError, DrupeletError
from drupelet_host import open_home
from drupelet_host.broker import Broker
from drupelet_host.home import config
from drupelet_host.home.config import Peer
from drupelet_host.home.lifetime import EPHEMERAL_LIFETIME
from host.conftest import Home, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B, C = 0xA0000001, 0xB0000002, 0xC0000003
SECRET = "the key is under the flowerpot"
# Longer than agents take to hand a message over.
SHORT_S = 8


def settings(home: Home, *lines: str) -> None:
    """Put keys in front of the tables of a home's drupelet.toml."""
    path = home.path / config.CONFIG_NAME
    text = path.read_text()
    at = text.index("\n[[peers]]") if "\n[[peers]]" in text else len(text)
    path.write_text(text[:at] + "\n".join(lines) + "\n" + text[at:])


def pair(make_home: MakeHome, url: str, *lines: str) -> list[Home]:
    homes = [
        make_home("a", A, Peer("b", B.to_bytes(4), url, "interactive", 50)),
        make_home("b", B, Peer("a", A.to_bytes(4), url, "interactive", 50)),
    ]
    for home in homes:
        settings(home, *lines)
    share_keys(*homes)
    return homes


EXPLODING = 'client = "exploding"'


def texts(home: Home) -> list[str]:
    return [entry["text"] for entry in home.log()]


def files_with(home: Home, text: str) -> list[str]:
    """The files of a home's store in which a text stands, also where no table has it any more."""
    return [
        path.name for path in home.path.glob("store.db*") if text.encode() in path.read_bytes()
    ]


def ok(home: Home, *words: str, **options: Any) -> str:
    done = home.run(*words, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_message_explodes_at_both_members_over_mqtt_also_where_no_agent_ran(
    make_home: MakeHome, broker: Broker
) -> None:
    a, b = homes = pair(make_home, broker.start() + "/t", EXPLODING)
    for home in homes:
        home.start()
    ok(a, "put", "stays")
    begun = time.time()
    ok(a, "put", SECRET, "--explode", f"{SHORT_S}s")
    ok(a, "put", "later", "--explode", "7d")
    for home in homes:
        wait_for(lambda home=home: len(home.events("delivered")) == 3, f"all at {home.name}")
    # The others name it nowhere, and say until when they stay.
    log = {entry["text"]: entry for entry in b.log()}
    assert log["later"]["explodes_ms"] > (begun + 6 * 86400) * 1000
    assert "explodes_ms" not in log["stays"]
    assert log["later"]["dependencies"] == [log["stays"]["id"]]
    shown = ok(b, "log")
    assert "later  [explodes 7d after it was written]" in shown
    b.stop()
    assert time.time() < begun + SHORT_S, "the machine is too slow for this test"
    assert SECRET in texts(b) and files_with(b, SECRET)
    wait_for(lambda: files_with(a, SECRET) == [], "nothing left of it in a's files")
    assert time.time() >= begun + SHORT_S - 1
    assert sorted(texts(a)) == ["later", "stays"]
    # b's agent was down: the log hides it, and the next agent deletes it before it does anything.
    assert sorted(texts(b)) == ["later", "stays"] and files_with(b, SECRET)
    id = log[SECRET]["id"]
    refused = b.run("get", id)
    assert refused.returncode and "it has exploded" in refused.stderr
    b.start()
    wait_for(lambda: files_with(b, SECRET) == [], "nothing left of it in b's files")
    refused = b.run("get", id)
    assert refused.returncode and "it was deleted" in refused.stderr
    assert b.status()["counters"]["exploded"] == 1
    ok(b, "put", "goes on")
    wait_for(lambda: "goes on" in texts(a), "what was written afterwards")


def test_a_message_explodes_by_stick_and_what_comes_too_late_is_not_kept(
    make_home: MakeHome, tmp_path: Path
) -> None:
    usb = tmp_path / "usb"
    usb.mkdir()
    a, b = pair(make_home, f"stick://{usb}", EXPLODING, 'explode = "1h"')
    ok(a, "put", "stays", "--explode", "never")
    ok(a, "put", "an hour")
    ok(a, "put", SECRET, "--explode", "3s")
    ok(a, "stick", str(usb))
    time.sleep(4.5)
    ok(b, "stick", str(usb))
    assert texts(b) == ["stays", "an hour"] and files_with(b, SECRET) == []
    assert b.log()[1]["explodes_ms"] - b.log()[1]["timestamp_ms"] == 3_600_000
    assert texts(a) == ["stays", "an hour"]
    ok(b, "stick", str(usb))
    ok(a, "stick", str(usb))
    assert files_with(a, SECRET) == []
    assert a.status()["peers"][0]["outstanding"] == 0, "b has acknowledged what it did not keep"
    report = ok(a, "status")
    assert "what this member writes explodes 1h after it was written" in report
    ok(b, "put", "an answer")
    ok(b, "stick", str(usb))
    ok(a, "stick", str(usb))
    assert texts(a) == ["stays", "an hour", "an answer"]


def test_a_visit_without_an_agent_is_no_reading(make_home: MakeHome, tmp_path: Path) -> None:
    usb = tmp_path / "usb"
    usb.mkdir()
    a, b = pair(make_home, "stick:", EXPLODING)
    ok(a, "put", SECRET, "--explode-read")
    ok(a, "put", "behind it")
    for home in (a, b, a, b):
        ok(home, "stick", str(usb))
    assert texts(a) == ["behind it"], "its author has read it, and b has it"
    assert texts(b) == [SECRET, "behind it"]
    b.start()
    wait_for(lambda: texts(b) == ["behind it"], "the end of it")
    assert SECRET in [event["text"] for event in b.events("delivered")]
    wait_for(lambda: files_with(b, SECRET) == [], "no trace")


def test_what_is_due_is_deleted_though_agents_are_killed(
    make_home: MakeHome, broker: Broker
) -> None:
    homes = pair(make_home, broker.start() + "/t", EXPLODING)
    a = homes[0]
    for home in homes:
        home.start()
    ok(a, "put", "stays")
    begun = time.time()
    for number in range(6):
        ok(a, "put", f"{SECRET} {number}", "--explode", f"{5 + number}s")
        victim = homes[number % 2]
        victim.kill()
        victim.start()
    wait_for(lambda: time.time() > begun + 12, "the last one's time")
    for home in homes:
        home.kill()
        home.start()
        wait_for(lambda home=home: texts(home) == ["stays"], f"what stays at {home.name}")
        wait_for(lambda home=home: files_with(home, SECRET) == [], f"no trace at {home.name}")


def test_what_explodes_once_read_waits_for_the_handler_and_for_every_member(
    make_home: MakeHome, broker: Broker, tmp_path: Path
) -> None:
    a, b = homes = pair(make_home, broker.start() + "/t", EXPLODING, "explode_read = true")
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    a.start()
    ok(a, "put", SECRET)
    wait_for(lambda: texts(a) == [SECRET], "the message")
    assert a.log()[0]["explodes_once_read"]
    # The handler of b refuses it until the gate is there.
    b.start("--exec", f"cat >> {seen}; test -e {gate}")
    wait_for(seen.exists, "the handler's first run")
    wait_for(lambda: a.status()["peers"][0]["outstanding"] == 0, "b's acknowledgement")
    # b has it, and a's own agent has given it out.
    wait_for(lambda: texts(a) == [], "the end of it at a")
    assert texts(b) == [SECRET]
    gate.touch()
    wait_for(lambda: texts(b) == [], "the end of it at b")
    for home in homes:
        wait_for(lambda home=home: files_with(home, SECRET) == [], f"no trace at {home.name}")
    home = b.run("put", "plain", "--no-explode-read")
    assert home.returncode == 0
    wait_for(lambda: texts(a) == ["plain"], "what stays")


@pytest.mark.parametrize("line", [EXPLODING, 'family = "mvds"'])
def test_an_ephemeral_message_reaches_who_is_there_and_no_log(
    make_home: MakeHome, broker: Broker, tmp_path: Path, line: str
) -> None:
    a, b = homes = pair(make_home, broker.start() + "/t", line)
    refused = a.run("put", "--ephemeral", "nobody is there")
    assert refused.returncode == 1 and "no agent runs" in refused.stderr
    seen = tmp_path / "seen"
    a.start()
    b.start("--exec", f"cat >> {seen}")
    ok(a, "put", "stays")
    wait_for(lambda: texts(b) == ["stays"], "a message, so they are there")
    said = ok(a, "put", "--ephemeral", "typing ...")
    assert said == "10 bytes sent to those who are there\n"
    (event,) = wait_for(
        lambda: [one for one in b.events("delivered") if one["text"] == "typing ..."], "it at b"
    )
    assert event["ephemeral"] and event["dependencies"] == []
    wait_for(lambda: seen.exists() and seen.read_text() == "staystyping ...", "it at the handler")
    ok(a, "put", "goes on")
    for home in homes:
        wait_for(lambda home=home: len(texts(home)) == 2, f"the next one at {home.name}")
        assert texts(home) == ["stays", "goes on"]
        assert home.run("get", event["id"]).returncode
    log = b.log()
    assert log[1]["dependencies"] == [log[0]["id"]], "nobody names it"
    ok(b, "put", "--ephemeral", "--each-line", input="one\ntwo\n")
    wait_for(
        lambda: {"one", "two"} <= {one["text"] for one in a.events("delivered")}, "both lines"
    )
    # Who comes later gets none of it.
    b.stop()
    ok(a, "put", "--ephemeral", "missed")
    ok(a, "put", "the last")
    wait_for(lambda: "the last" in texts(a), "the last one in the log")
    wait_for(lambda: not a.status()["outbox"], "an empty outbox")


@pytest.mark.parametrize("line", [EXPLODING, 'family = "mvds"'])
def test_an_ephemeral_message_leaves_the_store_after_its_time(
    make_home: MakeHome, broker: Broker, line: str
) -> None:
    a, b = homes = pair(make_home, broker.start() + "/t", line, "ephemeral = true")
    brief = EPHEMERAL_LIFETIME._replace(seconds=4)
    rooms = ("family", "vanishing")
    for home in homes:
        home.start(**{f"drupelet_host.member.{room}.EPHEMERAL_LIFETIME": brief for room in rooms})
    ok(a, "put", "first", "--no-ephemeral")
    wait_for(lambda: texts(b) == ["first"], "a message, so they are there")
    ok(a, "put", SECRET)
    wait_for(lambda: SECRET in [one["text"] for one in b.events("delivered")], "it at b")
    assert texts(a) == texts(b) == ["first"]
    for home in homes:
        wait_for(lambda home=home: files_with(home, SECRET) == [], "no trace")
    assert a.status()["ephemeral"]
    ok(b, "put", "for the log", "--no-ephemeral")
    wait_for(lambda: texts(a) == ["first", "for the log"], "what stays")


def test_a_program_publishes_what_does_not_stay(make_home: MakeHome) -> None:
    home = make_home("a", A)
    settings(home, EXPLODING, 'explode = "7d"')

    async def run() -> None:
        with open_home(home.path) as opened:
            with pytest.raises(DrupeletError, match="no agent runs"):
                opened.publish(b"now", ephemeral=True)
            async with opened.agent():
                opened.publish(b"a week")
                opened.publish(b"a minute", explode_after=timedelta(minutes=1))
                opened.publish(b"for ever", explode_after=timedelta(0))
                past = datetime.now(UTC) - timedelta(hours=2)
                opened.publish(b"over", past, explode_after=timedelta(hours=1))
                await asyncio.to_thread(opened.publish, b"now", ephemeral=True)
                messages = []
                async for message in opened.arrivals():
                    messages.append(message)
                    message.done()
                    if len(messages) == 3:
                        break
                assert [one.body for one in messages] == [b"a week", b"a minute", b"for ever"]
                week, minute, never = (one.explodes for one in messages)
                assert week is not None and minute is not None and never is None
                assert week - messages[0].time == timedelta(days=7)
                assert minute - messages[1].time == timedelta(minutes=1)
            for wrong in (timedelta(-1), timedelta(milliseconds=20), timedelta(days=100_000)):
                with pytest.raises(CapacityError, match="explode_after"):
                    opened.publish(b"x", explode_after=wrong)
            with pytest.raises(CapacityError, match="ephemeral"):
                opened.publish(b"x", ephemeral=True, explode_after=timedelta(1))

    asyncio.run(run())


def test_a_group_without_them_refuses_them_in_one_line(make_home: MakeHome) -> None:
    home = make_home("a", A)
    for words, what in (
        (("--explode", "7d"), "cannot explode"),
        (("--explode-read",), "cannot explode"),
        (("--explode", "soon"), "must be a duration as 90s"),
        (("--explode", "0s"), "must be a duration as 90s"),
        (("--ephemeral", "--explode", "7d"), "leave --explode"),
    ):
        refused = home.run("put", "x", *words)
        assert refused.returncode in (1, 2) and what in re.sub(r"\s+", " ", refused.stderr)
    assert not os.path.exists(home.path / "store.db") or home.status()["outbox"] == 0
    home.start()
    refused = home.run("put", "x", "--ephemeral")
    assert refused.returncode == 1 and "cannot be ephemeral" in refused.stderr
    home.stop()
    for line, what in (
        ('explode = "7d"', "explode: needs client"),
        ("explode_read = true", "explode_read: needs client"),
        ("ephemeral = true", "ephemeral: needs client"),
        ('client = "exploding"\nexplode = "7"', "explode: must be a duration as"),
        ('client = "exploding"\nfamily = "mvds"', "client:"),
    ):
        other = make_home("x" + str(len(line)), 0xD0000000 + len(line))
        settings(other, line)
        refused = other.run("status")
        assert refused.returncode == 2 and what in refused.stderr
