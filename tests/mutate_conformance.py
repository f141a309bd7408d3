"""Make rows of docs/conformance.md untrue, one at a time, and see whether their tests notice.

    python tests/mutate_conformance.py --draw 60 --seed 20261123
    python tests/mutate_conformance.py B-3-07 S-12-09

Each row's edit (conformance_mutations.py) is made in a copy of the tree, and only the tests that
the row names are run there. The exit status is 0 only if every edit made a test fail. A drawn row
without a test is replaced by the next; one without an edit in the table is reported and counts
as a failure.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from conformance_mutations import MUTATIONS, Mutation
from test_docs import Row, conformance

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("firmware", "transports", "host", "tools")
ROW_TIMEOUT_S = 300


def tests_of(row: Row) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", row.shown)


def drawn(count: int, seed: int) -> list[Row]:
    """`count` rows at random that name tests."""
    rows = conformance()
    random.Random(seed).shuffle(rows)
    return [row for row in rows if tests_of(row)][:count]


def copy_tree(target: Path) -> None:
    """Copy what is in the repository, and link what set-up installed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    for name in (".venv", ".cache"):
        if (ROOT / name).exists():
            (target / name).symlink_to(ROOT / name)


def run(tree: Path, tests: list[str]) -> str:
    """Run tests of a copy: 'passed', 'failed', 'slow' or 'broken' (nothing was tested)."""
    path = os.pathsep.join(str(tree / room) for room in ROOMS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, timeout=ROW_TIMEOUT_S, check=False,
            env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "slow"
    return {0: "passed", 1: "failed"}.get(done.returncode, "broken")


def verdict(tree: Path, mutation: Mutation, tests: list[str]) -> str:
    """'killed', 'survived', or why that cannot be said; the copy is as before afterwards."""
    if run(tree, tests) != "passed":
        return "fails without the edit"
    place = tree / mutation.file
    text = place.read_text("utf-8")
    if text.count(mutation.old) != 1:
        return "its old text does not stand exactly once"
    place.write_text(text.replace(mutation.old, mutation.new), "utf-8")
    try:
        outcome = run(tree, tests)
    finally:
        place.write_text(text, "utf-8")
    return {"passed": "survived", "broken": "nothing was tested"}.get(outcome, "killed")


def mutate(rows: list[Row]) -> list[str]:
    """Try each row's edits, print what came of them; the rows of which a test did not fail."""
    alive = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        for row in rows:
            edits = [mutation for mutation in MUTATIONS if mutation.row in row.numbers]
            found = [verdict(tree, edit, tests_of(row)) for edit in edits] or ["no edit yet"]
            print(f"{row.numbers[0]}: {', '.join(found)}", flush=True)
            if set(found) != {"killed"}:
                alive.append(row.numbers[0])
    return alive


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", help="numbers of rows; none: as drawn")
    parser.add_argument("--draw", type=int, default=60)
    parser.add_argument("--seed", type=int, default=20261123)
    args = parser.parse_args()
    rows = drawn(args.draw, args.seed)
    if args.rows:
        rows = [row for row in conformance() if set(args.rows) & set(row.numbers)]
    alive = mutate(rows)
    print(
        f"{len(rows)} rows, {len(rows) - len(alive)} killed; not killed: {' '.join(alive) or '-'}"
    )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
