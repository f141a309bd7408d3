"""Pages for programs and exports: each fenced block of a program or a shell runs, in order."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Forms of what is shown, which nobody runs.
SHOWN = {"text", "json"}


def blocks(page: str) -> list[tuple[str, str]]:
    """Kind and text of every fenced block."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    assert text.count("\n```") == 2 * len(found), "a block is not in its form"
    return found


def test_every_block_of_the_library_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = "\n".join(text for kind, text in blocks("library.md") if kind == "python")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].endswith("gate 21.5") and lines[1:] == [
        "alarm looks at 21.5", "gate portion",
    ]  # fmt: skip
    assert {kind for kind, _ in blocks("library.md")} == {"python"}


def test_every_block_of_the_export_page_runs(tmp_path: Path) -> None:
    script = "\n".join(text for kind, text in blocks("export.md") if kind == "sh")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "drupelet"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m drupelet_host "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": f"{command.parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-ec", script], capture_output=True, text=True, timeout=120, check=False,
        cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    shown = [text for kind, text in blocks("export.md") if kind == "text"]
    table = (tmp_path / "readings.csv").read_text()
    assert table.startswith(shown[0]) and table.count("\n") == 3 and ",1200\n" in table
    # The commands that need a server run against real ones in test_export_servers.py.
    words = [line.split() for text in shown[1:] for line in text.splitlines()]
    assert words and all(line[:2] == ["drupelet", "export"] for line in words)
    assert {kind for kind, _ in blocks("export.md")} == {"sh", "text"}
    assert (tmp_path / "drupelet.prom").read_text().startswith("# HELP drupelet_agent_running")
