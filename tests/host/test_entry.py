"""The command's standard streams, whatever became of them; and what is accepted stays so."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet_host.home.config import Peer
from host.conftest import COMMAND, Home, wait_for

A, B = 0xA0000001, 0xB0000002
MakeHome = Callable[..., Home]


def shell(line: str, home: Home) -> subprocess.CompletedProcess[str]:
    """`line` with the command as $D."""
    return subprocess.run(
        ["sh", "-c", line.replace("$D", " ".join(COMMAND)).replace("$H", f"--home {home.path}")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", ["status", "peers", "log", "id --qr", "doctor", "--help"])
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&-"])
def test_a_closed_stream_ends_no_command(make_home: MakeHome, words: str, closed: str) -> None:
    home = make_home("a", A)
    place = "" if words == "--help" else "$H"
    done = shell(f"$D {words} {place} {closed}", home)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done
    assert len(done.stderr.splitlines()) <= 1


def test_what_was_accepted_is_no_failure(make_home: MakeHome) -> None:
    """Who reads that it failed would say it twice."""
    home = make_home("a", A)
    done = shell("$D put once $H > /dev/full", home)
    assert done.returncode == 0
    assert done.stderr.startswith("drupelet: accepted as entry 1, but that could not be shown")
    assert json.loads(home.run("status", "--json").stdout)["outbox"] == 1


_INTERRUPTED = """
import sys
from drupelet_host import entry

class Loading:
    def find_spec(self, name, path=None, target=None):
        if name == "drupelet_host.cli.app":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Loading())
entry.main()
"""


def test_an_interrupt_while_it_loads_is_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_byte_order_mark_is_no_error(make_home: MakeHome) -> None:
    home = make_home("a", A)
    path = home.path / "drupelet.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert home.run("status").returncode == 0
    path.write_text("x = " + "[" * 2000)
    done = home.run("status")
    assert done.returncode == 2 and "not valid TOML" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_backup_is_made_of_a_store_that_is_damaged(make_home: MakeHome, tmp_path: Path) -> None:
    """It could not be restored, and who has it thinks otherwise."""
    home = make_home("a", A)
    home.put("one")
    store = home.path / "store.db"
    content = bytearray(store.read_bytes())
    content[8192:8292] = random.Random(1).randbytes(100)
    store.write_bytes(content)
    done = home.run("backup", str(tmp_path / "copy"))
    assert done.returncode == 1 and "store.db" in done.stderr, done
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "copy").exists()


def test_what_a_stick_peer_is_owed_is_told_after_a_restart(make_home: MakeHome) -> None:
    home = make_home("a", A, Peer("b", B.to_bytes(4), "stick:"))
    for count, text in enumerate(("one", "two", "three"), 1):
        home.start()
        home.put(text)
        wait_for(lambda n=count: home.status()["peers"][0]["outstanding"] == n, f"owed {count}")
        home.stop()
