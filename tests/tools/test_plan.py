"""The demo's output folder and broker: whose folder it may empty, and what it refuses."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from drupelet_tools.demo import plan
from drupelet_tools.demo.plan import BOARDS, DemoError, check_broker, prepare
from drupelet_transports.common.transport import TransportError


def test_makes_what_is_needed(tmp_path: Path) -> None:
    folders = prepare(tmp_path / "a" / "b")
    assert (folders.out / plan.MARKER).is_file()
    assert folders.hand.is_dir()
    assert folders.host.stat().st_mode & 0o077 == 0
    assert all(folders.flash(board).is_dir() for board in BOARDS)


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert prepare(tmp_path).out == tmp_path


def test_its_own_folder_is_emptied(tmp_path: Path) -> None:
    folders = prepare(tmp_path)
    left = [folders.flash("A") / "log", folders.report, folders.out / "host.log"]
    (folders.mount("C")).mkdir()
    for path in left:
        path.write_text("old")
    mine = tmp_path / "notes.txt"
    mine.write_text("mine")
    again = prepare(tmp_path)
    assert again == folders
    assert not any(path.exists() for path in left)
    assert not folders.mount("C").exists()
    assert mine.read_text() == "mine"


def test_a_foreign_folder_is_refused_and_untouched(tmp_path: Path) -> None:
    for name in ("boards", "host"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("mine")
    with pytest.raises(DemoError, match="not empty and not from a demo; give another --out"):
        prepare(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["boards", "host"]
    assert (tmp_path / "host" / "precious").read_text() == "mine"


def test_a_link_among_its_own_things_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_text("mine")
    folders = prepare(tmp_path / "out")
    shutil.rmtree(folders.out / "boards")
    (folders.out / "boards").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DemoError, match="cannot be written"):
        prepare(tmp_path / "out")
    assert (tmp_path / "elsewhere" / "precious").read_text() == "mine"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/drupelet")):
        with pytest.raises(DemoError) as caught:
            prepare(out)
        assert str(out) in str(caught.value)
        assert "give another --out folder" in str(caught.value)


def test_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    tmp_path.chmod(0o500)
    if os.geteuid() == 0:  # who may write everywhere: the system's word to others is put in
        monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(DemoError, match="cannot be written"):
        prepare(tmp_path / "out")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type(shutil.disk_usage(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 3 << 20, 3 << 20))
    with pytest.raises(DemoError, match="3 MB free, the demo needs 64; make room"):
        prepare(tmp_path / "out")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("serial:///dev/ttyACM0", "must be an MQTT URL"),
        ("mqtt://192.0.2.1:1883/demo", "refused: it is not on this machine"),
        ("mqtt://broker.example:1883/demo", "refused: it is not on this machine"),
        ("mqtt://localhost:1/demo", "no answer .*start the broker"),
        ("nonsense", "nonsense"),
        ("mqtt:", "mqtt"),
    ],
)
def test_brokers_that_are_refused(url: str, why: str) -> None:
    with pytest.raises((DemoError, TransportError), match=why):
        check_broker(url)


def test_a_folder_is_one_demos_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert plan.lock(out) is None
    prepare(out)
    held = plan.lock(out)
    assert held is not None
    with pytest.raises(plan.DemoError, match="another demo runs there"):
        plan.lock(out)
    held.close()
    again = plan.lock(out)
    assert again is not None
    again.close()
