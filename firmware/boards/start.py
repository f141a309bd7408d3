"""Starts a board from a configuration file, in the same way on every port."""

import gc
import json
import sys

# Import the lowest modules first, not in alphabetical order: nested imports take C stack, of which
# boards have little. Node and store are the deepest.
# ruff: isort: off
import drupelet.base.hashes
import drupelet.wire.registry
import drupelet.store.log
import drupelet.store.index
import drupelet.store.reclaim
import drupelet.store.flash_store
import drupelet.engine.graph
import drupelet.engine.exchange
import drupelet.engine.core
import drupelet.link.link
import boards.files
import boards.base
import boards.device
from drupelet.base.errors import DrupeletError
# ruff: isort: on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from boards.device import Device
    from boards.ports import Port


def _set_up(config: dict, make_port: "Callable[[dict], Port]") -> "Device":
    import boards.setup

    board = boards.setup.make(config, make_port(config))
    # Unload the setup code to free its heap.
    del boards.setup
    del sys.modules["boards.setup"]
    gc.collect()
    return board


def start(path: str, make_port: "Callable[[dict], Port]") -> int:
    """Run the board that a configuration file describes until it is told to stop; return 0.

    If it cannot start, return 1 after printing the reason in one line. If its flash fails later,
    print that and reset the board; return 1 where it cannot be reset.
    """
    try:
        with open(path) as stream:
            config = json.load(stream)
    except (OSError, ValueError) as error:
        print("board: cannot read %s: %s" % (path, error), file=sys.stderr)
        return 1
    try:
        board = _set_up(config, make_port)
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        print("board: %s lacks a key or has one wrong: %r" % (path, error), file=sys.stderr)
        return 1
    except ImportError as error:  # "no module named ..."
        why = "its firmware set has not got what its configuration asks for"
        print("board %s: %s: %s" % (config.get("name", path), why, error), file=sys.stderr)
        return 1
    except (DrupeletError, MemoryError, OSError) as error:
        print("board %s: %s" % (config.get("name", path), error), file=sys.stderr)
        return 1
    try:
        board.run()
    except KeyboardInterrupt:
        board.port.release()
        board.node.save(board.port.now_ms())
    except DrupeletError as error:
        print("board %s: %s; starting again" % (config["name"], error), file=sys.stderr)
        board.port.restart()
        return 1
    # Not after an exception of `run`: then the watchdog, if there is one, restarts the board.
    board.port.release()
    return 0
