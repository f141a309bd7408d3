"""`drupelet chat`: groups of this home's hosts in which people talk (docs/field-guide.md 1)."""

import json
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet.base.errors import CapacityError
from drupelet_host.base import output
from drupelet_host.cli.common import AsJson, Home, TextCommand, ask_agent, home_of, table
from drupelet_host.cli.store_reading import store_reading
from drupelet_host.home import config
from drupelet_host.requests.shapes import TakePartInChat
from drupelet_host.store import database

if TYPE_CHECKING:
    from drupelet_host.view.chat_view import ChatMessage, ChatView

STANDARD_INPUT = "-"
_STATE_TEXTS = {
    "joining": "accepted; we join when its messages come from a member",
    "member": "joined",
}

Name = Annotated[str, typer.Argument(help="The chat's name here.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    chats = typer.Typer(
        help="Chats: a few hosts of the group talk, and the others do not hear it.\n\n"
        "Who is in a chat invites, and the one invited joins; both may be done with or without a"
        " running agent, and travel over any carrier. Who joins gets all that was said before; who"
        " has left gets nothing of what is said from then on.",
        no_args_is_help=True,
    )
    for command in (create, invite, join, leave, members, read, forget):
        chats.command()(command)
    chats.command("list")(show)
    chats.command(cls=TextCommand)(say)
    app.add_typer(chats, name="chat")


def create(name: Name, home: Home = None, as_json: AsJson = False) -> None:
    """Begin a chat with nobody else in it yet."""
    text = f"{name}: begun; next: `drupelet chat invite {name} PEER`"
    _do("create", name, "", home, as_json, text)


def invite(
    name: Name,
    peer: Annotated[str, typer.Argument(help="The peer's name, or its id.", show_default=False)],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Invite a peer to a chat: another host, which joins it with `drupelet chat join`."""
    _do("invite", name, peer, home, as_json, f"{name}: {peer} is invited")


def join(name: Name, home: Home = None, as_json: AsJson = False) -> None:
    """Join a chat that we are invited to."""
    _do("join", name, "", home, as_json)


def leave(name: Name, home: Home = None, as_json: AsJson = False) -> None:
    """Leave a chat, or decline an invitation. What we have of it stays readable."""
    _do("leave", name, "", home, as_json)


def forget(name: Name, home: Home = None, as_json: AsJson = False) -> None:
    """Remove the texts that we have of a chat that we left, and do not list it any more.

    Who is invited to it again gets what is said from then on.
    """
    _do("forget", name, "", home, as_json, f"{name}: removed here; the others have it as before")


def say(
    name: Name,
    text: Annotated[
        str,
        typer.Argument(help="What to say; - reads it from standard input.", show_default=False),
    ],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Say something in a chat."""
    from drupelet_host.member.chats import TEXT_SIZE_MAX, checked_text

    if text == STANDARD_INPUT:
        content = sys.stdin.buffer.read(TEXT_SIZE_MAX + 1)
        if len(content) > TEXT_SIZE_MAX:
            raise CapacityError(f"more than {TEXT_SIZE_MAX:,} bytes on standard input; split it")
        text = content.decode(errors="surrogateescape").removesuffix("\n")
    checked_text(text)
    _do("say", name, text, home, as_json, f"{name}: said; it goes to the members")


def _do(
    action: str, name: str, argument: str, home: Path | None, as_json: bool, text: str = ""
) -> None:  # fmt: skip
    """Have the agent do it, or do it ourselves where none runs; say what was done."""
    from drupelet_host.clients.home_groups import find_peer
    from drupelet_host.member.chats import check_name

    settings = config.load(home_of(home))
    check_name(name)
    if action == "invite":
        find_peer(settings, argument)
    if config.locked(settings.home):
        done = ask_agent(settings, TakePartInChat(action, name, argument), name)
    else:
        done = _do_alone(settings, action, name, argument)
    if as_json:
        output.print_json(done)
    else:
        state = str(done.get("state", ""))
        output.line(text or f"{name}: {_STATE_TEXTS.get(state, state)}")


def _do_alone(settings: config.Config, action: str, name: str, argument: str) -> dict[str, Any]:
    from drupelet_host.base import clock
    from drupelet_host.member.member import Member

    with config.lock(settings.home):
        member = Member(settings)
        try:
            done = member.chats.do(action, name, argument)
            member.close(clock.now_ms())
        finally:
            member.store.close()
            member.sealing.close()
    return done


def show(home: Home = None, as_json: AsJson = False) -> None:
    """Show our chats, and what we are invited to."""
    with _reading(home) as view:
        chats = view.chats()
    if as_json:
        output.print_json(chats)
        return
    rows: list[tuple[str, ...]] = [
        (chat["chat"], chat["state"], _count(chat["members"]), chat["inviter"]) for chat in chats
    ]
    table(("chat", "we are", "members", "invited by"), rows)


def _count(members: int | None) -> str:
    return "" if members is None else str(members)


def members(name: Name, home: Home = None, as_json: AsJson = False) -> None:
    """Show who is in a chat, who is invited, and who has left."""
    with _reading(home) as view:
        persons = view.members(name)
    if as_json:
        output.print_json(persons)
        return
    rows: list[tuple[str, ...]] = [(one["name"], one["state"]) for one in persons]
    table(("name", "state"), rows)


def read(
    name: Name,
    limit: Annotated[
        int | None, typer.Option(min=0, help="At most so many, the newest.", show_default=False)
    ] = None,
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Show what was said in a chat, and who came and went, in an order that no answer precedes.

    Who wrote a message is what it says: members of a group trust each other.
    """
    with _reading(home) as view:
        messages = view.messages(name)
        for message in messages if limit is None else deque(messages, limit):
            if as_json:
                print(json.dumps(message))
            else:
                output.line(f"{message['time']}  {_text_of(message)}", at_once=False)
        sys.stdout.flush()


def _text_of(message: "ChatMessage") -> str:
    person = message["person"]
    match message["kind"]:
        case "text":
            return f"{person}: {output.message_start(message['text'])}"
        case "invite":
            return f"{person} invited {message['whom']}"
        case "join":
            return f"{person} joined"
    return f"{person} left"


@contextmanager
def _reading(home: Path | None) -> "Iterator[ChatView]":
    """The chats of a home; a store's failures are one line."""
    from drupelet_host.view.chat_view import ChatView

    settings = config.load(home_of(home))
    path = settings.store_path
    # Before the first agent there is no store: that is a home without chats.
    connection = (
        database.connect(path, read_only=True) if path.exists() else database.empty()
    )  # fmt: skip
    try:
        with store_reading(path):
            yield ChatView(connection, settings)
    finally:
        connection.close()
