"""`drupelet export`: the log in the forms and to the servers that other programs read."""

import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drupelet_host.base import output
from drupelet_host.cli.common import AsJson, Home, home_of, path
from drupelet_host.cli.store_reading import store_reading
from drupelet_host.home import config, private_files

if TYPE_CHECKING:
    from drupelet_host.export.formats import Format
    from drupelet_host.export.run import Target
    from drupelet_host.readers.log_reader import LogReader

# How often the log is looked at with --follow, and the metrics' file is written.
LOOK_EVERY_S = 0.5
METRICS_EVERY_S = 15.0
# A server that is not there is tried again after so long, twice as long each time.
RETRY_S_MIN = 1.0
RETRY_S_MAX = 60.0
_FORMATS = {"csv": ".csv", "ndjson": ".ndjson .jsonl", "senml": ".senml .senmlc .cbor",
            "influx": ".lp .influx"}  # fmt: skip
_LOGIN_SIZE_MAX = 4096
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("export")(export)


class _Settings:
    """What the command line says."""

    def __init__(
        self, home: Path, to: str, form: str, group: str, author: str, name: str,
        columns: list[str], measurement: str, login_file: Path | None, discovery: str,
        expire_s: int,
    ) -> None:  # fmt: skip
        self.home = home
        self.to = to
        self.form = form
        self.group = group
        self.author = author
        self.columns = columns
        self.measurement = measurement
        self.login_file = login_file
        self.discovery = discovery
        self.expire_s = expire_s
        place = to if _scheme(to) or not to else str(path(to).absolute())
        self.name = f"export {name or place} {group}{' ' + author if author else ''}"


