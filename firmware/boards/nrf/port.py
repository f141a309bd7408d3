"""The port of the nRF52: one UART on fixed pins, no watchdog, no deep sleep with a timer.

Its UART buffers 64 bytes, 5 ms at 115,200 baud: slower lines are safer.
"""

import machine
import micropython

from boards.base import NO_BYTE
from boards.chip import ChipPort
from drupelet.base.errors import DrupeletError


class Port(ChipPort):
    """See `boards.ports.Port`."""

    board = 6  # docs/SPEC.md 6.1
    uart_pins = False
    uart_rx_size = uart_tx_size = 0

    def _open_uart(self, number: int, options: "dict[str, str]") -> "machine.UART":
        """Open a UART, and turn the interrupt by Ctrl-C off, which this port accepts on any UART.

        On the console Ctrl-C is then a byte that stops the board (boards/base.py).
        """
        micropython.kbd_intr(NO_BYTE)
        return ChipPort._open_uart(self, number, options)

    def guard(self, _wait_ms: int) -> None:
        """Raise DrupeletError: MicroPython has no class for this chip's watchdog."""
        raise DrupeletError("watchdog_ms: this port has no watchdog: leave it out")

    def warmth(self) -> "float | None":
        """Return the chip's temperature in whole degrees Celsius."""
        return machine.Temp().read() if hasattr(machine, "Temp") else None
