"""`drupelet simulate`: an owner's program on a simulated board, and what it costs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from drupelet.base.errors import DrupeletError
from drupelet_host.cli.common import finite, path
from drupelet_host.home.board_settings import check_modes

if TYPE_CHECKING:
    from drupelet_tools.sim.simulate import Outcome, Setting
    from drupelet_tools.telemetry.energy.battery_life import Life, Use
    from drupelet_tools.telemetry.energy.board_table import Board, Charge

_CONFIG = "drupelet.json"
# What a board has whose owner has not written any: a reading in 15 minutes, deep sleep between.
_DEFAULT: dict[str, Any] = {
    "name": "board", "id": "c0000007", "group": "orchard", "flash": "/log",
    "sample_ms": 900_000, "epoch_ms": 2000,
    "sleep": {"period_ms": 900_000, "window_ms": 10_000, "contact_ms": 1000},
    "peers": [{"id": "40000000", "url": "uart:0?tx=0&rx=1&baud=115200", "mode": "interactive"}],
    "telemetry_to": ["40000000"], "peers_max": 4, "messages_max": 32, "offers_max": 16,
    "filter_size": 1024,
}  # fmt: skip
# What of a configuration is simulated: sensors, the network and other peers are not.
_KEYS = (
    "name", "id", "group", "flash", "sample_ms", "epoch_ms", "sleep", "telemetry_to", "peers_max",
    "messages_max", "offers_max", "filter_size", "quotas",
)  # fmt: skip
_PEER_KEYS = ("id", "url", "mode", "profile")
_CABLES = ("serial", "uart", "console")
# A port's name -> the table of its usual board; any table's own name will do, too.
_TABLES = {"rp2": "rp2040", "esp32": "esp32", "nrf": "nrf52840-sx1262", "unix": "pi-zero-2w"}
_BAUD = 115_200


Program = Annotated[
    Path,
    typer.Argument(
        metavar="APP", parser=path, help=f"The program, app.py; {_CONFIG} beside it is read."
    ),
]
Days = Annotated[int, typer.Option(min=1, max=366, help="Simulated days.")]
BoardName = Annotated[
    str, typer.Option(help="rp2, esp32, nrf, or a table of `telemetry energy --board`.")
]
Seed = Annotated[int, typer.Option(min=0, help="What the sensors show, and what is lost.")]
Period = Annotated[
    float | None,
    typer.Option(
        min=1, max=86_400, callback=finite, show_default=False,
        help="Seconds between readings, instead of the configuration's.",
    ),
]  # fmt: skip
Link = Annotated[
    str,
    typer.Option(
        show_default=False,
        help="loss=5: 5 % of the frames are lost, each way; baud=9600; or both, with a comma.",
    ),
]
BatteryName = Annotated[str, typer.Option(help="A table of `telemetry energy --battery`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def simulate(
    program: Program, days: Days = 30, board: BoardName = "rp2", seed: Seed = 1,
    period: Period = None, link: Link = "", battery: BatteryName = "18650",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Run a board's own program for days, and tell bytes, charge and battery life."""
    from drupelet_tools.flash.errors import BuildError
    from drupelet_tools.sim.simulate import simulate as run
    from drupelet_tools.telemetry.base.errors import TelemetryError
    from drupelet_tools.telemetry.energy.batteries import Pack, load_battery
    from drupelet_tools.telemetry.energy.battery_life import life
    from drupelet_tools.telemetry.energy.board_table import load_board

    try:
        table = load_board(_TABLES.get(board, board))
        pack = Pack(load_battery(battery))
        setting = _setting(program, table, days, seed, period, link)
        outcome = run(setting, _progress(days))
    except (DrupeletError, BuildError, TelemetryError) as error:
        _fail(str(error))
    modelled = life(_use(setting, table, outcome), pack, seed=seed)
    assert modelled is not None  # a day has passed
    figures = _figures(setting, table, outcome, modelled, battery)
    if as_json:
        typer.echo(json.dumps(figures))
    else:
        _show(figures)
    for line, count in outcome.error_lines.items():
        times = f", {count:,} times" if count > 1 else ""
        typer.echo(f"drupelet simulate: {line}{times}", err=True)
    if outcome.errors:
        raise typer.Exit(1)


