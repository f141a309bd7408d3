"""An nRF52 as a board: its main.py calls `boards.nrf.main.run()`."""

import gc

# What an import leaves behind is collected at once, so that the slabs find room in one piece.
gc.threshold(2048)

from boards.nrf.port import Port
from boards.start import start


def run(config_path: str = "/flash/drupelet.json") -> int:
    """Run the board that the file describes until it is told to stop; 0, or 1 when it cannot."""
    return start(config_path, Port)
