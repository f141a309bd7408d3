"""The port of STM32 boards such as the Pyboard; deep sleep on the F4 only."""

from boards.chip import ChipPort
from drupelet.base.errors import DrupeletError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.stm32.rtc import Rtc
    from boards.stm32.slot import Slot


class Port(ChipPort):
    """See `boards.ports.Port`."""

    board = 5  # docs/SPEC.md 6.1
    uart_pins = False
    uart_tx_size = 0

    def guard(self, wait_ms: int) -> None:
        """Start the watchdog; DrupeletError with deep sleep, which the watchdog would end."""
        if self._config.get("sleep"):
            raise DrupeletError("watchdog_ms: this chip's runs on in deep sleep: leave one out")
        ChipPort.guard(self, wait_ms)

    def rtc(self, _settings: dict) -> "Rtc":
        """Return the chip's backup RAM."""
        from boards.stm32.rtc import Rtc

        return Rtc()

    def open_stick(self, path: str, own_id: "bytes | bytearray") -> "Slot":
        """Return the card in the board's own slot."""
        from boards.stm32.slot import Slot

        return Slot(path, own_id)
