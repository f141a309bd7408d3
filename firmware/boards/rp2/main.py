"""Starts a Raspberry Pi Pico: an image's boot stub calls `boards.rp2.main.run()`."""

import gc

# Bytes allocated between two collections. Collecting this heap takes about 8 ms: with 2 KiB, the
# value for small heaps, it would take two thirds of the time.
gc.threshold(24576)

from boards.rp2.port import Port
from boards.start import start


def run(config_path: str = "/drupelet.json") -> int:
    """Run the board that the file describes until it is told to stop; 0, or 1 if it cannot."""
    return start(config_path, Port)
