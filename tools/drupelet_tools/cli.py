"""The verbs of this room, added to the `drupelet` command through an entry point.

The host may not import the tools, so `drupelet_host.cli` loads the entry-point group
`drupelet.commands` and calls each member with its typer app.
"""

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this room to `app`; heavy libraries are imported when one runs."""
    del app
