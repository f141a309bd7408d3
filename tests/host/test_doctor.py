"""`drupelet doctor`: each fault that it is for is found, named, and has a remedy."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drupelet.base.errors import E_PEER, OK
from drupelet.base.limits import SEAL_JUMP
from drupelet.base.memory import put_u32
from drupelet.seal.record import RECORD_EPOCH_AT, RECORD_EXTRA_AT, RECORD_SIZE, finish
from drupelet_host.base import clock
from drupelet_host.home import config, private_files
from drupelet_host.home.config import Peer
from drupelet_host.keys.key_folder import HostKeys
from drupelet_host.keys.sealing import Sealing
from drupelet_host.member.member import CLONES, Member
from drupelet_host.store import outbox
from drupelet_host.view import doctor
from drupelet_host.view.doctor import FAIL, WARN, Check
from host.conftest import Home, share_keys

MakeHome = Callable[..., Home]
A, B = 0xA0000001, 0xB0000002
B_ID = B.to_bytes(4)


@pytest.fixture
def home(make_home: MakeHome, tmp_path: Path) -> Home:
    """A home with keys for a peer on sticks, and a store."""
    made = make_home("a", A, Peer("b", B_ID, f"stick://{tmp_path}/usb"))
    share_keys(made, make_home("b", B))
    member = Member(config.load(made.path))
    member.close(clock.now_ms())
    return made


def found(home: Home, *states: str) -> dict[str, Check]:
    """The checks that are not ok, by name; they must have these states, and a remedy each."""
    checks = doctor.examine(home.path)
    bad = [check for check in checks if check.state != doctor.OK and check.name != "agent"]
    assert sorted(check.state for check in bad) == sorted(states), bad
    for check in bad:
        assert check.remedy and "\n" not in check.text + check.remedy
    assert all(not check.remedy for check in checks if check.state == doctor.OK)
    return {check.name: check for check in bad}


def status(home: Home, **seal: object) -> None:
    """What an agent would have left."""
    counters: dict[str, Any] = dict.fromkeys(("forged", "replayed"), 0) | {"muted": False, **seal}
    peers = [{"id": B_ID.hex(), "seals": {"live": counters}}]
    said = {"said_ms": clock.wall_ms(), "peers": peers}
    (home.path / "status.json").write_text(json.dumps(said))


def test_all_is_well(home: Home) -> None:
    assert found(home) == {}
    states = {check.name: check.state for check in doctor.examine(home.path)}
    assert states["agent"] == WARN
    assert states.keys() >= {
        *("home", "modes", "configuration", "locks", "keys", "clones", "database", "clock"),
        *("disk", "stick"),
    }
    done = home.run("doctor")
    assert done.returncode == 0 and "warn  agent: no agent runs" in done.stdout
    assert "      -> start `drupelet agent`" in done.stdout


def test_a_clock_behind_the_newest_message(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(config.load(home.path))
    member.commit()
    outbox.post(member.store.connection, b"now")
    member.publish_letters(clock.now_ms())
    member.close(clock.now_ms())
    assert found(home) == {}
    wall_ms = clock.wall_ms()
    monkeypatch.setattr(clock, "wall_ms", lambda: wall_ms - 86_400_000)
    text = found(home, WARN)["clock"].text
    assert re.search(r" 86(399|400) s before the newest message's time", text), text


def test_a_failure_is_exit_status_1_in_both_forms(home: Home) -> None:
    (home.path / "keys/b0000002.live").chmod(0o640)
    done = home.run("doctor", "--json")
    assert done.returncode == 1 and done.stderr == ""
    said = json.loads(done.stdout)
    assert said["state"] == FAIL
    assert {"name", "state", "text", "remedy"} == said["checks"][0].keys()
    assert home.run("doctor").returncode == 1


@pytest.mark.parametrize("name", ["", "keys", "keys/b0000002.bundle", "keys/b0000002.live.lock"])
def test_what_others_can_read(home: Home, name: str) -> None:
    path = home.path / name
    path.chmod(path.stat().st_mode | 0o040)
    checks = doctor.examine(home.path)
    bad = [check for check in checks if check.state == FAIL]
    assert any("others can get at it" in check.text and str(path) in check.text for check in bad)


def test_keys_that_are_missing_revoked_or_nobodys(home: Home, make_home: MakeHome) -> None:
    keys = home.path / "keys"
    for path in keys.iterdir():
        path.unlink()
    check = found(home, FAIL)["keys"]
    assert "b: no keys, and stick goes sealed only" in check.text
    assert "drupelet provision b" in check.remedy
    share_keys(home, make_home("c", 0xC0000003))
    assert "c0000003: has keys but is no peer" in str(found(home, FAIL, WARN)["keys"])
    shutil.rmtree(keys)
    found(home, FAIL)


@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
def test_chains_that_the_carrier_needs_are_damaged(home: Home, tmp_path: Path, harm: str) -> None:
    path = home.path / "keys/b0000002.bundle"
    content = path.read_bytes()
    lost = "b: the keys for sticks are damaged or gone"
    remedy = "make new ones with `drupelet provision b --to ... --again`"
    if harm == "gone":
        path.unlink()
    else:
        flipped = content[:20] + bytes((content[20] ^ 1,)) + content[21:]
        path.write_bytes(content[:100] if harm == "cut" else flipped)
    assert found(home, FAIL)["keys"] == Check("keys", FAIL, lost, remedy)
    assert json.loads(home.run("peers", "--json").stdout)[0]["keys"] == "damaged"
    (tmp_path / "usb").mkdir()
    for words in (["stick", str(tmp_path / "usb")], ["rotate", "b"]):
        done = home.run(*words)
        assert (done.returncode, done.stderr) == (1, f"drupelet: {lost}; {remedy}\n")
    assert not list(home.path.glob("keys/*.tell"))
    again = ["provision", "b", "--to", str(tmp_path / "b"), "--again"]
    done = home.run(*again)
    assert done.returncode == 0, done.stderr
    assert found(home) == {}


def test_chains_that_the_carrier_does_not_need_are_damaged(home: Home) -> None:
    (home.path / "keys/b0000002.live").write_bytes(b"")
    check = found(home, WARN)["keys"]
    assert check.text == "b: the keys for cables and brokers are damaged or gone"
    assert json.loads(home.run("peers", "--json").stdout)[0]["keys"] == "sealed"
    # All of them: the files say that there were keys.
    (home.path / "keys/b0000002.bundle").write_bytes(b"")
    assert "the keys for sticks" in found(home, FAIL)["keys"].text


def change(home: Home, row: int, at: int, value: int) -> None:
    port = HostKeys(home.path / "keys", home.id, B_ID)
    record = bytearray(RECORD_SIZE)
    assert port.load(row, record) == OK
    put_u32(record, at, value)
    finish(record)
    assert port.save(row, record) == OK
    port.close()


def test_epochs(home: Home) -> None:
    change(home, 0, RECORD_EPOCH_AT, 8)
    assert found(home) == {}
    change(home, 0, RECORD_EPOCH_AT, 9)
    assert "b, live: 9 epochs without an answer" in found(home, WARN)["epochs"].text
    change(home, 0, RECORD_EXTRA_AT, 5)
    assert found(home) == {}
    # A jump after eight in vain is one step of ours, not 256 epochs that nobody answered.
    change(home, 0, RECORD_EPOCH_AT, 5 + SEAL_JUMP + 9)
    assert "b, live: 9 epochs without an answer" in found(home, WARN)["epochs"].text
    change(home, 0, RECORD_EPOCH_AT, 5 + 2 * SEAL_JUMP + 80)
    assert "b, live: 80 epochs without an answer" in found(home, WARN)["epochs"].text
    change(home, 0, RECORD_EPOCH_AT, 9)
    change(home, 4, RECORD_EPOCH_AT, 15_000_001)
    assert "rotate" in found(home, WARN)["epochs"].remedy


def test_frames_that_were_not_the_peers(home: Home) -> None:
    status(home, forged=3)
    assert found(home) == {}
    status(home, forged=5000)
    assert "b, live: 5000 forged" in found(home, WARN)["frames"].text
    status(home, forged=70000, muted=True)
    assert "not listened to" in found(home, FAIL)["frames"].text


def test_a_clone(home: Home) -> None:
    connection = sqlite3.connect(home.path / "store.db")
    with connection:
        connection.execute("INSERT INTO meta VALUES (?, 7)", (CLONES + B_ID.hex(),))
    connection.close()
    check = found(home, FAIL)["clones"]
    assert "b: 7 frames of a second device" in check.text and "revoke b" in check.remedy


def test_a_copied_flash_is_told_and_remembered(home: Home, tmp_path: Path) -> None:
    """Two devices with the keys of b: the second one is refused, and doctor knows for good."""
    theirs = config.load(tmp_path / "b")
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    copied = config.load(tmp_path / "copy")
    member = Member(config.load(home.path))
    ours = member.sealing.live(member.config.peers[0])
    buf = bytearray(100)
    opened = []
    for settings in (theirs, copied):
        sealing = Sealing(settings, 1)
        sender = sealing.live(Peer("a", home.id, "mqtt://localhost/t"))
        size = sender.seal_into(buf, bytearray(b"hello"), 5, 0)
        opened.append(ours.open(buf, size, 1))
        sealing.close()
    assert (opened[0], opened[1]) == (5, E_PEER)
    assert member.clones() == {B_ID: 1}
    assert member.clones() == {}
    member.close(clock.now_ms())
    member.sealing.close()
    check = found(home, FAIL)["clones"]
    assert "b: 1 frame of a second device" in check.text


def test_a_damaged_store(home: Home) -> None:
    path = home.path / "store.db"
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 2, len(content)):
        content[at] ^= 0x5A
    path.write_bytes(content)
    assert any(
        check.name == "database" for check in doctor.examine(home.path) if check.state == FAIL
    )
    path.unlink()
    assert "no store yet" in found(home, WARN)["database"].text


def test_clock_and_disk(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    status(home)
    now = clock.wall_ms()
    monkeypatch.setattr(clock, "wall_ms", lambda: 86_400_000)
    assert "1970-01-02" in found(home, WARN)["clock"].text
    monkeypatch.setattr(clock, "wall_ms", lambda: now - 3_600_000)
    told = re.search(r"(\d+) s before the agent's last word", found(home, WARN)["clock"].text)
    assert told is not None
    assert 3590 <= int(told[1]) <= 3600, "the agent wrote a moment before `now` was read"
    monkeypatch.undo()
    usage = type(shutil.disk_usage(home.path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 1 << 20, 1 << 20))
    assert "1 MB free" in found(home, WARN)["disk"].text


def test_a_lock_that_somebody_holds(home: Home) -> None:
    with private_files.locked(home.path / "keys/b0000002.live.lock"):
        assert "b0000002.live.lock: held" in found(home, WARN)["locks"].text
    assert found(home) == {}


def test_a_stick_that_cannot_be_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    (home.path.parent / "usb").mkdir()
    assert found(home) == {}
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "usb cannot be written" in found(home, WARN)["stick"].text


def test_no_home_and_no_configuration(home: Home, tmp_path: Path) -> None:
    checks = doctor.examine(tmp_path / "none")
    assert [check.state for check in checks] == [FAIL, FAIL]
    (home.path / "drupelet.toml").write_text("name = 3")
    assert found(home, FAIL)["configuration"].remedy
