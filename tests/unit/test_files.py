"""The Files port: one contract for RAM, a host's folder, and what a full flash answers."""

import errno
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from drupelet.base.errors import E_CAPACITY, E_STORAGE, OK
from drupelet.base.limits import FILES_OPEN_MAX
from drupelet.store.files import Files, RamFiles
from drupelet_host.store.folder_files import HostFiles

CONTRACT = Path(__file__).parents[1] / "board/files_contract.py"


def contract() -> ModuleType:
    spec = importlib.util.spec_from_file_location("files_contract", CONTRACT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ram(files: RamFiles) -> Callable[[], Files]:
    def again() -> Files:
        files.power_cut()
        return files

    return again


@pytest.mark.parametrize("kind", ["ram", "preallocated", "host"])
@pytest.mark.parametrize("part", ["check_names", "check_bytes", "check_table"])
def test_contract(kind: str, part: str, tmp_path: Path) -> None:
    makers: dict[str, Callable[[], Files]] = {
        "ram": ram(RamFiles()),
        "preallocated": ram(RamFiles(file_size=512, files_count=FILES_OPEN_MAX + 1)),
        "host": lambda: HostFiles(tmp_path),
    }
    getattr(contract(), part)(makers[kind])


def test_ram_forgets_what_was_not_flushed() -> None:
    files = RamFiles()
    fd = files.open("S0000001.LOG", True)
    files.append(fd, b"safe", 0, 4)
    files.flush(fd)
    files.append(fd, b" not", 0, 4)
    files.power_cut(kept=2)
    assert files.size("S0000001.LOG") == files.used == 6
    files.power_cut()
    assert files.size("S0000001.LOG") == 6, "what a cut left behind is on the flash"
    assert files.open("S0000001.LOG", False) == 0, "every descriptor was closed"


def test_ram_is_bounded() -> None:
    files = RamFiles(capacity=10)
    fd = files.open("S0000001.LOG", True)
    assert files.append(fd, bytes(10), 0, 10) == OK
    assert files.append(fd, bytes(1), 0, 1) == E_CAPACITY
    files.close(fd)
    files.remove("S0000001.LOG")
    assert files.used == 0
    few = RamFiles(file_size=4, files_count=1)
    fd = few.open("S0000001.LOG", True)
    assert few.open("S0000002.LOG", True) == E_CAPACITY
    assert few.append(fd, bytes(5), 0, 5) == E_CAPACITY


def test_host_reports_a_full_disk_and_a_broken_folder_as_codes(tmp_path: Path) -> None:
    files = HostFiles(tmp_path)
    (tmp_path / "FULL.LOG").symlink_to("/dev/full")
    fd = files.open("FULL.LOG", False)
    assert files.append(fd, b"x", 0, 1) == E_CAPACITY
    files.close(fd)
    (tmp_path / "DIR.LOG").mkdir()
    assert files.open("DIR.LOG", False) == E_STORAGE
    assert files.open("DIR.LOG", True) == E_STORAGE
    assert "DIR.LOG" not in files.names()
    gone = HostFiles(tmp_path / "gone")
    assert gone.open("S0000001.LOG", True) == E_STORAGE
    assert gone.size("S0000001.LOG") == -1


def test_a_host_does_not_call_a_flush_done_that_has_failed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = HostFiles(tmp_path)
    fd = files.open("S0000001.LOG", True)
    assert files.append(fd, b"x", 0, 1) == OK

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        assert files.flush(fd) == E_STORAGE
    assert files.flush(fd) == E_STORAGE
    files.close(fd)
    assert files.open("S0000001.LOG", True) == fd
    assert files.append(fd, b"y", 0, 1) == OK and files.flush(fd) == OK
