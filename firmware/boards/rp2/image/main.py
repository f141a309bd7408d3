"""The image's main.py, run after `_boot.py`: starts the node that drupelet.json on the drive
describes.

Without that file, the board waits for it on its console (docs/SPEC.md 8.2). A failed start resets
the chip and is counted in a scratch register of the watchdog, which survives a reset and is
cleared by a power cut. After the third failure the board stays at the REPL, whose prompt says why.
A minute without a failure clears the count; so does deep sleep (boards/rp2/rtc.py), because a
board that reached it has not failed.
"""

import micropython

# Frames may arrive during the boot: a byte 03 of theirs must not interrupt it. MicroPython lets
# Ctrl-C in at the beginning of each program.
micropython.kbd_intr(-1)

import json
import os
import select
import sys
import time

import machine

CONFIGURATION = "/drupelet.json"
STARTS_MAX = 3
_STEADY_MS = 60000
_CTRL_C = 3
_NO_BYTE = -1
_LINE_SIZE_MAX = 2048  # of a line with a configuration
_SETTLE_MS = 10
_RESET_MS = 1000  # long enough to print the failure over USB
# The watchdog's scratch register 7. The boot ROM reads 5 to 7 only if 4 has a magic number, which
# MicroPython never writes. Deep sleep uses 0 to 3 (boards/rp2/rtc.py).
_SCRATCH = 0x40058028
_CONFIGURE = b"keys configure "
_WATCHDOG_CLEAR = 0x4005B000  # alias: bits written here are cleared in the control register
_WATCHDOG_ENABLE = 1 << 30
_MAGIC = 0xD7B0  # in the upper half of the register: the lower half is our count
# The exceptions of mistakes in code or configuration; KeyboardInterrupt is not among them.
_FAILURES = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, MemoryError,
    NameError, OSError, RuntimeError, SyntaxError, TypeError, ValueError,
)  # fmt: skip


def _failed() -> int:
    """Return how many starts failed since the last successful one."""
    register = machine.mem32[_SCRATCH]
    return register & 0xFF if register >> 16 & 0xFFFF == _MAGIC else 0


def _keep(failed: int) -> None:
    machine.mem32[_SCRATCH] = _MAGIC << 16 | failed


def _steady(_timer: "machine.Timer | None" = None) -> None:
    _keep(0)


def _say(line: str) -> None:
    """Give the console to the REPL, with this line in its prompt."""
    micropython.kbd_intr(_CTRL_C)
    sys.ps1 = "drupelet: " + line + "\n>>> "


def _fail(why: str) -> None:
    """End a failed start by a reset, or after the third at the REPL."""
    failed = _failed()
    print("drupelet: start %d of %d failed: %s" % (failed, STARTS_MAX, why))
    if failed < STARTS_MAX:
        time.sleep_ms(_RESET_MS)
        machine.reset()
    machine.mem32[_WATCHDOG_CLEAR] = _WATCHDOG_ENABLE  # nobody feeds it at the prompt
    _keep(0)
    _say("%d starts failed, the last one: %s; Ctrl-D starts again" % (STARTS_MAX, why))


def _configure() -> bool:
    """Wait for `drupelet provision` to send drupelet.json; False after Ctrl-C, which `drupelet
    flash` sends, too."""
    print("drupelet: no %s on the drive: waiting for it; Ctrl-C gives the prompt" % CONFIGURATION)
    waiting = select.poll()
    waiting.register(sys.stdin, select.POLLIN)
    try:
        while True:
            waiting.poll()
            # Let a Ctrl-C raise here, so that bytes after it are left to the prompt.
            time.sleep_ms(_SETTLE_MS)
            line = sys.stdin.buffer.readline(_LINE_SIZE_MAX)
            if line.startswith(b"keys hello"):
                print('{"event":"keys","step":"blank"}')
            elif line.startswith(_CONFIGURE):
                if _take(line[len(_CONFIGURE) :]):
                    print('{"event":"keys","step":"configured"}')
                    return True
                print('{"event":"keys","step":"no","why":"not a whole configuration, or no room"}')
    except KeyboardInterrupt:
        return False


def _take(text: bytes) -> bool:
    """Write the configuration to the drive atomically; False: it is not whole, or no room."""
    try:
        if not isinstance(json.loads(text), dict):
            return False
        with open(CONFIGURATION + ".new", "wb") as file:
            file.write(text)
        os.rename(CONFIGURATION + ".new", CONFIGURATION)
    except (OSError, ValueError):
        return False
    return True


def _start() -> None:
    try:
        os.stat(CONFIGURATION)
    except OSError:
        micropython.kbd_intr(_CTRL_C)
        if not _configure():
            _say("no " + CONFIGURATION + " on the drive: send it with `drupelet flash`")
            return
        micropython.kbd_intr(_NO_BYTE)
    failed = _failed()
    if failed >= STARTS_MAX:
        _keep(0)
        _say("%d starts ended in a reset without a word; Ctrl-D starts again" % STARTS_MAX)
        return
    _keep(failed + 1)
    steady = machine.Timer(-1, mode=machine.Timer.ONE_SHOT, period=_STEADY_MS, callback=_steady)
    try:
        from boards.rp2.main import run

        code = run()
    except KeyboardInterrupt:
        code = 0
    except _FAILURES as error:
        _fail("%s: %s" % (type(error).__name__, error))
        return
    finally:
        steady.deinit()
    if code:
        _fail("see the line above")
        return
    _keep(0)
    _say("the node was stopped; Ctrl-D starts it again")


_start()
