"""Keys through their life: rotated, revoked, restored, and never seen in what is printed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet.base.errors import DrupeletError
from drupelet.seal.record import RECORD_SIZE
from drupelet_host.cli.app import app
from drupelet_host.home import private_files
from drupelet_host.home.config import Peer
from drupelet_host.keys import provision
from host.conftest import Cable, Home, placed, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B, C = 0xA0000001, 0xB0000002, 0xC0000003


def call(home: Home, *words: str) -> str:
    """As `home.run`, without the cost of a process; raises what the command would print."""
    done = CliRunner().invoke(app, placed(words, home.path))
    if isinstance(done.exception, Exception):
        raise done.exception
    return done.output


def refused(home: Home, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(DrupeletError, match=why) as caught:
        call(home, *words)
    assert "\n" not in str(caught.value)


def id_of(number: int) -> bytes:
    return number.to_bytes(4)


def secrets_of(*homes: Home) -> set[bytes]:
    """Every chain key and root that lies in these homes now."""
    found = set()
    for home in homes:
        for path in (home.path / "keys").iterdir():
            content = path.read_bytes()
            if path.suffix == ".tell":
                root = json.loads(content).get("root")
                found |= {bytes.fromhex(root)} if root else set()
            elif path.suffix in (".live", ".bundle"):
                found |= {content[at + 16 : at + 48] for at in range(0, len(content), RECORD_SIZE)}
    return {secret for secret in found if any(secret)}


def assert_secret(secrets: set[bytes], *texts: bytes) -> None:
    """None of these is anywhere in that, in any usual writing."""
    assert secrets
    for text in texts:
        for secret in secrets:
            for shown in (secret, secret.hex().encode(), repr(secret)[2:-1].encode()):
                assert shown not in text
                assert shown[: len(shown) // 2] not in text


def told(home: Home) -> list[bytes]:
    """Everything that a home's commands and its agent have said, and what lies beside the keys."""
    said = [
        path.read_bytes()
        for path in home.path.rglob("*")
        if path.is_file() and path.parent.name != "keys"
    ]
    for words in (["peers"], ["doctor"], ["status"], ["id"], ["log"]):
        said += [call(home, *words, *more).encode() for more in ([], ["--json"])]
    return said


def generations(home: Home) -> set[int]:
    return {row["generation"] for row in json.loads(call(home, "peers", "--json"))}


def stick(folder: Path, *homes: Home) -> None:
    """Carry a stick to each in turn."""
    folder.mkdir(exist_ok=True)
    for home in homes:
        assert "safe to unplug" in call(home, "stick", str(folder))


def texts(home: Home) -> set[str]:
    return {entry["text"] for entry in home.log()}


def test_rotated_and_revoked_while_both_run_and_nothing_leaks(
    make_home: MakeHome, cable: Cable
) -> None:
    homes = [
        make_home("a", A, Peer("b", id_of(B), cable.url(0, plain=False), "interactive", 50)),
        make_home("b", B, Peer("a", id_of(A), cable.url(1, plain=False), "interactive", 50)),
    ]
    a, b = homes
    share_keys(a, b)
    secrets = secrets_of(a, b)
    for home in homes:
        home.start()
    a.put("under the first root")
    wait_for(b.log, "first message")
    secrets |= secrets_of(a, b)
    done = a.run("rotate", "b", "--json")
    assert json.loads(done.stdout)["generation"] == 1, done.stderr
    secrets |= secrets_of(a, b)
    b.put("under the second")
    wait_for(lambda: not (a.path / "keys/b0000002.tell").exists(), "rotation")
    wait_for(lambda: len(a.log()) == 2, "second message")
    a.put("and back")
    wait_for(lambda: len(b.log()) == 3, "third message")
    assert generations(a) == generations(b) == {1}
    secrets |= secrets_of(a, b)
    seals = a.status()["peers"][0]
    assert seals["state"] == "up"
    refused(a, ("rotate", "x"), "no such peer")
    assert json.loads(a.run("revoke", "b", "--json").stdout)["told"] == []
    b.put("from a device that was lost")
    wait_for(lambda: a.status()["peers"][0]["state"] == "revoked", "refusal")
    assert a.check_alive() is False
    wait_for(lambda: b.status()["peers"][0]["outstanding"], "nobody who acknowledges")
    assert len(a.log()) == 3
    assert [event["action"] for event in a.events("keys")] == ["rotate", "revoke"]
    for home in homes:
        home.stop()
    # The agent starts without it, and the doctor says what to do.
    a.start()
    wait_for(lambda: a.status()["peers"][0]["state"] == "revoked", "still refused")
    a.stop()
    checks = json.loads(call(a, "doctor", "--json"))["checks"]
    assert {"name": "keys", "state": "warn", "text": "b: revoked",
            "remedy": "`drupelet peer remove b`"} in checks  # fmt: skip
    assert not secrets_of(a)
    assert_secret(secrets, *told(a), *told(b))


