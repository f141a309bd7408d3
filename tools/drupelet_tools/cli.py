"""The verbs of this room, added to the `drupelet` command through an entry point.

The host may not import the tools, so `drupelet_host.cli.app` loads the entry-point group
`drupelet.commands` and calls each member with its typer app.
"""

import typer

from drupelet_tools.bench.command import app as bench
from drupelet_tools.demo.command import demo
from drupelet_tools.flash.command import app as flash
from drupelet_tools.image.command import image
from drupelet_tools.sim.command import app as sim
from drupelet_tools.sim.simulate_command import simulate
from drupelet_tools.telemetry.commands.telemetry import app as telemetry

# An image is built from the sets of `flash`, which knows nothing of images.
flash.command()(image)


def register(app: typer.Typer) -> None:
    """Add the commands of this room to `app`; heavy libraries are imported when one runs."""
    app.command()(demo)
    app.command()(simulate)
    app.add_typer(bench, name="bench")
    app.add_typer(flash, name="flash")
    app.add_typer(sim, name="sim")
    app.add_typer(telemetry, name="telemetry")
