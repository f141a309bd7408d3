"""A battery behind an analogue input of an ESP32."""

import machine

from drupelet.base.compat import const

_READINGS = const(8)


class Battery:
    """`times`: by what a divider makes the voltage smaller; at most 2.45 V reach the pin."""

    def __init__(self, pin: int, times: float) -> None:
        self._adc = machine.ADC(machine.Pin(pin), atten=machine.ADC.ATTN_11DB)
        self._times = times

    def millivolts(self) -> int:
        """What it has now, the mean of several readings."""
        total = 0
        for _ in range(_READINGS):
            total += self._adc.read_uv()
        return int(total * self._times) // (_READINGS * 1000)
