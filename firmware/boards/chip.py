"""What ports with MicroPython's module `machine` have in common: microcontrollers.

Keys of a configuration that are read here and in the modules that this one loads (docs/boards.md):

    led          number or name of the status LED's pin, on while the board is awake
    watchdog_ms  the board is reset when a turn takes longer
    battery      {pin, times}: an ADC behind a divider by `times`
    sd           {spi, sck, mosi, miso, cs, detect}: the card that is a stick (boards/card.py)
    wifi         {ssid, password_file}: a network to join (boards/wifi.py)
"""

import os
import time

import machine
import micropython

from boards.base import BasePort
from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError
from drupelet.base.events import (
    RESET_DEEP_SLEEP,
    RESET_HARD,
    RESET_POWER_ON,
    RESET_SOFT,
    RESET_WATCHDOG,
)
from drupelet.base.limits import FRAME_SIZE_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.card import Card
    from boards.ports import DevicePort, RtcPort, Take
    from boards.volts import Battery
    from boards.wifi import Wifi
    from drupelet_transports.stream_board import StreamBoard

# Ports count seconds from 1970 or from 2000; messages and the black box from 1970.
_ORIGIN_MS = 0
if hasattr(time, "gmtime") and time.gmtime(0)[0] == 2000:
    _ORIGIN_MS = 946684800000
# A clock that nobody set begins in 2000, 2015 or 2021, by the port: before 2024 it tells nothing.
_SET_MS = 1704067200000
BAUD = const(115200)
_CTRL_C = const(3)
# What a UART takes in while a turn of the board lasts: two frames of the longest size.
_RX_SIZE = const(2080)


def take_apart(url: str) -> "tuple[str, str, dict[str, str]]":
    """Scheme, place and options of a URL; `drupelet_transports.url` says what each may be."""
    scheme, rest = url.split(":", 1)
    text = ""
    if "?" in rest:
        rest, text = rest.split("?", 1)
    return scheme, rest, dict([pair.split("=", 1) for pair in text.split("&") if pair])


