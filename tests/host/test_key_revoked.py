"""Revocations: everybody who can be told is, often enough, and new keys are not revoked by old."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from drupelet.base.errors import E_STORAGE, CapacityError, StorageError
from drupelet.base.limits import SEAL_REVOKE_SENDS, SEAL_REVOKED_MAX
from drupelet.seal.control import REVOKE
from drupelet.seal.issue import Issuer
from drupelet_host.cli.app import app
from drupelet_host.home import config, private_files
from drupelet_host.home.config import Peer
from drupelet_host.keys import changes_to_tell, provision, rotate_revoke
from drupelet_host.keys.key_folder import BUNDLE, look
from drupelet_host.keys.sealing import Sealing
from drupelet_host.view import doctor
from drupelet_transports.stick.stick import BundleWriter
from host.conftest import Cable, Home, placed, share_keys, wait_for

MakeHome = Callable[..., Home]
A, B, C, D = 0xA0000001, 0xB0000002, 0xC0000003, 0xD0000004
B_ID, C_ID, D_ID = (number.to_bytes(4) for number in (B, C, D))


def told(home: Home, peer_id: bytes) -> dict[bytes, int]:
    """What a peer is still to be told of, with how often."""
    found = changes_to_tell.load(home.path / "keys", peer_id).revoked
    return {revoked[:4]: left for revoked, left in found.items()}


def call(home: Home, *words: str) -> Result:
    return CliRunner().invoke(app, placed(words, home.path))


def visit(folder: Path, *homes: Home) -> str:
    folder.mkdir(exist_ok=True)
    for home in homes:
        done = call(home, "stick", str(folder))
        assert "safe to unplug" in done.output, done
    return done.output


def revoke(home: Home, name: str) -> None:
    sealing = Sealing(config.load(home.path), 0)
    rotate_revoke.revoke(config.load(home.path), sealing, name)
    sealing.close()


@pytest.fixture
def fleet(make_home: MakeHome) -> list[Home]:
    """`a`, which gave keys to b, c and d, all on sticks."""
    peers = [Peer(name, id, "stick:") for name, id in (("b", B_ID), ("c", C_ID), ("d", D_ID))]
    a = make_home("a", A, *peers)
    ours = Peer("a", a.id, "stick:")
    homes = [
        make_home("b", B, ours, peers[1]), make_home("c", C, ours, peers[0]),
        make_home("d", D, ours),
    ]  # fmt: skip
    for home in homes:
        share_keys(a, home)
    return [a, *homes]


def test_one_peer_who_has_too_much_to_hear_keeps_nobody_else_from_hearing(
    fleet: list[Home],
) -> None:
    a = fleet[0]
    keys = a.path / "keys"
    for n in range(SEAL_REVOKED_MAX):
        changes_to_tell.add_revoked(keys, C_ID, n.to_bytes(4))
    with pytest.raises(CapacityError, match="c0000003: 16 revocations wait for it already"):
        changes_to_tell.add_revoked(keys, C_ID, b"more")
    done = call(a, "revoke", "b")
    assert isinstance(done.exception, Exception)
    assert "to be told: d\n" in done.output
    text = str(done.exception)
    assert text.startswith("c: cannot be told that b was revoked: c0000003: 16 revocations")
    assert text.endswith("then repeat `drupelet revoke b`") and "\n" not in text
    assert all(state.revoked for state in look(keys, B_ID))
    assert told(a, D_ID) == {B_ID: SEAL_REVOKE_SENDS} and B_ID not in told(a, C_ID)
    # c has heard of one: there is room, and the same command again says it all.
    changes_to_tell.withdraw(keys, C_ID, bytes(4))
    done = call(a, "revoke", "b", "--json")
    assert json.loads(done.output) | {"told": ["c", "d"], "untold": {}} == json.loads(done.output)
    assert done.exit_code == 0 and told(a, C_ID)[B_ID] == SEAL_REVOKE_SENDS


def test_a_file_that_is_damaged_keeps_nobody_else_from_hearing(fleet: list[Home]) -> None:
    a = fleet[0]
    path = a.path / "keys/c0000003.tell"
    path.write_text("{")
    path.chmod(0o600)
    done = call(a, "revoke", "b")
    assert "c0000003.tell: is damaged" in str(done.exception)
    assert told(a, D_ID) == {B_ID: SEAL_REVOKE_SENDS}


def test_a_cut_while_it_is_taken_away_leaves_nothing_to_tell(
    fleet: list[Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = fleet[0]
    path = a.path / "keys/c0000003.tell"
    changes_to_tell.add_revoked(a.path / "keys", C_ID, B_ID)
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", lambda _: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            private_files.remove(path)
    assert path.exists() and told(a, C_ID) == {}
    assert "c0000003.tell" not in visit(tmp_path / "usb", a)
    revoke(a, "b")
    assert told(a, C_ID) == {B_ID: SEAL_REVOKE_SENDS}


def test_a_file_that_is_damaged_is_one_peers_trouble(fleet: list[Home], tmp_path: Path) -> None:
    a, _, _, d = fleet
    path = a.path / "keys/c0000003.tell"
    call(a, "put", "21.5 C")
    path.write_text("{")
    path.chmod(0o600)
    (tmp_path / "usb").mkdir()
    why = f"{path}: is damaged; remove it and run the command again"
    for agent in (False, True):
        if agent:
            a.start()
            call(a, "put", "21.6 C")
        done = a.run("stick", str(tmp_path / "usb"))
        assert (done.returncode, done.stderr) == (0, f"drupelet: {why}\n")
        assert "safe to unplug" in done.stdout
    a.stop()
    assert "2 new messages" in visit(tmp_path / "usb", d)
    assert not (tmp_path / "usb/DRUPELET/C0000003").exists()
    (check,) = [check for check in doctor.examine(a.path) if check.state == doctor.FAIL]
    assert check.text == f"c: cannot be talked to: {why}" and check.remedy


def test_a_home_that_visits_by_command_tells_until_eight_answers_came_and_no_more(
    fleet: list[Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, c, d = fleet
    usb = tmp_path / "usb"
    revoke(a, "b")
    with monkeypatch.context() as patch:
        patch.setattr(BundleWriter, "finish", lambda _: E_STORAGE)
        usb.mkdir()
        call(a, "stick", str(usb))
        # What is not on the stick was not told.
        assert changes_to_tell.load(a.path / "keys", C_ID).told == [0, 0]
    assert "wrote 2 files" in visit(usb, a)
    # However often nobody answers: the entry stays, and one bundle is enough for each stick.
    for n in range(SEAL_REVOKE_SENDS + 2):
        assert "wrote 0 files" in visit(usb, a)
        assert "wrote 2 files" in visit(tmp_path / f"lost{n}", a)
        visit(usb, a)
    assert told(a, C_ID) == told(a, D_ID) == {B_ID: SEAL_REVOKE_SENDS}
    untold = [check for check in doctor.examine(a.path) if check.name == "told"]
    assert [check.state for check in untold] == [doctor.WARN] * 2
    assert untold[0].text == "c: has not answered yet that b was revoked" and untold[0].remedy
    share_keys(c, fleet[1])
    # c has nothing to say: it answers all the same.
    for n in range(SEAL_REVOKE_SENDS):
        visit(usb, c, a)
        left = SEAL_REVOKE_SENDS - n - 1
        assert told(a, C_ID) == ({B_ID: left} if left else {}), n
        if left:
            (check, _) = [check for check in doctor.examine(a.path) if check.name == "told"]
            assert check.state == doctor.OK
            assert check.text == "c: has answered since it was told that b was revoked"
    assert all(state.revoked for state in look(c.path / "keys", B_ID))
    assert told(a, D_ID) == {B_ID: SEAL_REVOKE_SENDS}
    for _ in range(4 * SEAL_REVOKE_SENDS):
        visit(usb, d, c, a)
    assert not list((a.path / "keys").glob("*.tell"))
    assert "wrote 0 files" in visit(usb, d, c, a, d, c, a)


def test_who_was_switched_off_is_told_when_it_is_back(make_home: MakeHome, cable: Cable) -> None:
    b_peer = Peer("b", B_ID, cable.url(0, plain=False), "interactive", 50)
    a = make_home("a", A, b_peer, Peer("c", C_ID, "stick:"))
    b = make_home("b", B, Peer("a", a.id, cable.url(1, plain=False), "interactive", 50))
    c = make_home("c", C, Peer("a", a.id, "stick:"), Peer("b", B_ID, "stick:"))
    share_keys(a, b)
    share_keys(a, c)
    share_keys(b, c)
    for home in (a, b):
        home.start()
    a.put("they have met")
    wait_for(b.log, "the message")
    b.kill()
    done = a.run("revoke", "c", "--json")
    assert json.loads(done.stdout)["told"] == ["b"], done.stderr
    for n in range(20):
        a.put(f"nobody hears it {n}")
        time.sleep(0.05)
    assert told(a, B_ID) == {C_ID: SEAL_REVOKE_SENDS}
    b.start()
    wait_for(lambda: all(state.revoked for state in look(b.path / "keys", C_ID)), "the REVOKE")
    wait_for(lambda: told(a, B_ID)[C_ID] < SEAL_REVOKE_SENDS, "the first answer")


def test_new_keys_are_not_revoked_by_what_was_said_of_the_old(
    fleet: list[Home], tmp_path: Path
) -> None:
    a, b, c, _ = fleet
    settings = config.load(a.path)
    pair = ("b", "c"), (str(b.path), str(c.path))
    provision.provision_pair(settings, *pair)
    revoke(a, "b")
    assert told(a, C_ID) == {B_ID: SEAL_REVOKE_SENDS}
    # New keys with us alone: c must still hear that those which it has with b are void.
    done = call(a, "provision", "b", "--to", str(b.path))
    assert done.exit_code == 0, done
    assert "c, d: still to be told that b was revoked" in done.output
    assert told(a, C_ID) == {B_ID: SEAL_REVOKE_SENDS}
    provision.provision_pair(settings, *pair, again=True)
    assert told(a, C_ID) == {} and told(a, D_ID) == {B_ID: SEAL_REVOKE_SENDS}
    visit(tmp_path / "usb", a, c)
    assert not any(state.revoked for state in look(c.path / "keys", B_ID))


def test_what_another_command_withdrew_is_told_no_more(fleet: list[Home]) -> None:
    a = fleet[0]
    keys = a.path / "keys"
    sealing = Sealing(config.load(a.path), 0)
    seal = sealing.bundle(Peer("c", C_ID, "stick:"))
    for id in (b"AAAA", b"BBBB"):
        changes_to_tell.add_revoked(keys, C_ID, id)
    issuer = changes_to_tell.instruct(changes_to_tell.load(keys, C_ID), seal, BUNDLE)
    seal.prepare()
    assert issuer is not None and issuer.due(0) == bytes((REVOKE,)) + b"AAAA\0\0"
    changes_to_tell.withdraw(keys, C_ID, b"BBBB")
    assert not changes_to_tell.settle(changes_to_tell.load(keys, C_ID), issuer, BUNDLE)
    assert issuer.due(0) == b"" and issuer.revoked == {b"AAAA\0\0": SEAL_REVOKE_SENDS}
    assert told(a, C_ID) == {b"AAAA": SEAL_REVOKE_SENDS}
    assert changes_to_tell.load(keys, C_ID).told == [0, seal.out_epoch] != [0, 0]
    # A process that comes later goes on from there.
    later = changes_to_tell.instruct(changes_to_tell.load(keys, C_ID), seal, BUNDLE)
    assert later is not None and later.revoked == issuer.revoked
    seal.answered = seal.out_epoch
    assert not changes_to_tell.settle(changes_to_tell.load(keys, C_ID), later, BUNDLE)
    assert told(a, C_ID) == {b"AAAA": SEAL_REVOKE_SENDS - 1}
    # What is new was not told yet.
    changes_to_tell.add_revoked(keys, C_ID, b"DDDD")
    assert changes_to_tell.load(keys, C_ID).told == [0, 0]
    sealing.close()


def test_what_did_not_leave_counts_as_not_told(fleet: list[Home]) -> None:
    sealing = Sealing(config.load(fleet[0].path), 0)
    seal = sealing.bundle(Peer("c", C_ID, "stick:"))
    issuer = Issuer(seal)
    issuer.revoke(b"AAAA", sends=1)
    assert issuer.due(0) and issuer.waiting_epoch == seal.out_epoch > 0
    issuer.take_back()
    assert issuer.waiting_epoch == 0
    seal.answered = seal.out_epoch
    issuer.settle()
    assert issuer.revoked == {b"AAAA\0\0": 1}
    # The peer was there before: in a new epoch its answer shows that it is there now.
    assert issuer.due(0) and issuer.waiting_epoch == seal.out_epoch > seal.answered
    seal.answered = seal.out_epoch
    issuer.settle()
    assert issuer.revoked == {} and issuer.due(99) == b""
    sealing.close()


def test_the_file_of_an_earlier_version_and_what_is_none(fleet: list[Home]) -> None:
    a = fleet[0]
    path = a.path / "keys/c0000003.tell"
    path.write_text('{"revoked": ["b0000002"]}')
    path.chmod(0o600)
    assert told(a, C_ID) == {B_ID: SEAL_REVOKE_SENDS}
    many = {f"{n:08x}": 1 for n in range(SEAL_REVOKED_MAX + 1)}
    for said in (
        {"revoked": {"b0000002": 0}}, {"revoked": {"b0000002": 9}}, {"revoked": {"b0": 1}},
        {"revoked": {"b0000002": "8"}}, {"revoked": 5}, {"revoked": [5]}, {"revoked": many},
        {"revoked": {}, "generation": 1, "root": "00"}, [], {}, {"revoked": {}, "told": 5},
        {"revoked": {}, "told": [1]}, {"revoked": {}, "told": [1, 1 << 24]},
    ):  # fmt: skip
        path.write_text(json.dumps(said))
        with pytest.raises(StorageError, match=r"c0000003\.tell: is damaged"):
            told(a, C_ID)
