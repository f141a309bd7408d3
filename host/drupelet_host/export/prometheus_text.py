"""Metrics as the text that Prometheus reads, into one page and from there into a file.

https://prometheus.io/docs/instrumenting/exposition_formats/: a label's value escapes backslash,
quote and line feed.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from drupelet.base.errors import StorageError
from drupelet_host.base.atomic_write import atomic_write
from drupelet_host.export.reading import clean

CONTENT_TYPE = "text/plain; version=0.0.4"


def label(text: str) -> str:
    """A label's value as it stands between quotes."""
    text = clean(text)
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labels(values: Mapping[str, str]) -> str:
    """Labels as they stand behind a metric's name; nothing without any."""
    inside = ",".join(f'{key}="{label(value)}"' for key, value in values.items())
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return f"{value:.3f}" if value % 1 else f"{int(value)}"


class Page:
    """The lines of one page; each metric's come together, behind its help and type."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def gauge(self, name: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        """One metric and its samples, each with what `labels` made; nothing without samples."""
        self._metric(name, "gauge", text, samples)

    def counter(self, name: str, text: str, samples: Iterable[tuple[str, float]]) -> None:
        """The same of a value that only rises while its source goes on."""
        self._metric(name, "counter", text, samples)

    def _metric(
        self, name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]
    ) -> None:
        lines = [f"drupelet_{name}{inside} {_number(value)}" for inside, value in samples]
        if lines:
            self._lines += [f"# HELP drupelet_{name} {text}", f"# TYPE drupelet_{name} {kind}"]
            self._lines += lines

    def text(self) -> str:
        """The whole page."""
        return "\n".join(self._lines) + "\n"


def write_textfile(path: Path, text: str) -> None:
    """Replace a file of node_exporter's textfile collector in one step; raises StorageError."""
    try:
        atomic_write(path, text, durable=False)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror})") from error
