"""What the telemetry tools raise on purpose: one clear line with the remedy in it."""

from collections.abc import Iterable

from drupelet.base.errors import DrupeletError


class TelemetryError(DrupeletError):
    """The user's input, folder or machine stands in the way; the message says what to do."""


class LastingError(TelemetryError):
    """Trying again later does not help: somebody has to do what the message says."""


class InputFileError(TelemetryError):
    """Some of the files that were given stand in the way; without them the rest can go on."""

    def __init__(self, text: str, files: Iterable[str]) -> None:
        super().__init__(text)
        self.files = frozenset(files)
