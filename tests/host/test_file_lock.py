"""Looking whether a lock is held takes it from nobody."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from drupelet.base.errors import StorageError
from drupelet_host.home import config, file_lock, private_files

STARTS = 500
# On a loaded machine who looks may get no time during the first of them.
SECONDS_MIN = 2.0
LOOKS_MIN = 20

# Looks until its standard input ends, then tells how often.
LOOKER = """
import select, sys
from pathlib import Path
from drupelet_host.home import config, file_lock

home = Path(sys.argv[1])
looks = 0
print("looks", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    config.locked(home)
    file_lock.is_taken(home / "a.live.lock")
    looks += 1
print(looks)
"""


def home_lock(home: Path) -> AbstractContextManager[None]:
    return config.lock(home)


def chain_lock(home: Path) -> AbstractContextManager[None]:
    return private_files.locked(home / "a.live.lock")


@contextmanager
def looker(home: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", LOOKER, str(home)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "looks\n"
        yield
        looks = int(process.communicate("\n")[0])
    assert looks > LOOKS_MIN, "it hardly looked"


@pytest.mark.parametrize("lock", [home_lock, chain_lock])
def test_no_look_keeps_a_process_from_starting(
    tmp_path: Path, lock: Callable[[Path], AbstractContextManager[None]]
) -> None:
    tmp_path.chmod(0o700)
    refused = 0
    with looker(tmp_path), looker(tmp_path):
        starts = 0
        until = time.monotonic() + SECONDS_MIN
        while starts < STARTS or time.monotonic() < until:
            starts += 1
            try:
                with lock(tmp_path):
                    pass
            except (config.LockedError, private_files.BusyError):
                refused += 1
    assert not refused, f"{refused} of {starts} starts were refused"


def test_what_is_held_is_seen_and_who_ends_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    assert not file_lock.is_taken(path), "nobody holds the lock of a missing file"
    assert not path.exists(), "a look makes no file"
    code = (
        "import sys; from pathlib import Path; from drupelet_host.home import config\n"
        "with config.lock(Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert config.locked(tmp_path)
        with pytest.raises(config.LockedError), config.lock(tmp_path):
            pass
        process.kill()
    assert not config.locked(tmp_path)


def test_a_lock_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match=r"agent\.lock: cannot be looked at"):
        config.locked(tmp_path)