def export(
    to: Annotated[
        str,
        typer.Argument(
            metavar="[FILE|URL|-]",
            help="A file; http://host/write?db=… of an InfluxDB; mqtt://host/prefix for Home"
            " Assistant; - for standard output.",
            show_default=False,
        ),
    ] = "",
    form: Annotated[
        str,
        typer.Option("--format", help="csv, ndjson, senml or influx; by the file's name if not"
                     " given.", show_default=False),
    ] = "",
    group: Annotated[str, typer.Option(help="readings or telemetry.")] = "readings",
    author: Annotated[
        str, typer.Option(help="Only what it wrote or handed over.", show_default=False)
    ] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(help="CSV: a column for this value; may be repeated.", show_default=False),
    ] = None,
    measurement: Annotated[str, typer.Option(help="InfluxDB: its name.")] = "reading",
    login_file: Annotated[
        Path | None,
        typer.Option(parser=path, metavar="FILE", help="InfluxDB: a file of mode 0600 with a"
                     " token, or with user and password on two lines.", show_default=False),
    ] = None,
    discovery_prefix: Annotated[
        str, typer.Option(help="Home Assistant: where it looks for sensors.")
    ] = "homeassistant",
    expire_after: Annotated[
        int,
        typer.Option(min=0, metavar="SECONDS", help="Home Assistant: a sensor is unavailable"
                     " after it; 0: after three of the author's usual intervals."),
    ] = 0,
    name: Annotated[
        str,
        typer.Option(help="The place in the log is kept under it; by the target if not given.",
                     show_default=False),
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on as messages arrive.")] = False,
    start_over: Annotated[
        bool, typer.Option("--start-over", help="Begin with the first message again.")
    ] = False,
    prometheus: Annotated[
        Path | None,
        typer.Option("--prometheus", parser=path, metavar="FILE", help="Write the fleet's health"
                     " for Prometheus.", show_default=False),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve it as http://127.0.0.1:PORT/metrics until"
                     " Ctrl-C.", show_default=False),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Export the log, each message once: the next export goes on where this one ended.

    It may be killed at any moment. Standard output alone shows everything each time.
    """
    from drupelet_host.view.log_view import GROUPS

    if group not in GROUPS:
        raise typer.BadParameter(f"must be one of {', '.join(GROUPS)}", param_hint="--group")
    if not to and prometheus is None and metrics_port is None:
        raise typer.BadParameter(
            "name a FILE or URL, or --prometheus FILE, or --metrics-port PORT"
        )
    if not measurement:
        raise typer.BadParameter("must not be empty", param_hint="--measurement")
    if login_file is not None and not to.startswith(("http:", "https:")):
        raise typer.BadParameter("is for the http:// of an InfluxDB", param_hint="--login-file")
    if form and form not in _FORMATS:
        raise typer.BadParameter(f"must be one of {', '.join(_FORMATS)}", param_hint="--format")
    folder = home_of(home)
    config.load(folder)
    settings = _Settings(
        folder, to, form, group, author, name, column or [], measurement, login_file,
        discovery_prefix, expire_after,
    )  # fmt: skip
    with ExitStack() as stack:
        if metrics_port is not None:
            from drupelet_host.export.fleet_metrics import MetricsServer

            server = stack.enter_context(closing(MetricsServer(folder, metrics_port)))
            output.line(f"http://127.0.0.1:{server.port}/metrics")
        step: Callable[[], None] = lambda: None  # noqa: E731
        if to == "-":
            step = _to_screen(settings)
        elif to:
            step = _to_target(stack, settings, start_over, follow, as_json)
        _run(folder, step, prometheus, follow or metrics_port is not None)


def _run(folder: Path, step: Callable[[], None], prometheus: Path | None, goes_on: bool) -> None:
    """Do what is to be done, once or until Ctrl-C."""
    due_s = time.monotonic()
    while True:
        step()
        if prometheus is not None and time.monotonic() >= due_s:
            from drupelet_host.export.fleet_metrics import write_textfile

            write_textfile(folder, prometheus)
            due_s = time.monotonic() + METRICS_EVERY_S
        if not goes_on:
            return
        time.sleep(LOOK_EVERY_S)


def _to_screen(settings: _Settings) -> Callable[[], None]:
    from drupelet_host.export.reading import reading_of
    from drupelet_host.export.to_file import StreamTarget
    from drupelet_host.view.log_view import LogView

    if not settings.form:
        raise typer.BadParameter("name the --format for standard output")
    target = StreamTarget(sys.stdout.buffer, _format(settings))
    last = 0

    def step() -> None:
        nonlocal last
        view = LogView(settings.home)
        with closing(view), store_reading(view.config.store_path):
            view.check_identity()
            for entry in view.entries(settings.group, last):
                last = entry.handle
                is_wanted = settings.author in ("", entry.author, entry.via)
                if is_wanted and view.is_sound(entry):
                    target.write([reading_of(entry, settings.group)])

    return step


def _to_target(
    stack: ExitStack, settings: _Settings, start_over: bool, follow: bool, as_json: bool
) -> Callable[[], None]:
    from drupelet_host.export.run import Export, UnavailableError
    from drupelet_host.readers.log_reader import LogReader

    make = _target_of(settings)
    reader = stack.enter_context(
        closing(LogReader(settings.home, settings.name, settings.group, start_over))
    )
    target = stack.enter_context(closing(make(reader)))
    run = Export(reader, target, settings.author)
    retry_s = 0.0
    due_s = 0.0

    def step() -> None:
        nonlocal retry_s, due_s
        if time.monotonic() < due_s:
            return
        try:
            while run.step():
                pass
            retry_s = 0.0
        except UnavailableError as error:
            if not follow:
                raise
            if not retry_s:  # once, not at each try
                output.complain(str(error))
            retry_s = min(max(RETRY_S_MIN, 2 * retry_s), RETRY_S_MAX)
            due_s = time.monotonic() + retry_s
            return
        target.rest()
        if not follow:
            _tell(settings, run.written, as_json)

    return step


def _tell(settings: _Settings, written: int, as_json: bool) -> None:
    if as_json:
        output.print_json({"exported": written, "to": settings.to})
    else:
        output.line(f"{output.counted(written, 'message')} exported to {settings.to}")


def _target_of(settings: _Settings) -> "Callable[[LogReader], Target]":
    """How to open the target, when the command line is right."""
    scheme = _scheme(settings.to)
    if scheme in ("http", "https"):
        return _influx(settings)
    if scheme in ("mqtt", "mqtts"):
        return _broker(settings)
    from drupelet_host.export.export_file import ExportFile
    from drupelet_host.export.to_file import FileTarget

    file = path(settings.to)
    form = _format(settings)
    return lambda reader: FileTarget(ExportFile(file, reader.file_size), form)


def _influx(settings: _Settings) -> "Callable[[LogReader], Target]":
    from drupelet_host.export.influx_server import InfluxTarget, parse_write_url

    url = parse_write_url(settings.to)
    login: list[str] = []
    if settings.login_file is not None:
        try:
            content = private_files.read(settings.login_file, _LOGIN_SIZE_MAX).decode("ascii")
        except UnicodeDecodeError:
            content = ""
        login = content.splitlines()
        if len(login) not in (1, 2) or not all(login):
            raise private_files.PrivateError(
                f"{settings.login_file}: must be a token, or user and password on two lines"
            )
    return lambda _: InfluxTarget(url, settings.measurement, login, output.complain)


def _broker(settings: _Settings) -> "Callable[[LogReader], Target]":
    from drupelet_host.export.home_assistant import Discovery
    from drupelet_host.export.reading import reading_of
    from drupelet_host.export.to_broker import RECENT_MAX, BrokerTarget
    from drupelet_transports.common.url import parse_url

    url = parse_url(settings.to)

    def make(reader: "LogReader") -> "Target":
        us = reader.config.id.hex()
        discovery = Discovery(url.path, us, settings.discovery, settings.expire_s)
        recent = [reading_of(entry, reader.group) for entry in reader.recent(RECENT_MAX)]
        client_id = f"drupelet-{us}-{reader.number}"
        return BrokerTarget(url, reader.config.brokers, client_id, discovery, recent)

    return make


def _scheme(to: str) -> str:
    """The scheme of a URL; "" for a file."""
    match = _SCHEME.match(to)
    return match[1] if match and match[1] != "file" else ""


def _format(settings: _Settings) -> "Format":
    from drupelet_host.export import formats

    suffix = Path(settings.to).suffix.lower()
    name = settings.form or next(
        (name for name, ends in _FORMATS.items() if suffix and suffix in ends.split()), ""
    )
    if not name:
        raise typer.BadParameter(
            f"{settings.to}: its name says no format; give --format {', '.join(_FORMATS)}"
        )
    if name == "csv":
        return formats.Csv(tuple(settings.columns))
    if settings.columns:
        raise typer.BadParameter("is for CSV", param_hint="--column")
    if name == "influx":
        return formats.InfluxLines(settings.measurement)
    return formats.NdJson() if name == "ndjson" else formats.SenmlCbor()
