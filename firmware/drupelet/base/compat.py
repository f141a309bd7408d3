"""The only module that asks which interpreter runs it.

`const` folds on MicroPython and returns its argument elsewhere; `ON_BOARD`: on MicroPython.
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
