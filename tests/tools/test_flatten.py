"""Modules that are always loaded become one, and a traceback still leads to their sources."""

import ast
import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

import drupelet.base.memory
from drupelet_tools.flash import rom
from drupelet_tools.flash.build import micropython_command
from drupelet_tools.flash.command import app
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.flatten import JOINED, TRACE, flatten
from drupelet_tools.flash.sets import Choice, build_set, flattened, resolve, texts
from drupelet_tools.flash.trace import Trace
from drupelet_tools.sim.soak import read_book

BYTES = """
import struct

_SIZE = 4

def fill(target, value):
    for at in range(len(target)):
        target[at] = value

def open(path):
    return "ours " + path
"""
CODEC = """
import struct
from pkg.bytes import fill as fill_bytes

_SIZE = 8

class Codec:
    def fill(self, size):
        frame = bytearray(size)
        fill_bytes(frame, _SIZE)
        return frame

def fill(fill_size):
    return Codec().fill(fill_size)
"""
SPEAKER = """
from pkg import bytes, tables
from pkg.codec import fill

def speak():
    return bytes.open("x"), fill(2), tables

def later():
    from pkg.rare import rare

    return rare()
"""
TABLES = "ROWS = (1, 2)\n"
RARE = """
from pkg.codec import fill
from pkg import bytes

def rare():
    return fill(1), bytes.open("y")
"""
OTHER = "import struct\n\ndef load(path):\n    return open(path)\n"
TEXTS = {
    "pkg": "",
    "pkg.bytes": BYTES,
    "pkg.codec": CODEC,
    "pkg.speaker": SPEAKER,
    "pkg.tables": TABLES,
    "pkg.rare": RARE,
    "pkg.other": OTHER,
}
ROOTS = ("pkg.speaker", "pkg.other")


def run(texts: dict[str, str], folder: Path, program: str) -> str:
    """What a program prints that has these modules."""
    packages = {name.rpartition(".")[0] for name in texts}
    for name, text in texts.items():
        path = folder / name.replace(".", "/")
        path = path / "__init__.py" if name in packages else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    (folder / "program.py").write_text(program, "utf-8")
    done = subprocess.run(
        [*micropython_command("x86"), "program.py"], cwd=folder, capture_output=True, text=True,
        timeout=30, check=True,
    )  # fmt: skip
    return done.stdout


def test_joined_modules_do_what_they_did(tmp_path: Path) -> None:
    flat = flatten(TEXTS, ROOTS, ("pkg.rare",))
    # A module that is handed on as a module, and one that stays apart, are not joined.
    joined_names = {name for _first, name in flat.sources}
    assert joined_names == {"pkg.bytes", "pkg.codec", "pkg.speaker", "pkg.other"}
    joined = flat.texts[JOINED]
    assert joined.count("import struct") == 1
    assert "pkg.codec" not in joined and "pkg.bytes" not in joined
    program = (
        "from pkg.speaker import speak, later\n"
        "print(speak()[:2], later())\n"
        "from pkg.other import load\n"
        "try:\n    load('none')\n"
        "except OSError:\n    print('the interpreter opens')\n"
    )
    before = run(TEXTS, tmp_path / "before", program)
    assert run(flat.texts, tmp_path / "after", program) == before
    assert "the interpreter opens" in before


def test_the_lines_of_the_joined_module_lead_to_their_sources() -> None:
    flat = flatten(TEXTS, ROOTS, ("pkg.rare",))
    trace = Trace({}, [(first, f"{name}.py") for first, name in flat.sources])
    lines = flat.texts[JOINED].split("\n")
    at = next(row for row, line in enumerate(lines, 1) if "target[at] = value" in line)
    source, line = trace.place(f"{JOINED}.py", at)
    assert source == "pkg.bytes.py"
    assert BYTES.split("\n")[line - 1] == lines[at - 1]


def test_a_module_that_stays_apart_is_not_imported_at_the_top() -> None:
    texts = TEXTS | {"pkg.speaker": "from pkg.rare import rare\n"}
    with pytest.raises(BuildError, match=r"pkg\.speaker imports pkg\.rare at its top"):
        flatten(texts, ROOTS, ("pkg.rare",))


def test_machine_code_stays_a_module_of_its_own() -> None:
    native = (
        "import micropython\n\n@micropython.viper\ndef add(a: int) -> int:\n    return a + 1\n"
    )
    texts = TEXTS | {"pkg.native": native, "pkg.other": "from pkg.native import add\nadd(1)\n"}
    flat = flatten(texts, ROOTS, ("pkg.rare",))
    assert flat.texts["pkg.native"] == native
    assert "from pkg.native import add" in flat.texts[JOINED]


def test_a_name_that_comes_from_a_module_of_its_own_is_not_hidden(tmp_path: Path) -> None:
    native = (
        "import micropython\n\n@micropython.viper\ndef fill(a: int) -> int:\n    return a + 1\n"
    )
    user = "from pkg.native import fill\n\ndef use():\n    return fill(1)\n"
    texts = TEXTS | {"pkg.native": native, "pkg.user": user}
    flat = flatten(texts, ("pkg.user", *ROOTS), ("pkg.rare",))
    program = "from pkg.user import use\nfrom pkg.codec import fill\nprint(use(), fill(2))\n"
    assert run(flat.texts, tmp_path / "after", program) == "2 bytearray(b'\\x08\\x08')\n"


