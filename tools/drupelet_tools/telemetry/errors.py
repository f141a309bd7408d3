"""What the telemetry tools raise on purpose: one clear line with the remedy in it."""

from drupelet.base.errors import DrupeletError


class TelemetryError(DrupeletError):
    """The user's input, folder or machine stands in the way; the message says what to do."""
