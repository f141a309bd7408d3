"""Commands that give keys to a host on another machine: invite, join, confirm."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from drupelet.base.errors import DrupeletError
from drupelet_host.base import output
from drupelet_host.cli.common import Again, AsJson, Home, Tag, ask_agent, home_of
from drupelet_host.home import config
from drupelet_host.home.urls import STICK_BY_REQUEST
from drupelet_host.requests.shapes import Reload
from drupelet_transports.common.url import parse_url

SCREEN = "-"
# Until then all three steps are done, and a lost invitation may be used by its finder.
DAYS_DEFAULT = 7
DAYS_MAX = 90
_WORDS_PER_LINE = 8
_REPLY_SUFFIX = ".reply"

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", show_default=False,
        help="An invitation, or the reply to ours; - for what is typed or piped in.",
    ),
]  # fmt: skip
Url = Annotated[
    str, typer.Option(help="How the peer is reached, if drupelet.toml does not know it yet.")
]
Days = Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="How many days it is good for.")]
Qr = Annotated[bool, typer.Option("--qr", help="Draw it as a QR code on the screen, too.")]
Words = Annotated[bool, typer.Option("--words", help="Show it as words to read out, too.")]
To = Annotated[
    str,
    typer.Option(
        "--to", metavar="FILE", show_default=False,
        help="A new file, as on a stick; - for the screen.",
    ),
]  # fmt: skip
Withdraw = Annotated[
    bool, typer.Option("--withdraw", help="End what waits under this name, invited or joined.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (invite, join, confirm):
        app.command()(command)


def invite(
    name: Annotated[str, typer.Argument(help="What the peer is called here.", show_default=False)],
    to: To = "",
    url: Url = STICK_BY_REQUEST,
    days: Days = DAYS_DEFAULT,
    tag: Tag = 8,
    again: Again = False,
    qr: Qr = False,
    words: Words = False,
    withdraw: Withdraw = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Invite a host on another machine: it gets keys by `drupelet join FILE` there.

    Good once. It has keys when its reply was joined here and both ends confirmed four words.
    Until they are confirmed here, --withdraw ends it: whoever has the file can do nothing with it.
    """
    from drupelet_host.keys import invite as invites

    if withdraw == bool(to):
        raise typer.BadParameter("give either --to FILE, or --withdraw alone")
    settings = config.load(home_of(home))
    if withdraw:
        invites.withdraw(settings, name)
        if as_json:
            output.print_json({"peer": name, "state": "withdrawn"})
        else:
            output.line(f"{name}: withdrawn; invitation and reply are good for nothing any more")
        return
    _check_url(url)
    handed_out = invites.invite(settings, name, url, days, tag, again)
    try:
        _hand_out(to, handed_out.body(), qr, words, as_json)
    except DrupeletError:
        invites.withdraw(settings, name)
        raise
    until = _date(handed_out.expires_s)
    if as_json:
        output.print_json({"peer": name, "state": invites.INVITED, "file": to, "until": until})
        return
    output.line(f"{name}: invited until {until}; at the other machine: `drupelet join {to}`")


def join(
    file: File,
    reply: Annotated[
        str,
        typer.Option(
            "--reply", metavar="FILE", show_default=False,
            help="Where the reply goes, - for the screen; by default beside the invitation.",
        ),
    ] = "",
    url: Url = STICK_BY_REQUEST,
    again: Again = False,
    qr: Qr = False,
    words: Words = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Join with an invitation of another host, or take in the reply to one of ours.

    Then each end reads four words out to the other: `drupelet confirm NAME`.
    """
    from drupelet_host.keys import invite as invites
    from drupelet_host.keys.invitation_bytes import Invitation

    settings = config.load(home_of(home))
    _check_url(url)
    text = invites.read_typed() if file == SCREEN else invites.read_file(Path(file))
    where = "standard input" if file == SCREEN else file
    given = invites.parse_text(where, text)
    if isinstance(given, Invitation):
        pairing = invites.accept(settings, given, url, again)
        assert pairing.reply is not None
        to = reply or (SCREEN if file == SCREEN else str(Path(file).with_suffix(_REPLY_SUFFIX)))
        _hand_out(to, pairing.reply.body(), qr, words, as_json)
        step = f"carry {to} back and `drupelet join` it there; then "
    else:
        to, step = "", ""
        pairing = invites.answered(settings, given)
    if as_json:
        output.print_json(
            {"peer": pairing.name, "id": pairing.peer_id.hex(), "state": pairing.state,
             "reply": to, "our_words": pairing.our_words}
        )  # fmt: skip
        return
    output.line(f"{pairing.name}: {pairing.state}; {step}read these four words out to it:")
    output.line(f"    {pairing.our_words}")
    output.line(f"and type the four that it reads out: `drupelet confirm {pairing.name}`")


def confirm(
    name: Annotated[str, typer.Argument(help="The peer's name.", show_default=False)],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Type the four words that the other end shows (standard input): the keys are good then."""
    from drupelet_host.keys import invite as invites

    settings = config.load(home_of(home))
    if sys.stdin.isatty():
        print(f"the four words that {name} reads out: ", end="", file=sys.stderr, flush=True)
    pairing = invites.confirm(settings, name, sys.stdin.readline())
    is_new = all(peer.id != pairing.peer_id for peer in settings.peers)
    if is_new and config.locked(settings.home):
        try:
            ask_agent(settings, Reload(), name)
        except DrupeletError as error:
            raise DrupeletError(f"{name} has keys, but the agent: {error}") from error
    if as_json:
        output.print_json({"peer": name, "id": pairing.peer_id.hex(), "state": "has keys"})
    else:
        output.line(f"{name} has keys: it proved them, and its words are right")


def _check_url(url: str) -> None:
    if url != STICK_BY_REQUEST:
        parse_url(url)


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _hand_out(to: str, body: bytes, qr: bool, words: bool, as_json: bool) -> None:
    """Write it to a file, or show it; standard output belongs to JSON where that is asked for."""
    from drupelet_host.keys.invitation_bytes import sealed, to_text, to_words
    from drupelet_host.keys.invite import write_text

    screen = sys.stderr if as_json else sys.stdout
    if to == SCREEN:
        print(to_text(body), file=screen)
    else:
        write_text(Path(to), body)
    if qr:
        import segno

        segno.make(to_text(body), error="m").terminal(out=screen, compact=True)
    if words:
        every = to_words(sealed(body)).split()
        for at in range(0, len(every), _WORDS_PER_LINE):
            print(" ".join(every[at : at + _WORDS_PER_LINE]), file=screen)