class ChipPort(BasePort):
    """A microcontroller; see `boards.ports.Port`."""

    uart_pins = True  # whether a UART's pins can be chosen
    uart_buffers = True  # whether it has buffers of a size that can be chosen
    # What it sends by itself, 0 where it has no buffer for that; a frame goes in piece by piece.
    uart_tx_size = 256
    adc_full_mv = 3300  # at which an ADC reads 65535; most take the supply for it

    def __init__(self, config: dict) -> None:
        BasePort.__init__(self)
        self._config = config
        try:
            os.mkdir(config["flash"])
        except OSError:
            pass  # it is there, as after the first boot
        self._watchdog = None
        self._turn_ms = 0  # how long a wait may be while the watchdog runs
        led = config.get("led")
        self._led = None if led is None else machine.Pin(led, machine.Pin.OUT, value=1)

    def anchor_into(self, out: bytearray) -> bool:
        """Write 6 bytes, little-endian: ms since the Unix epoch. False: nobody set the clock."""
        BasePort.anchor_into(self, out)
        return self._unix_ms() >= _SET_MS

    def _unix_ms(self) -> int:
        """Where a chip has no calendar: since its reset."""
        if not hasattr(time, "time_ns"):
            return time.ticks_ms()
        return BasePort._unix_ms(self) + _ORIGIN_MS

    def reset_cause(self) -> int:
        """RESET_* of drupelet.telemetry.black_box, 0 for what this port does not name."""
        cause = machine.reset_cause()
        for name, code in (
            ("DEEPSLEEP_RESET", RESET_DEEP_SLEEP), ("WDT_RESET", RESET_WATCHDOG),
            ("PWRON_RESET", RESET_POWER_ON), ("HARD_RESET", RESET_HARD),
            ("SOFT_RESET", RESET_SOFT),
        ):  # fmt: skip
            if getattr(machine, name, None) == cause:
                return code
        return 0

    def feed(self) -> None:
        """Tell the watchdog, if it runs, that the board does."""
        if self._watchdog is not None:
            self._watchdog.feed()

    def release(self) -> None:
        """Give the console back to the interpreter: Ctrl-C interrupts again."""
        micropython.kbd_intr(_CTRL_C)

    def wait(self, wait_ms: int) -> None:
        """Wait with the LED out; no longer than the watchdog lets it, which is fed.

        The processor idles: in MicroPython's light sleep neither a UART nor USB hears anything.
        """
        self.feed()
        if self._led is not None:
            self._led.value(0)
        BasePort.wait(self, min(wait_ms, self._turn_ms) if self._turn_ms else wait_ms)
        if self._led is not None:
            self._led.value(1)

    def guard(self, wait_ms: int) -> None:
        """Start the chip's watchdog; it cannot be stopped."""
        try:
            self._watchdog = machine.WDT(timeout=wait_ms)
        except ValueError:
            raise DrupeletError("watchdog_ms: %d is too long for this chip" % wait_ms) from None
        self._turn_ms = wait_ms >> 1

    def attach(self, board: "DevicePort") -> None:
        """Its battery, its network, and last its watchdog, which runs from then on."""
        config = self._config
        if config.get("battery"):
            board.battery = self.battery(config["battery"])
        if config.get("wifi"):
            keeper = self.network(config["wifi"])
            board.served.append([keeper, keeper, None])
        if config.get("watchdog_ms"):
            self.guard(config["watchdog_ms"])

    def rtc(self, _settings: dict) -> "RtcPort":
        """What outlives deep sleep, where there is such a thing."""
        raise DrupeletError("sleep: this kind of board has none that ends by itself: leave it out")

    def open_line(self, url: str) -> "StreamBoard":
        """A UART by its number, or the console, which then is no console any more."""
        from drupelet_transports.stream_board import StreamBoard

        scheme, where, options = take_apart(url)
        frame_size_max = int(options.get("frame", FRAME_SIZE_MAX))
        if scheme == "console":
            from boards.console_line import ConsoleStream

            stream = ConsoleStream(self.console)
            return StreamBoard(stream, frame_size_max, stream.watched)
        if scheme != "uart":
            raise DrupeletError(scheme + ": is for Linux: use uart:1?tx=4&rx=5, or console:")
        try:
            uart = self._open_uart(int(where), options)
        except ValueError as error:
            raise DrupeletError("uart:%s: %s" % (where, error)) from None
        return StreamBoard(uart, frame_size_max)

    def _open_uart(self, number: int, options: "dict[str, str]") -> "machine.UART":
        settings = {"baudrate": int(options.get("baud", BAUD)), "timeout": 0}
        if self.uart_buffers:
            settings["rxbuf"] = _RX_SIZE
            if self.uart_tx_size:
                settings["txbuf"] = self.uart_tx_size
        for name in ("tx", "rx"):
            if name in options:
                if not self.uart_pins:
                    raise ValueError("this port has fixed pins for its UARTs: leave out tx and rx")
                settings[name] = machine.Pin(int(options[name]))
        return machine.UART(number, **settings)

    def open_stick(self, path: str, own_id: "bytes | bytearray") -> "Card":
        """The SD card that the configuration says how to reach, mounted at `path`."""
        if "sd" not in self._config:
            raise DrupeletError("stick: say in sd how its card is wired")
        try:
            import sdcard  # noqa: F401 - of micropython-lib, which may not be on the board
        except ImportError:
            raise DrupeletError(
                "stick: the driver of the card is missing: mpremote mip install sdcard"
            ) from None
        from boards.card import Card

        return Card(path, own_id, self._config["sd"])

    def network(self, settings: dict) -> "Wifi":
        """Wi-Fi, which is kept up."""
        from boards.wifi import Wifi

        return Wifi(settings, self.console.say)

    def battery(self, setting: dict) -> "Battery":
        """An ADC."""
        from boards.volts import Battery

        return Battery(setting["pin"], setting.get("times", 1), self.adc_full_mv)

    def warmth(self) -> "float | None":
        """Degrees Celsius of the chip; None where it cannot be asked."""
        return None

    def source(self, config: dict) -> "Take":
        """How the chip is."""
        from boards.vitals import Vitals

        return Vitals(self, config).take
