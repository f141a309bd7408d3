"""Key files of a host: durable, for one process at a time, and never shown."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drupelet.base.errors import E_PEER, E_STORAGE, OK
from drupelet.seal.record import FLAG_ISSUER, FLAG_REVOKED, RECORD_SIZE, install
from drupelet_host.home import private_files
from drupelet_host.home.config import Config, Peer
from drupelet_host.home.private_files import BusyError, PrivateError
from drupelet_host.keys import key_folder
from drupelet_host.keys.key_folder import BUNDLE, FILE_SIZES, LIVE, HostKeys, KeysError
from drupelet_host.keys.sealing import RevokedError, Sealing

OWN, PEER, OTHER = b"\x40\0\0\0", b"\xa0\0\0\1", b"\xb0\0\0\2"
ROOT = bytes(range(100, 132))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    private_files.make_folder(tmp_path / "keys")
    return tmp_path / "keys"


def made(folder: Path, own: bytes = OWN, peer: bytes = PEER, flags: int = 0) -> HostKeys:
    port = HostKeys(folder, own, peer)
    assert install(port, ROOT, 0x1230, 0, flags) == OK
    return port


def test_records_come_back_byte_for_byte(folder: Path) -> None:
    port = made(folder)
    before = [bytearray(RECORD_SIZE) for _ in range(8)]
    codes = [port.load(row, before[row]) for row in range(8)]
    assert codes == [OK, E_STORAGE] * 4
    port.close()
    again = HostKeys(folder, OWN, PEER)
    for row in (0, 2, 4, 6):
        out = bytearray(RECORD_SIZE)
        assert again.load(row, out) == OK
        assert out == before[row]
    assert sorted(path.name for path in folder.iterdir()) == [
        "a0000001.bundle", "a0000001.bundle.lock", "a0000001.live", "a0000001.live.lock",
    ]  # fmt: skip
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())
    assert again.drop(0) == OK
    assert again.load(0, bytearray(RECORD_SIZE)) == E_STORAGE
    assert again.load(2, bytearray(RECORD_SIZE)) == OK
    again.close()


def test_two_processes_never_share_a_chain_and_the_classes_do_not_meet(folder: Path) -> None:
    first = HostKeys(folder, OWN, PEER)
    first.open(LIVE)
    second = HostKeys(folder, OWN, PEER)
    second.open(BUNDLE)
    with pytest.raises(BusyError, match=r"a0000001\.live\.lock: another process uses these keys"):
        second.open(LIVE)
    assert second.load(0, bytearray(RECORD_SIZE)) == E_STORAGE
    assert "another process" in second.failure
    code = (
        "from drupelet_host.keys.key_folder import *; from pathlib import Path;"
        f"HostKeys(Path({str(folder)!r}), {OWN!r}, {PEER!r}).open(LIVE)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "BusyError" in other.stderr
    first.close()
    second.open(LIVE)
    second.close()


def test_a_save_that_fails_leaves_the_old_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = made(folder)
    before, new = bytearray(RECORD_SIZE), bytearray(RECORD_SIZE)
    port.load(0, before)
    port.load(2, new)

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    for step in ("fsync", "replace", "write"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fails)
            assert port.save(0, new) == E_STORAGE
        assert "cannot be written (Input/output error)" in port.failure
        out = bytearray(RECORD_SIZE)
        assert port.load(0, out) == OK and out == before
    port.close()
    again = HostKeys(folder, OWN, PEER)
    out = bytearray(RECORD_SIZE)
    assert again.load(0, out) == OK and out == before
    again.close()


def test_a_damaged_record_is_no_record(folder: Path) -> None:
    made(folder).close()
    path = folder / "a0000001.live"
    content = bytearray(path.read_bytes())
    for at in range(0, 2 * RECORD_SIZE, 7):
        damaged = bytearray(content)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        port = HostKeys(folder, OWN, PEER)
        found = [port.load(row, bytearray(RECORD_SIZE)) for row in (0, 2)]
        assert sorted(found) == sorted([OK, E_STORAGE if at < RECORD_SIZE else OK])
        port.close()
    path.write_bytes(content + b"x")
    assert FILE_SIZES[LIVE] == len(content)
    with pytest.raises(Exception, match=f"longer than {FILE_SIZES[LIVE]} bytes"):
        key_folder.look(folder, PEER)
    path.write_bytes(b"")
    assert [state.carrier_class for state in key_folder.look(folder, PEER)] == [BUNDLE, BUNDLE]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_keys_that_others_can_read_are_not_used(folder: Path, mode: int) -> None:
    made(folder).close()
    (folder / "a0000001.live").chmod(mode)
    port = HostKeys(folder, OWN, PEER)
    looks: list[Callable[[], object]] = [
        lambda: port.open(LIVE), lambda: key_folder.look(folder, PEER),
    ]  # fmt: skip
    for look in looks:
        with pytest.raises(PrivateError, match=r"a0000001\.live: others can get at it") as caught:
            look()
        assert "\n" not in str(caught.value)
    port.open(BUNDLE)
    port.close()
    (folder / "a0000001.live").chmod(0o600)
    folder.chmod(0o750)
    with pytest.raises(PrivateError, match="keys: others can get at it"):
        key_folder.known_peers(folder)
    with pytest.raises(PrivateError, match="keys: others can get at it"):
        port.open(LIVE)


def test_a_link_in_the_key_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    made(folder).close()
    (folder / "a0000001.live").rename(tmp_path / "elsewhere")
    (folder / "a0000001.live").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PrivateError, match="is a link"):
        HostKeys(folder, OWN, PEER).open(LIVE)
    with pytest.raises(PrivateError, match="is a link"):
        key_folder.look(folder, PEER)


def test_what_may_be_told_has_no_key_in_it(folder: Path) -> None:
    port = made(folder, flags=FLAG_ISSUER)
    secrets = []
    for row in (0, 2, 4, 6):
        record = bytearray(RECORD_SIZE)
        port.load(row, record)
        secrets.append(bytes(record[16:48]))
    assert len(set(secrets)) == 4
    shown = (
        repr(port.states())
        + repr(key_folder.look(folder, PEER))
        + repr(port)
        + str(vars(key_folder))
    )
    for secret in (*secrets, ROOT):
        assert secret.hex() not in shown and repr(secret)[2:-1] not in shown
    assert [state.issuer for state in port.states()] == [False, True, False, True]
    port.close()


def sealing(tmp_path: Path) -> tuple[Sealing, Peer, Peer]:
    peers = (Peer("a", PEER, "mqtt://localhost/t"), Peer("b", OTHER, "serial:///dev/x"))
    config = Config(tmp_path, "h", OWN, "g", peers=peers)
    return Sealing(config, 7), *peers


def test_no_keys_no_link(folder: Path, tmp_path: Path) -> None:
    ours, a, b = sealing(tmp_path)
    with pytest.raises(
        KeysError, match=r"a: no keys, and mqtt goes sealed only.*provision a --to"
    ):
        ours.live(a)
    with pytest.raises(KeysError, match=r"b: no keys, .* or write plain=1"):
        ours.live(b)
    assert list(folder.iterdir()) == []
    made(folder).close()
    assert ours.live(a).kid_in == 0x1231 and ours.bundle(a).kid_in == 0x1233
    assert ours.live(a) is ours.live(a)
    ours.close()


def test_a_revoked_peer_has_no_keys_any_more(folder: Path, tmp_path: Path) -> None:
    made(folder).close()
    made(folder, peer=OTHER).close()
    secrets = [
        path.read_bytes()[at + 16 : at + 48]
        for path in folder.glob("a0000001.[lb]*e")
        for at in range(0, FILE_SIZES[BUNDLE], RECORD_SIZE)
    ]
    ours, a, b = sealing(tmp_path)
    seal = ours.live(a)
    assert ours.revoke(OWN) == E_PEER
    assert ours.revoke(b"none") == E_PEER
    assert ours.revoke(PEER) == OK
    assert seal.closed and seal.seal_into(bytearray(100), bytearray(1), 1, 0) == E_PEER
    with pytest.raises(RevokedError, match="a: was revoked; take it out with `drupelet peer rem"):
        ours.live(a)
    assert ours.live(b)
    ours.close()
    for path in folder.glob("a0000001.*"):
        assert not any(secret in path.read_bytes() for secret in secrets if any(secret))
    assert all(state.revoked for state in key_folder.look(folder, PEER))
    again, a, _ = sealing(tmp_path)
    with pytest.raises(RevokedError):
        again.live(a)
    again.close()
    assert key_folder.wipe(folder, PEER) and not key_folder.wipe(folder, PEER)


def test_a_revocation_by_the_issuer_reaches_the_right_peer(folder: Path, tmp_path: Path) -> None:
    made(folder).close()
    made(folder, peer=OTHER).close()
    ours, a, b = sealing(tmp_path)
    first, second = ours.live(a), ours.live(b)
    kid = (second.kid_in & ~3).to_bytes(2)
    assert first.keys.revoke(bytearray(b"...." + OTHER + b"\0\4"), 4) == OK
    assert not second.closed  # of other keys than it has
    assert first.keys.revoke(bytearray(b"...." + OTHER + kid), 4) == OK
    assert second.closed and not first.closed
    assert first.keys.revoke(bytearray(OWN + kid), 0) == E_PEER
    record = bytearray(RECORD_SIZE)
    assert second.keys.load(0, record) == OK and record[1] & FLAG_REVOKED
    ours.close()
