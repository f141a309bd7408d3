"""The port of a Cortex-M3 in QEMU (mps2-an385): a board that tests can start and measure.

Its MicroPython is a port of our own (tools/drupelet_tools/m3) with the features of small ones:
`machine.UART` 1 and 2, a flash with LittleFS. It has no hardware random source: `os.urandom` uses
the seed that QEMU was started with, so its keys are for tests only.
"""

from boards.chip import ChipPort


class Port(ChipPort):
    """See `boards.ports.Port`."""

    board = 7  # docs/SPEC.md 6.1
    uart_pins = False
    uart_rx_size = uart_tx_size = 0
