"""`drupelet command` and `drupelet group`: the clients on this host."""

import sqlite3
from pathlib import Path
from typing import Annotated, Any

import typer

from drupelet.base.errors import StorageError
from drupelet.base.hashes import group_id_into
from drupelet.base.limits import ID_SIZE
from drupelet_host.base import clock, output
from drupelet_host.cli.common import AsJson, Home, ask_agent, home_of, path, table, text_path
from drupelet_host.home import config
from drupelet_host.requests.shapes import Pull, Push, TellBoard
from drupelet_host.store import database

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", parser=text_path, help="A folder, or a stick.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(command)
    groups = typer.Typer(help="What groups there are beside the readings.", no_args_is_help=True)
    for made in (topic, push, pull):
        groups.command()(made)
    app.add_typer(groups, name="group")


def command(
    board: Annotated[
        str, typer.Argument(help="The board's name, or its id.", show_default=False)
    ] = "",
    operation: Annotated[
        str, typer.Argument(help="epoch, sleep, flush or report.", show_default=False)
    ] = "",
    value: Annotated[int, typer.Argument(help="Milliseconds, of epoch and sleep.")] = 0,
    key_to: Annotated[
        Path | None,
        typer.Option(
            "--key-to", metavar="DIR", parser=path, show_default=False,
            help="Write the board's command key there instead.",
        ),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Tell a board to do something; it answers when it has. Its key comes from `--key-to` once.

    Without an operation: what was told so far, to this board or to all, and the answers.
    """
    from drupelet_host.clients.home_groups import checked, find_peer, write_key

    if key_to is not None and (operation or not board):
        raise typer.BadParameter("--key-to takes the board alone")
    settings = config.load(home_of(home))
    if not operation and key_to is None:
        _show_sent(settings, board, as_json)
        return
    if key_to is not None:
        written = str(write_key(settings, board, key_to))
        if as_json:
            output.print_json({"key": written})
        else:
            print(f"{written}: command key written")
        return
    find_peer(settings, board)
    checked(operation, value)
    asked = TellBoard(board, operation, value)
    if config.locked(settings.home):
        done = ask_agent(settings, asked, board)
    else:
        done = _command_alone(settings, asked)
    if as_json:
        output.print_json(done)
        return
    print(f"command {done['counter']} is on its way; `drupelet command {board}` shows the answer")


def _show_sent(settings: config.Config, board: str, as_json: bool) -> None:
    from drupelet_host.clients.home_groups import find_peer
    from drupelet_host.view.log_view import LogView
    from drupelet_host.view.sent_commands import sent_commands

    id = find_peer(settings, board).hex() if board else ""
    view = LogView(settings.home)
    try:
        commands = sent_commands(view)
    except sqlite3.Error as error:
        raise StorageError(database.explain(settings.store_path, error)) from error
    finally:
        view.close()
    if id:
        commands = [command for command in commands if command["board"] == settings.names()[id]]
    if as_json:
        output.print_json(commands)
        return
    rows: list[tuple[str, ...]] = [
        (str(command["counter"]), command["board"], command["operation"],
         str(command["value"] or ""), _answer(command["operation"], command["result"]))
        for command in commands
    ]  # fmt: skip
    table(("command", "board", "operation", "value", "answer"), rows)


def _answer(operation: str, result: int | None) -> str:
    if result is None:
        return "none yet"
    if result < 0:
        return "it could not"
    return str(result) if operation == "report" else "done"


def _command_alone(settings: config.Config, asked: TellBoard) -> dict[str, object]:
    from drupelet_host.member.member import Member

    with config.lock(settings.home):
        member = Member(settings)
        try:
            done = member.clients.command(
                asked.board, asked.operation, asked.value, clock.now_ms()
            )
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
    from drupelet_host.clients.public import topic_descriptor
    from drupelet_host.home.client_ids import PUBLIC_CLIENT_ID

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
        uploaded = output.counted(done["pushed"], "message")
        print(f"{uploaded} uploaded, {done['stored']:,} there in all")


def pull(folder: Folder, home: Home = None, as_json: AsJson = False) -> None:
    """Take in what the members' remote logs and our own have there; also after a loss."""
    done = _remote_log("pull", folder, home)
    if as_json:
        output.print_json(done)
    else:
        print(f"{output.counted(done['pulled'], 'new message')} in the log")


def _remote_log(kind: str, folder: Path, home: Path | None) -> dict[str, Any]:
    settings = config.load(home_of(home))
    where = folder.absolute()
    if config.locked(settings.home):
        shape = {"push": Push, "pull": Pull}[kind]
        return ask_agent(settings, shape(str(where)), str(where))
    from drupelet_host.feeds.home_log import run_alone

    with config.lock(settings.home):
        return run_alone(settings, kind, where)
