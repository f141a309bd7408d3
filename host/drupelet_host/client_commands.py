"""`drupelet command` and `drupelet group`: the clients on this host."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from drupelet.errors import DrupeletError
from drupelet.hashes import group_id_into
from drupelet.limits import ID_SIZE
from drupelet_host import clock, config, output
from drupelet_host.commands import AsJson, Home, ask_agent, home_of, path

Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", parser=path, help="A folder, or a stick.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(command)
    groups = typer.Typer(help="What groups there are beside the readings.", no_args_is_help=True)
    for made in (topic, push, pull):
        groups.command()(made)
    app.add_typer(groups, name="group")


def command(
    board: Annotated[str, typer.Argument(help="The board's name, or its id.", show_default=False)],
    operation: Annotated[
        str, typer.Argument(help="epoch, sleep, flush or report.", show_default=False)
    ] = "",
    value: Annotated[int, typer.Argument(help="Milliseconds, of epoch and sleep.")] = 0,
    key_to: Annotated[
        Path | None,
        typer.Option(
            "--key-to", metavar="DIR", help="Write the board's command key there instead.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Tell a board to do something; it answers when it has. Its key comes from `--key-to` once."""
    from drupelet_host.clients.home import checked, find_peer, write_key

    settings = config.load(home_of(home))
    if key_to is not None:
        path = write_key(settings, board, key_to)
        if as_json:
            output.print_json({"key": str(path)})
        else:
            print(f"{path}: command key written")
        return
    find_peer(settings, board)
    checked(operation, value)
    asked = json.dumps({"board": board, "operation": operation, "value": value})
    if config.locked(settings.home):
        done = ask_agent(settings, "command", asked)
        if "error" in done:
            raise DrupeletError(str(done["error"]))
    else:
        done = _command_alone(settings, asked)
    if as_json:
        output.print_json(done)
    else:
        print(f"command {done['counter']} for {board} is on its way")


def _command_alone(settings: config.Config, asked: str) -> dict[str, object]:
    from drupelet_host.member import Member

    with config.lock(settings.home):
        member = Member(settings)
        try:
            done = member.clients.command(asked, clock.now_ms())
            member.close(clock.now_ms())
        finally:
            member.store.close()
            member.sealing.close()
    return done


def topic(
    text: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show the id of a topic's public group: the same for everybody who says the same."""
    from drupelet_host.clients.public import PUBLIC_CLIENT_ID, topic_descriptor

    id = bytearray(ID_SIZE)
    descriptor = topic_descriptor(text)
    group_id_into(id, PUBLIC_CLIENT_ID, descriptor, len(descriptor))
    if as_json:
        output.print_json({"topic": text, "group": id.hex()})
    else:
        print(id.hex())


def push(folder: Folder, home: Home = None, as_json: AsJson = False) -> None:
    """Upload the readings to a remote log, sealed, and tell the members where it is."""
    done = _remote_log("push", folder, home)
    if as_json:
        output.print_json(done)
    else:
        print(f"{done['pushed']} messages uploaded, {done['stored']} are there")


def pull(folder: Folder, home: Home = None, as_json: AsJson = False) -> None:
    """Take in what the members' remote logs and our own have there; also after a loss."""
    done = _remote_log("pull", folder, home)
    if as_json:
        output.print_json(done)
    else:
        print(f"{done['pulled']} messages new in the log")


def _remote_log(kind: str, folder: Path, home: Path | None) -> dict[str, Any]:
    settings = config.load(home_of(home))
    where = folder.absolute()
    if config.locked(settings.home):
        done = ask_agent(settings, kind, str(where))
        if "error" in done:
            raise DrupeletError(str(done["error"]))
        return done
    from drupelet_host.remote_log_home import run_alone

    with config.lock(settings.home):
        return run_alone(settings, kind, where)
