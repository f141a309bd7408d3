# mypy: ignore-errors
"""What the scripts of this folder share. Runs on MicroPython, and on CPython where that helps.

Compiled firmware has its constants folded in and no names for them: the numbers that a script
needs come on standard input, a JSON object that the host writes from the same names.
(MicroPython's own argument strings have at most 255 bytes.)
"""

import gc
import json
import sys

MICROPYTHON = sys.implementation.name == "micropython"


def settings() -> "dict":
    """What the host wrote on standard input."""
    return json.loads(sys.stdin.readline())


def used() -> int:
    """Bytes of the heap in use, garbage included; nothing here makes any."""
    return gc.mem_alloc()


def load(names: "list") -> int:
    """Import modules; the heap that they keep."""
    gc.collect()
    before = used()
    for name in names:
        __import__(name)
        gc.collect()
    gc.collect()
    return used() - before


def board_files(folder: str) -> "object":
    """The files of the board that this runs on; its package is not one of this room's."""
    name = "boards.files"
    __import__(name)
    return sys.modules[name].BoardFiles(folder)


def no_random() -> int:
    """A random byte that is always the same: two runs do the same."""
    return 7


def say(result: "dict") -> None:
    """Hand a result to the host."""
    print(json.dumps(result))


class Draw:
    """Numbers of a seed in small ints: the same on every interpreter, and without garbage."""

    def __init__(self, seed: int) -> None:
        self._state = (seed * 7919 + 12345) & 0x3FFFFFFF

    def below(self, limit: int) -> int:
        """A number 0 <= n < limit (at most 2^12)."""
        state = self._state
        low = (state & 0x7FFF) * 0x3D09 + 0x1537
        high = (state >> 15) * 0x3D09 + (low >> 15)
        self._state = (low & 0x7FFF) | (high & 0x7FFF) << 15
        return ((self._state >> 12) & 0xFFF) * limit >> 12


def damaged(frames: "list", wanted: int) -> "list":
    """Frames of a real exchange, cut short or with a byte of their first record changed."""
    draw = Draw(5)
    copies = []
    for index in range(wanted):
        source = frames[index % len(frames)]
        if len(source) < 3:
            continue
        frame = bytearray(source)
        if index & 1:
            frame = bytearray(source[: 1 + draw.below(len(source) - 1)])
        else:
            frame[1 + draw.below(min(3, len(source) - 1))] ^= 1 << draw.below(8)
        copies.append(frame)
    copies.append(bytearray(b"\x7f\x00"))
    return copies
