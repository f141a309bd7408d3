"""What goes wrong between the sources and a board."""

from drupelet.base.errors import DrupeletError


class BuildError(DrupeletError):
    """A module does not compile, or this installation has no sources; the text says which."""


class FlashError(DrupeletError):
    """A board cannot be flashed; the text names what is wrong and the remedy."""


class CableError(FlashError):
    """The board stopped to answer in the middle of something."""


class BoardError(FlashError):
    """A program that ran on the board raised; `number` is that of its OSError, else 0."""

    def __init__(self, text: str, number: int = 0) -> None:
        super().__init__(text)
        self.number = number
