"""Stands in for `machine` of a microcontroller on the unix port: what the real port of that name
lacks is refused as the port refuses it (MicroPython 1.25, ports/<port>/machine_*.c).

What outlives a reset is in `fake_port`.
"""

import io as _io
import time as _time

from fake_port import KEPT as _KEPT
from fake_port import NAME as _NAME
from fake_port import Reset as _Reset

_POLL = 3  # MP_STREAM_POLL
_READABLE, _WRITABLE = 1, 4

# Highest number of a pin; a UART's numbers; what UART() takes besides its number.
_PIN_MAX = {"rp2": 29, "esp32": 39, "stm32": -1, "nrf": 47}[_NAME]
_UARTS = {"rp2": (0, 1), "esp32": (1, 2), "stm32": (1, 2, 3, 4, 6), "nrf": (0,)}[_NAME]
_COMMON = {"baudrate", "timeout", "timeout_char"}
_FULL = _COMMON | {"bits", "parity", "stop", "tx", "rx", "rts", "cts", "txbuf", "rxbuf", "invert",
                   "flow"}  # fmt: skip
_UART_OPTIONS = {
    "rp2": _FULL,
    "esp32": _FULL,
    "stm32": _COMMON | {"bits", "parity", "stop", "flow", "rxbuf", "read_buf_len"},
    "nrf": _COMMON,
}[_NAME]
# Longest time of the watchdog, ms; 0: the port has no class for it.
_WDT_MS_MAX = {"rp2": 8388, "esp32": 1 << 30, "stm32": 32767, "nrf": 0}[_NAME]
# What the timer that ends light sleep can count.
_SLEEP_MS_MAX = {"rp2": 4294967, "esp32": 1 << 30, "stm32": 131072000, "nrf": 0}[_NAME]

_CAUSES = {
    "rp2": ("PWRON_RESET", "WDT_RESET"),
    "esp32": ("PWRON_RESET", "HARD_RESET", "WDT_RESET", "DEEPSLEEP_RESET", "SOFT_RESET"),
    "stm32": ("SOFT_RESET", "PWRON_RESET", "HARD_RESET", "WDT_RESET", "DEEPSLEEP_RESET"),
    "nrf": ("HARD_RESET", "WDT_RESET", "SOFT_RESET", "PWRON_RESET"),
}[_NAME]
_NUMBERS = {"rp2": {"PWRON_RESET": 1, "WDT_RESET": 3}, "nrf": {"HARD_RESET": 0, "WDT_RESET": 1,
            "SOFT_RESET": 2, "PWRON_RESET": 16}}  # fmt: skip
for _at, _cause in enumerate(_CAUSES):
    _number = _NUMBERS.get(_NAME, {}).get(_cause, _at if _NAME == "stm32" else _at + 1)
    globals()[_cause] = _number


def reset_cause():
    return globals()[_KEPT["cause"]]


def reset():
    _KEPT["cause"] = {"rp2": "WDT_RESET", "nrf": "SOFT_RESET"}.get(_NAME, "HARD_RESET")
    raise _Reset


