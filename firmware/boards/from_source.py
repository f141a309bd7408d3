"""Starts a board whose modules are source files, as `mpremote mip install` leaves them:

    from boards.from_source import run

    run("rp2")

Nested imports and the compiler both take C stack, together more than a board has. So the modules
that a module imports at its top are imported before it, one at a time.
"""

import micropython

# A byte 03 of a frame at the console must not interrupt the start; `ChipPort` lets Ctrl-C in.
micropython.kbd_intr(-1)

import gc
import sys

_ROOM = 2048  # collect garbage after this many bytes, because imports would fill the heap with it
# Modules that are imported late during a start, beside those of the port's main module.
_LATER = ("boards.setup", "drupelet.wire.bsp1")


def _path_of(name: str) -> str:
    """Return the file of a module; raises ImportError."""
    path = name.replace(".", "/")
    for folder in sys.path:
        for end in (".py", "/__init__.py"):
            try:
                with open(folder + "/" + path + end):
                    return folder + "/" + path + end
            except OSError:
                pass
    raise ImportError("no module named '%s'" % name)


def _imported_by(name: str) -> "list[str]":
    """Return the modules of Drupelet that a module imports at its top."""
    names = []
    with open(_path_of(name)) as source:
        for line in source:
            words = line.split(None, 2)
            if line.startswith(("from ", "import ")) and len(words) > 1:
                module = words[1]
                if module.split(".")[0] in ("boards", "drupelet", "drupelet_transports"):
                    names.append(module)
    return names


def _load(name: str) -> None:
    """Import a module after all modules that it imports."""
    waiting = [name]
    while waiting:
        name = waiting[-1]
        for dependency in _imported_by(name):
            if dependency not in sys.modules and dependency not in waiting:
                waiting.append(dependency)
                break
        else:
            __import__(waiting.pop())
            gc.collect()


def run(port: str) -> int:
    """Run `boards.<port>.main.run`; return its result."""
    gc.threshold(_ROOM)
    main = "boards." + port + ".main"
    for name in _LATER + (main,):
        _load(name)
    return sys.modules[main].run()
