"""The `drupelet` command.

`main` is the only place that turns our exceptions into the exit statuses of exit_codes.
"""

import io
import json
import os
import signal
import sqlite3
import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command_name

import drupelet
from drupelet.base.errors import CapacityError, DrupeletError, StorageError
from drupelet.base.limits import PENDING_PER_PEER_MAX
from drupelet_host.base import output
from drupelet_host.cli import (
    channel_verbs,
    client_verbs,
    exit_codes,
    extras,
    invite_verbs,
    key_verbs,
    shell_verbs,
)
from drupelet_host.cli.common import (
    AsJson,
    Home,
    TextCommand,
    ask_agent,
    home_of,
    id_of,
    path,
    table,
    text_path,
)
from drupelet_host.home import config, private_files, toml_table
from drupelet_host.home.urls import STICK_BY_REQUEST
from drupelet_host.member import identity
from drupelet_host.member.status import foreign_text, jams
from drupelet_host.store import database, outbox
from drupelet_transports.common.url import parse_url

if TYPE_CHECKING:
    from drupelet_host.view.log_view import Entry

# How often the log is looked at again with --follow.
LOOK_EVERY_S = 0.1
# How soon `drupelet broker` sees that its broker has ended.
BROKER_LOOK_EVERY_S = 0.5
COMMANDS_GROUP = "drupelet.commands"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"drupelet {drupelet.__version__}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Data sync for devices that are mostly asleep and mostly offline."""


