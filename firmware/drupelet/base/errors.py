"""Whose fault it is decides the type; the hot path returns the codes below instead.

    DrupeletError
     +- PeerError      the other side broke the protocol: count it, drop it, go on
     +- CapacityError  a fixed table is full: nothing was taken in, try again later
     +- StorageError   flash refused or is torn: stop writing, keep reading

Our own mistakes are assertions and are never caught.
"""

from drupelet.base.compat import const

OK = const(0)
E_PEER = const(-1)  # malformed or unexpected bytes from a peer
E_CAPACITY = const(-2)  # a table, file or quota is full
E_STORAGE = const(-3)  # the flash refused, or what it holds is torn


class DrupeletError(Exception):
    """Base of everything that this project raises on purpose."""


class PeerError(DrupeletError):
    """A peer sent bytes that no correct peer sends."""


class CapacityError(DrupeletError):
    """A bounded table is full; the request was refused whole."""


class StorageError(DrupeletError):
    """The flash refused an operation, or its content failed its check."""


def check(code: int, what: str) -> int:
    """Turn a negative code of the hot path into its exception; for the API edge only."""
    if code == E_PEER:
        raise PeerError(what)
    if code == E_CAPACITY:
        raise CapacityError(what)
    if code == E_STORAGE:
        raise StorageError(what)
    return code
