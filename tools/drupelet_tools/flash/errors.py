"""What goes wrong between the sources and a board."""

from drupelet.errors import DrupeletError


class BuildError(DrupeletError):
    """A module does not compile, or this installation has no sources; the text says which."""