def test_what_is_handed_on_keeps_its_meaning(tmp_path: Path) -> None:
    texts = TEXTS | {
        "pkg.hands": "from pkg.codec import fill\n\ndef own():\n    return fill(1)\n",
        "pkg.user": "from pkg.hands import fill\n\ndef use():\n    return fill(3)\n",
    }
    flat = flatten(texts, (*ROOTS, "pkg.user"), ("pkg.rare",))
    assert "fill" in flat.names.values(), "pkg.bytes has another one"
    program = "from pkg.user import use\nprint(use())\n"
    assert run(flat.texts, tmp_path / "after", program) == "bytearray(b'\\x08\\x08\\x08')\n"


def test_two_things_of_one_name_are_refused() -> None:
    texts = TEXTS | {"pkg.other": "from os import listdir as struct\nstruct()\n"}
    with pytest.raises(BuildError, match="imports another struct"):
        flatten(texts, ROOTS, ("pkg.rare",))


@pytest.mark.parametrize(
    ("name", "board", "carriers"),
    [("micro", "micro", ()), ("full", "rp2", ()), ("small", "rp2", ("serial-sealed",)),
     ("small", "esp32", ("stick",)), ("small", "unix", ("mqtt",))],
)  # fmt: skip
def test_every_name_that_a_set_imports_is_in_its_joined_module(
    name: str, board: str, carriers: tuple[str, ...]
) -> None:
    choice = resolve(Choice(name, carriers=carriers, board=board))
    flat = flattened(choice, texts(choice, "armv7m"))
    known = bound(flat.texts[JOINED])
    assert len(flat.sources) > 8
    for module, text in flat.texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.module == JOINED:
                assert {alias.name for alias in node.names} <= known, module


def bound(text: str) -> set[str]:
    """The names that a module has at its top once it is loaded."""
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        else:
            stored = (part for part in ast.walk(node) if isinstance(part, ast.Name))
            names |= {part.id for part in stored if isinstance(part.ctx, ast.Store)}
    return names


def test_what_tokens_cannot_rename_is_refused() -> None:
    texts = TEXTS | {"pkg.bytes": BYTES + "\ndef all():\n    return f\"{open('a')}\"\n"}
    with pytest.raises(BuildError, match="joining cannot rename"):
        flatten(texts, ROOTS, ("pkg.rare",))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small set over a plain cable, built to run in place."""
    target = tmp_path_factory.mktemp("small")
    build_set(target, "x86", Choice("small", carriers=("serial",)), in_place=True)
    rom.write(target)
    return target


def traceback(small: Path, tmp_path: Path) -> str:
    """What a mistake in a call prints on a board that runs the set from an image."""
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nsys.path.append({str(rom.LAUNCHER.parent)!r})\nimport rom\n"
        f"rom.start({str(small / rom.IMAGE)!r})\n"
        "from drupelet.base.memory import get_u16\nget_u16(None, 0)\n"
    )
    done = subprocess.run(
        [*micropython_command("x86"), str(program)], capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


def test_a_boards_traceback_names_its_source(small: Path, tmp_path: Path) -> None:
    text = traceback(small, tmp_path)
    assert f'File "{JOINED}.py"' in text
    printed = tmp_path / "printed"
    printed.write_text(text + "\x1b[31m\n")
    done = CliRunner().invoke(app, ["trace", str(small / TRACE), str(printed)])
    assert done.exit_code == 0 and "\x1b" not in done.stdout and JOINED not in done.stdout
    (place,) = (line for line in done.stdout.splitlines() if "base/memory.py" in line)
    line = int(place.split("line ")[1].split(",")[0])
    source = Path(str(drupelet.base.memory.__file__)).read_text("utf-8")
    (function,) = (
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "get_u16"
    )
    assert function.lineno < line <= (function.end_lineno or 0) and "in get_u16" in place
    done = CliRunner().invoke(app, ["trace", str(small / TRACE), str(printed), "--json"])
    report = json.loads(done.stdout)
    assert place in report["lines"]
    (row,) = (row for row in report["places"] if row["file"].endswith("base/memory.py"))
    assert (row["line"], row["function"]) == (line, "get_u16")


def test_private_names_are_told(small: Path) -> None:
    names = json.loads((small / TRACE).read_text("utf-8"))["names"]
    short, name = next((short, name) for short, name in names.items() if short != name)
    trace = Trace.load(small / TRACE)
    text = f"  File \"x.py\", line 1, in {short}\nAttributeError: no attribute '{short}'\n"
    assert trace.translated(text).count(name) == 2


@pytest.mark.parametrize("content", ["", "[]", '{"names": 1, "sources": []}', '{"names": {}}'])
def test_a_file_that_is_no_trace_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(content)
    for arguments in ([str(path)], [str(tmp_path / "none")]):
        done = CliRunner().invoke(app, ["trace", *arguments], input="")
        assert done.exit_code == 1 and len(done.stderr.splitlines()) == 1


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    """`/dev/zero` for a trace, a traceback or a configuration: one line, and no memory."""
    whole = tmp_path / "trace.json"
    whole.write_text('{"names": {}, "sources": []}')
    build = ["build", "--set", "small", "--arch", "x86", "--config", "/dev/zero"]
    for words in (["trace", "/dev/zero"], ["trace", str(whole), "/dev/zero"], [*build, "unused"]):
        done = CliRunner().invoke(app, words, input="")
        assert done.exit_code == 1 and len(done.stderr.splitlines()) == 1, done.output
    with pytest.raises(ValueError, match="name another file"):
        read_book(Path("/dev/zero"))
