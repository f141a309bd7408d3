# mypy: ignore-errors
"""The board's side of a run in turns with its peer (bench/turns.py): its UART and its clock.

The UART's bytes go over the console, and the clock makes one step in each turn. So nothing that
the board does depends on how fast this machine or the peer is, and a count of it repeats.
"""

import binascii
import sys

import machine

import board

STEP_MS = 10


class Line:
    """Instead of machine.UART; there is one."""

    now_ms = 0
    received = bytearray()
    sent = bytearray()

    def __init__(self, *_args: object, **_settings: object) -> None:
        pass

    def readinto(self, buf: bytearray) -> "int | None":
        """As a stream that never waits."""
        received = Line.received
        size = min(len(buf), len(received))
        buf[:size] = received[:size]
        Line.received = received[size:]
        return size or None

    def write(self, buf: bytearray, at: int, size: int) -> int:
        """Take everything."""
        Line.sent.extend(memoryview(buf)[at : at + size])
        return size

    def deinit(self) -> None:
        """Nothing holds it."""


class Machine:
    """Module machine with that UART."""

    UART = Line

    def __getattr__(self, name: str) -> object:
        return getattr(machine, name)


def begin() -> None:
    """Before any module of the program is imported."""
    board.hold_clock(0)
    sys.modules["machine"] = Machine()


def turn(*_args: object) -> None:
    """The peer's turn. Raises KeyboardInterrupt at the end of the exchange."""
    print("> ", Line.now_ms, " ", binascii.hexlify(Line.sent).decode(), sep="")
    Line.sent = bytearray()
    text = sys.stdin.buffer.readline().strip()
    if text == b"stop":
        raise KeyboardInterrupt
    Line.received.extend(binascii.unhexlify(text))
    Line.now_ms += STEP_MS
    board.hold_clock(Line.now_ms)


def nothing(*_args: object) -> None:
    """Instead of what has no use here."""
