"""How an image starts a node: what the keyboard may stop, and when (boards/rp2/image/main.py)."""

import builtins
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "firmware/boards/rp2/image/main.py"
CTRL_C, NO_BYTE = 3, -1
STEPS = 8  # imports, and the look for a configuration


class Board:
    """The modules that the program imports; a 03 comes in at each step from `bytes_from` on."""

    def __init__(self, configured: bool, bytes_from: int) -> None:
        self.configured = configured
        self.bytes_from = bytes_from
        self.steps = 0
        self.interrupt = CTRL_C  # as MicroPython begins a program
        self.run_with: list[int] = []  # what interrupted when the node began

    def step(self) -> None:
        self.steps += 1
        if self.steps >= self.bytes_from and self.interrupt == CTRL_C:
            raise KeyboardInterrupt

    def stat(self, _path: str) -> None:
        self.step()
        if not self.configured:
            raise OSError(2)

    def import_module(self, name: str, *rest: Any) -> Any:
        if name != "micropython":  # the first one, without which nothing can be masked
            self.step()
        return __import__(name, *rest)

    def poll(self) -> "Board":
        return self

    def register(self, *_: object) -> None:
        pass

    def kbd_intr(self, byte: int) -> None:
        self.interrupt = byte

    def run(self) -> int:
        self.run_with.append(self.interrupt)
        return 0


class Timer:
    """One that never ends."""

    ONE_SHOT = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def deinit(self) -> None:
        pass


def start(board: Board, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the program; the `sys` that it had."""
    registers = dict.fromkeys((0x40058028, 0x4005B000), 0)
    machine = SimpleNamespace(mem32=registers, Timer=Timer)
    waits = SimpleNamespace(poll=lambda _wait=0: board.step(), register=board.register)
    fakes = {
        "machine": machine, "micropython": SimpleNamespace(kbd_intr=board.kbd_intr),
        "os": SimpleNamespace(stat=board.stat),
        "select": SimpleNamespace(poll=lambda: waits, POLLIN=1),
        "sys": SimpleNamespace(stdin=None, ps1=""), "boards": ModuleType("boards"),
        "boards.rp2": ModuleType("boards.rp2"), "boards.rp2.main": board,
    }  # fmt: skip
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    names = {
        "__name__": "__main__",
        "__builtins__": {**vars(builtins), "__import__": board.import_module},
    }
    with suppress(KeyboardInterrupt):  # a board is at its prompt then
        exec(compile(SOURCE.read_text("utf-8"), str(SOURCE), "exec"), names)
    return fakes["sys"]


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_byte_of_a_peer_at_the_console_does_not_stop_the_start(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames may come in from the moment on in which the USB cable is known to its host."""
    board = Board(True, step)
    start(board, monkeypatch)
    assert board.run_with == [NO_BYTE] and board.steps == STEPS


def test_where_there_is_no_configuration_ctrl_c_gives_the_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = Board(False, STEPS)
    system = start(board, monkeypatch)
    assert not board.run_with and board.interrupt == CTRL_C
    assert "no /drupelet.json" in system.ps1
