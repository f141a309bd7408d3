"""How a command ends: 0, or a status of exit_codes with one line on standard error.

A traceback comes only of our own mistakes.
"""

import io
import sqlite3
import sys
from collections.abc import Callable

from drupelet.base.errors import DrupeletError
from drupelet_host.base import output
from drupelet_host.cli import exit_codes
from drupelet_host.home import toml_table


def end_with(run: Callable[[], None]) -> None:
    """Run a command; exit with the status of its error if it fails."""
    # What others wrote has letters that no older locale knows, and a path may be no UTF-8: it is
    # told as it is.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        run()
        return
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        output.complain(f"{name}{error.strerror or error}")
        status = exit_codes.status_of(error)
    except UnicodeEncodeError as error:
        output.complain(f"{toml_table.shown(error.object)}: must be text in UTF-8; rename it")
        status = exit_codes.status_of(error)
    except (DrupeletError, sqlite3.Error) as error:
        output.complain(str(error))
        status = exit_codes.status_of(error)
    except ModuleNotFoundError as error:
        from drupelet_host.cli import extras

        text = extras.missing_module_text(error.name or "")
        if not text:
            raise  # what every installation has is gone: this one is broken
        output.complain(text)
        status = exit_codes.status_of(error)
    sys.exit(status)
