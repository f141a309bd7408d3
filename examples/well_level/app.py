"""The level of a well: the mean of some readings of a pressure probe, once per period.

The probe (4 to 20 mA, 0 to 5 m of water) stands over 150 ohm, so that it shows 600 to 3,000 mV at
ADC0. It has power only while it is read: GP22 switches it.
"""

import time

from machine import ADC, Pin

READINGS = 32
WARM_UP_MS = 50
SUPPLY_MV = 3300  # what 65535 of the ADC stands for
EMPTY_MV = 600
FULL_MV = 3000
FULL_MM = 5000
SLACK_MV = 30  # a probe in air may show a little less than 4 mA

probe = ADC(26)
power = Pin(22, Pin.OUT)


def sample(now):
    """The level as text; ValueError where the probe does not answer."""
    power.on()
    try:
        time.sleep_ms(WARM_UP_MS)
        total = 0
        for _ in range(READINGS):
            total += probe.read_u16()
    finally:
        power.off()
    millivolts = total * SUPPLY_MV // (65535 * READINGS)
    if not EMPTY_MV - SLACK_MV <= millivolts <= FULL_MV + SLACK_MV:
        raise ValueError("the probe shows %d mV: is it connected?" % millivolts)
    level = (millivolts - EMPTY_MV) * FULL_MM // (FULL_MV - EMPTY_MV)
    return b'{"level_mm":%d}' % level