def lightsleep(*args):
    if _NAME == "nrf":
        return  # it takes a time and does not look at it
    if args and args[0] > _SLEEP_MS_MAX:
        raise ValueError("sleep too long")
    _KEPT["lightsleeps"] = _KEPT.get("lightsleeps", 0) + 1
    # A USB host's interrupt ends the first one early.
    _time.sleep_ms(args[0] // 2 if _KEPT["lightsleeps"] % 2 else args[0])


def deepsleep(*args):
    if args and args[0] > _SLEEP_MS_MAX and _NAME != "nrf":
        raise ValueError("sleep too long")
    if _NAME in ("esp32", "stm32"):
        _KEPT["cause"] = "DEEPSLEEP_RESET"
        _time.sleep_ms(args[0])
        raise _Reset
    reset()


def unique_id():
    return b"" if _NAME == "nrf" else bytes(8)


class Pin:
    IN, OUT, PULL_UP = 0, 1, 2
    states = {}  # name -> level, as whoever is wired to the pin sets it, or the board
    history = []

    def __init__(self, id, mode=-1, pull=-1, *, value=None):
        if _PIN_MAX < 0:
            if not isinstance(id, str):
                raise TypeError("can't convert int to Pin")
        elif not isinstance(id, int) or not 0 <= id <= _PIN_MAX:
            raise ValueError("invalid pin")
        self.id = id
        if value is not None:
            self.value(value)

    def value(self, *level):
        if not level:
            return Pin.states.get(self.id, 1)
        Pin.states[self.id] = int(level[0])
        Pin.history.append((self.id, int(level[0])))


class UART(_io.IOBase):
    """Its two lines are joined: what it sends comes back."""

    def __init__(self, id, *args, **options):
        if id not in _UARTS:
            raise ValueError("UART(%d) doesn't exist" % id)
        names = ("baudrate", "bits", "parity", "stop")[: len(args)]
        for name in tuple(options) + names:
            if name not in _UART_OPTIONS:
                raise TypeError("unexpected keyword argument '%s'" % name)
        if _NAME in ("stm32", "nrf") and not args and "baudrate" not in options:
            raise TypeError("'baudrate' argument required")
        if _NAME == "rp2":
            for name, rest in (("tx", 0), ("rx", 1)):
                if name in options:
                    pin = options[name].id
                    if pin & 3 != rest or ((pin + 4) & 8) >> 3 != id:
                        raise ValueError("bad %s pin" % name.upper())
            for name in ("rxbuf", "txbuf"):
                if options.get(name, 0) > 32766:
                    raise ValueError(name + " too large")
        self._timeout = options.get("timeout", 1)
        self._size = 64 if _NAME == "nrf" else options.get("rxbuf", 256)
        self._buffer = bytearray()

    def any(self):
        return len(self._buffer)

    def readinto(self, buf, *size):
        assert not self._timeout, "it would wait"
        count = min(len(self._buffer), size[0] if size else len(buf))
        if not count:
            return None
        buf[:count] = self._buffer[:count]
        self._buffer = self._buffer[count:]
        return count

    def write(self, buf, *part):
        at, size = part if len(part) == 2 else (0, part[0] if part else len(buf))
        taken = min(size, self._size - len(self._buffer))
        self._buffer += memoryview(buf)[at : at + taken]
        return taken or None

    def ioctl(self, request, flags):
        if request != _POLL:
            return -1
        return flags & ((_READABLE if self._buffer else 0) | _WRITABLE)

    def deinit(self):
        self._buffer = bytearray()


class ADC:
    if _NAME == "esp32":
        ATTN_11DB = 3

    def __init__(self, id, **options):
        if _NAME == "rp2":
            pin = id.id if isinstance(id, Pin) else id
            if not (26 <= pin <= 29 or 0 <= pin <= 4):
                raise ValueError("Pin doesn't have ADC capabilities")
        if _NAME == "nrf" and id not in range(8):
            raise ValueError("invalid ADC")
        if options and (_NAME != "esp32" or list(options) != ["atten"]):
            raise TypeError("unexpected keyword argument")
        self._core = _NAME == "rp2" and not isinstance(id, Pin) and id == 4

    def read_u16(self):
        return 14000 if self._core else 32768

    if _NAME == "esp32":

        def read_uv(self):
            return 1650000


if _WDT_MS_MAX:

    class WDT:
        fed = 0

        def __init__(self, id=0, timeout=5000):
            if id or not 0 < timeout <= _WDT_MS_MAX:
                raise ValueError("timeout exceeds %d" % _WDT_MS_MAX)

        def feed(self):
            WDT.fed += 1


class SPI:
    def __init__(self, id, baudrate=1000000, *, polarity=0, phase=0, bits=8, firstbit=0, sck=None,
                 mosi=None, miso=None):  # fmt: skip
        if _NAME == "nrf" and id not in (0, 1):
            raise ValueError("SPI doesn't exist")


if _NAME != "nrf":

    class RTC:
        """Only one kind of chip keeps bytes in it."""

        if _NAME == "esp32":

            def memory(self, *content):
                if not content:
                    return _KEPT.get("rtc", b"")
                if len(content[0]) > 2048:
                    raise ValueError("buffer too long")
                _KEPT["rtc"] = bytes(content[0])


if _NAME == "nrf":

    class Temp:
        def read(self):
            return 21


class _Memory:
    """Registers, of which only those that are here may be touched."""

    def __getitem__(self, address):
        return _KEPT["registers"][address]

    def __setitem__(self, address, value):
        _KEPT["registers"][address]  # KeyError: no such register
        _KEPT["registers"][address] = value & 0xFFFFFFFF


mem32 = _Memory()
