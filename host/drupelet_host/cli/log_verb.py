"""`drupelet log` and `drupelet get`: messages of the log, for people and for programs."""

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drupelet.base.limits import ID_SIZE
from drupelet_host.base import clock, output
from drupelet_host.base.duration import duration_s
from drupelet_host.cli.common import Home, home_of
from drupelet_host.cli.store_reading import store_reading

if TYPE_CHECKING:
    from drupelet_host.view.log_view import Entry, LogView, Wanted

# How often the log is looked at again with --follow.
LOOK_EVERY_S = 0.1
# So many lines are one write.
_LINES_AT_ONCE = 256
_HEAD = f"{'#':>6}  {'id':8}  {'from':12}  {'written (UTC)':24}  {'after':17}  text"
_ID_START = re.compile(rf"[0-9A-Fa-f]{{1,{2 * ID_SIZE}}}")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(log)
    app.command()(get)


def log(
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as messages arrive.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help="At most so many, the newest.", show_default=False),
    ] = None,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME|DURATION",
            help="Written since then: 2026-11-05, 2026-11-05T06:30 (UTC), 90min, 12h, 3d.",
            show_default=False,
        ),
    ] = "",
    author: Annotated[str, typer.Option(help="Written by this member.", show_default=False)] = "",
    id: Annotated[
        str, typer.Option(metavar="PREFIX", help="Whose id begins so.", show_default=False)
    ] = "",
    group: Annotated[str, typer.Option(help="readings or telemetry.")] = "readings",
) -> None:
    """Show the log in its order: who wrote it, when, what it comes after, and the text.

    Of a text its first 400 characters; --json has all of it. `drupelet get` gives out one message.
    """
    from drupelet_host.view.log_view import GROUPS, Wanted

    if group not in GROUPS:
        raise typer.BadParameter(f"must be one of {', '.join(GROUPS)}", param_hint="--group")
    wanted = Wanted(_since_ms(since), author, _id_start(id, "--id") if id else "")
    with _reading(home_of(home)) as view:
        _print(_chosen(view, group, limit, wanted, follow), as_json)


def get(
    id: Annotated[
        str, typer.Argument(help="Its id, or how it begins, as `log` shows.", show_default=False)
    ],
    home: Home = None,
) -> None:
    """Write the content of one message to standard output, byte for byte."""
    with _reading(home_of(home)) as view:
        entry = view.find(_id_start(id, "ID"))
    sys.stdout.buffer.write(entry.payload)
    sys.stdout.buffer.flush()


@contextmanager
def _reading(home: Path) -> "Iterator[LogView]":
    """A home's log; its failures are one line, and a reader that has had enough is none."""
    from drupelet_host.view.log_view import LogView

    view = LogView(home)
    try:
        with store_reading(view.config.store_path):
            view.check_identity()
            yield view
    finally:
        view.close()


def _chosen(
    view: "LogView", group: str, limit: int | None, wanted: "Wanted", follow: bool
) -> "Iterator[list[Entry]]":
    """The messages, in lists of those that are there together.

    follow: with those that arrive later.
    """
    after = order = 0
    if limit is not None:
        with view.at_one_moment():
            after, order = view.end(), view.count(group)
            newest = view.newest(group, limit, wanted)
        yield newest
    while True:
        entries = view.entries(group, after, order)
        # All of them: where a look ends is where the next one begins.
        while batch := list(islice(entries, _LINES_AT_ONCE)):
            after, order = batch[-1].handle, batch[-1].order
            yield [entry for entry in batch if wanted.has(entry)]
        if not follow:
            return
        yield []  # all that is there
        time.sleep(LOOK_EVERY_S)
        if not view.begun:
            view.renew()


def _print(batches: "Iterable[list[Entry]]", as_json: bool) -> None:
    """Each batch is one write; what is there is seen before more is waited for."""
    if not as_json:
        print(_HEAD)
    line_of = _json_line if as_json else _text_line
    for batch in batches:
        if batch:
            sys.stdout.write("".join([line_of(entry) for entry in batch]))
        sys.stdout.flush()


def _json_line(entry: "Entry") -> str:
    return json.dumps(entry.fields()) + "\n"


def _text_line(entry: "Entry") -> str:
    text = output.message_start(output.payload_text(entry.payload))
    if entry.lifetime.kind:
        text += f"  [{entry.lifetime.text()}]"
    after = " ".join([id[:4].hex() for id in entry.dependencies])
    line = (
        f"{entry.order:>6}  {entry.id[:4].hex()}  {sender(entry):12}"
        f"  {clock.timestamp_text(entry.timestamp):24}  {after:17}"
        f"  {output.DAMAGED_TEXT if entry.is_damaged else text}"
    )
    return output.printable(line) + "\n"


def sender(entry: "Entry") -> str:
    """Who wrote it as it says itself, and whom it came from where that is somebody else."""
    if entry.author == entry.via:
        return entry.via
    return f"{entry.author} via {entry.via}".lstrip()


def _since_ms(text: str) -> int:
    """A point in time, or how long ago it was; in ms since 1970."""
    if not text:
        return 0
    if (ago_s := duration_s(text)) is not None:
        return clock.wall_ms() - ago_s * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            "is a time as 2026-11-05 or 2026-11-05T06:30, or a duration as 90min, 12h, 3d",
            param_hint="--since",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def _id_start(text: str, where: str) -> str:
    if not _ID_START.fullmatch(text):
        raise typer.BadParameter(
            f"is 1 to {2 * ID_SIZE} hex digits, as `drupelet log` shows", param_hint=where
        )
    return text.lower()
