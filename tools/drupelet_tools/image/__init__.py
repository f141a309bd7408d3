"""Firmware images that are dropped on a board: MicroPython with a firmware set frozen into it.

`sources` unpacks what tools/setup fetched, `build` compiles it, `uf2` wraps it for the drive that
a board shows in its boot loader.
"""
