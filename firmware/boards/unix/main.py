"""A board as a process: `micropython -X heapsize=128K -m boards.unix.main config.json`.

The configuration is one JSON object:

    name, id (8 hex digits), flash (folder), group (text), epoch_ms, readings_max,
    rows (file or null), heap_limit (bytes), telemetry_to (list of peer ids),
    peers_max, messages_max, offers_max (rows of the tables: what RAM they take is set here),
    filter_size (bytes that keep searches off the flash, a power of two),
    quotas (or none): {readings, telemetry}: segments of the log that each may hold; 0 for no bound
    peers: [{id, url, mode, profile, awake}]
        url: serial:///dev/x, mqtt://host:port/prefix, stick:///folder
        mode: batch, interactive or auto; profile: bsp-1 (default) or compact-1
        awake: plan, of a peer that sleeps like this board
    battery (or none): file with its microvolts, such as /sys/class/power_supply/x/voltage_now
    reset_cause (or none): what a board's reset register would say (docs/SPEC.md 6.1)
    sleep (or none): {rtc (file), rtc_size, period_ms, window_ms, contact_ms}: deep sleep between
        readings, and between the windows of the wake plan if any peer has `"awake": "plan"`

Commands come on stdin, a line each: `flush` (close the black box's segment), `stop`. End of input
is `stop` too, so a board never outlives whoever started it. Lines of JSON go to stdout.
"""

import gc
import json
import sys

# What an import leaves behind is collected at once, so that the slabs find room in one piece.
gc.threshold(2048)

# Bottom up, not in alphabetical order: an import inside an import inside an import takes C stack,
# and boards have little of it.
# ruff: isort: off
import boards.unix.files
import boards.unix.ports
import boards.device
import boards.unix.board  # noqa: F401
from drupelet.errors import DrupeletError
# ruff: isort: on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.unix.board import Board


def _set_up(config: dict) -> "Board":
    import boards.unix.setup

    board = boards.unix.setup.make(config)
    # That code has done its work, and code is heap.
    del boards.unix.setup
    del sys.modules["boards.unix.setup"]
    gc.collect()
    return board


def main(path: str) -> int:
    """Run the board that a configuration file describes; the process's exit code."""
    try:
        with open(path) as stream:
            config = json.load(stream)
    except (OSError, ValueError) as error:
        print("board: cannot read %s: %s" % (path, error), file=sys.stderr)
        return 1
    try:
        board = _set_up(config)
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        print("board: %s lacks a key or has one wrong: %r" % (path, error), file=sys.stderr)
        return 1
    except ImportError as error:  # "no module named ..."
        why = "its firmware set has not got what its configuration asks for"
        print("board %s: %s: %s" % (config["name"], why, error), file=sys.stderr)
        return 1
    except (DrupeletError, MemoryError, OSError) as error:
        print("board %s: %s" % (config["name"], error), file=sys.stderr)
        return 1
    try:
        board.run()
    except KeyboardInterrupt:
        board.node.save(board.clock.now_ms())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
