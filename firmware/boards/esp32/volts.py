"""A battery at an analogue input of an ESP32."""

import machine

from drupelet.base.compat import const

_READINGS = const(8)


class Battery:
    """Measures a battery behind a voltage divider by `times`; at most 2.45 V at the pin."""

    def __init__(self, pin: int, times: float) -> None:
        self._adc = machine.ADC(machine.Pin(pin), atten=machine.ADC.ATTN_11DB)
        self._times = times

    def millivolts(self) -> int:
        """Return the voltage in mV, the mean of several readings."""
        total = 0
        for _ in range(_READINGS):
            total += self._adc.read_uv()
        return int(total * self._times) // (_READINGS * 1000)
