"""Completion, the man page, and the exit statuses that scripts go by."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import drupelet_host
from drupelet.base.errors import DrupeletError, StorageError
from drupelet_host.base.errors import DamagedError
from drupelet_host.cli import exit_codes
from drupelet_host.home.config import Peer
from host.conftest import COMMAND, Home

ROOT = Path(__file__).parents[2]
A, B = 0xA0000001, 0xB0000002
MakeHome = Callable[..., Home]


def drupelet(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], env=os.environ | environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder for PATH with the command under its name, as a script that is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "drupelet"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'drupelet'\n"
        "from drupelet_host.entry import main\nmain()\n"
    )
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("drupelet sta", {"status"}),
        ("drupelet peer ", {"add", "remove"}),
        ("drupelet put --fi", {"--file"}),
        ("drupelet telemetry in", {"ingest"}),
        ("drupelet completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes_with_the_printed_script(
    bin_folder: Path, line: str, expected: set[str]
) -> None:
    words = line.split(" ")
    script = (
        'eval "$(drupelet completion bash)"; complete -p drupelet;'
        f" COMP_WORDS=({line}); COMP_CWORD={len(words) - 1};"
        ' _drupelet_completion drupelet; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script], env=os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    shown = done.stdout.splitlines()
    assert done.returncode == 0 and shown[0].startswith("complete ") and done.stderr == ""
    assert set(shown[1:]) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    done = drupelet("completion", shell)
    assert (done.returncode, done.stderr) == (0, "") and "_DRUPELET_COMPLETE" in done.stdout
    assert drupelet("completion", "tcsh").returncode == exit_codes.USAGE


def test_the_man_page_is_what_the_program_says() -> None:
    done = drupelet("man")
    page = ROOT / "docs" / "drupelet.1"
    assert page.read_text("utf-8") == done.stdout, "run: drupelet man > docs/drupelet.1"
    assert done.stdout.isascii()
    groff = shutil.which("groff")
    if groff:  # only a reader of man pages has it
        checked = subprocess.run(
            [groff, "-man", "-Tascii", "-ww", "-z", str(page)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (checked.returncode, checked.stderr) == (0, "")


def test_statuses_tell_what_to_do(make_home: MakeHome, tmp_path: Path) -> None:
    home = make_home("a", A, Peer("b", B.to_bytes(4, "big"), "stick:"))
    peer = ["add", "c", "c0000003", "stick:"]
    assert home.run("put", "hello").returncode == exit_codes.OK
    assert home.run("put", "").returncode == exit_codes.REFUSED
    assert home.run("put", "a", "b", "c").returncode == exit_codes.USAGE
    assert home.run("peer", *peer, "--mode", "fast").returncode == exit_codes.USAGE
    assert home.run("peer", "remove", "nobody").returncode == exit_codes.NOT_THERE
    assert home.run("channel", "log", "none").returncode == exit_codes.NOT_THERE
    assert home.run("provision", "nobody", "--to", "x").returncode == exit_codes.NOT_THERE
    missing = str(tmp_path / "missing")
    assert home.run("put", "--file", missing).returncode == exit_codes.NOT_THERE
    assert drupelet("status", "--home", missing).returncode == exit_codes.NOT_THERE
    file = home.path / "drupelet.toml"
    file.write_text(file.read_text() + "\ncolour = 3\n")
    assert home.run("status").returncode == exit_codes.USAGE


def test_a_damaged_store_has_a_status_of_its_own(make_home: MakeHome) -> None:
    home = make_home("a", A)
    assert home.run("put", "hello").returncode == exit_codes.OK
    store = home.path / "store.db"
    with closing(sqlite3.connect(store)) as connection:  # of a release that comes after this one
        connection.execute("PRAGMA user_version = 9999")
    for words in (["put", "again"], ["status"]):
        assert home.run(*words).returncode == exit_codes.DAMAGED
    for path in home.path.glob("store.db-*"):
        path.unlink()
    store.write_bytes(b"no database" * 1000)
    for words in (["put", "again"], ["status"], ["log"]):
        done = home.run(*words)
        assert done.returncode == exit_codes.DAMAGED, done
        assert len(done.stderr.splitlines()) == 1


def test_an_error_is_told_by_its_cause() -> None:
    def caused(error: Exception, cause: BaseException) -> Exception:
        try:
            raise error from cause
        except (DrupeletError, OSError) as raised:
            return raised

    full = sqlite3.OperationalError("full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    assert exit_codes.status_of(caused(StorageError("x"), full)) == exit_codes.REFUSED
    assert exit_codes.status_of(caused(StorageError("x"), PermissionError())) == exit_codes.REFUSED
    missing = caused(StorageError("x"), FileNotFoundError())
    assert exit_codes.status_of(missing) == exit_codes.NOT_THERE
    assert exit_codes.status_of(StorageError("the disk is full")) == exit_codes.REFUSED
    assert exit_codes.status_of(DamagedError("cut short")) == exit_codes.DAMAGED
    assert exit_codes.status_of(DrupeletError("x")) == exit_codes.REFUSED


def test_each_class_of_the_table_exists() -> None:
    """The table names them, because it may not load them."""
    names = set(dir(__builtins__)) if not isinstance(__builtins__, dict) else set(__builtins__)
    for found in walk_packages(drupelet_host.__path__, "drupelet_host."):
        if not found.name.endswith("__main__"):
            names |= set(vars(import_module(found.name)))
    assert set(exit_codes.BY_CLASS) <= names
