"""A battery at an analogue input."""

from drupelet.base.compat import const

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_READINGS = const(8)


class Battery:
    """Measures a battery behind a voltage divider by `times`: 3 for a Pico's VSYS on pin 29.

    read: returns a reading of the input, which is `full` when the input has `full_mv`.
    """

    def __init__(self, read: "Callable[[], int]", full: int, full_mv: int, times: float) -> None:
        self._read = read
        self._full = full
        self._full_mv = full_mv
        self._times = times

    def millivolts(self) -> int:
        """Return the voltage in mV, the mean of several readings."""
        total = 0
        for _ in range(_READINGS):
            total += self._read()
        return int(total * self._full_mv * self._times) // (_READINGS * self._full)
