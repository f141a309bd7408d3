"""What cuts, sticks on their way and other processes do to rotations and revocations."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from drupelet.base.errors import OK
from drupelet.seal.record import FLAG_TAG16, FLAG_WAITING, RECEIVE, RECORD_SIZE, install, row_of
from drupelet_host.cli.app import app
from drupelet_host.home import config, private_files
from drupelet_host.home.config import Peer
from drupelet_host.keys import changes_to_tell, issued_pairs, provision
from drupelet_host.keys.key_folder import BUNDLE, LIVE, HostKeys, KeysError, look
from host.conftest import Home, placed, share_keys

MakeHome = Callable[..., Home]
A, B, C = 0xA0000001, 0xB0000002, 0xC0000003
A_ID, B_ID, C_ID = (number.to_bytes(4) for number in (A, B, C))


def call(home: Home, *words: str) -> Result:
    return CliRunner().invoke(app, placed(words, home.path))


def visit(folder: Path, home: Home) -> str:
    folder.mkdir(exist_ok=True)
    done = call(home, "stick", str(folder))
    assert "safe to unplug" in done.output, done
    return done.output


@pytest.fixture
def fleet(make_home: MakeHome) -> list[Home]:
    """`a`, which gave keys to b and c, and to b and c for each other, all on sticks."""
    peers = [Peer(name, id, "stick:") for name, id in (("b", B_ID), ("c", C_ID))]
    a = make_home("a", A, *peers)
    ours = Peer("a", a.id, "stick:")
    b, c = make_home("b", B, ours, peers[1]), make_home("c", C, ours, peers[0])
    for home in (b, c):
        share_keys(a, home)
    pair_up([a, b, c])
    return [a, b, c]


def pair_up(fleet: list[Home]) -> int:
    a, b, c = fleet
    places = (str(b.path), str(c.path))
    return provision.provision_pair(config.load(a.path), ("b", "c"), places, again=True)


def is_revoked(home: Home, peer_id: bytes) -> bool:
    return all(state.revoked for state in look(home.path / "keys", peer_id))


def test_a_revocation_on_its_way_spares_keys_that_were_made_since(
    fleet: list[Home], tmp_path: Path
) -> None:
    a, b, _ = fleet
    call(a, "revoke", "c")
    visit(tmp_path / "usb", a)
    kid = pair_up(fleet)
    visit(tmp_path / "usb", b)
    assert not is_revoked(b, C_ID)
    assert {state.kid & ~3 for state in look(b.path / "keys", C_ID)} == {kid}
    # Nor does a `.tell` of a backup end them; but what is said of them does.
    changes_to_tell.add_revoked(a.path / "keys", B_ID, C_ID)
    visit(tmp_path / "usb", a)
    visit(tmp_path / "usb", b)
    assert is_revoked(b, C_ID)


def test_a_revocation_ends_all_keys_when_nothing_is_known_of_them(
    fleet: list[Home], tmp_path: Path
) -> None:
    a, b, _ = fleet
    (a.path / "keys" / "pairs").write_text("damaged")
    call(a, "revoke", "c")
    visit(tmp_path / "usb", a)
    visit(tmp_path / "usb", b)
    assert is_revoked(b, C_ID)


def test_the_key_ids_of_pairs(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    assert issued_pairs.kid_of(folder, A_ID, B_ID) == 0
    issued_pairs.keep(folder, A_ID, B_ID, 0x1230)
    assert issued_pairs.kid_of(folder, B_ID, A_ID) == 0x1230
    issued_pairs.keep(folder, B_ID, A_ID, 0)
    assert issued_pairs.kid_of(folder, B_ID, A_ID) == 0
    full = {f"{n:08x}{C:08x}": 4 for n in range(issued_pairs.PAIRS_MAX)}
    (folder / "pairs").write_text(json.dumps(full))
    issued_pairs.keep(folder, A_ID, B_ID, 8)
    assert issued_pairs.kid_of(folder, A_ID, B_ID) == 8
    assert issued_pairs.kid_of(folder, bytes(4), C_ID) == 0
    assert issued_pairs.kid_of(folder, (1).to_bytes(4), C_ID) == 4
    for damaged in ("[]", "{", json.dumps({f"{A:08x}{B:08x}": "8"})):
        (folder / "pairs").write_text(damaged)
        assert issued_pairs.kid_of(folder, A_ID, B_ID) == 0


def test_a_revocation_waits_for_a_process_that_holds_the_keys(
    fleet: list[Home], tmp_path: Path
) -> None:
    a, b, _ = fleet
    call(a, "revoke", "c")
    call(a, "put", "and a message")
    visit(tmp_path / "usb", a)
    with private_files.locked(b.path / "keys/c0000003.live.lock"):
        said = visit(tmp_path / "usb", b)
    assert "read 0 files" in said and not is_revoked(b, C_ID)
    assert "read 1 file " in call(b, "stick", str(tmp_path / "usb")).output
    assert is_revoked(b, C_ID)


def test_a_rotation_over_sticks_ends_though_the_peer_has_nothing_to_say(
    make_home: MakeHome, tmp_path: Path
) -> None:
    a = make_home("a", A, Peer("b", B_ID, "stick:"))
    b = make_home("b", B, Peer("a", A_ID, "stick:"))
    share_keys(a, b)
    for n in range(2):
        call(a, "put", f"a {n}")
        call(b, "put", f"b {n}")
        for home in (a, b):
            visit(tmp_path / "usb", home)
    for home in (a, b, a, b):
        visit(tmp_path / "usb", home)
    assert "wrote 0 files" in visit(tmp_path / "usb", b)
    assert call(a, "rotate", "b").exit_code == 0
    for home in (a, b, a):
        visit(tmp_path / "usb", home)
    assert not list((a.path / "keys").glob("*.tell"))
    for home in (b, a, b, a):
        visit(tmp_path / "usb", home)
    assert "wrote 0 files" in visit(tmp_path / "usb", b)


@pytest.fixture
def halfway(tmp_path: Path) -> HostKeys:
    """Our chains while a rotation waits for the peer."""
    keys = HostKeys(tmp_path / "keys", A_ID, B_ID)
    provision.private_files.make_folder(keys.folder)
    for carrier_class in (LIVE, BUNDLE):
        keys.open(carrier_class)
    assert install(keys, bytes(32), 0x1230, 0, FLAG_TAG16) == OK
    assert install(keys, bytes(range(32)), 0x1230, 1, FLAG_TAG16 | FLAG_WAITING) == OK
    return keys


def test_a_rotation_that_an_earlier_version_left_half_done_is_ended(halfway: HostKeys) -> None:
    """It dropped the old receive record first and was killed before it used the send chains."""
    assert halfway.drop(row_of(BUNDLE, RECEIVE, 0)) == OK
    assert changes_to_tell.begin_rotation(halfway.folder, halfway) == 2
    states = halfway.states()
    assert {state.generation for state in states if state.waiting} == {2}
    sends = {state.row for state in states if not state.receives and not state.waiting}
    assert {state.generation for state in states if state.row in sends} == {1}
    assert len(sends) == 2
    halfway.close()


def test_no_rotation_begins_over_one_whose_root_is_gone(halfway: HostKeys) -> None:
    before = [halfway.path(each).read_bytes() for each in (LIVE, BUNDLE)]
    with pytest.raises(KeysError, match="its root is gone; make new keys by cable"):
        changes_to_tell.begin_rotation(halfway.folder, halfway)
    assert before == [halfway.path(each).read_bytes() for each in (LIVE, BUNDLE)]
    assert len(before[0]) == 6 * RECORD_SIZE
    halfway.close()
