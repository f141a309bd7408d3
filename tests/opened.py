"""Whoever opens closes: what a test's helpers opened is closed when the test ends."""

from contextlib import ExitStack
from typing import Protocol, TypeVar


class _Closable(Protocol):
    def close(self) -> object: ...


_Resource = TypeVar("_Resource", bound=_Closable)


# tests/conftest.py closes it after each test.
resources = ExitStack()


def opened(resource: _Resource) -> _Resource:
    """Return `resource`, which the end of the running test closes."""
    resources.callback(resource.close)
    return resource
