"""A home that cannot be written (a backup that is looked at, a full disk): it can be read."""

import ctypes
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drupelet_host.home.config import Peer
from host.conftest import COMMAND, WAIT_S, Home

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE = 1


def _obey_modes() -> None:
    """Modes hold for the superuser, too, from the next program on."""
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE)


def _no_room() -> None:
    """No file can grow, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def read(
    home: Path, verb: str, *words: str, before: Callable[[], None] = _obey_modes
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, verb, "--home", str(home), *words], capture_output=True, text=True,
        timeout=WAIT_S, check=False, preexec_fn=before,
    )  # fmt: skip


@pytest.fixture(params=["at rest", "killed"])
def home(
    make_home: Callable[..., Home], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """With a message in its log; of one that was killed, that stands in a WAL without an index."""
    home = make_home("a", 0xA0000001, Peer("b", bytes.fromhex("b0000002"), "stick:"))
    home.start("--wait")
    home.put("21.5 C")
    while not home.log():
        home.check_alive()
    if request.param == "killed":
        assert home.process is not None
        home.process.kill()
        home.process.wait()
        home.process = None
    else:
        home.stop()
    copy = tmp_path / "copy"
    shutil.copytree(home.path, copy, ignore=shutil.ignore_patterns("agent.sock"))
    (copy / "store.db-shm").unlink(missing_ok=True)
    (copy / "agent.lock").unlink()
    assert (request.param == "killed") == (copy / "store.db-wal").exists()
    folders = [Path(each) for each, _, _ in os.walk(copy)]
    for each in folders:
        each.chmod(0o500)
    yield copy
    for each in folders:
        each.chmod(0o700)


def test_a_home_that_cannot_be_written_can_be_read(home: Path) -> None:
    before = sorted(path.name for path in home.iterdir())
    shown = read(home, "log")
    assert shown.returncode == 0 and "21.5 C" in shown.stdout, shown.stderr
    for verb, words in (("status", ()), ("status", ("--json",)), ("peers", ()), ("doctor", ())):
        done = read(home, verb, *words)
        assert "Traceback" not in done.stderr and not done.stderr, done.stderr
        assert done.returncode == 0 or verb == "doctor"
    assert sorted(path.name for path in home.iterdir()) == before


def test_what_must_write_says_so_in_a_line(home: Path) -> None:
    for verb, words in (("put", ("x",)), ("agent", ())):
        done = read(home, verb, *words)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr


def test_a_home_on_a_full_disk_can_be_read(make_home: Callable[..., Home]) -> None:
    home = make_home("a", 0xA0000001, Peer("b", bytes.fromhex("b0000002"), "stick:"))
    home.start("--wait")
    home.put("21.5 C")
    while not home.log():
        home.check_alive()
    home.stop()
    shown = read(home.path, "log", before=_no_room)
    assert shown.returncode == 0 and "21.5 C" in shown.stdout, shown.stderr
    shown = read(home.path, "status", before=_no_room)
    assert shown.returncode == 0 and "1 message in the log" in shown.stdout, shown.stderr
    refused = read(home.path, "put", "x", before=_no_room)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1
    assert "free some space" in refused.stderr
