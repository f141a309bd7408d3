"""Deep sleep of an STM32F4: the snapshot is in its 4 KB of backup RAM.

    magic u32, size u32, ms to the next reading u32, ms of sleep u32, the snapshot

Backup RAM survives standby and, with a battery of its own, power cuts, so it is valid only at the
end of a deep sleep.
"""

import time

import machine
import stm
import uctypes

from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError
from drupelet.base.limits import RTC_SIZE_MAX
from drupelet.base.memory import copy, get_u32, put_u32

_RAM = const(0x40024000)
_MAGIC = const(0x44525542)
_HEAD_SIZE = const(16)
# Bits of clock and power control (RM0090, 5.4): write access to the backup domain, its regulator.
_APB1_POWER = const(1 << 28)
_AHB1_RAM = const(1 << 18)
_ACCESS = const(1 << 8)
_REGULATOR = const(1 << 9)


def _open_ram() -> bytearray:
    """Return the backup RAM as bytes; DrupeletError if this chip has another one, or none."""
    try:
        clocks, power = stm.RCC, stm.PWR
        access, regulator = power + stm.PWR_CR, power + stm.PWR_CSR
        buses = clocks + stm.RCC_AHB1ENR, clocks + stm.RCC_APB1ENR
    except AttributeError:
        raise DrupeletError("sleep: only an STM32F4's backup RAM is known: leave it out") from None
    stm.mem32[buses[1]] |= _APB1_POWER
    stm.mem32[access] |= _ACCESS
    stm.mem32[buses[0]] |= _AHB1_RAM
    stm.mem32[regulator] |= _REGULATOR  # supplies the RAM in standby
    return uctypes.bytearray_at(_RAM, _HEAD_SIZE + RTC_SIZE_MAX)


class Rtc:
    """See `boards.ports.RtcPort`."""

    def __init__(self) -> None:
        self._ram = _open_ram()
        self.size = RTC_SIZE_MAX
        self.slept_ms = self.due_ms = 0
        self._kept = 0
        ram = self._ram
        has_woken = machine.reset_cause() == machine.DEEPSLEEP_RESET
        if has_woken and get_u32(ram, 0) == _MAGIC and get_u32(ram, 4) <= RTC_SIZE_MAX:
            self._kept = get_u32(ram, 4)
            self.due_ms = get_u32(ram, 8)
            # Ticks begin at the wake: count the start so far as sleep.
            self.slept_ms = get_u32(ram, 12) + time.ticks_ms()

    def load_into(self, buf: bytearray) -> int:
        """Copy the snapshot of the last sleep to `buf`; its size, 0: none, or power was lost."""
        copy(buf, 0, self._ram, _HEAD_SIZE, self._kept)
        return self._kept

    def forget(self) -> None:
        """Erase the snapshot, so that a second boot does not use it again."""
        self._kept = 0
        put_u32(self._ram, 0, 0)

    def deep_sleep(self, buf: bytearray, size: int, wait_ms: int, due_ms: int) -> None:
        """Keep `buf[:size]` and `due_ms`, sleep, and boot again."""
        ram = self._ram
        copy(ram, _HEAD_SIZE, buf, 0, size)
        put_u32(ram, 4, size)
        put_u32(ram, 8, due_ms)
        put_u32(ram, 12, wait_ms)
        put_u32(ram, 0, _MAGIC)
        machine.deepsleep(wait_ms)