@app.command()
def init(
    name: Annotated[str, typer.Option(help="This member's name.")],
    group: Annotated[str, typer.Option(help="The group: the same text at every member.")],
    id: Annotated[
        str, typer.Option(help="8 hex digits, unique; random if not given.", show_default=False)
    ] = "",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Make a home: drupelet.toml, and a folder for keys that only you can read."""
    folder = home_of(home)
    own_id = id_of(id) if id else os.urandom(4)
    config_path = config.create(config.Config(home=folder, name=name, id=own_id, group=group))
    private_files.make_folder(folder / "keys")
    if as_json:
        output.print_json({"config": str(config_path), "name": name, "id": own_id.hex()})
        return
    print(
        f"{config_path}: member {name} ({own_id.hex()});"
        " next: `drupelet peer add`, then `drupelet provision`"
    )


@app.command()
def agent(
    home: Home = None,
    as_json: AsJson = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Start even if a device or broker is not there yet.")
    ] = False,
    restored: Annotated[
        bool,
        typer.Option(
            "--restored", help="The whole disk was set back: ask the peers for what is lost."
        ),
    ] = False,
) -> None:
    """Be a member: serve the carriers until SIGTERM or Ctrl-C.

    Prints one line per event (started, restored, delivered, carrier, stick, peers, keys, alarm,
    stopped). A peer without keys is refused, unless its cable's URL says plain=1.
    A store that was copied back from a backup is noticed by itself.
    """
    from drupelet_host.agent.loop import Agent

    folder = home_of(home)
    settings = config.load(folder)
    with config.lock(folder):
        Agent(settings, output.Output(as_json), wait, restored).run()


@app.command(cls=TextCommand)
def put(
    text: Annotated[
        str | None,
        typer.Argument(help="The message; - reads it from standard input.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Take the message from a file.",
                     show_default=False),
    ] = None,
    home: Home = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for room where the running agent is behind.")
    ] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Publish a message: now if the agent runs, else as soon as it does."""
    payload = _payload(text, file)
    folder = home_of(home)
    settings = config.load(folder)
    connection = database.connect(settings.store_path)
    try:
        if wrong := identity.problem(connection, settings):
            raise config.ConfigError(wrong)
        entry = _post(connection, payload, folder, wait)
    except sqlite3.Error as error:
        raise StorageError(database.explain(settings.store_path, error)) from error
    finally:
        connection.close()
    try:
        running = config.locked(folder)
        if as_json:
            output.print_json({"entry": entry, "size": len(payload), "running": running})
        else:
            who = "the agent" if running else "the next agent or stick visit"
            print(f"{len(payload)} bytes accepted; {who} publishes it", flush=True)
    except (OSError, DrupeletError) as error:
        # Who takes this for a failure says it again.
        output.complain(f"accepted as entry {entry}, but that could not be shown: {error}")
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - till the end


def _post(connection: sqlite3.Connection, payload: bytes, home: Path, wait: bool) -> int:
    """Leave a message in the outbox; its entry. Raises CapacityError when there is no room.

    wait: as long as the agent runs, until it has made room.
    """
    while True:
        try:
            return outbox.post(connection, payload)
        except outbox.FullError as error:
            if not config.locked(home):
                raise CapacityError(
                    f"{error.waiting} messages wait already; start the agent first"
                ) from error
            if not wait:
                raise CapacityError(
                    f"{error.waiting} messages wait already; the agent is behind, or its log is"
                    " full: --wait waits for room, `drupelet status` shows what is owed"
                ) from error
        time.sleep(LOOK_EVERY_S)


def _payload(text: str | None, file: Path | None) -> bytes:
    if (text is None) == (file is None):
        raise typer.BadParameter("give either TEXT or --file FILE")
    if text == "-":
        payload = sys.stdin.buffer.read(outbox.PAYLOAD_SIZE_MAX + 1)
    elif text is not None:
        payload = os.fsencode(text)
    else:
        assert file is not None
        try:
            with file.open("rb") as source:
                payload = source.read(outbox.PAYLOAD_SIZE_MAX + 1)
        except OSError as error:
            raise StorageError(f"{file}: cannot be read ({error.strerror})") from error
    if not payload:
        raise CapacityError("an empty message says nothing; give it some text")
    if len(payload) > outbox.PAYLOAD_SIZE_MAX:
        raise CapacityError(f"too long: at most {outbox.PAYLOAD_SIZE_MAX} bytes; split it")
    return payload


@app.command()
def log(
    home: Home = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as messages arrive.")] = False,
    group: Annotated[str, typer.Option(help="readings or telemetry.")] = "readings",
) -> None:
    """Show the log in its order: who wrote it, when, the text, and what it comes after.

    Of a text its first 400 characters; --json has all of it.
    """
    from drupelet_host.view.log_view import GROUPS, LogView

    if group not in GROUPS:
        raise typer.BadParameter(f"must be one of {', '.join(GROUPS)}", param_hint="--group")
    view = LogView(home_of(home))
    last = order = 0
    try:
        view.check_identity()
        while True:
            entries = list(view.entries(group, last, order))
            if entries:
                last, order = entries[-1].handle, entries[-1].order
            _show_log(entries, as_json, follow)
            if not follow:
                return
            time.sleep(LOOK_EVERY_S)
            if not view.begun:
                view.close()
                view = LogView(home_of(home))
    except sqlite3.Error as error:
        raise StorageError(database.explain(view.config.store_path, error)) from error
    finally:
        view.close()


def _from(entry: "Entry") -> str:
    """Who wrote it as it says itself, and whom it came from where that is somebody else."""
    if entry.author == entry.via:
        return entry.via
    return f"{entry.author} via {entry.via}".lstrip()


def _show_log(entries: list["Entry"], as_json: bool, follow: bool) -> None:
    if as_json:
        for entry in entries:
            print(json.dumps(entry.fields()), flush=True)
    elif follow:
        for entry in entries:
            shown = entry.fields()
            text = output.message_start(shown["text"])
            output.line(f"{entry.order:>6} {shown['time']} {_from(entry)}: {text}")
    else:
        rows: list[tuple[str, ...]] = []
        for entry in entries:
            shown = entry.fields()
            after = " ".join(id[:8] for id in shown["dependencies"])
            text = output.message_start(shown["text"])
            row = (entry.order, shown["id"][:8], _from(entry), shown["time"], text, after)
            rows.append(tuple(str(cell) for cell in row))
        table(("#", "id", "from", "written (UTC)", "text", "after"), rows)


_PEER_HEADS = (
    "peer", "id", "carrier", "peer heard", "owed", "profile", "mode", "twice", "trip",
)  # fmt: skip


@app.command()
def status(home: Home = None, as_json: AsJson = False) -> None:
    """Show identity, peers and carriers, what is delivered and what is still owed."""
    from drupelet_host.view.log_view import LogView

    view = LogView(home_of(home))
    try:
        view.check_identity()
        report = view.status()
    except sqlite3.Error as error:
        raise StorageError(database.explain(view.config.store_path, error)) from error
    finally:
        view.close()
    if as_json:
        output.print_json(report)
        return
    state = "running" if report["running"] else "not running"
    output.line(f"{report['name']} ({report['id']}) in group {report['group']}, agent {state}")
    print(
        f"{report['delivered']} messages in the log, {report['telemetry']} black-box segments,"
        f" {report['pending']} wait for a parent, {report['outbox']} in the outbox,"
        f" store {report['store_bytes'] / 1024:.0f} KiB"
    )
    if not view.begun:
        print("no store yet: `drupelet agent` makes one")
    if report["counters"]:
        when = "since its start" if report["running"] else "when it ran last"
        print(f"{when}: " + ", ".join(f"{n} {k}" for k, n in report["counters"].items()))
    rows: list[tuple[str, ...]] = []
    for peer in report["peers"]:
        heard = _ago(peer["heard_ms"])
        owed = "?" if peer["outstanding"] is None else str(peer["outstanding"])
        # As much as is looked at: what the log holds beyond it is not counted.
        owed += "+" if peer.get("more_outstanding") else ""
        note = peer["reason"] or peer["url"]
        if peer["pending"] >= PENDING_PER_PEER_MAX:
            note += f"; {peer['pending']} messages from it wait for parents that nobody sent:"
            note += " more are refused"
        row = (peer["name"], peer["id"], _carrier(peer), heard, owed, *_spoken(peer), note)
        rows.append(row)
    heads = (*_PEER_HEADS, "where")
    table(heads, rows)
    shared: list[tuple[str, ...]] = []
    for row in (*report["topics"], *report["channels"]):
        have = f"{len(row['told'])} of {len(row['listeners'])}"
        shared.append((row["name"], row["state"], have, row["reason"] or row["url"]))
    if shared:
        table(("topic", "carrier", "have our key", "where"), shared)
    for line in _beside(report):
        output.line(line)


def _beside(report: dict[str, Any]) -> list[str]:
    """What no peer can be given, members that could not be taken as peers, the remote log."""
    feed = report["feed"]
    lines = [
        f"{peer['name']}: {peer['undeliverable']} messages not deliverable: too long for a frame"
        " of its carrier, and no answer says that it reads segments"
        for peer in report["peers"]
        if peer["undeliverable"]
    ]
    lines += [f"not learned: {row['id']}: {row['reason']}" for row in report["not_learned"]]
    lines += [
        foreign_text(peer["name"], peer["foreign"], report["group"])
        for peer in report["peers"]
        if peer["foreign"]
    ]
    names = {peer["id"]: peer["name"] for peer in report["peers"]}
    lines += [text for _, _, text in jams(report, names)]
    if feed:
        text = f"feed {feed['place'] or '(none of ours)'}: {feed['pushed']} uploaded"
        lines.append(f"{text}, {feed['pulled']} taken in; {feed['reason'] or 'no trouble'}")
    return lines


def _carrier(peer: dict[str, Any]) -> str:
    """The state of the carrier alone: whether the peer is there, the next column tells."""
    return "connected" if peer["state"] == "up" else str(peer["state"])


def _spoken(peer: dict[str, Any]) -> tuple[str, str, str, str]:
    """What is spoken with a peer, in which mode, and what that showed."""
    profile = peer["profile"] + (" (recovers)" if peer["recovering"] else "")
    now = peer["mode_now"]
    mode = f"{peer['mode']}: {now}" if peer["mode"] == "auto" and now else peer["mode"]
    twice = "-" if peer["duplicates"] is None else str(peer["duplicates"])
    trip = "-" if peer["round_trip_ms"] is None else f"{peer['round_trip_ms']} ms"
    return profile, mode, twice, trip


def _ago(wall_ms: int) -> str:
    if not wall_ms:
        return "never"
    seconds = max(0, int(datetime.now(UTC).timestamp() - wall_ms / 1000))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


@app.command()
def stick(
    path: Annotated[
        Path,
        typer.Argument(parser=text_path, help="Where the stick is mounted.", show_default=False),
    ],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Exchange with a USB stick; wait for "safe to unplug"."""
    folder = home_of(home)
    settings = config.load(folder)
    # The agent may run elsewhere: it gets the whole path.
    where = path.absolute()
    try:
        with config.lock(folder):
            from drupelet_host.agent.loop import visit_alone

            report = visit_alone(settings, where)
    except config.LockedError:
        report = ask_agent(settings, "stick", str(where))
    if "error" in report:
        raise DrupeletError(str(report["error"]))
    if as_json:
        output.print_json(report)
    else:
        print(
            f"read {report['bundles_read']} files ({report['frames_read']} frames,"
            f" {report['messages']} new messages)"
        )
        print(f"wrote {report['bundles_written']} files ({report['frames_written']} frames)")
        for problem in report["problems"]:
            output.complain(problem)
        if report["safe_to_unplug"]:
            print("safe to unplug")
    if not report["safe_to_unplug"]:
        raise typer.Exit(exit_codes.REFUSED)


peer_app = typer.Typer(help="Add and remove peers, also of a running agent.", no_args_is_help=True)
app.add_typer(peer_app, name="peer")


@peer_app.command("add")
def peer_add(
    name: Annotated[str, typer.Argument(help="The peer's name.", show_default=False)],
    id: Annotated[str, typer.Argument(help="Its id: 8 hex digits.", show_default=False)],
    url: Annotated[str, typer.Argument(help="serial:, mqtt: or stick: URL.", show_default=False)],
    mode: Annotated[str, typer.Option(help="interactive, batch or auto.")] = config.MODES[0],
    profile: Annotated[
        str, typer.Option(help="compact-1 or bsp-1; by --board if not given.", show_default=False)
    ] = "",
    epoch_ms: Annotated[
        int | None, typer.Option(help="As `epoch_ms` of the home.", show_default=False)
    ] = None,
    board: Annotated[str, typer.Option(help="What it runs on.", show_default=False)] = "",
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Know one more peer: written to drupelet.toml, and at once if the agent runs."""
    folder = home_of(home)
    settings = config.load(folder)
    number = id_of(id)
    if url != STICK_BY_REQUEST:
        parse_url(url)
    epoch = settings.epoch_ms if epoch_ms is None else epoch_ms
    config.add_peer(folder, config.Peer(name, number, url, mode, epoch, board, profile))
    try:
        _reload(settings, f"{name} added", as_json)
    except DrupeletError:
        config.remove_peer(folder, name)
        raise


@peer_app.command("remove")
def peer_remove(
    name: Annotated[str, typer.Argument(help="The peer's name.", show_default=False)],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Forget a peer. What it sent stays; what was on its way to it is dropped."""
    folder = home_of(home)
    settings = config.load(folder)
    config.remove_peer(folder, name)
    _reload(settings, f"{name} removed", as_json)


def _reload(settings: config.Config, done: str, as_json: bool) -> None:
    """Have the agent take up what `drupelet.toml` says, if one runs."""
    running = config.locked(settings.home)
    changed = ask_agent(settings, "reload", "") if running else {}
    if "error" in changed:
        raise DrupeletError(str(changed["error"]))
    if as_json:
        output.print_json({"running": running, **changed})
    else:
        print(f"{done}; " + ("the agent knows" if running else "the agent does not run"))


@app.command("export-telemetry")
def export_telemetry(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", parser=path, help="Where to write.", show_default=False),
    ],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Write the devices' black-box segments (*.dbx) and names.json for `drupelet telemetry`."""
    from drupelet_host.view.log_view import LogView

    view = LogView(home_of(home))
    try:
        exported = view.export_telemetry(folder)
    except sqlite3.Error as error:
        raise StorageError(database.explain(view.config.store_path, error)) from error
    finally:
        view.close()
    if as_json:
        counts = {"segments": exported.segments, "others": exported.others}
        output.print_json({**counts, "folder": str(folder)})
    else:
        print(f"{exported.text} in {folder}")


@app.command("broker")
def serve_broker(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 1883,
    as_json: AsJson = False,
) -> None:
    """Run an MQTT broker for this machine alone, until Ctrl-C: it listens on 127.0.0.1."""
    from drupelet_host.broker import Broker, BrokerError  # asyncio: no other verb waits for it

    broker = Broker(port)
    url = broker.start()
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if as_json:
        output.print_json({"url": url})
    else:
        print(url, flush=True)
    try:
        while broker.running:
            if signal.sigtimedwait(signals, BROKER_LOOK_EVERY_S):
                return
    finally:
        broker.stop()
    raise BrokerError("the MQTT broker ended by itself; start it again")


@app.command()
def version(as_json: AsJson = False) -> None:
    """Show the version."""
    if as_json:
        output.print_json({"version": drupelet.__version__})
    else:
        print(drupelet.__version__)


key_verbs.register(app)
invite_verbs.register(app)
client_verbs.register(app)
channel_verbs.register(app)


@cache
def load_commands() -> None:
    """Add the verbs of other rooms: functions `register(app)` in the group COMMANDS_GROUP."""
    from importlib.metadata import entry_points  # 50 ms, which no verb of the host waits for

    for entry in entry_points(group=COMMANDS_GROUP):
        entry.load()(app)


shell_verbs.register(app, load_commands)


def _is_own_verb(words: list[str]) -> bool:
    """Whether a command line begins with a verb of the host: no other room is loaded for it."""
    groups = {info.name for info in app.registered_groups}
    own = {
        info.name or get_command_name(info.callback.__name__)
        for info in app.registered_commands
        if info.callback
    }
    return bool(words) and words[0] in own | groups


def main() -> None:
    """Run the command line and exit; no traceback for anything but our own mistakes.

    typer itself ends with 2 for wrong usage and 130 for Ctrl-C.
    """
    # What others wrote has letters that no older locale knows, and a path may be no UTF-8: it is
    # told as it is.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        if not _is_own_verb(sys.argv[1:]):
            load_commands()
        shell_verbs.prepare_completion()
        app()
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        output.complain(f"{name}{error.strerror or error}")
        status = exit_codes.status_of(error)
    except UnicodeEncodeError as error:
        output.complain(f"{toml_table.shown(error.object)}: must be text in UTF-8; rename it")
        status = exit_codes.status_of(error)
    except (DrupeletError, sqlite3.Error) as error:
        output.complain(str(error))
        status = exit_codes.status_of(error)
    except ModuleNotFoundError as error:
        text = extras.missing_module_text(error.name or "")
        if not text:
            raise  # what every installation has is gone: this one is broken
        output.complain(text)
        status = exit_codes.status_of(error)
    sys.exit(status)
