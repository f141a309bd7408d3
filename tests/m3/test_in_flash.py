"""Functions and classes that an image has in flash: they do what Python's do, and take no heap."""

import io
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path

from drupelet_tools.flash.build import ARCHES, compile_module
from drupelet_tools.flash.flatten import JOINED
from drupelet_tools.m3 import drive
from drupelet_tools.m3.image import ARCH, compiled, image_of
from drupelet_tools.m3.machine import Machine, Start

SOURCE = Path(__file__).with_name("classes.py")
METHODS = 100
# The module's dictionary, and its row among the modules.
MODULE_SIZE_MAX = 96
RUN_S = 120


def run(folder: Path, joined: str, program: str) -> list[str]:
    """What a board prints that has `joined` as its joined module in flash, and runs a program."""
    frozen = folder / "frozen"
    frozen.mkdir()
    compile_module(joined, Path(f"{JOINED}.py"), frozen / f"{JOINED}.mpy", ARCHES[ARCH][0])
    drive.write(folder / "drive", {
        "/program.mpy": compiled("program.py", program), "/main.py": b"import program\n",
    })  # fmt: skip
    with Machine(Start(image_of("test", frozen), folder / "drive", 64 * 1024)) as board:
        return board.wait_for(b"end\r\n", RUN_S, b">>> ").decode().splitlines()


def test_classes_do_what_they_do_in_python(tmp_path: Path) -> None:
    expected = io.StringIO()
    with redirect_stdout(expected):
        runpy.run_path(str(SOURCE))["main"]()
    program = f"""
import {JOINED} as joined
joined.main()
for name in dir(joined):
    try:
        getattr(joined, name).new = 1
    except AttributeError:
        if name[0] != "_" and type(getattr(joined, name)) is type:
            print(name)
print("end")
"""
    printed = run(tmp_path, SOURCE.read_text("utf-8"), program)
    lines = expected.getvalue().splitlines()
    assert printed[: len(lines)] == lines
    assert sorted(printed[len(lines) : -1]) == ["Late", "Near", "Plain", "Root", "thing"]


def test_a_method_takes_no_heap(tmp_path: Path) -> None:
    methods = "".join(
        f"    def method_{number}(self):\n        return {number}\n" for number in range(METHODS)
    )
    heirs = "class Small(Large):\n    @property\n    def one(self):\n        return 1\n"
    program = f"""
import gc
gc.collect()
before = gc.mem_alloc()
import {JOINED}
gc.collect()
print("heap", gc.mem_alloc() - before)
small = {JOINED}.Small()
print(sum(getattr(small, "method_%d" % number)() for number in range({METHODS})) + small.one)
print("end")
"""
    heap, total, _ = run(tmp_path, f"class Large:\n{methods}{heirs}", program)
    taken = int(re.sub(r"heap (\d+)", r"\1", heap))
    print(f"\na module of two classes with {METHODS + 1} methods: {taken} B")
    assert total == str(sum(range(METHODS)) + 1)
    assert taken <= MODULE_SIZE_MAX