def test_keys_that_come_while_the_agent_runs(make_home: MakeHome, cable: Cable) -> None:
    a = make_home("a", A, Peer("b", id_of(B), cable.url(0, plain=False), "interactive", 50))
    b = make_home("b", B, Peer("a", id_of(A), cable.url(1, plain=False), "interactive", 50))
    assert "no keys, and serial goes sealed only" in a.run("agent").stderr
    for home in (a, b):
        home.start("--wait")
        home.put(f"of {home.name}")
    wait_for(lambda: a.events("carrier"), "refusal")
    wait_for(lambda: "b: no keys" in a.status()["peers"][0]["reason"], "the reason")
    share_keys(a, b)
    wait_for(lambda: len(a.log()) == len(b.log()) == 2, "both messages")
    for home in (a, b):
        wait_for(lambda home=home: home.status()["peers"][0]["state"] == "up", "word of the line")
    with pytest.raises(private_files.BusyError, match="another process uses these keys"):
        share_keys(a, b)


def test_rotated_over_sticks_that_go_one_way_at_a_time(
    make_home: MakeHome, tmp_path: Path
) -> None:
    a = make_home("a", A, Peer("b", id_of(B), "stick:"))
    b = make_home("b", B, Peer("a", id_of(A), "stick:"))
    share_keys(a, b)
    assert "generation 1 goes out" in call(a, "rotate", "b")
    refused(a, ("rotate", "b"), "a rotation is under way")
    a.put("with the new root")
    stick(tmp_path / "usb", a, b)
    assert texts(b) == {"with the new root"}
    assert generations(b) == {1} and generations(a) == {0}
    b.put("under the new root")
    stick(tmp_path / "usb", b, a)
    assert texts(a) == {"with the new root", "under the new root"}
    assert generations(a) == {1}
    assert not list((a.path / "keys").glob("*.tell"))
    a.put("last")
    stick(tmp_path / "usb", a, b)
    assert "last" in texts(b)


def test_a_revocation_travels_to_who_trusts_the_device(
    make_home: MakeHome, tmp_path: Path
) -> None:
    """`a` gave keys to b and c, and to b and c for each other; b is stolen."""
    a = make_home("a", A, Peer("b", id_of(B), "stick:"), Peer("c", id_of(C), "stick:"))
    b = make_home("b", B, Peer("a", id_of(A), "stick:"), Peer("c", id_of(C), "stick:"))
    c = make_home("c", C, Peer("a", id_of(A), "stick:"), Peer("b", id_of(B), "stick:"))
    share_keys(a, b)
    share_keys(a, c)
    settings = provision.config.load(a.path)
    provision.provision_pair(settings, ("b", "c"), (str(b.path), str(c.path)))
    a.put("one")
    stick(tmp_path / "usb", a, b, c)
    assert texts(b) == texts(c) == {"one"}
    assert "to be told: c" in call(a, "revoke", "b")
    stick(tmp_path / "usb", a, c)
    kinds = {row["name"]: row["keys"] for row in json.loads(call(c, "peers", "--json"))}
    assert kinds == {"a": "sealed", "b": "revoked"}
    # What the thief sends now is believed nowhere, and sticks that were for it stay sealed.
    b.put("a forged reading")
    stick(tmp_path / "usb", b)
    for home in (a, c):
        done = json.loads(call(home, "stick", str(tmp_path / "usb"), "--json"))
        assert any("b: was revoked" in text for text in done["problems"])
        assert texts(home) == {"one"}


