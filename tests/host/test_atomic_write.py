"""Replacing a file: the old content or the new, whole, whatever fails."""

import errno
import os
import stat
from pathlib import Path

import pytest

from drupelet_host.base.atomic_write import atomic_write


@pytest.mark.parametrize("durable", [False, True])
def test_the_new_content_stands_in_place_of_the_old(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    for content in ("old", "new ü", b"\xff\x00"):
        atomic_write(path, content, durable=durable)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_what_fails_leaves_the_old_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "file"
    atomic_write(path, "old", durable=True)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(OSError, match="no room"):
        atomic_write(path, "new", durable=True)
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_what_a_cut_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_text("half of something longer than the new content")
    atomic_write(tmp_path / "file", "new", durable=True, mode=0o600)
    assert (tmp_path / "file").read_text() == "new" and os.listdir(tmp_path) == ["file"]


def test_a_new_file_has_its_mode(tmp_path: Path) -> None:
    atomic_write(tmp_path / "file", "secret", durable=False, mode=0o600)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
