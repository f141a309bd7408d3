"""Runs on a board: import each module named on the command line and print what it cost.

Arguments: a ROMFS image to run in place, or "" for the module path; its launcher's folder; names.

One line of JSON a module: [name, bytes of heap that stay in use after a collection]. The pool of
names grows in steps, so a module at a step looks dearer than it is.
"""

import gc
import sys


def say(name: str, size: int) -> int:
    """Print one line; the heap in use after it."""
    print(f'["{name}", {size}]')
    gc.collect()
    return gc.mem_alloc()


if sys.argv[1]:
    sys.path.append(sys.argv[2])
    import rom

    rom.start(sys.argv[1])
gc.collect()
used = say("start", gc.mem_alloc())
for name in sys.argv[3:]:
    __import__(name)
    gc.collect()
    used = say(name, gc.mem_alloc() - used)
say("all", used)
