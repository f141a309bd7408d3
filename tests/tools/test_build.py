"""Compiled firmware: what goes in, what is refused, and that nothing old stays."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import compiled
from drupelet_tools.flash import build as room
from drupelet_tools.flash.build import ROOT, build, is_host_only, micropython_command
from drupelet_tools.flash.errors import BuildError


def modules(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_everything_that_a_board_runs(firmware: Path) -> None:
    found = modules(firmware)
    assert {
        "drupelet/node.mpy",
        "drupelet_transports/stick/stick.mpy",
        "boards/device.mpy",
    } <= found
    assert {"boards/unix/main.mpy", "boards/rows.mpy"} <= found
    assert all(name.endswith(".mpy") for name in found)
    hosts = {
        path
        for root in ("firmware", "transports")
        for path in (ROOT / root).rglob("*.py")
        if is_host_only(path)
    }
    assert hosts
    for path in hosts:
        root = "firmware" if path.is_relative_to(ROOT / "firmware") else "transports"
        assert path.relative_to(ROOT / root).with_suffix(".mpy").as_posix() not in found


def test_an_older_build_leaves_nothing_behind(tmp_path: Path) -> None:
    old = tmp_path / "drupelet" / "wire" / "gone.mpy"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"M")
    mine = tmp_path / "notes.txt"
    mine.write_text("not ours")
    count = build(tmp_path, "bytecode", modules=["drupelet.base.errors", "drupelet.base.hashes"])
    assert not old.exists()
    assert mine.exists()
    assert modules(tmp_path) == {
        *("notes.txt", "drupelet/__init__.mpy", "drupelet/base/__init__.mpy"),
        *("drupelet/base/errors.mpy", "drupelet/base/hashes.mpy"),
    }
    assert count == 4


def test_bytecode_has_no_machine_code(tmp_path: Path) -> None:
    build(tmp_path / "bytecode", "bytecode")
    build(tmp_path / "x86", "x86")
    left_out = modules(tmp_path / "x86") - modules(tmp_path / "bytecode")
    viper = ("_aes", "_blake2s", "_ccm", "_memory", "_murmur")
    assert left_out == {f"drupelet/base/{name}_viper.mpy" for name in viper}


def test_the_same_sources_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        compiled.forget(monkeypatch)
        build(tmp_path / name, "armv6m", modules=["drupelet.engine.exchange", "boards.device"])
    one = {p.name: p.read_bytes() for p in (tmp_path / "one").rglob("*.mpy")}
    two = {p.name: p.read_bytes() for p in (tmp_path / "two").rglob("*.mpy")}
    assert one == two
    assert str(tmp_path).encode() not in b"".join(one.values())


def test_a_traceback_names_the_file_and_the_function(tmp_path: Path) -> None:
    """Line numbers stay behind: they would be 5 KB of a board's heap."""
    build(tmp_path, "x64")
    done = subprocess.run(
        [
            *micropython_command("x64"),
            "-c",
            "from drupelet.base.errors import check; check(-1, 'no')",
        ],
        env=os.environ | {"MICROPYPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    place = next(line for line in done.stderr.splitlines() if "errors.py" in line)
    assert place.strip().endswith("in check")


def test_assertions_stay(tmp_path: Path) -> None:
    """The compiler takes them out at the level that takes line numbers out."""
    build(tmp_path, "x64")
    for call in (
        "from drupelet.engine.clock import Clocks; Clocks(1).begin(0, 0, 0, 0)",
        "from drupelet.engine.outbox import Outbox; Outbox(0, None, None).resize(1)",
    ):
        done = subprocess.run(
            [*micropython_command("x64"), "-c", call],
            env=os.environ | {"MICROPYPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert "AssertionError" in done.stderr, call


def test_unknown_things_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="unknown architecture z80: one of x86"):
        build(tmp_path, "z80")
    with pytest.raises(BuildError, match=r"no module drupelet\.magic for board unix"):
        build(tmp_path, "x86", modules=["drupelet.magic", "drupelet.node"])
    with pytest.raises(BuildError, match=r"no sources in .*boards/toaster"):
        build(tmp_path, "x86", board="toaster")
    with pytest.raises(BuildError, match="no interpreter on this machine runs armv6m"):
        micropython_command("armv6m")
    assert modules(tmp_path) == set()


def test_a_module_that_does_not_compile_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tree"
    (root / "firmware/boards/unix").mkdir(parents=True)
    (root / "firmware/boards/unix/__init__.py").write_text("")
    (root / "firmware/boards/a.py").write_text("x = 1\nlet(*a, *b, c=1, **d)\ndef f(a, /): 0\n")
    monkeypatch.setattr(room, "ROOT", root)
    with pytest.raises(BuildError, match=r"boards/a\.py does not compile: .*line 3"):
        build(tmp_path / "out", "x86")
    with pytest.raises(BuildError, match="is missing: MicroPython runs from a clone"):
        micropython_command("x86")


def test_host_only_is_said_in_the_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    for text, expected in (
        ("# host only\n", True),
        ("#!x\n# y\n# host only: shapes\n", True),
        ("# a\n# b\n# c\n# host only\n", False),
        ("x = '# host only'\n", False),
        ("", False),
    ):
        path.write_text(text)
        assert is_host_only(path) is expected


def test_folded_firmware_runs(micropython: list[str], firmware: Path) -> None:
    """The heap that limits.py would take is not taken: nothing imports it once folded."""
    code = (
        "import sys, json, drupelet.node, drupelet.link.link, boards.device;"
        "print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run(
        [*micropython, "-X", "heapsize=256K", "-c", code],
        env=os.environ | {"MICROPYPATH": str(firmware)},
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    loaded = json.loads(done.stdout)
    assert "drupelet.node" in loaded
    assert "drupelet.base.limits" not in loaded
