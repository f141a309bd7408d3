"""`drupelet telemetry`, run in this process."""

from typer.testing import CliRunner

from drupelet_tools.telemetry.command import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
