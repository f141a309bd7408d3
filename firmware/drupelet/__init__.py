"""Drupelet's core: data sync for devices that are mostly asleep and mostly offline.

Sans-IO: bytes, time and randomness come in as arguments, bytes and the next wake-up go out.
The same files run on CPython and on MicroPython boards. `drupelet.node` ties the rooms together.
"""

__version__ = "0.1.0"
