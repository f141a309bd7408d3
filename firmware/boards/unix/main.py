"""A board as a process: `micropython -X heapsize=128K -m boards.unix.main config.json`.

The configuration is described in docs/boards.md. Commands come on stdin, a line each: `flush`
(close the black box's segment), `stop`. End of input is `stop` too, so a board never outlives
whoever started it. Lines of JSON go to stdout.
"""

import gc
import sys

# What an import leaves behind is collected at once, so that the slabs find room in one piece.
gc.threshold(2048)

from boards.start import start
from boards.unix.port import Port


def main(path: str) -> int:
    """Run the board that a configuration file describes; the process's exit code."""
    return start(path, Port)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
