"""A Raspberry Pi Pico as a board: an image's boot stub calls `boards.rp2.main.run()`."""

import gc

# Garbage is collected after each so many bytes. A collection of this heap takes about 8 ms: with
# 2 KiB, which small heaps want for the slabs' sake, two thirds of all instructions went into that.
gc.threshold(24576)

from boards.rp2.port import Port
from boards.start import start


def run(config_path: str = "/drupelet.json") -> int:
    """Run the board that the file describes until it is told to stop; 0, or 1 when it cannot."""
    return start(config_path, Port)
