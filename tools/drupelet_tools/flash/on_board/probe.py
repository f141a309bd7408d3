# mypy: ignore-errors
"""What this board is."""

import gc
import json  # noqa: F401 - what is printed
import os
import sys


def facts() -> dict:
    """Chip, interpreter, memory, drive."""
    gc.collect()
    implementation = sys.implementation
    rom_bytes = 0
    try:
        import vfs

        partition = vfs.rom_ioctl(2, 0)
        rom_bytes = partition.ioctl(4, 0) * partition.ioctl(5, 0)
    except (ImportError, AttributeError, OSError):
        pass  # no ROMFS, or one that is no block device
    chip_id = b""
    try:
        import machine

        chip_id = machine.unique_id()
    except (ImportError, AttributeError):
        pass
    digest = ""
    try:
        import drupelet_built

        digest = drupelet_built.DIGEST
    except ImportError:
        pass  # no image of ours
    # These ports mount their drive below the root, and there is nothing else.
    root = "/flash" if sys.platform in ("pyboard", "nrf52") else ""
    drive = os.statvfs(root or "/")
    mpy = getattr(implementation, "_mpy", 0)
    return {
        "interpreter": implementation[0],
        "version": list(implementation[1][:3]),
        "machine": getattr(implementation, "_machine", ""),
        "build": getattr(implementation, "_build", ""),
        "digest": digest,
        "platform": sys.platform,
        "root": root,
        "mpy": [mpy & 255, mpy >> 8 & 3, mpy >> 10],
        "chip_id": "".join(["%02x" % byte for byte in chip_id]),
        "heap": gc.mem_free() + gc.mem_alloc(),
        "drive": drive[1] * drive[2],
        "rom": rom_bytes,
        "path": sys.path,
    }
