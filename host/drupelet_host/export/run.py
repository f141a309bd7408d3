"""Runs one export: from a reader's place in the log to a target, each message once.

A target takes a batch wholly or raises; then the reader's place moves, in one commit. What a kill
leaves between the two is each target's to recognise.
"""

from typing import Protocol

from drupelet.base.errors import DrupeletError
from drupelet_host.export.reading import Reading, reading_of
from drupelet_host.readers.log_reader import LogReader

# Messages that are written and committed at once: at most 8 MB of bodies.
BATCH_MAX = 256


class UnavailableError(DrupeletError):
    """The server is not there or too busy: nothing is wrong here, and it may be tried again."""


class Journal:
    """What is known of a batch that was begun before: a broker may have some or all of it."""

    def __init__(self, reader: LogReader, last: int) -> None:
        self._reader = reader
        self._last = last
        self.is_resumed = reader.sending_to > 0
        self.is_received = self.is_resumed and reader.is_received

    def sending(self) -> None:
        """The batch is about to leave; durable on return."""
        if not self.is_resumed:
            self._reader.note_sending(self._last, is_received=False)

    def received(self) -> None:
        """The other side has all of the batch; durable on return."""
        self._reader.note_sending(self._last, is_received=True)


class Target(Protocol):
    """Where messages go. batch_max: so many of them it takes at once."""

    batch_max: int

    def write(self, readings: list[Reading], journal: Journal) -> int:
        """Take the messages, durably; the length of the target's file, 0 for none."""

    def rest(self) -> None:
        """There is nothing to write for a while."""

    def close(self) -> None:
        """Let go of what is open."""


class Export:
    """One export. author: only messages of this author, or handed over by it; "": all.

    written: messages that went to the target in this run.
    """

    def __init__(self, reader: LogReader, target: Target, author: str = "") -> None:
        self._reader = reader
        self._target = target
        self._author = author
        self.written = 0

    def step(self) -> bool:
        """Export the next messages; False: that was all for now."""
        reader = self._reader
        reader.look_behind(0)  # what a target did not take comes again
        count = min(BATCH_MAX, self._target.batch_max)
        entries = reader.batch(count, reader.sending_to)
        readings = [reading_of(entry, reader.group) for entry in entries]
        if self._author:
            readings = [one for one in readings if self._author in (one.author, one.via)]
        last = max(reader.looked_at, reader.sending_to)
        size = self._target.write(readings, Journal(reader, last))
        self.written += len(readings)
        if last > reader.handle:
            reader.finish([(entry.handle, entry.id) for entry in entries], last, size)
        return bool(entries)
