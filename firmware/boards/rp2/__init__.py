"""The port of RP2040 and RP2350. Here is what all its modules know of the chip's watchdog: what a
reset leaves in it, and how to end it, which MicroPython cannot.
"""

import sys

import machine

from drupelet.base.compat import const

# Its first scratch register, which no reset but that of power changes: see boards/rp2/rtc.py.
SCRATCH = const(0x4005800C)
MAGIC = const(0x4452)
_CTRL_CLEAR = const(0x4005B000)  # what is written here is cleared in the watchdog's control
_ENABLE = const(1 << 30)
# In a string, because firmware sets give private names shorter ones.
CHIP = getattr(sys.implementation, "_machine")  # noqa: B009


def is_known() -> bool:
    """Whether this chip's registers are as written here."""
    return "RP2040" in CHIP


def has_woken() -> bool:
    """Whether the reset before this boot ended a deep sleep."""
    return is_known() and machine.mem32[SCRATCH] >> 16 == MAGIC


def stop_watchdog() -> None:
    """End the watchdog."""
    if is_known():
        machine.mem32[_CTRL_CLEAR] = _ENABLE
