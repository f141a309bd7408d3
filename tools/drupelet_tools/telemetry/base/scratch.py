"""Temporary folders with the number of their process in the name."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def sweep(prefix: str) -> None:
    """Remove the folders of processes that were killed; `<prefix><process>-…`."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*-*"):
        owner = folder.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not _lives(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
