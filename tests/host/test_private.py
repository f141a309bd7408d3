"""Secrets in memory and on disk: never shown, never readable by others, replaced in one step."""

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from drupelet.base.errors import StorageError
from drupelet_host.home import private_files
from drupelet_host.home.private_files import BusyError, PrivateError
from drupelet_host.keys.secret import Secret

KEY = bytes(range(64, 96))


def test_a_secret_shows_itself_nowhere() -> None:
    secret = Secret(KEY)
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>40}", f"{[secret]}"]
    shown += [f"{secret}", logging.makeLogRecord({"msg": "%s", "args": (secret,)}).getMessage()]
    try:
        raise ValueError(secret)
    except ValueError as error:
        shown.append("".join(traceback.format_exception(error)))
    for text in shown:
        assert "Secret(32 bytes)" in text
        assert KEY.decode() not in text and KEY.hex() not in text and repr(KEY)[2:-1] not in text
    with pytest.raises(TypeError):
        json.dumps(secret)
    for way in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="not pickled"):
            way(secret)
    with pytest.raises(TypeError):
        hash(secret)
    assert secret.reveal() == KEY
    assert secret == Secret(KEY) and secret != Secret(KEY[:-1]) and secret != KEY


def test_files_are_for_their_owner_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private_files.make_folder(tmp_path / "keys")
        private_files.create(tmp_path / "keys/a", KEY)
        private_files.replace(tmp_path / "keys/a", KEY + KEY)
        os.close(private_files.lock(tmp_path / "keys/lock"))
    finally:
        os.umask(before)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    for name in ("a", "lock"):
        assert (tmp_path / "keys" / name).stat().st_mode & 0o777 == 0o600
    assert private_files.read(tmp_path / "keys/a", 64) == KEY + KEY
    assert sorted(path.name for path in (tmp_path / "keys").iterdir()) == ["a", "lock"]
    private_files.make_folder(tmp_path / "keys")  # there already


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o644, 0o777])
def test_what_others_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a"
    private_files.create(path, KEY)
    path.chmod(mode)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys").chmod(mode | 0o700)
    for refused in (
        lambda: private_files.read(path, 64),
        lambda: private_files.lock(path),
        lambda: private_files.make_folder(tmp_path / "keys"),
    ):
        with pytest.raises(
            PrivateError, match=r"others can get at it \(mode 0.*chmod [67]00"
        ) as e:
            refused()
        assert "\n" not in str(e.value)


def test_links_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    private_files.create(tmp_path / "real", KEY)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, why in (("link", "is a link"), ("nowhere", "is a link"), ("pipe", "no ordinary")):
        with pytest.raises(PrivateError, match=why):
            private_files.read(tmp_path / name, 64)
    with pytest.raises(PrivateError, match="is a link"):
        private_files.lock(tmp_path / "link")
    for name in ("link", "nowhere", "real"):
        with pytest.raises(FileExistsError):
            private_files.create(tmp_path / name, b"new")
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(PrivateError, match="no folder"):
        private_files.make_folder(tmp_path / "real")
    with pytest.raises(PrivateError, match="is a link"):
        private_files.make_folder(tmp_path / "link")


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "a.tmp").symlink_to(tmp_path / "victim")
    private_files.replace(tmp_path / "a", KEY)
    assert (tmp_path / "victim").read_text() == "precious"
    assert private_files.read(tmp_path / "a", 64) == KEY
    (tmp_path / "gone").symlink_to(tmp_path / "victim")
    with pytest.raises(StorageError):
        private_files.remove(tmp_path / "gone")
    assert (tmp_path / "victim").read_text() == "precious"


def test_the_old_content_stays_until_the_new_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    private_files.create(path, KEY)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    for step in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            with pytest.raises(StorageError, match="a: cannot be written"):
                private_files.replace(path, b"new")
        assert private_files.read(path, 64) == KEY


def test_what_is_longer_than_it_may_be_is_not_read(tmp_path: Path) -> None:
    private_files.create(tmp_path / "a", bytes(65))
    with pytest.raises(StorageError, match="longer than 64"):
        private_files.read(tmp_path / "a", 64)
    with pytest.raises(StorageError, match="cannot be read"):
        private_files.read(tmp_path / "none", 64)


def test_removed_is_removed(tmp_path: Path) -> None:
    private_files.create(tmp_path / "a", KEY)
    assert private_files.remove(tmp_path / "a")
    assert not private_files.remove(tmp_path / "a")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with private_files.locked(path):
        with (
            pytest.raises(BusyError, match="another process uses these keys"),
            private_files.locked(path),
        ):
            pass
        code = (
            "from pathlib import Path; from drupelet_host.home import private_files;"
            f" private_files.lock(Path({str(path)!r}))"
        )
        command = [sys.executable, "-c", code]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "BusyError" in other.stderr
    with private_files.locked(path):
        pass
