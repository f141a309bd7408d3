"""Error codes of the hot path, and exceptions for whoever configures a node, by who is at fault.

    DrupeletError
     +- PeerError      the peer broke the protocol: count it, drop it, go on
     +- CapacityError  a fixed table is full: nothing was taken in, try again later
     +- StorageError   the flash failed or is damaged: stop writing, keep reading

Our own mistakes are assertions, which are never caught.
"""

from drupelet.base.compat import const

OK = const(0)
E_PEER = const(-1)  # malformed or unexpected bytes from a peer
E_CAPACITY = const(-2)  # a table, file or quota is full
E_STORAGE = const(-3)  # the flash failed, or its content is damaged


class DrupeletError(Exception):
    """Base of all exceptions that this project raises on purpose."""


class PeerError(DrupeletError):
    """A peer sent bytes that no correct peer sends."""


class CapacityError(DrupeletError):
    """A bounded table is full; the request was refused as a whole."""


class StorageError(DrupeletError):
    """The flash failed, or its content is damaged."""


def check(code: int, what: str) -> int:
    """Raise the exception for a negative code of the hot path; return any other code."""
    if code == E_PEER:
        raise PeerError(what)
    if code == E_CAPACITY:
        raise CapacityError(what)
    if code == E_STORAGE:
        raise StorageError(what)
    return code
