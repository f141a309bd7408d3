"""Pages for programs and exports: each fenced block of a program or a shell runs, in order."""

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
