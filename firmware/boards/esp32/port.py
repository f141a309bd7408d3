"""The port of the ESP32 family."""

import esp32
import machine

from boards.chip import ChipPort

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.esp32.rtc import Rtc
    from boards.volts import Battery


class Port(ChipPort):
    """See `boards.ports.Port`."""

    board = 1  # docs/SPEC.md 6.1
    # A write blocks until all of it is in the buffer, so make room for the longest frame.
    uart_tx_size = 1056

    def rtc(self, _settings: dict) -> "Rtc":
        """Return the chip's RTC memory."""
        from boards.esp32.rtc import Rtc

        return Rtc()

    def battery(self, setting: dict) -> "Battery":
        """Return a battery measured by an ADC with the factory's calibration, up to 2.45 V."""
        from boards.volts import Battery

        adc = machine.ADC(machine.Pin(setting["pin"]), atten=machine.ADC.ATTN_11DB)
        return Battery(adc.read_uv, 1000, 1, setting.get("times", 1))  # it reads microvolts

    def warmth(self) -> float:
        """Return the chip's temperature in degrees Celsius; the first ESP32 gives Fahrenheit."""
        if hasattr(esp32, "mcu_temperature"):
            return esp32.mcu_temperature()
        return (esp32.raw_temperature() - 32) / 1.8
