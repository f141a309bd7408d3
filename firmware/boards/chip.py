"""Base of the microcontrollers' ports: what ports with the module `machine` have in common.

Configuration keys that are read here and in the modules that this one loads (docs/boards.md):

    led          number or name of the status LED's pin, on while the board is awake
    watchdog_ms  the watchdog resets the board if a turn takes longer
    battery      {pin, times}: an ADC behind a voltage divider by `times`
    sd           {spi, sck, mosi, miso, cs, detect}: the card that is a stick (boards/card.py)
    wifi         {ssid, password_file}: a network to join (boards/wifi.py)
"""

import os
import time

import machine
import micropython

from boards.base import CTRL_C, NO_BYTE, BasePort
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
    from drupelet_transports.board.stream import StreamBoard

# Ports count time from 1970 or from 2000; messages and the black box from 1970.
_ORIGIN_MS = 0
if hasattr(time, "gmtime") and time.gmtime(0)[0] == 2000:
    _ORIGIN_MS = 946684800000
BAUD = const(115200)
_LAST_WORDS_MS = const(1000)  # for the console to send what was printed before a reset
# What an ADC reads at most, and at which voltage: usually that of the supply.
_ADC_FULL = const(65535)
_ADC_FULL_MV = const(3300)


def take_apart(url: str) -> "tuple[str, str, dict[str, str]]":
    """Return scheme, place and options of a URL (`drupelet_transports.common.url` lists them)."""
    scheme, rest = url.split(":", 1)
    text = ""
    if "?" in rest:
        rest, text = rest.split("?", 1)
    return scheme, rest, dict([pair.split("=", 1) for pair in text.split("&") if pair])


class ChipPort(BasePort):
    """A microcontroller; see `boards.ports.Port`."""

    # A clock that was never set begins in 2000, 2015 or 2021, depending on the port, so a time
    # before 2024 is not valid. In days, so that it is a small int, and the class stays in flash.
    clock_set_days = 19723
    uart_pins = True  # whether a UART's pins can be configured
    # Sizes of a UART's buffers; 0: the port cannot configure it. The receive buffer holds two of
    # the longest frames, for what comes during a turn. The transmit buffer may be shorter than a
    # frame, which is written to it piece by piece.
    uart_rx_size = 2080
    uart_tx_size = 256

    def __init__(self, config: dict) -> None:
        BasePort.__init__(self, config)
        # Where frames come over the console, one of their bytes may be that of Ctrl-C.
        has_frames = [1 for peer in config["peers"] if peer["url"].startswith("console:")]
        micropython.kbd_intr(NO_BYTE if has_frames else CTRL_C)
        try:
            os.mkdir(config["flash"])
        except OSError:
            pass  # it exists since the first boot
        self._watchdog = None
        self._turn_ms = 0  # the longest wait while the watchdog runs; 0: it does not run
        led = config.get("led")
        self._led = None if led is None else machine.Pin(led, machine.Pin.OUT, value=1)

    def _unix_ms(self) -> int:
        """Return ms since the Unix epoch; since the reset if the chip has no calendar."""
        if not hasattr(time, "time_ns"):
            return time.ticks_ms()
        return BasePort._unix_ms(self) + _ORIGIN_MS

    def reset_cause(self) -> int:
        """Return RESET_* of drupelet.base.events, 0 for a cause that this port does not name."""
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
        """Feed the watchdog, if it runs."""
        if self._watchdog is not None:
            self._watchdog.feed()

    def release(self) -> None:
        """Give the console back to the interpreter: let Ctrl-C interrupt again."""
        micropython.kbd_intr(CTRL_C)

    def restart(self) -> None:
        """Reset the board."""
        time.sleep_ms(_LAST_WORDS_MS)
        machine.reset()

    def wait(self, wait_ms: int) -> None:
        """Feed the watchdog and wait with the LED off, at most for half the watchdog's time.

        The processor only idles: in MicroPython's light sleep UART and USB receive nothing.
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
        """Add battery and network to a board, then start the watchdog."""
        config = self._config
        if config.get("battery"):
            board.battery = self.battery(config["battery"])
        if config.get("wifi"):
            keeper = self.network(config["wifi"])
            board.served.append([keeper, keeper, None])
        if config.get("watchdog_ms"):
            self.guard(config["watchdog_ms"])

    def rtc(self, _settings: dict) -> "RtcPort":
        """Raise DrupeletError; ports with memory that outlives deep sleep override this."""
        raise DrupeletError("sleep: this kind of board has none that ends by itself: leave it out")

    def open_line(self, url: str) -> "StreamBoard":
        """Open a UART by its number, or the console, which then is only the peer's line."""
        from drupelet_transports.board.stream import StreamBoard

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
        for name, size in (("rxbuf", self.uart_rx_size), ("txbuf", self.uart_tx_size)):
            if size:
                settings[name] = size
        for name in ("tx", "rx"):
            if name in options:
                if not self.uart_pins:
                    raise ValueError("this port has fixed pins for its UARTs: leave out tx and rx")
                settings[name] = machine.Pin(int(options[name]))
        return machine.UART(number, **settings)

    def open_stick(self, path: str, own_id: "bytes | bytearray") -> "Card":
        """Return the SD card whose wiring the configuration describes, mounted at `path`."""
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
        """Return the Wi-Fi connection."""
        from boards.wifi import Wifi

        return Wifi(settings, self.console.say)

    def battery(self, setting: dict) -> "Battery":
        """Return a battery measured by an ADC."""
        from boards.volts import Battery

        read = machine.ADC(setting["pin"]).read_u16
        return Battery(read, _ADC_FULL, _ADC_FULL_MV, setting.get("times", 1))

    def warmth(self) -> "float | None":
        """Return the chip's temperature in degrees Celsius; None if it has no sensor."""
        return None

    def source(self, config: dict) -> "Take":
        """Return a source of readings of the chip itself."""
        from boards.vitals import Vitals

        return Vitals(self, config).take
