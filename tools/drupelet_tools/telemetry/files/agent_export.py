"""The segments of an agent's folder as files, written anew as the agent takes in more."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from drupelet_tools.telemetry.base.scratch import sweep
from drupelet_tools.telemetry.files import inputs

FOLDER_PREFIX = "drupelet-follow-"
# An export reads all segments that the agent has; it takes at most this part of the time.
SHARE = 0.05


class AgentExport:
    """A folder of this machine with what an agent's folder has; the same segment is not written
    twice. `remove` ends it."""

    def __init__(self, agent: Path) -> None:
        self.agent = agent
        sweep(FOLDER_PREFIX)
        folder = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
        self.folder = Path(folder).resolve() / inputs.AGENT_EXPORT.format(0)
        self.folder.mkdir()
        self._state: tuple[tuple[int, ...], ...] = ()
        self._due_s = 0.0

    def refresh(self, pause_s: float) -> None:
        """Write what is new, if the agent has stored something and the last time is some while
        ago, `pause_s` at least.

        Raises:
            TelemetryError: the agent's folder cannot be read.
        """
        state = tuple(_state(self.agent / f"{inputs.AGENT_STORE}{end}") for end in ("", "-wal"))
        now_s = time.monotonic()
        if state == self._state or now_s < self._due_s:
            return
        inputs.export_agents([self.agent], self.folder.parent)
        self._state = state
        took_s = time.monotonic() - now_s
        self._due_s = now_s + max(pause_s, took_s / SHARE)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)


def _state(path: Path) -> tuple[int, ...]:
    try:
        info = path.stat()
    except OSError:
        return ()
    return info.st_ino, info.st_size, info.st_mtime_ns
