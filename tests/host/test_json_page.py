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
from drupelet_host.home.config import Peer
from drupelet_host.view.doctor import Check
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


def assert_is(value: dict[str, Any], shape: type[msgspec.Struct]) -> None:
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