def test_a_restored_home_gets_back_what_it_had_acknowledged(
    make_home: MakeHome, tmp_path: Path
) -> None:
    a = make_home("a", A, Peer("b", id_of(B), "stick:"))
    b = make_home("b", B, Peer("a", id_of(A), "stick:"))
    share_keys(a, b)
    a.put("a 1")
    b.put("b 1")
    stick(tmp_path / "usb", a, b, a)
    secrets = {
        name: name.encode().ljust(32, b"!") for name in ("commands.key", "feed.key", "store.key")
    }
    for name, secret in secrets.items():
        private_files.create(a.path / "keys" / name, secret)
    assert "can be this member" in call(a, "backup", str(tmp_path / "backup"))
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    refused(a, ("backup", str(tmp_path / "backup")), "is there already")
    a.put("a 2")
    b.put("b 2")
    stick(tmp_path / "usb", a, b, a, b)
    everything = {"a 1", "a 2", "b 1", "b 2"}
    assert texts(a) == texts(b) == everything
    assert b.status()["peers"][0]["outstanding"] in (0, None)
    before = {row["name"]: row for row in json.loads(call(a, "peers", "--json"))}
    gen = a.status()["store_gen"]
    # The disk is lost; what comes back is a day old.
    refused(a, ("restore", str(tmp_path / "backup")), "is not empty")
    a.path.rename(tmp_path / "lost")
    assert "with a new store_gen" in call(a, "restore", str(tmp_path / "backup"))
    assert texts(a) == {"a 1", "b 1"}
    assert a.status()["store_gen"] != gen
    after = {row["name"]: row for row in json.loads(call(a, "peers", "--json"))}
    assert (
        after["b"]["classes"]["bundle"]["out_epoch"]
        > before["b"]["classes"]["bundle"]["out_epoch"]
    )
    for name, secret in secrets.items():
        assert private_files.read(a.path / "keys" / name, 32) == secret, (
            "boards and members know it"
        )
    for path in (a.path, *a.path.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path
    (tmp_path / "usb").rename(tmp_path / "old usb")
    stick(tmp_path / "usb", a, b, a)
    assert texts(a) == everything, "what was acknowledged after the backup comes again"
    a.put("a 3")
    stick(tmp_path / "usb", a, b)
    assert texts(b) == everything | {"a 3"}


def test_files_of_another_fleet_are_not_called_cut_short(
    make_home: MakeHome, tmp_path: Path
) -> None:
    a, b = make_home("a", A, Peer("b", id_of(B), "stick:")), make_home("b", B)
    other = make_home("a2", A, Peer("b", id_of(B), "stick:"))
    theirs = make_home("b2", B, Peer("a", id_of(A), "stick:"))
    share_keys(a, b)
    share_keys(other, theirs)
    theirs.put("of another fleet")
    stick(tmp_path / "usb", theirs)
    done = CliRunner().invoke(app, placed(("stick", str(tmp_path / "usb")), a.path))
    why = "1 file not sealed with our keys (another fleet's, or from before new keys)"
    assert f"drupelet: {why}\n" in done.output
    assert "cut short" not in done.output and "damaged" not in done.output
    assert texts(a) == set()


def test_a_copied_home_is_told_of_when_both_were_at_one_stick(
    make_home: MakeHome, tmp_path: Path
) -> None:
    a = make_home("a", A, Peer("b", id_of(B), "stick:"))
    b = make_home("b", B, Peer("a", id_of(A), "stick:"))
    share_keys(a, b)
    copy = Home.__new__(Home)
    copy.path = tmp_path / "copy"
    shutil.copytree(b.path, copy.path)
    for home, text in ((b, "of the one"), (copy, "of the other")):
        home.put(text)
        stick(tmp_path / "usb", home)
    done = CliRunner().invoke(app, placed(("stick", str(tmp_path / "usb")), a.path))
    assert "drupelet: b: two devices use its keys" in done.output
    assert "`drupelet revoke b` if it was cloned" in done.output
    assert texts(a) == {"of the one"}
    done = CliRunner().invoke(app, placed(("doctor",), a.path))
    assert done.exit_code == 1 and "of a second device with its keys" in done.output


@pytest.mark.parametrize(
    "name", ["../evil", "keys/../../evil", "/evil", "keys/a0000001.live.lock"]
)
def test_a_backup_that_is_none(make_home: MakeHome, tmp_path: Path, name: str) -> None:
    import io
    import tarfile

    home = make_home("a", A)
    bad = tmp_path / "bad"
    with tarfile.open(bad, "w") as tar:
        content = (home.path / "drupelet.toml").read_bytes()
        for member, data in (("drupelet.toml", content), (name, b"x")):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 40)
    target = Home.__new__(Home)
    target.path = tmp_path / "new"
    for source, why in ((bad, "no part of a home"), (tmp_path / "noise", "use another copy"),
                        (tmp_path / "none", "No such file")):  # fmt: skip
        refused(target, ("restore", str(source)), why)
        assert not target.path.exists()
    assert not (tmp_path / "evil").exists()
