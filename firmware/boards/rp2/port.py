"""The port of RP2040 and RP2350, such as a Raspberry Pi Pico; deep sleep on the RP2040 only."""

import machine

from boards.chip import ChipPort
from boards.rp2 import has_woken, stop_watchdog
from drupelet.base.compat import const
from drupelet.base.events import RESET_DEEP_SLEEP, RESET_SOFT, RESET_WATCHDOG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.rp2.rtc import Rtc

_CORE_TEMP = const(4)  # the ADC's channel of the chip's temperature sensor
_FULL = const(65535)


class Port(ChipPort):
    """See `boards.ports.Port`."""

    board = 4  # docs/SPEC.md 6.1

    def __init__(self, config: dict) -> None:
        ChipPort.__init__(self, config)
        self._woke = has_woken()  # read it before `Rtc.forget` clears the register

    def release(self) -> None:
        """Give the console back and stop the watchdog, which nobody feeds at the prompt."""
        ChipPort.release(self)
        stop_watchdog()

    def reset_cause(self) -> int:
        """Return RESET_*; the chip reports software resets, as after deep sleep, as watchdog's."""
        if self._woke:
            return RESET_DEEP_SLEEP
        cause = ChipPort.reset_cause(self)
        if cause == RESET_WATCHDOG and not self._config.get("watchdog_ms"):
            return RESET_SOFT
        return cause

    def rtc(self, _settings: dict) -> "Rtc":
        """Return the snapshot's memory: watchdog scratch registers and two blocks of flash."""
        from boards.rp2.rtc import Rtc

        return Rtc(self._config["flash"])

    def warmth(self) -> float:
        """Return the chip's temperature in degrees Celsius (RP2040 data sheet, 4.9.5)."""
        volts = machine.ADC(_CORE_TEMP).read_u16() * 3.3 / _FULL
        return 27 - (volts - 0.706) / 0.001721
