"""What keeps a measurement from being made."""

from drupelet.base.errors import DrupeletError


class BenchError(DrupeletError):
    """A measurement failed or cannot be made here; the message says which and why."""
