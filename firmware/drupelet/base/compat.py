"""The only place that asks which interpreter runs us.

`const` folds on MicroPython and is the identity elsewhere; `ON_BOARD` is True on MicroPython.
"""

__all__ = ("ON_BOARD", "const")

try:
    from micropython import const

    ON_BOARD = True
except ImportError:
    ON_BOARD = False

    def const(value: int) -> int:
        """Return `value`: CPython has no compile-time constants."""
        return value
