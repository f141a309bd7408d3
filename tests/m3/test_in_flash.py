"""Functions and classes that an image has in flash: they do what Python's do, and take no heap."""

import io
import os
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
# What no one can set an attribute of, of SOURCE.
IN_FLASH = (
    "A_very_long_name_of_a_class_that_is_longer_than_what_one_would_write_in_a_line Chosen Counter"
    " Defaults Defaults_table FirstReplaced FirstTwice InExcept InFinally InTry Iterable Late Near"
    " Nothing OfOperators OfReplaced OfTwice One Operators Own Plain Reads Replaced Root Twice"
    " Two Waiter int_ main_ names_Defaults thing Ünïcode"
)
# Where a drive has a file "fail", the module's first import fails in the middle.
STATEFUL = """
import os
state = None
class Kind:
    value = 1
    def set(self, value):
        global state
        state = value
    def get(self):
        return [state for _ in "1"][0]
def read():
    return state
if "fail" in os.listdir("/"):
    os.rename("/fail", "/failed")
    raise ValueError
class Behind(Kind):
    pass
"""
# The module's dictionary, and its row among the modules.
MODULE_SIZE_MAX = 96
RUN_S = 120


def run(folder: Path, joined: str, program: str) -> list[str]:
    """What a board prints that has `joined` as its joined module in flash, and runs a program."""
    frozen = folder / "frozen"
    frozen.mkdir()
    module = frozen / f"{JOINED}.mpy"
    compile_module(joined, Path(f"{JOINED}.py"), module, ARCHES[ARCH][0])
    os.utime(module, (0, 0))  # as if another image had been made since it was compiled
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
    assert set(printed[len(lines) : -1]) == set(IN_FLASH.split())


def test_a_module_that_is_imported_again_shares_nothing_with_the_first(tmp_path: Path) -> None:
    printed = run(
        tmp_path,
        STATEFUL,
        f"""
import gc, machine, os, sys
def report(module):
    try:
        module.Kind.value = 2
        return "heap"
    except AttributeError:
        return "flash"
try:
    import {JOINED} as first
except ValueError:
    print("failed")
    import {JOINED} as first
first.Kind().set("first")
del sys.modules["{JOINED}"]
gc.collect()
import {JOINED} as second
second.Kind().set("second")
kept, first = first, None
gc.collect()
rest = [bytearray(100) for _ in range(100)]
print(report(kept), report(second), kept is second, kept.Kind is second.Kind)
print(kept.read(), second.read(), kept.Kind().get(), second.Kind().get())
for name in ("reset", "fail"):
    if not any(other.startswith(name) for other in os.listdir("/")):
        open("/" + name, "w").close()
        machine.soft_reset()
print("end")
""",
    )
    separate = ["False False", "first second first second"]
    once = [f"flash heap {separate[0]}", separate[1]]
    again = ["failed", f"heap heap {separate[0]}", separate[1]]
    reset = ["MPY: soft reboot"]
    assert printed == [*once, *reset, *once, *reset, *again, "end"]


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
    lines = run(tmp_path, f"class Large:\n{methods}{heirs}", program)
    assert len(lines) == 3, lines
    heap, total, _ = lines
    taken = int(re.sub(r"heap (\d+)", r"\1", heap))
    print(f"\na module of two classes with {METHODS + 1} methods: {taken} B")
    assert total == str(sum(range(METHODS)) + 1)
    assert taken <= MODULE_SIZE_MAX
