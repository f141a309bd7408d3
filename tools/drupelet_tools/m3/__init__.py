"""A Cortex-M3 without an operating system, in QEMU: MicroPython with a firmware set in it.

`image` builds it from Debian's source of MicroPython and the port in `port/`, `drive` makes the
file that is its flash, `machine` runs it. It is a board that nobody can buy: it has what a small
real one has, and every instruction and byte that it takes can be counted.
"""
