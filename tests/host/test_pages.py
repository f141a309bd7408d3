"""README, tutorial, docs/energy.md: each block of commands is run as it stands, and prints what
the page shows.

Before a block of a page stands `<!-- run -->`, `<!-- run: NAME -->` or, with the reason,
`<!-- not run: … -->`; a block after `<!-- shows -->` is what the block before it prints, line by
line, where `…` stands for anything.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/tutorial.md", "docs/energy.md"]
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
SECONDS_MAX = 240


def blocks(page: str) -> list[tuple[str, str, str]]:
    """(mark, kind, text) of each fenced block of a page."""
    text = (ROOT / page).read_text("utf-8")
    return [(m["mark"] or "", m["kind"], m["text"]) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_commands_is_run_or_says_why_not(page: str) -> None:
    for mark, kind, text in blocks(page):
        if kind == "sh":
            assert re.fullmatch(r"run(: [\w-]+)?|not run: .{10,}", mark), text


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_and_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "drupelet"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m drupelet_host "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    printed = tmp_path / "printed"
    output = ""
    count = 0
    try:
        for mark, kind, text in blocks(page):
            if kind == "sh" and mark.startswith("run"):
                # To a file: what goes on in the background keeps a pipe open.
                with printed.open("w") as file:
                    done = subprocess.run(
                        ["bash", "-eu", "-c", text], cwd=tmp_path, env=environment, check=False,
                        stdout=file, stderr=subprocess.STDOUT, timeout=SECONDS_MAX,
                    )  # fmt: skip
                output = printed.read_text()
                assert done.returncode == 0, text + output
                count += 1
            elif mark == "shows":
                for line in filter(None, text.splitlines()):
                    wanted = r"\s+".join(
                        ".*?".join(map(re.escape, word.split("…"))) for word in line.split()
                    )
                    assert re.search(wanted, output), f"{line!r} is not in:\n{output}"
    finally:
        processes = tmp_path / "processes"
        for pid in processes.read_text().split() if processes.exists() else []:
            subprocess.run(["kill", pid], check=False, capture_output=True)
    assert count > 0