def _fail(why: str) -> NoReturn:
    typer.echo(f"drupelet simulate: {why}", err=True)
    raise typer.Exit(1)


def _progress(days: int) -> Callable[[int], None]:
    """A line on stderr if somebody is looking."""
    if not sys.stderr.isatty():
        return lambda _day: None
    shown = -1

    def say(day: int) -> None:
        nonlocal shown
        if day != shown:
            shown = day
            typer.echo(f"\rday {day + 1} of {days} ", err=True, nl=day + 1 == days)

    return say


def _setting(
    program: Path, table: "Board", days: int, seed: int, period: float | None, link: str
) -> "Setting":
    """What the options and the configuration beside the program ask for."""
    from drupelet_tools.sim.simulate import Setting

    program = program.resolve()
    if not program.is_file():
        raise DrupeletError(f"{program}: there is no such file")
    given = dict(_DEFAULT)
    written = program.with_name(_CONFIG)
    if written.exists():
        given = _read(written)
    config = {key: given[key] for key in _KEYS if key in given}
    try:
        peer = {key: value for key, value in given["peers"][0].items() if key in _PEER_KEYS}
        scheme = peer["url"].partition(":")[0]
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise DrupeletError(
            f"{written}: want a list of peers, each with a url: {error!r}"
        ) from None
    check_modes(given)
    if scheme not in _CABLES:
        raise DrupeletError(
            f"{written}: the first peer is reached by {scheme}: a cable is simulated"
            f" ({', '.join(_CABLES)})"
        )
    config |= {"peers": [peer], "app": str(program), "heap_limit": 1}
    if period is not None:
        config["sample_ms"] = round(period * 1000)
        if "sleep" in config:
            config["sleep"] = {**config["sleep"], "period_ms": config["sample_ms"]}
    options = _options(link)
    return Setting(
        program, config, days, seed, options["loss"] / 100, int(options["baud"]),
        round(table.boot_ms.typical) if table.boot_ms else 0,
    )  # fmt: skip


def _read(path: Path) -> dict[str, Any]:
    try:
        given = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise DrupeletError(f"{path}: cannot be read: {error}") from None
    if not isinstance(given, dict) or not given.get("peers"):
        raise DrupeletError(f"{path}: want one JSON object with at least one peer")
    for key in ("id", "name", "group", "epoch_ms"):
        if key not in given:
            raise DrupeletError(f"{path}: {key} is missing")
    return given


def _options(link: str) -> dict[str, float]:
    """What `--link` says."""
    options = {"loss": 0.0, "baud": float(_BAUD)}
    for part in filter(None, link.split(",")):
        name, _, text = part.partition("=")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if name not in options or not (
            0 <= value < 100 if name == "loss" else 300 <= value <= 4e6
        ):
            raise DrupeletError(
                f"--link {part}: want loss=0 to 99 (percent) or baud=300 to 4000000"
            )
        options[name] = value
    return options


def _use(setting: "Setting", table: "Board", outcome: "Outcome") -> "Use":
    from drupelet_tools.telemetry.energy.battery_life import Use

    counts = {
        "boot": outcome.boots, "flash_program": outcome.flash_programs,
        "flash_erase": outcome.flash_erases, "frame_sent": outcome.frames_sent,
        "frame_received": outcome.frames_received,
    }  # fmt: skip
    return Use(setting.config["name"], table, ("serial",), outcome.state_ms, counts)


