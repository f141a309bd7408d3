"""The `drupelet` command.

`main` is the only place that turns our exceptions into the exit statuses of exit_codes.
"""

import os
import signal
import sqlite3
import sys
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from typer.main import get_command_name

import drupelet
from drupelet.base.errors import DrupeletError, StorageError
from drupelet.base.limits import PENDING_PER_PEER_MAX
from drupelet_host.base import clock, output
from drupelet_host.cli import (
    channel_verbs,
    chat_verbs,
    client_verbs,
    exit_codes,
    exits,
    export_verbs,
    invite_verbs,
    key_verbs,
    live_verbs,
    log_verb,
    put_verb,
    service_verbs,
    shell_verbs,
)
from drupelet_host.cli.common import (
    AsJson,
    Home,
    ask_agent,
    finite,
    home_of,
    id_of,
    path,
    table,
    text_path,
)
from drupelet_host.home import config, private_files
from drupelet_host.home.client_ids import CLIENT_IDS
from drupelet_host.home.urls import STICK_BY_REQUEST
from drupelet_host.member.status import foreign_text, jams
from drupelet_host.requests.shapes import Reload, VisitStick
from drupelet_host.store import database
from drupelet_host.view.status_shapes import PeerStatus, Status
from drupelet_transports.common.url import parse_url

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
    group: Annotated[
        str,
        typer.Option(help="The group: the same text at every member.", show_default=False),
    ] = "",
    id: Annotated[
        str, typer.Option(help="8 hex digits, unique; random if not given.", show_default=False)
    ] = "",
    beside: Annotated[
        Path | None,
        typer.Option(
            metavar="HOME", parser=path, show_default=False,
            help="A home on this machine: the new member is in its group, and both get keys.",
        ),
    ] = None,
    url: Annotated[
        str, typer.Option(help="With --beside: how the two reach each other.")
    ] = STICK_BY_REQUEST,
    client: Annotated[
        str,
        typer.Option(
            help="exploding: messages may explode; public: the group is a topic for everybody.",
            show_default=False,
        ),
    ] = "",
    home: Home = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Make a home: drupelet.toml, and a folder for keys that only you can read."""
    own_id = id_of(id) if id else os.urandom(4)
    if client and client not in CLIENT_IDS:
        raise typer.BadParameter(f"must be {' or '.join(CLIENT_IDS)}", param_hint="--client")
    settings = config.Config(
        home=home_of(home), name=name, id=own_id, group=group, client=CLIENT_IDS.get(client)
    )
    if beside is not None:
        from drupelet_host.keys.beside import create_beside

        config_path = create_beside(settings, beside, url)
        next_step = "it and the home beside it have keys; next: `drupelet put`, `drupelet stick`"
    elif not group:
        raise typer.BadParameter("--group is missing; or --beside HOME, whose group it then has")
    else:
        config_path = config.create(settings)
        private_files.make_folder(settings.home / "keys")
        next_step = "next: `drupelet peer add`, then `drupelet provision`, or `drupelet invite`"
    if as_json:
        output.print_json({"config": str(config_path), "name": name, "id": own_id.hex()})
        return
    print(f"{config_path}: member {name} ({own_id.hex()}); {next_step}")


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
    handle_with: Annotated[
        str,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Run it for each message that was received.",
            show_default=False,
        ),
    ] = "",
    handle_time_s: Annotated[
        float,
        typer.Option(
            "--exec-timeout",
            min=0.1,
            max=86_400,
            callback=finite,
            help="Seconds that it may take.",
        ),
    ] = 60.0,
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            show_default=False,
            help="Log what happens on standard error; twice: each frame, too.",
        ),
    ] = 0,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log as JSON lines.")] = False,
) -> None:
    """Be a member: serve the carriers until SIGTERM or Ctrl-C.

    Prints one line per event (started, restored, delivered, carrier, stick, peers, keys, alarm,
    stopped). A peer without keys is refused, unless its cable's URL says plain=1.
    A store that was copied back from a backup is noticed by itself.

    The command of --exec gets a message on standard input, and DRUPELET_ID, DRUPELET_AUTHOR,
    DRUPELET_VIA, DRUPELET_GROUP, DRUPELET_TIME and DRUPELET_TIMESTAMP_MS. The shell runs it, for
    one message at a time, in the log's order and from its beginning on. Once it ends with 0 the
    message is done; after anything else it is run again for it, later and later.
    """
    from drupelet_host.agent.loop import Agent
    from drupelet_host.base import logs

    folder = home_of(home)
    settings = config.load(folder)
    logs.begin(verbose, log_json)
    with config.lock(folder):
        printer = output.Output(as_json)
        Agent(settings, printer, wait, restored, handle_with, handle_time_s).run()


put_verb.register(app)
log_verb.register(app)

_PEER_HEADS = (
    "peer", "id", "carrier", "peer heard", "owed", "profile", "mode", "twice", "trip",
)  # fmt: skip


@app.command()
def status(
    home: Home = None,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on showing it, once a second, until Ctrl-C.")
    ] = False,
) -> None:
    """Show identity, peers and carriers, what is delivered and what is still owed."""
    if watch:
        live_verbs.watch(lambda: status(home), as_json)
        return
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
        output.print_json(msgspec.to_builtins(report))
        return
    state = "running" if report.running else "not running"
    output.line(f"{report.name} ({report.id}) in group {report.group}, agent {state}")
    print(
        f"{output.counted(report.delivered, 'message')} in the log,"
        f" {output.counted(report.telemetry, 'black-box segment')},"
        f" {report.pending} wait for a parent, {report.outbox} in the outbox,"
        f" store {report.store_bytes / 1024:.0f} KiB"
    )
    if lifetime := "is ephemeral" if report.ephemeral else report.lifetime:
        print(f"what this member writes {lifetime}")
    if report.shares_with is not None:
        names = ", ".join(report.shares_with) or "nobody: none is reached"
        output.line(f"in this period the log is offered to {names}")
    if not view.begun:
        print("no store yet: `drupelet agent` makes one")
    if report.counters:
        when = "since its start" if report.running else "when it ran last"
        print(f"{when}: " + ", ".join(f"{n} {k}" for k, n in report.counters.items()))
    rows: list[tuple[str, ...]] = []
    for peer in report.peers:
        heard = clock.age_text(peer.heard_ms)
        owed = "?" if peer.outstanding is None else str(peer.outstanding)
        # As much as is looked at: what the log holds beyond it is not counted.
        owed += "+" if peer.more_outstanding else ""
        note = peer.reason or peer.url
        if peer.pending >= PENDING_PER_PEER_MAX:
            note += f"; {peer.pending} messages from it wait for parents that nobody sent:"
            note += " more are refused"
        row = (peer.name, peer.id, carrier_state(peer), heard, owed, *_spoken(peer), note)
        rows.append(row)
    heads = (*_PEER_HEADS, "where")
    table(heads, rows)
    shared: list[tuple[str, ...]] = []
    for line in (*report.topics, *report.channels):
        have = f"{len(line.told)} of {len(line.listeners)}"
        shared.append((line.name, line.state, have, line.reason or line.url))
    if shared:
        table(("topic", "carrier", "have our key", "where"), shared)
    for text in _beside(report):
        output.line(text)


def _beside(report: Status) -> list[str]:
    """What no peer can be given, members that could not be taken as peers, the remote log."""
    feed = report.feed
    lines = [
        f"{peer.name}: {output.counted(peer.undeliverable, 'message')} not deliverable: too long"
        " for a frame of its carrier, and no answer says that it reads segments"
        for peer in report.peers
        if peer.undeliverable
    ]
    lines += [f"not learned: {row.id}: {row.reason}" for row in report.not_learned]
    lines += [
        foreign_text(peer.name, peer.foreign, report.group)
        for peer in report.peers
        if peer.foreign
    ]
    names = {peer.id: peer.name for peer in report.peers}
    lines += [text for _, _, text in jams(report.said_ms, report.peers, names)]
    if feed:
        text = f"feed {feed.place or '(none of ours)'}: {feed.pushed} uploaded"
        lines.append(f"{text}, {feed.pulled} taken in; {feed.reason or 'no trouble'}")
    return lines


def carrier_state(peer: PeerStatus) -> str:
    """The state of the carrier alone: whether the peer is there, the next column tells."""
    return "connected" if peer.state == "up" else str(peer.state)


def _spoken(peer: PeerStatus) -> tuple[str, str, str, str]:
    """What is spoken with a peer, in which mode, and what that showed."""
    profile = peer.profile + (" (recovers)" if peer.recovering else "")
    now = peer.mode_now
    mode = f"{peer.mode}: {now}" if peer.mode == "auto" and now else peer.mode
    twice = "-" if peer.duplicates is None else str(peer.duplicates)
    trip = "-" if peer.round_trip_ms is None else f"{peer.round_trip_ms} ms"
    return profile, mode, twice, trip


@app.command()
def stick(
    path: Annotated[
        Path,
        typer.Argument(parser=text_path, help="Where the stick is mounted.", show_default=False),
    ],
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Exchange with a USB stick; wait for "safe to unplug".

    Ends with status 1 if it is not safe, or if messages found no room on the stick.
    """
    folder = home_of(home)
    settings = config.load(folder)
    # The agent may run elsewhere: it gets the whole path.
    where = path.absolute()
    try:
        with config.lock(folder):
            from drupelet_host.agent.loop import visit_alone

            report = visit_alone(settings, where)
    except config.LockedError:
        report = ask_agent(settings, VisitStick(str(where)), str(where))
    if as_json:
        output.print_json(report)
    else:
        print(
            f"read {output.counted(report['bundles_read'], 'file')}"
            f" ({output.counted(report['frames_read'], 'frame')},"
            f" {output.counted(report['messages'], 'new message')})"
        )
        print(
            f"wrote {output.counted(report['bundles_written'], 'file')}"
            f" ({output.counted(report['frames_written'], 'frame')})"
        )
        for problem in report["problems"]:
            output.complain(problem)
        if report["safe_to_unplug"]:
            print("safe to unplug")
    if not report["safe_to_unplug"] or report["waiting"]:
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
    changed = ask_agent(settings, Reload(), "peers") if running else {}
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
chat_verbs.register(app)
export_verbs.register(app)
service_verbs.register(app)
live_verbs.register(app)


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
    exits.end_with(_run)


def _run() -> None:
    if not _is_own_verb(sys.argv[1:]):
        load_commands()  # it takes as long as a quick command does
    shell_verbs.prepare_completion()
    app()
