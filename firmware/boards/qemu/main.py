"""Starts a Cortex-M3 in QEMU: its frozen code calls `boards.qemu.main.run()`."""

import gc

# Collect the garbage of imports soon, so that there is contiguous room for the slabs.
gc.threshold(2048)

from boards.qemu.port import Port
from boards.start import start


def run(config_path: str = "/drupelet.json") -> int:
    """Run the board that the file describes until it is told to stop; 0, or 1 if it cannot."""
    return start(config_path, Port)
