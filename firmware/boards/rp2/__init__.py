"""The port of RP2040 and RP2350. This module accesses the chip's watchdog: the scratch register
that survives a reset, and stopping it, for which MicroPython has no call.
"""

import sys

import machine

from drupelet.base.compat import const

# The watchdog's first scratch register, which only a power-on reset clears: boards/rp2/rtc.py.
SCRATCH = const(0x4005800C)
MAGIC = const(0x4452)
_CTRL_CLEAR = const(0x4005B000)  # alias: bits written here are cleared in the control register
_ENABLE = const(1 << 30)
# The name is in a string because builds of firmware sets shorten private names.
CHIP = getattr(sys.implementation, "_machine")  # noqa: B009


def is_known() -> bool:
    """Whether this chip has the registers above: RP2040 data sheet, 4.7."""
    return "RP2040" in CHIP


def has_woken() -> bool:
    """Whether the reset before this boot ended a deep sleep."""
    return is_known() and machine.mem32[SCRATCH] >> 16 == MAGIC


def stop_watchdog() -> None:
    """Stop the watchdog."""
    if is_known():
        machine.mem32[_CTRL_CLEAR] = _ENABLE