def _figures(
    setting: "Setting", table: "Board", outcome: "Outcome", modelled: "Life", battery: str
) -> dict[str, Any]:
    from drupelet_tools.telemetry.energy.board_table import charges

    use = _use(setting, table, outcome)
    rows: list[Charge] = charges(table, use.state_ms, use.carriers, use.counts)
    left_out = [f"charge of a {row.name.replace('_', ' ')}" for row in table.operations
                if row.charge_uc.unknown and use.counts[row.name]]  # fmt: skip
    if table.leakage.unknown:
        left_out.append("leakage of the board")
    if table.boot_ms is None:
        left_out.append("time of a boot")
    return {
        "program": str(setting.program), "board": table.name, "label": table.label,
        "days": setting.days, "seed": setting.seed, "loss_percent": round(setting.loss * 100, 2),
        "baud": setting.baud,
        "period_s": setting.config.get("sample_ms", setting.config["epoch_ms"]) / 1000,
        "readings": outcome.readings, "delivered": outcome.delivered, "errors": outcome.errors,
        "payload_bytes": outcome.payload_bytes, "black_box_bytes": outcome.black_box_bytes,
        "sent_bytes": outcome.sent_bytes, "received_bytes": outcome.received_bytes,
        "frames_sent": outcome.frames_sent, "frames_received": outcome.frames_received,
        "boots": outcome.boots, "flash_programs": outcome.flash_programs,
        "flash_erases": outcome.flash_erases,
        "charge": [
            {"what": row.name, "s": row.ms / 1000, "mah": row.mah, "mah_low": row.low_mah,
             "mah_high": row.high_mah, "stand_in": row.unknown}
            for row in rows if row.mah or row.ms
        ],
        "mah": sum(row.mah for row in rows), "mah_low": sum(row.low_mah for row in rows),
        "mah_high": sum(row.high_mah for row in rows), "left_out": left_out,
        "battery": battery, "battery_mah_per_day": modelled.mah_per_day.median,
        "battery_mah_per_day_low": modelled.mah_per_day.low,
        "battery_mah_per_day_high": modelled.mah_per_day.high,
        "life_days": modelled.days.median, "life_days_low": modelled.days.low,
        "life_days_high": modelled.days.high,
    }  # fmt: skip


def _show(figures: dict[str, Any]) -> None:
    """The same for people."""
    days = f"{figures['days']} day{'s' * (figures['days'] > 1)}"
    lost = f", {figures['loss_percent']:g} % of the frames lost" if figures["loss_percent"] else ""
    lines = [
        ("board", f"{figures['board']}: {figures['label']}"),
        ("time", f"{days}, a reading every {figures['period_s']:g} s,"
                 f" {figures['baud']} baud{lost}, seed {figures['seed']}"),
        ("readings", f"{figures['readings']:,} taken, {figures['delivered']:,} delivered,"
                     f" {figures['errors']:,} errors of the program"),
        ("bytes", f"{figures['sent_bytes']:,} sent, {figures['received_bytes']:,} received; of"
                  f" readings {figures['payload_bytes']:,}, black box"
                  f" {figures['black_box_bytes']:,}"),
        ("boots, flash", f"{figures['boots']:,} boots, {figures['flash_programs']:,} programs,"
                         f" {figures['flash_erases']:,} erases"),
        ("charge", f"{figures['mah']:.1f} mAh ({figures['mah_low']:.1f} to"
                   f" {figures['mah_high']:.1f}), modelled"),
    ]  # fmt: skip
    for row in figures["charge"]:
        stand_in = ", a stand-in" if row["stand_in"] else ""
        lines.append(("", f"{row['what']}: {row['mah']:.2f} mAh in {row['s']:,.1f} s{stand_in}"))
    lines.append(
        ("battery life", f"{figures['life_days']:,.0f} days ({figures['life_days_low']:,.0f} to"
         f" {figures['life_days_high']:,.0f}, the middle 90 %) on one {figures['battery']}")
    )  # fmt: skip
    if figures["left_out"]:
        lines.append(("left out", f"no figure for: {', '.join(figures['left_out'])}"))
    for head, text in lines:
        typer.echo(f"{head:14}{text}")
