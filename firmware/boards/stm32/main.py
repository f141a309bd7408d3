"""Starts an STM32 board such as a Pyboard: its main.py calls `boards.stm32.main.run()`."""

import gc

# Collect the garbage of imports soon, so that there is contiguous room for the slabs.
gc.threshold(2048)

from boards.start import start
from boards.stm32.port import Port


def run(config_path: str = "/flash/drupelet.json") -> int:
    """Run the board that the file describes until it is told to stop; 0, or 1 if it cannot."""
    return start(config_path, Port)
