"""Make rows of docs/conformance.md untrue, one at a time, and see whether their tests notice.

    python tests/mutate_conformance.py --draw 60 --seed 20261123
    python tests/mutate_conformance.py B-3-07 S-12-09 D-3.5-01

Each edit of a row (conformance_mutations.py) is made in a copy of the tree, and only the tests
that the row names are run there. The exit status is 0 only if every edit made a test fail, and not
because the edit is no program. A drawn row that is declined in docs/conformance.md, which needs a
reason there and has no test, is replaced by the next; one without an edit in the table is reported
and counts as a failure. This is a command of its own and no part of the test suite: the 60 rows of
this seed take about five minutes, most of it tests over bad lines. That each edit can still be
made, tests/test_mutate_conformance.py checks in the suite.
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
from conformance_own import ROWS
from conformance_table import Row, conformance

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("firmware", "transports", "host", "tools")
ROW_TIMEOUT_S = 900
# A test that ends so did not look at what the row says: the edit is no program.
NOT_BY_A_TEST = (
    "NameError", "UnboundLocalError", "SyntaxError", "IndentationError", "ImportError",
    "ModuleNotFoundError",
)  # fmt: skip


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
    """Run tests of a copy: '' when they pass, or the first that failed and why, or 'broken: '
    and why nothing was tested."""
    path = os.pathsep.join(str(tree / room) for room in ROOMS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", "-rf", *tests]
    env = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, timeout=ROW_TIMEOUT_S, check=False,
            env=os.environ | env,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"broken: longer than {ROW_TIMEOUT_S} s"
    if done.returncode == 0:
        return ""
    failed = re.search(r"^FAILED (\S+)(?:.*? - (.*))?$", done.stdout.decode(), re.M)
    if done.returncode != 1 or failed is None:
        return "broken: no test ran"
    test, why = failed[1].rpartition("::")[2], failed[2] or ""
    return f"broken: {why}" if why.startswith(NOT_BY_A_TEST) else f"{test}: {why}"[:120]


def verdict(tree: Path, mutation: Mutation, tests: list[str]) -> tuple[bool, str]:
    """Whether a test noticed the edit, and what it said or why it did not; the copy is as before
    afterwards."""
    place = tree / mutation.file
    text = place.read_text("utf-8")
    if text.count(mutation.old) != 1:
        return False, "its old text does not stand exactly once"
    place.write_text(text.replace(mutation.old, mutation.new), "utf-8")
    try:
        outcome = run(tree, tests)
    finally:
        place.write_text(text, "utf-8")
    killed = bool(outcome) and not outcome.startswith("broken: ")
    return killed, outcome or "survived"


def mutate(rows: list[Row]) -> list[str]:
    """Try each row's edits, print what came of them; the rows of which a test did not fail."""
    alive = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        for row in rows:
            edits = [mutation for mutation in MUTATIONS if mutation.row in row.numbers]
            tests = tests_of(row)
            untouched = run(tree, tests) if edits else "no edit yet"
            verdicts = [(False, untouched)]
            if not untouched:
                verdicts = [verdict(tree, edit, tests) for edit in edits]
            for killed, why in verdicts:
                print(f"{row.numbers[0]}: {'killed by' if killed else 'NOT killed:'} {why}")
            sys.stdout.flush()
            if not all(killed for killed, _ in verdicts):
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
        rows = [row for row in [*conformance(), *ROWS] if set(args.rows) & set(row.numbers)]
    alive = mutate(rows)
    print(
        f"{len(rows)} rows, {len(rows) - len(alive)} killed; not killed: {' '.join(alive) or '-'}"
    )
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
