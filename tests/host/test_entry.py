"""The command's standard streams, whatever became of them; and what is accepted stays so."""

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet_host.config import Peer
from host.conftest import COMMAND, Home, placed, wait_for

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


def test_an_interrupt_while_it_loads_is_one(make_home: MakeHome) -> None:
    home = make_home("a", A)
    for after_s in (0.15, 0.25, 0.35):
        process = subprocess.Popen(
            [*COMMAND, *placed(("status",), home.path)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        if "entry.py" in said or process.returncode in (0, 130):
            assert process.returncode in (0, 130) and "Traceback" not in said, said


def test_a_byte_order_mark_is_no_error(make_home: MakeHome) -> None:
    home = make_home("a", A)
    path = home.path / "drupelet.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert home.run("status").returncode == 0
    path.write_text("x = " + "[" * 2000)
    done = home.run("status")
    assert done.returncode == 1 and "not valid TOML" in done.stderr
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
