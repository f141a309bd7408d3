"""`drupelet telemetry`, run in this process."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest import mock

from typer.testing import CliRunner

from drupelet_host.cli.app import main
from drupelet_tools.telemetry.commands.telemetry import app


def run(*arguments):
    """What the command itself does: its errors are exceptions."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


class Ended(NamedTuple):
    """What a process would have ended with, and printed."""

    returncode: int
    stdout: str
    stderr: str


def run_whole(*arguments):
    """As the program does it, down to its status and its last line."""
    out, err = io.StringIO(), io.StringIO()
    words = ["drupelet", "telemetry", *map(str, arguments)]
    with mock.patch.object(sys, "argv", words), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        else:
            code = 0
    return Ended(code, out.getvalue(), err.getvalue())
