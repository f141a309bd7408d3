"""`drupelet telemetry ingest --follow`: goes on until a signal ends it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import typer

from drupelet_host.base.duration import duration_s, duration_text
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import Place

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

    from drupelet_tools.telemetry.spark import session


def follow(
    paths: Sequence[Place],
    lake: Place,
    names: Mapping[str, Mapping[str, Any]],
    *,
    cluster: session.Cluster,
    events: bool,
    every: str | None,
    max_files: int | None,
    as_json: bool,
) -> None:
    """Take in what comes, a line for each batch, until SIGTERM or Ctrl-C.

    Raises:
        TelemetryError: what is given cannot be followed.
    """
    from drupelet_tools.telemetry.intake import following

    pace = following.Pace(
        every_s=_every_s(every), files_max=_files_max(max_files) or following.FILES_MAX
    )
    sparks = _Sparks(cluster)

    def say_batch(counts: dict[str, int]) -> None:
        typer.echo(json.dumps(counts) if as_json else counts_text(counts))

    def say_problem(text: str) -> None:
        typer.echo(f"{_now()} drupelet telemetry: {text}", err=True)

    follower = following.Follower(
        paths,
        lake,
        names,
        spark=sparks.start,
        release=sparks.stop,
        events=events,
        pace=pace,
        on_batch=say_batch,
        on_problem=say_problem,
    )
    given = ", ".join(map(str, paths))
    pause = duration_text(int(pace.every_s))
    with _signals() as ending:
        typer.echo(f"{_now()} following {given}, every {pause}; end it with Ctrl-C", err=True)
        try:
            counts = follower.run(ending.wait)
        finally:
            sparks.stop()
    typer.echo(f"{_now()} ended; in all: {counts_text(counts)}", err=True)


def counts_text(counts: Mapping[str, int]) -> str:
    """Counts of an ingest for a person."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def refuse_without_follow(every: str | None, max_files: int | None) -> None:
    """Raise TelemetryError for options that only a run that goes on has."""
    for option, value in (("--every", every), ("--max-files", max_files)):
        if value is not None:
            raise TelemetryError(f"{option} is for an ingest that goes on: add --follow")


def _every_s(text: str | None) -> float:
    from drupelet_tools.telemetry.intake import following

    if text is None:
        return following.EVERY_S
    seconds = duration_s(text)
    if seconds is None or not following.EVERY_MIN_S <= seconds <= following.EVERY_MAX_S:
        low, high = duration_text(following.EVERY_MIN_S), duration_text(following.EVERY_MAX_S)
        raise TelemetryError(f"--every {text!r}: want {low} to {high}, like 30s or 5min")
    return seconds


def _files_max(count: int | None) -> int | None:
    from drupelet_tools.telemetry.intake import following

    if count is not None and not 1 <= count <= following.FILES_MAX_MOST:
        raise TelemetryError(f"--max-files {count}: want 1 to {following.FILES_MAX_MOST:,}")
    return count


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


class _Ending:
    """A wish to end. Its `set` may be called by a signal at any moment, unlike an Event's."""

    def __init__(self) -> None:
        self._wishes: SimpleQueue[None] = SimpleQueue()
        self._is_set = False

    def set(self) -> bool:
        """Wish it; whether that was done before."""
        before, self._is_set = self._is_set, True
        self._wishes.put(None)
        return before

    def wait(self, seconds: float) -> bool:
        """Whether it is wished within so many seconds."""
        if self._is_set or seconds <= 0:
            return self._is_set
        with suppress(Empty):
            self._wishes.get(timeout=seconds)
        return self._is_set


@contextmanager
def _signals() -> Iterator[_Ending]:
    """SIGTERM and Ctrl-C end a run behind its batch while the block goes on; a second Ctrl-C ends
    it at once."""
    ending = _Ending()

    def wish(number: int, _: FrameType | None) -> None:
        if ending.set() and number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, wish) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Sparks:
    """A session that is started where it is needed, and ended where it is not."""

    def __init__(self, cluster: session.Cluster) -> None:
        self._cluster = cluster
        self._running: session.Session | session.Remote | None = None

    def start(self) -> SparkSession:
        """The session. Raises TelemetryError: it does not start."""
        from drupelet_tools.telemetry.spark import session

        if self._running is None:
            typer.echo("starting Spark …", err=True)
            self._running = session.connect(self._cluster)
        return self._running.wait()

    def stop(self) -> None:
        """End it, if there is one."""
        if self._running is not None:
            self._running.stop(graceful=False)
            self._running = None
