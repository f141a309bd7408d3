"""What an owner's program finds of a board when it runs on this computer: `machine` and `time`.

Every value comes from the seed: a channel of the ADC has a level of its own, which wanders slowly,
and noise. Time is the simulation's: a program that sleeps lets it pass.
"""

import io
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

# A channel's level lies in the middle half of the range; it wanders by up to this share of the
# range in an hour, and a reading is off by up to the other.
_WANDER = 0.002
_NOISE = 0.001
_FULL = 65535
_HOUR_MS = 3_600_000


class World:
    """Where time comes from: the simulation."""

    def __init__(
        self, now_ms: Callable[[], int], pass_ms: Callable[[int], None], seed: int
    ) -> None:
        self.now_ms = now_ms  # since the Unix epoch
        self.pass_ms = pass_ms
        self.seed = seed
        self.noise = random.Random(f"{seed} noise")
        self.levels: dict[int, tuple[int, float]] = {}  # of each channel: when, and what it was

    def level(self, channel: int) -> float:
        """A channel's level now, 0 to 1."""
        now_ms = self.now_ms()
        if channel not in self.levels:
            draw = random.Random(f"{self.seed} adc {channel}")
            self.levels[channel] = (now_ms, 0.25 + 0.5 * draw.random())
        at_ms, level = self.levels[channel]
        if now_ms == at_ms:
            return level
        hours = (now_ms - at_ms) / _HOUR_MS
        step = random.Random(f"{self.seed} adc {channel} {now_ms}").uniform(-_WANDER, _WANDER)
        level = min(max(level + step * hours, 0.2), 0.8)
        self.levels[channel] = (now_ms, level)
        return level


def _pin_number(pin: object) -> int:
    number = getattr(pin, "number", pin)
    return number if isinstance(number, int) else sum(str(number).encode())


class _Pin:
    """Keeps what it is set to."""

    IN, OUT, OPEN_DRAIN, PULL_UP, PULL_DOWN = range(5)
    IRQ_RISING, IRQ_FALLING = 1, 2

    def __init__(self, number: object, *_: object, value: int = 0, **__: object) -> None:
        self.number = _pin_number(number)
        self._value = value

    def init(self, *_: object, **__: object) -> None:
        pass

    def value(self, value: int | None = None) -> int | None:
        if value is None:
            return self._value
        self._value = int(bool(value))
        return None

    __call__ = value

    def on(self) -> None:
        self._value = 1

    def off(self) -> None:
        self._value = 0

    high, low = on, off

    def toggle(self) -> None:
        self._value ^= 1

    def irq(self, *_: object, **__: object) -> None:
        pass


class _ADC:
    """Shows its channel's level, with noise."""

    world: World
    CORE_TEMP = 4
    ATTN_0DB, ATTN_2_5DB, ATTN_6DB, ATTN_11DB = range(4)

    def __init__(self, pin: object, *_: object, **__: object) -> None:
        self._channel = _pin_number(pin)

    def read_u16(self) -> int:
        level = self.world.level(self._channel) + self.world.noise.uniform(-_NOISE, _NOISE)
        return int(level * _FULL)

    def read_uv(self) -> int:
        return self.read_u16() * 3_300_000 // _FULL


class _PWM:
    """Does nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def _set(self, *_: object) -> None:
        pass

    freq = duty_u16 = duty_ns = deinit = _set


class _I2C:
    """One device that answers with bytes of the seed."""

    world: World

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def scan(self) -> list[int]:
        return [0x48]

    def readfrom(self, _address: int, size: int, *_: object) -> bytes:
        return self.world.noise.randbytes(size)

    def readfrom_mem(self, _address: int, _register: int, size: int, **_: object) -> bytes:
        return self.world.noise.randbytes(size)

    def writeto(self, _address: int, data: bytes, *_: object) -> int:
        return len(data)

    def writeto_mem(self, *_: object, **__: object) -> None:
        pass


def _machine(world: World) -> ModuleType:
    module = ModuleType("machine")
    for kind in (_Pin, _ADC, _PWM, _I2C):
        name = kind.__name__[1:]
        setattr(module, name, type(name, (kind,), {"world": world}))
    stands = {
        "SoftI2C": module.I2C,
        "unique_id": lambda: world.seed.to_bytes(8, "big"),
        "freq": lambda *_: 125_000_000,
    }
    for name, stand in stands.items():
        setattr(module, name, stand)
    return module


def _time(world: World) -> ModuleType:
    """CPython's `time`, with MicroPython's names in it and the simulation's clock."""
    module = ModuleType("time")
    for name in dir(time):
        if not name.startswith("__"):
            setattr(module, name, getattr(time, name))
    ticks_end = 1 << 30

    def difference(later: int, earlier: int) -> int:
        return (later - earlier + ticks_end // 2) % ticks_end - ticks_end // 2

    stands = {
        "sleep": lambda seconds: world.pass_ms(int(seconds * 1000)),
        "sleep_ms": lambda ms: world.pass_ms(int(ms)),
        "sleep_us": lambda us: world.pass_ms(int(us) // 1000),
        "ticks_ms": lambda: world.now_ms() % ticks_end,
        "ticks_us": lambda: world.now_ms() * 1000 % ticks_end,
        "ticks_add": lambda ticks, more: (ticks + more) % ticks_end,
        "ticks_diff": difference,
        "time": lambda: world.now_ms() // 1000,
        "time_ns": lambda: world.now_ms() * 1_000_000,
        "gmtime": lambda seconds=None: tuple(
            time.gmtime(world.now_ms() // 1000 if seconds is None else seconds)
        ),
    }
    for name, stand in {**stands, "localtime": stands["gmtime"]}.items():
        setattr(module, name, stand)
    return module


def _micropython() -> ModuleType:
    module = ModuleType("micropython")
    for name in ("const", "native", "viper"):
        setattr(module, name, lambda value: value)
    return module


def _print_exception(folder: Path) -> Callable[[BaseException, io.StringIO], None]:
    """As MicroPython's, with the lines of the owner's files alone."""

    def show(error: BaseException, out: io.StringIO) -> None:
        for frame in traceback.extract_tb(error.__traceback__):
            path = Path(frame.filename)
            if path.is_relative_to(folder):
                name = path.relative_to(folder)
                out.write(f'  File "{name}", line {frame.lineno}, in {frame.name}\n')

    return show


def forget(folder: Path) -> None:
    """Drop the modules that came from the owner's folder: RAM is lost."""
    beginning = str(folder) + os.sep
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(beginning):
            del sys.modules[name]


@contextmanager
def installed(world: World, folder: Path) -> Iterator[None]:
    """Have imports of a program in `folder` find the stand-ins while the block runs."""
    stands = {"machine": _machine(world), "time": _time(world), "micropython": _micropython()}
    before = {name: sys.modules.get(name) for name in stands}
    writes_bytecode = sys.dont_write_bytecode
    sys.modules.update(stands)
    sys.path.insert(0, str(folder))
    sys.print_exception = _print_exception(folder)  # type: ignore[attr-defined]
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        forget(folder)
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes_bytecode
        del sys.print_exception  # type: ignore[attr-defined]
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
