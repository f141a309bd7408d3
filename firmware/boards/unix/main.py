"""Runs a board as a process: `micropython -X heapsize=128K -m boards.unix.main config.json`.

The configuration is described in docs/boards.md. Commands are read from stdin, one per line:
`flush` (publish the black box so far) and `stop`. End of input means `stop`, too, so a board does
not outlive the program that started it. Events are printed to stdout as lines of JSON.
"""

import gc
import sys

# Collect the garbage of imports soon, so that there is contiguous room for the slabs.
gc.threshold(2048)

from boards.start import start
from boards.unix.port import Port


def main(path: str) -> int:
    """Run the board that a configuration file describes; return the process's exit code."""
    return start(path, Port)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
