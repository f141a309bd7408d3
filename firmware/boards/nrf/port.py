"""nRF52: one UART on fixed pins, no watchdog, no deep sleep that ends by itself.

Its UART keeps 64 bytes, 5 ms at 115,200 baud: slower lines are safer.
"""

import machine
import micropython

from boards.chip import ChipPort
from drupelet.base.compat import const
from drupelet.base.errors import DrupeletError

_BOARD_NRF = const(6)  # docs/SPEC.md 6.1
_NO_BYTE = const(-1)


class Port(ChipPort):
    """See `boards.ports.Port`."""

    board = _BOARD_NRF
    uart_pins = False
    uart_buffers = False

    def _open_uart(self, number: int, options: "dict[str, str]") -> "machine.UART":
        """As of a chip. This port takes Ctrl-C from any UART: in a frame it is a byte.

        On the console it then is a byte as well, which stops the board (boards/base.py).
        """
        micropython.kbd_intr(_NO_BYTE)
        return ChipPort._open_uart(self, number, options)

    def guard(self, _wait_ms: int) -> None:
        """MicroPython has no class for its watchdog."""
        raise DrupeletError("watchdog_ms: this port has no watchdog: leave it out")

    def warmth(self) -> "float | None":
        """Degrees Celsius of the chip, whole ones."""
        return machine.Temp().read() if hasattr(machine, "Temp") else None
