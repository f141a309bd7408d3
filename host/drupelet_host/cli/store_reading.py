"""How a command reads a store: its failures are one line, and a reader that has enough is none."""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drupelet.base.errors import StorageError
from drupelet_host.store import database


@contextmanager
def store_reading(path: Path) -> Iterator[None]:
    """Read from the store at `path` and print. Raises StorageError with one line."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(database.explain(path, error)) from error
    except BrokenPipeError:
        # As `head` ends once it has its lines; nothing else is to be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
