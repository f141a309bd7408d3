"""RP2040 and RP2350: a Raspberry Pi Pico and its like; deep sleep on the RP2040 only."""

import machine

from boards.chip import ChipPort
from boards.rp2 import has_woken, stop_watchdog
from drupelet.base.compat import const
from drupelet.base.events import RESET_DEEP_SLEEP, RESET_SOFT, RESET_WATCHDOG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.rp2.rtc import Rtc

_BOARD_PICO = const(4)  # docs/SPEC.md 6.1
_CORE_TEMP = const(4)  # the ADC's input inside the chip
_FULL = const(65535)


class Port(ChipPort):
    """See `boards.ports.Port`."""

    board = _BOARD_PICO

    def __init__(self, config: dict) -> None:
        ChipPort.__init__(self, config)
        self._woke = has_woken()  # before the snapshot is used, which makes it void

    def release(self) -> None:
        """As of a port; whoever is at the prompt then does not feed a watchdog."""
        ChipPort.release(self)
        stop_watchdog()

    def reset_cause(self) -> int:
        """The chip calls all resets of its own a watchdog's: deep sleep ends with one, too."""
        if self._woke:
            return RESET_DEEP_SLEEP
        cause = ChipPort.reset_cause(self)
        if cause == RESET_WATCHDOG and not self._config.get("watchdog_ms"):
            return RESET_SOFT
        return cause

    def rtc(self, _settings: dict) -> "Rtc":
        """Watchdog scratch registers and two blocks of flash."""
        from boards.rp2.rtc import Rtc

        return Rtc(self._config["flash"])

    def warmth(self) -> float:
        """Degrees Celsius of the chip, by the formula of its data sheet (4.9.5)."""
        volts = machine.ADC(_CORE_TEMP).read_u16() * 3.3 / _FULL
        return 27 - (volts - 0.706) / 0.001721
