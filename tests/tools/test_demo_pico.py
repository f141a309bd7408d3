"""The demo's sixth member: what its option asks for, how it is set up, how the table names it."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from drupelet_tools.demo import command, pico, plan
from drupelet_tools.demo.plan import BOARDS, HOST, PICO

ROOT = Path(__file__).parents[2]


def member(name: str) -> dict[str, Any]:
    limit = None if name == HOST else 128 << 10
    return {
        "name": name, "kind": plan.KINDS[name], "carrier": plan.CARRIERS[name], "expected": 9,
        "delivered": 9, "duplicates": 0, "out_of_order": 0, "heap_limit": limit,
        "heap_peak": limit and limit - 1024, "bytes_per_message": 100.0,
        "mah_modelled": None, "latency_p50_ms": 1500, "latency_p90_ms": None,
    }  # fmt: skip


def shown(*names: str) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=command.PAPER_WIDTH).print(
        command.table({"members": [member(name) for name in names]})
    )
    return text.getvalue().splitlines()


def test_the_table_says_which_member_is_what() -> None:
    lines = shown(HOST, *BOARDS, PICO)
    rows = {line.split()[1]: line for line in lines if line.startswith("│ ") and line[2] != " "}
    assert set(rows) == {HOST, *BOARDS, PICO}
    text = " ".join(" ".join(lines).split())  # wherever the lines are broken
    for words in ("kind", "slow motion", "E: RP2040"):
        assert words in text
    assert "Pico" in rows[PICO] and "emulated" in text
    assert all("process" in rows[name] and "Pico" not in rows[name] for name in (HOST, *BOARDS))


def test_the_table_of_five_is_as_it_was() -> None:
    text = " ".join(" ".join(shown(HOST, *BOARDS)).split())
    for words in ("kind", "Pico", "slow"):
        assert words not in text


def test_the_pico_asks_its_chip_and_takes_fewer_readings() -> None:
    settings = pico.configuration()
    assert "rows" not in settings
    assert 0 < settings["readings_max"] == plan.PICO_READINGS < plan.READINGS
    assert settings["telemetry_to"] == [plan.IDS[HOST]]
    assert [peer["id"] for peer in settings["peers"]] == [plan.IDS[HOST]]


def test_without_the_emulator_the_demo_says_what_to_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "drupelet_host", "demo", "--pico", "--out", str(tmp_path / "out")],
        env=os.environ | {"DRUPELET_CACHE": str(tmp_path)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert "emulator" in line and "tools/setup --for-pico" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "needs"), [([], ""), (["--json"], ""), (["--out", "x", "--pico"], "--for-pico")]
)
def test_only_the_pico_needs_more_of_the_set_up(
    tmp_path: Path, arguments: list[str], needs: str
) -> None:
    """tools/demo in a clone whose set-up and command tell what they were called with."""
    for name in ("tools/setup", ".venv/bin/drupelet"):
        script = tmp_path / name
        script.parent.mkdir(parents=True)
        script.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        script.chmod(0o755)
    (tmp_path / "tools/demo").write_bytes((ROOT / "tools/demo").read_bytes())
    done = subprocess.run(
        ["bash", str(tmp_path / "tools/demo"), *arguments], capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    expected = [f"tools/setup {needs}", f".venv/bin/drupelet demo {' '.join(arguments)}"]
    assert done.stdout.splitlines() == [line.rstrip() for line in expected]
