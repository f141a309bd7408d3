"""docs/json.md and the shapes it is made of: what commands print has just these fields."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drupelet_host.agent.stick_visit import Report
from drupelet_host.cli.accepted import Accepted
from drupelet_host.home.config import Peer
from drupelet_host.keys.overview import PeerKeys
from drupelet_host.view.chat_view import ChatLine, ChatMember, ChatMessage
from drupelet_host.view.doctor import Check
from drupelet_host.view.log_view import LogLine
from drupelet_host.view.status_shapes import Status
from host.conftest import Home, share_keys

ROOT = Path(__file__).resolve().parents[2]
MakeHome = Callable[..., Home]
A, B = 0xA0000001, 0xB0000002


def test_the_page_is_made_from_the_shapes() -> None:
    command = "drupelet_host.cli.json_page"
    done = subprocess.run(
        [sys.executable, "-m", command], capture_output=True, text=True, timeout=60, check=True
    )
    page = ROOT / "docs" / "json.md"
    assert page.read_text("utf-8") == done.stdout, f"run: python -m {command} > {page}"
    assert "|  |" not in done.stdout, "a field has no meaning"


def assert_is(value: dict[str, Any], shape: type) -> None:
    """Every field has its type, none lacks, and there is no other."""
    assert msgspec.to_builtins(msgspec.convert(value, shape)) == value


@pytest.mark.parametrize("is_running", [True, False])
def test_commands_print_what_the_shapes_say(
    make_home: MakeHome, tmp_path: Path, is_running: bool
) -> None:
    stick = tmp_path / "usb"
    stick.mkdir()
    home = make_home("a", A, Peer("b", B.to_bytes(4), f"stick://{stick}"))
    share_keys(home, make_home("b", B))
    home.put("frost")
    if is_running:
        home.start()
    assert_is(json.loads(home.run("stick", str(stick), "--json").stdout), Report)
    report = json.loads(home.run("status", "--json").stdout)
    assert_is(report, Status)
    [peer] = report["peers"]
    assert report["running"] == is_running and peer["outstanding"] == 1 and peer["seals"]
    checks = json.loads(home.run("doctor", "--json").stdout)["checks"]
    assert len(checks) > 10
    for check in checks:
        assert_is(check, Check)
    if is_running:
        home.stop()


def test_what_a_home_alone_prints_is_as_the_shapes_say(
    make_home: MakeHome, tmp_path: Path
) -> None:
    home = make_home("a", A, Peer("b", B.to_bytes(4), f"stick://{tmp_path}"))
    share_keys(home, make_home("b", B))
    assert_is(json.loads(home.run("put", "frost", "--json").stdout), Accepted)
    assert_is(json.loads(home.run("put", "thaw", "--json").stdout), Accepted)
    home.run("stick", str(tmp_path))  # publishes what the outbox has
    lines = [json.loads(line) for line in home.run("log", "--json").stdout.splitlines()]
    for line in lines:
        assert_is(line, LogLine)
    assert [line["text"] for line in lines] == ["frost", "thaw"]
    [peer] = json.loads(home.run("peers", "--json").stdout)
    assert_is(peer, PeerKeys)
    assert peer["classes"]["bundle"]["out_epoch"]

    for words in (("create", "dawn"), ("invite", "dawn", "b"), ("say", "dawn", "hello")):
        home.run("chat", *words)
    for verb, shape, count in (("list", ChatLine, 1), ("members dawn", ChatMember, 2)):
        rows = json.loads(home.run("chat", *verb.split(), "--json").stdout)
        assert len(rows) == count
        for row in rows:
            assert_is(row, shape)
    messages = home.run("chat", "read", "dawn", "--json").stdout.splitlines()
    assert len(messages) >= 2
    for message in messages:
        assert_is(json.loads(message), ChatMessage)
