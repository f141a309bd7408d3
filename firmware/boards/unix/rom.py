"""Runs the unix board from a ROMFS image: `micropython rom.py firmware.romfs config.json`.

The image is mapped into memory outside the heap, as a microcontroller maps its flash: bytecode and
constants are used in place (docs/DESIGN.md 16). Only this file is compiled at run time.
"""

import os
import sys

import ffi
import uctypes
import vfs

_READ = 1  # PROT_READ
_PRIVATE = 2  # MAP_PRIVATE
_FAILED = -1


def _map(path: str) -> bytearray:
    """Return the file's bytes, mapped into memory; raises OSError."""
    size = os.stat(path)[6]
    libc = ffi.open("libc.so.6")
    file = libc.func("i", "open", "si")(path, 0)
    if file < 0:
        raise OSError("cannot open " + path)
    at = libc.func("l", "mmap", "PLiiil")(0, size, _READ, _PRIVATE, file, 0)
    if at == _FAILED:
        raise OSError("cannot map " + path)
    return uctypes.bytearray_at(at, size)


def start(image: str) -> None:
    """Make the image the only source of modules; if it cannot, print why and exit."""
    try:
        vfs.mount(vfs.VfsRom(_map(image)), "/rom")
    except (OSError, ValueError) as error:
        print("board: %s is no firmware image: %s" % (image, error), file=sys.stderr)
        sys.exit(1)
    sys.path[:] = ["/rom"]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print("board: give it the firmware image and its configuration", file=sys.stderr)
        sys.exit(2)
    start(sys.argv[1])
    from boards.unix.main import main

    sys.exit(main(sys.argv[2]))
