"""Starts a board whose modules are sources, as `mpremote mip install` leaves them:

    from boards.from_source import run

    run("rp2")

An import inside an import takes C stack, and so does the compiler, more than a board has for both.
So what a module imports at its top is imported before it, one at a time.
"""

import gc
import sys

_ROOM = 2048  # what imports leave behind is collected at once: they fill the heap otherwise
# What starting a board imports in the end, by way of the port's main module or when it is needed.
_LATER = ("boards.setup", "drupelet.wire.bsp1")


def _path_of(name: str) -> str:
    """The file of a module of ours; raises ImportError."""
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
    """The modules of ours that a module imports at its top."""
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
    """Import a module after all that it imports."""
    waiting = [name]
    while waiting:
        name = waiting[-1]
        for before in _imported_by(name):
            if before not in sys.modules and before not in waiting:
                waiting.append(before)
                break
        else:
            __import__(waiting.pop())
            gc.collect()


def run(port: str) -> int:
    """As `boards.<port>.main.run`."""
    gc.threshold(_ROOM)
    main = "boards." + port + ".main"
    for name in _LATER:
        _load(name)
    _load(main)
    return sys.modules[main].run()
