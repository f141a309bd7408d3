"""A battery at an analogue input."""

import machine

from drupelet.base.compat import const

_READINGS = const(8)
_FULL = const(65535)


class Battery:
    """Measures a battery behind a voltage divider by `times`: 3 for a Pico's VSYS on pin 29."""

    def __init__(self, pin: "int | str", times: float, full_mv: int) -> None:
        self._adc = machine.ADC(pin)
        self._full_mv = full_mv
        self._times = times

    def millivolts(self) -> int:
        """Return the voltage in mV, the mean of several readings."""
        total = 0
        for _ in range(_READINGS):
            total += self._adc.read_u16()
        return int(total * self._full_mv * self._times) // (_READINGS * _FULL)
