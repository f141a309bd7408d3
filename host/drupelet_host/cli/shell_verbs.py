"""`drupelet completion` and `drupelet man`: what a shell and `man` need."""

import os
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from drupelet_host.cli.command_tree import PROGRAM

# A completion script calls the program with it, and so asks for words instead of running a verb.
COMPLETION_VARIABLE = "_DRUPELET_COMPLETE"


class Shell(StrEnum):
    """The shells that typer has a script for, and that exist where an agent runs."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer, load_commands: Callable[[], None]) -> None:
    """Add the commands of this module; `load_commands` adds those of other rooms to `app`."""

    def man_page() -> None:
        """Print the man page: `drupelet man > drupelet.1`, then `man ./drupelet.1`."""
        from drupelet_host.cli import man_page as page

        load_commands()
        print(page.render(app), end="")

    app.command()(completion)
    app.command("man")(man_page)


def prepare_completion() -> None:
    """Have typer answer a completion script, if one runs us."""
    if os.environ.get(COMPLETION_VARIABLE):
        from typer._completion_classes import completion_init

        completion_init()


def completion(
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print the script by which a shell completes commands and options.

    For bash, add `eval "$(drupelet completion bash)"` to ~/.bashrc; for zsh the same in ~/.zshrc,
    after compinit; for fish, write it to ~/.config/fish/completions/drupelet.fish.
    """
    from typer._completion_shared import get_completion_script

    print(
        get_completion_script(
            prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE, shell=shell.value
        )
    )
