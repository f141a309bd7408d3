"""Writes docs/cli.md from what `--help` says: `python -m drupelet_host.cli.docs > docs/cli.md`."""

import typer

from drupelet_host.cli import app
from drupelet_host.home.board_kinds import BOARDS

_HEAD = """# The `drupelet` command

Made by `python -m drupelet_host.cli.docs > docs/cli.md`; a test compares it with the program.

Exit status: 0 done, 1 refused or failed with one line on standard error, 2 wrong usage, 130
interrupted. `--json` prints the same facts for programs.
"""

_WIDTH = 80
_CONFIG = """
## drupelet.toml

| key | value |
|---|---|
| `name` | this member's name: letters, digits, `.`, `-`, `_` |
| `id` | 8 hex digits, unique among the members |
| `group` | the group's descriptor: the same text at every member |
| `client` | `"readings"` (default); `"public"`: `group` is a topic, and whoever says the same is \
in (`drupelet group topic` shows its id); or 64 hex digits of another client's id |
| `epoch_ms` | default of every peer; 1000 if not given |
| `family` | whose messages these are, for life: `"bsp"` (default), `"mvds"`, or `"bsp-0"` \
(Briar's). Topics and sticks carry `bsp` only |
| `announce` | URLs by which members reach this host; they are told |
| `learn` | `true`: members that announce themselves become peers, if the two have keys |
| `[[peers]]` | one table for each member that this one has a carrier to |
| `name`, `id` | of the peer |
| `url` | `serial:///dev/ttyACM0?baud=115200`, `mqtt://localhost:1883/prefix`, \
`mqtts://broker.example:8883/prefix` (TLS), \
`stick:///media/usb` (visited when it is mounted) or `stick:` (visited by `drupelet stick`) |
| `mode` | `interactive` (offer, then send what is asked for; default), `batch` (send at once), \
or `auto` (whichever costs fewer bytes by what the link measures) |
| `profile` | what its links speak: `compact-1` or `bsp-1`. If not given: `bsp-1` when `board` \
names a board, else `compact-1`, which falls back to `bsp-1` where the peer knows no more. \
Sticks carry `bsp-1`. Family `mvds` has `mvds-1` (default), `mvds-nested` and `mvds-5001`, family \
`bsp-0` has `bsp-0` |
| `epoch_ms` | one payload leaves for this peer in each slice of time of this length |
| `budget_bytes_per_epoch` | at most so many bytes leave in an epoch, the carrier's framing \
included; 0 (default): no bound, else at least 256. Not for sticks |
| `board` | what it runs on, for the telemetry report: {boards}; `host` is no board, `board` one \
without a table |
| `[[topics]]` | a carrier of the readings that all who listen there hear at once |
| `[[channels]]` | an SDS channel: `drupelet channel` |
| `name`, `url` | of either; `url`: `udp://239.0.0.1:7447` or `mqtt://host:1883/prefix` |
| `peers` | names of those who listen; if not given, all with sealed cables or brokers |
| `epoch_ms`, `period_ms` | of a topic: one payload in each; of a channel (30,000): what nobody \
acknowledged is repeated after it |
| `bloom` | of a channel: `omit` (default) for frames that the JavaScript peer reads, `small` for \
a filter of 128 bytes, where all members run this program |
| `[[brokers]]` | how this host gets into a broker that does not let everybody in |
| `url` | of the broker, without a prefix: `mqtts://broker.example:8883` (TLS) or \
`mqtt://host:1883`; it holds for all prefixes there |
| `ca_file` | who signed its certificate, PEM; if not given, whom this machine trusts |
| `certificate_file`, `key_file` | our own certificate and its key (mode 0600), where the broker \
wants one |
| `login_file` | a file of mode 0600 with two lines, user and password. No URL may hold them. \
Paths begin at the home |
| `[feed]` | a remote log or a mailbox, which help members that seldom meet |
| `place` | where ours is: `folder:/media/log`, or `mqtt://host:1883/prefix` at a member that \
serves there; if not given, only others' are looked at |
| `serve` | `true`: this agent keeps logs and mail of all members at `place`, a broker's URL, and \
answers for the history of its channels |
| `mail` | `true`: new messages are left in the mailbox there, for the members to fetch, and no \
log is kept; `place` is a broker's URL |
| `watch` | `false`: what others keep or left is not looked at |
| `period_ms` | new messages wait at most so long; 10,000 if not given |
"""


def render() -> str:
    """The whole page, the same bytes whatever the terminal."""
    app.load_commands()
    command = typer.main.get_command(app.app)
    pages = [_HEAD]
    with command.make_context(
        "drupelet", [], resilient_parsing=True, terminal_width=_WIDTH
    ) as context:
        pages.append(_page("drupelet", command.get_help(context)))
        pages += _pages(command, context, "drupelet")
    boards = ", ".join(f"`{board}`" for board in BOARDS)
    return "".join(pages) + _CONFIG.replace("{boards}", boards)


def _pages(command: object, context: object, name: str) -> list[str]:
    pages: list[str] = []
    for verb in command.list_commands(context):  # type: ignore[attr-defined]
        child = command.get_command(context, verb)  # type: ignore[attr-defined]
        full = f"{name} {verb}"
        with child.make_context(verb, [], parent=context, resilient_parsing=True) as inner:
            pages.append(_page(full, child.get_help(inner)))
            if hasattr(child, "list_commands"):
                pages += _pages(child, inner, full)
    return pages


def _page(name: str, text: str) -> str:
    return f"\n## {name}\n\n```\n{text.strip()}\n```\n"


if __name__ == "__main__":
    print(render(), end="")
