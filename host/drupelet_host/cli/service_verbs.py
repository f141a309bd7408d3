"""`drupelet service`: the agent as a service of systemd, and sticks that come and go."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from drupelet_host.base import output
from drupelet_host.cli.common import path

_HOME = Path("/var/lib/drupelet")
_LED_HELP = "A light in /sys/class/leds; the activity light of a Raspberry Pi if not given."

ServiceHome = Annotated[
    Path, typer.Option("--home", metavar="DIR", parser=path, help="The agent's home.")
]
User = Annotated[str, typer.Option(help="Whom the agent runs as.")]
Led = Annotated[str, typer.Option(help=_LED_HELP, show_default=False)]
Root = Annotated[
    Path | None,
    typer.Option(
        "--root", metavar="DIR", parser=path, show_default=False,
        help="Write below this folder, and tell systemd nothing.",
    ),
]  # fmt: skip

service_app = typer.Typer(
    help="Run the agent by systemd, and exchange with sticks as they are plugged in.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.add_typer(service_app, name="service")


@service_app.command()
def install(
    home: ServiceHome = _HOME,
    user: User = "drupelet",
    stick_label: Annotated[
        str, typer.Option(help="Exchange with USB sticks of this label.")
    ] = "DRUPELET",
    any_stick: Annotated[
        bool, typer.Option("--any-stick", help="Of any label: those with a folder DRUPELET.")
    ] = False,
    led: Led = "",
    root: Root = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Show the files, and write none.")
    ] = False,
) -> None:  # fmt: skip
    """Install the agent as a service (root): user, unit with watchdog, udev rule for sticks."""
    from drupelet_host.service import install as installing
    from drupelet_host.service.units import Plan

    label = "" if any_stick else stick_label
    plan = Plan(home.absolute(), user, Path(sys.executable), label, led)
    plan.check()
    if print_only:
        for name, content in plan.files().items():
            print(f"# /{name}\n{content}")
        return
    if root is None:
        installing.check_machine()
        installing.check_python(plan.python)
    for written in installing.write(plan, root or Path("/")):
        output.line(f"wrote {written}")
    if root is not None:
        return
    for step in installing.start(plan):
        output.line(f"ran {step}")
    for step in installing.next_steps(plan):
        output.line(f"next: {step}")


@service_app.command()
def uninstall(root: Root = None) -> None:
    """Stop the service and take its files away; home and user stay."""
    from drupelet_host.service import install as installing
    from drupelet_host.service.units import Plan

    plan = Plan(_HOME)
    if root is None:
        installing.check_machine()
        for step in installing.stop():
            output.line(f"ran {step}")
    removed = installing.remove(plan, root or Path("/"))
    for gone in removed:
        output.line(f"removed {gone}")
    if not removed:
        output.line("nothing of the service was there")
    if root is None:
        for step in installing.forget():
            output.line(f"ran {step}")


@service_app.command()
def stick(
    device: Annotated[str, typer.Argument(help="As /dev/sdb1.", show_default=False)],
    home: ServiceHome = _HOME,
    user: User = "drupelet",
    only_with_folder: Annotated[
        bool, typer.Option("--only-with-folder", help="Leave sticks without DRUPELET alone.")
    ] = False,
    led: Led = "",
) -> None:
    """Mount a stick, exchange with it, unmount it (root; drupelet-stick@.service runs it)."""
    from drupelet_host.base import logs
    from drupelet_host.service import stick_mount
    from drupelet_host.service.led import Led as Light

    logs.begin(1, False)
    light = Light(led, stick_mount.RUNTIME)
    result = stick_mount.exchange(device, home.absolute(), user, light, only_with_folder)
    output.line(result.text)
    if not result.is_safe or (result.is_ours and not result.report):
        raise typer.Exit(1)


@service_app.command("stick-gone")
def stick_gone(led: Led = "") -> None:
    """Give the light back that showed what became of a stick."""
    from drupelet_host.service import stick_mount
    from drupelet_host.service.led import Led as Light

    Light(led, stick_mount.RUNTIME).restore()
