# mypy: ignore-errors
"""Frozen into the image, run at power-on: mounts the drive. Then main.py of the drive runs."""

import vfs
from drive import Drive

# In pieces of 32 bytes, which is LittleFS's default: with a Pico's pages of 256, its buffers alone
# would take 5 KB of the heap of a board that has 16.
vfs.mount(vfs.VfsLfs2(Drive()), "/")
