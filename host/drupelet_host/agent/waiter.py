"""Sleeping until a carrier, a command, a mount or a signal has something, or the time is up."""

import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

# The kernel marks this file when something was mounted or unmounted (proc_pid_mounts(5)).
_MOUNTS = "/proc/self/mounts"
_SIGNALS_PER_READ_MAX = 64


class Polled(Protocol):
    """What can be waited on."""

    def poll_object(self) -> object | None: ...


class Waiter:
    """Sleeps in one `poll` call. `open` it, and `close` it then."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._watched: dict[int, int] = {}
        self._signals = -1
        self._signals_in = -1
        self._signals_before = -1
        self._mounts = -1
        self.mounts_changed = False  # since the caller last set it to False

    def open(self) -> None:
        """Have mounts end the sleep, too."""
        with suppress(OSError):  # without /proc a stick is noticed by looking for it
            self._mounts = os.open(_MOUNTS, os.O_RDONLY | os.O_CLOEXEC)

    def watch_signals(self) -> None:
        """Have signals end the sleep, too: Python itself goes on sleeping. Main thread only."""
        self._signals, self._signals_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._signals_before = signal.set_wakeup_fd(self._signals_in, warn_on_full_buffer=False)

    def wait(
        self, sources: Sequence[Polled], wait_ms: int, others: Mapping[int, int] | None = None
    ) -> None:
        """Sleep at most `wait_ms`; others: further descriptors with the events to wait for."""
        wanted = dict(others or {})
        for source in sources:
            polled = source.poll_object()
            fd = polled if isinstance(polled, int) else getattr(polled, "fileno", int)()
            # A socket that was closed meanwhile has no number any more.
            if polled is not None and fd >= 0:
                wanted[fd] = select.POLLIN
        if self._signals >= 0:
            wanted[self._signals] = select.POLLIN
        if self._mounts >= 0:
            wanted[self._mounts] = select.POLLPRI
        for fd in self._watched.keys() - wanted.keys():
            self._poll.unregister(fd)
        for fd, events in wanted.items():
            if self._watched.get(fd) != events:
                self._poll.register(fd, events)
        self._watched = wanted
        for fd, _ in self._poll.poll(wait_ms):
            if fd == self._signals:
                os.read(fd, _SIGNALS_PER_READ_MAX)
            elif fd == self._mounts:
                self.mounts_changed = True

    def close(self) -> None:
        """Let go of what is waited on."""
        if self._signals >= 0:
            signal.set_wakeup_fd(self._signals_before)
        for fd in (self._signals, self._signals_in, self._mounts):
            if fd >= 0:
                os.close(fd)
        self._signals = self._signals_in = self._mounts = -1
        self._watched = {}
        self._poll = select.poll()
