"""`drupelet telemetry energy`: the model's tables, its checks, and life before a deployment."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drupelet_host.cli.common import finite, path
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.commands.command_line import JsonFlag, one_line

if TYPE_CHECKING:
    from drupelet_tools.telemetry.calibration.device_factors import Calibration
    from drupelet_tools.telemetry.calibration.fitting import Fit
    from drupelet_tools.telemetry.energy.batteries import Pack
    from drupelet_tools.telemetry.energy.battery_life import Life, Spread
    from drupelet_tools.telemetry.energy.board_table import Board
    from drupelet_tools.telemetry.energy.figure import Figure
    from drupelet_tools.telemetry.forecast.deployment import Plan, Question

app = typer.Typer(
    help="Show the tables of the energy model, check it, plan with it.",
    invoke_without_command=True,
    add_completion=False,
)
Rows = list[dict[str, Any]]

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)")
_TIME_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_CHARGE = re.compile(r"(\d+(?:\.\d+)?)\s*(mAh|Ah)(?:/day|/d)?")
_CURRENT = re.compile(r"(\d+(?:\.\d+)?)\s*(mA|uA|A)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_PACK = re.compile(r"(?:(\d+)s)?(?:(\d+)p?)?")
PERIOD_MS_MAX = 366 * 86_400_000
MESSAGES_MAX = 10_000
SOLAR_MAH_MAX = 1_000_000.0


@app.callback()
def energy(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="The model against published figures.")
    ] = False,
    board: Annotated[
        str | None, typer.Option("--board", help="A board's table with its sources.")
    ] = None,
    battery: Annotated[
        str | None, typer.Option("--battery", help="A battery's table with its sources.")
    ] = None,
    carrier: Annotated[
        str | None, typer.Option("--carrier", help="A carrier's table with its sources.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the tables of the energy model, or check it against published figures."""
    if context.invoked_subcommand is not None:
        return
    with one_line():
        if check:
            _show(*_check_rows(), as_json=as_json)
        elif board is not None:
            _show(*_board_rows(board), as_json=as_json)
            _show(*_wake_rows(board), as_json=as_json)
        elif carrier is not None:
            _show(*_carrier_rows(carrier), as_json=as_json)
        elif battery is not None:
            _show(*_battery_rows(battery), as_json=as_json)
        else:
            _show(*_table_rows(), as_json=as_json)


@app.command(name="plan")
def plan_(
    board: Annotated[str, typer.Option("--board", help="A board's table, like esp32.")],
    carrier: Annotated[str, typer.Option("--carrier", help="How it is connected, like mqtt.")],
    battery: Annotated[
        str,
        typer.Option(
            "--battery",
            help="A table; NAME:2 are two cells in parallel, NAME:3s2p also in series.",
        ),
    ],
    every: Annotated[
        str | None, typer.Option("--every", help="Time between wakes, like 15m or 6h.")
    ] = None,
    wakes: Annotated[
        int | None, typer.Option("--wakes", min=1, help="Wakes a day, instead of --every.")
    ] = None,
    body: Annotated[int, typer.Option("--body", help="Bytes of a message.")] = 100,
    messages: Annotated[
        int, typer.Option("--messages", min=0, max=MESSAGES_MAX, help="Messages in a wake.")
    ] = 1,
    in_clear: Annotated[bool, typer.Option("--open", help="Messages are not sealed.")] = False,
    address: Annotated[
        str | None,
        typer.Option("--address", help="Wi-Fi: dhcp (taken without this) or static."),
    ] = None,
    boot: Annotated[
        str,
        typer.Option("--boot", help="stock, or fast: the image is not validated after sleep."),
    ] = "stock",
    mount_every: Annotated[
        int,
        typer.Option("--mount-every", min=1, help="The file system is mounted every N-th wake."),
    ] = 1,
    work: Annotated[
        str, typer.Option("--work", help="Time that sensor and program take in a wake.")
    ] = "0ms",
    retransmits: Annotated[
        str, typer.Option("--retransmits", help="Share of messages sent again, like 10%.")
    ] = "0%",
    spreading: Annotated[
        int, typer.Option("--spreading", min=6, max=12, help="LoRa's spreading factor.")
    ] = 7,
    baud: Annotated[
        int, typer.Option("--baud", min=300, max=4_000_000, help="Rate of a serial line.")
    ] = 115_200,
    leakage: Annotated[
        str | None, typer.Option("--leakage", help="What the board itself draws, like 0.1mA.")
    ] = None,
    solar: Annotated[
        str | None,
        typer.Option("--solar", help="What a panel puts into the battery on a day, like 200mAh."),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature", min=-60, max=100, callback=finite, help="Of the battery, C."
        ),
    ] = 21.0,
    rated: Annotated[
        str | None, typer.Option("--rated", help="Of one cell, like 2600mAh; else the table's.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", parser=path, help="A file of `energy calibrate`."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Whose calibration, if the file has several.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the intervals.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Battery life and where the charge goes, before anything is deployed. All of it modelled."""
    with one_line():
        from drupelet_tools.telemetry.calibration import device_factors
        from drupelet_tools.telemetry.forecast import deployment

        table = deployment.board_of(board)
        way = deployment.carrier_of(table, carrier)
        if address is not None and way.joins != "ip":
            raise TelemetryError(f"--address: {carrier} has no addresses; leave it out")
        question = deployment.Question(
            board=board,
            carrier=carrier,
            period_ms=_period_ms(every, wakes),
            pack=_pack(battery, rated, temperature),
            body_bytes=body,
            messages=messages,
            sealed=not in_clear,
            address=_choice("--address", address or "dhcp", ("dhcp", "static")),
            boot=_choice("--boot", boot, ("stock", "fast")),
            mount_every=mount_every,
            work_ms=_time_ms("--work", work),
            retransmit_share=_share("--retransmits", retransmits),
            spreading=spreading,
            baud=baud,
            leakage_ma=None if leakage is None else _current_ma("--leakage", leakage),
            solar_mah_per_day=0.0 if solar is None else _charge_mah("--solar", solar),
        )
        own = None
        if calibration is not None:
            calibrations = device_factors.read_calibrations(calibration)
            own = device_factors.choose(calibrations, calibration, board, device)
        outlook = deployment.plan(question, seed=seed)
        fitted = None if own is None else deployment.plan(question, calibration=own, seed=seed)
        if as_json:
            answer = _plan_json(question, outlook)
            if own is not None and fitted is not None:
                answer["measured"] = _measured_json(own)
                answer["calibrated"] = deployment.as_dict(fitted)
            typer.echo(json.dumps(answer))
        else:
            _show_plan(question, outlook)
            if own is not None and fitted is not None:
                _show_calibrated(own, outlook, fitted)


@app.command()
def calibrate(
    series: Annotated[
        Path,
        typer.Argument(
            parser=path,
            help="CSV of a PPK2, Joulescope, INA219 or fuel gauge, told by its header.",
        ),
    ],
    board: Annotated[str, typer.Option("--board", help="The table to fit.")],
    carrier: Annotated[str, typer.Option("--carrier", help="How it was connected.")],
    output: Annotated[
        Path, typer.Option("--output", parser=path, help="Calibration file; others stay in it.")
    ],
    segments: Annotated[
        list[Path] | None,
        typer.Option("--segments", parser=path, help="The device's black box: files or folder."),
    ] = None,
    states: Annotated[
        Path | None,
        typer.Option("--states", parser=path, help="Instead: a CSV with time_ms,state."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Its id; else the black box's or file's.")
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            help="Time of the states at the series' first row, like 1.5s; else by both clocks.",
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option("--align", help="Look for the offset this far around it, like 5s."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the intervals.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Fit a board's currents to what was measured on one device, a factor per power state."""
    with one_line():
        from drupelet_tools.telemetry.calibration import (
            device_factors,
            fitting,
            measured_series,
            timelines,
        )
        from drupelet_tools.telemetry.forecast import deployment

        table = deployment.board_of(board)
        deployment.carrier_of(table, carrier)
        if (states is None) == (not segments):
            raise TelemetryError("give one of --segments (a black box) and --states (a CSV)")
        if not output.parent.is_dir():
            raise TelemetryError(f"--output {output}: {output.parent}: no such folder; make it")
        rows = measured_series.read_series(series)
        if states is not None:
            timeline = timelines.read_states(states)
        else:
            timeline = timelines.read_segments(segments or [], device)
        if offset is not None:
            offset_ms = _time_ms("--offset", offset)
        elif rows.is_wall and timeline.origin_ms is not None:
            offset_ms = float(rows.time_ms[0]) - timeline.origin_ms
        else:
            offset_ms = 0.0
        if align is not None:
            range_ms = _time_ms("--align", align)
            offset_ms = fitting.align(rows, timeline, table, carrier, offset_ms=offset_ms,
                                         range_ms=range_ms)  # fmt: skip
            typer.echo(f"offset: {offset_ms / 1000:.4g} s", err=True)
        fit = fitting.fit(rows, timeline, table, carrier, offset_ms=offset_ms, seed=seed)
        source = f"{rows.layout} series {series.name}, {fit.hours:.3g} h, {fit.windows} windows"
        fitted = device_factors.of_fit(fit, device or timeline.device, board, carrier, source)
        if not fitted.factors:
            raise TelemetryError(f"{series}: determines no state; measure for longer")
        device_factors.write_calibration(output, fitted)
        if as_json:
            typer.echo(json.dumps(_fit_json(fitted, fit, output)))
        else:
            _show_fit(fitted, fit, output)


def _fit_json(calibration: Calibration, fit: Fit, output: Path) -> dict[str, Any]:
    return {
        "file": str(output),
        **_measured_json(calibration),
        "residual_share_before": fit.residual_before,
        "windows": fit.windows,
        "factors": [
            {"state": row.state, "name": row.name, "determined": row.determined,
             "hours": row.hours, "factor": row.value.typical, "low": row.value.low,
             "high": row.value.high}
            for row in fit.factors
        ],
    }  # fmt: skip


def _measured_json(calibration: Calibration) -> dict[str, Any]:
    return {
        "device": calibration.device, "board": calibration.board, "carrier": calibration.carrier,
        "source": calibration.source, "hours": calibration.hours,
        "measured_mah": calibration.measured_mah,
        "modelled_mah": calibration.modelled_mah, "calibrated_mah": calibration.calibrated_mah,
        "residual_share": calibration.residual_share,
    }  # fmt: skip


def _show_fit(calibration: Calibration, fit: Fit, output: Path) -> None:
    rows = [
        {
            "state": row.name,
            "time (h)": round(row.hours, 5),
            "factor": f"{row.value.typical:.3f}" if row.determined else "1",
            "low": f"{row.value.low:.3f}" if row.determined else "",
            "high": f"{row.value.high:.3f}" if row.determined else "",
            "determined": "yes" if row.determined else "no: the table's current stays",
        }
        for row in fit.factors
    ]
    _show(f"{calibration.device}, {calibration.board}: {calibration.source}", rows, as_json=False)
    typer.echo(_three(calibration))
    typer.echo(
        f"residual of a window: {fit.residual_before:.1%} as the table is,"
        f" {fit.residual_share:.1%} calibrated"
    )
    typer.echo(f"written: {output}")


def _three(calibration: Calibration) -> str:
    return (
        f"over the same {calibration.hours:.3g} h: measured {calibration.measured_mah:.4g} mAh,"
        f" modelled {calibration.modelled_mah:.4g} mAh,"
        f" calibrated {calibration.calibrated_mah:.4g} mAh"
    )


def _show_calibrated(own: Calibration, outlook: Plan, fitted: Plan) -> None:
    """Modelled, calibrated and measured, each by its own name."""
    typer.echo(f"\nCalibration of {own.device}: {own.source}")
    typer.echo(f"modelled life    {_days(outlook.life)}")
    typer.echo(f"calibrated life  {_days(fitted.life)}")
    typer.echo(f"modelled         {_span(outlook.life.mah_per_day)} mAh a day")
    typer.echo(f"calibrated       {_span(fitted.life.mah_per_day)} mAh a day")
    typer.echo(_three(own))
    kept = "Boot, joining and storage keep the table's charge: a calibration has power states."
    typer.echo(kept)


def _choice(option: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise TelemetryError(f"{option} {text!r}: want {' or '.join(choices)}")
    return text


def _period_ms(every: str | None, wakes: int | None) -> float:
    if (every is None) == (wakes is None):
        raise TelemetryError("give one of --every (like 15m) and --wakes (a day)")
    if wakes is not None:
        return 86_400_000 / wakes
    period = _time_ms("--every", every or "")
    if not 0 < period <= PERIOD_MS_MAX:
        raise TelemetryError(f"--every {every}: want more than 0 and at most a year")
    return period


def _time_ms(option: str, text: str) -> float:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise TelemetryError(f"{option} {text[:40]!r}: want a time like 500ms, 30s, 15m, 6h or 1d")
    return float(found[1]) * _TIME_MS[found[2]]


def _charge_mah(option: str, text: str) -> float:
    found = _CHARGE.fullmatch(text.strip())
    if found is None:
        raise TelemetryError(f"{option} {text[:40]!r}: want a charge like 200mAh or 2.6Ah")
    charge = float(found[1]) * (1000 if found[2] == "Ah" else 1)
    if not 0 < charge <= SOLAR_MAH_MAX:
        raise TelemetryError(f"{option} {text}: want more than 0 and at most 1000Ah")
    return charge


def _current_ma(option: str, text: str) -> float:
    found = _CURRENT.fullmatch(text.strip())
    if found is None:
        raise TelemetryError(f"{option} {text[:40]!r}: want a current like 0.1mA or 80uA")
    return float(found[1]) * {"A": 1000.0, "mA": 1.0, "uA": 0.001}[found[2]]


def _share(option: str, text: str) -> float:
    found = _SHARE.fullmatch(text.strip())
    if found is None or float(found[1]) > 1000:
        raise TelemetryError(f"{option} {text[:40]!r}: want a share like 10%, at most 1000%")
    return float(found[1]) / 100


def _pack(text: str, rated: str | None, temperature_c: float) -> Pack:
    from drupelet_tools.telemetry.energy.batteries import (
        CELLS_MAX,
        Pack,
        battery_names,
        load_battery,
    )

    name, _, cells = text.partition(":")
    if name not in battery_names():
        have = ", ".join(battery_names())
        raise TelemetryError(f"--battery {name!r}: no such table; have {have}")
    found = _PACK.fullmatch(cells)
    series, parallel = (int(found[at] or 1) for at in (1, 2)) if found else (0, 0)
    if not (1 <= series <= CELLS_MAX and 1 <= parallel <= CELLS_MAX) or text.endswith(":"):
        raise TelemetryError(
            f"--battery {text}: want {name}, {name}:2 (parallel) or {name}:3s2p, 1 to {CELLS_MAX}"
        )
    rated_mah = None if rated is None else _charge_mah("--rated", rated)
    return Pack(load_battery(name), series, parallel, rated_mah, temperature_c)


def _plan_json(question: Question, outlook: Plan) -> dict[str, Any]:
    from drupelet_tools.telemetry.forecast.deployment import as_dict

    pack = question.pack
    return {
        "modelled": True,
        "board": question.board,
        "carrier": question.carrier,
        "battery": pack.battery.name,
        "series": pack.series,
        "parallel": pack.parallel,
        "period_s": question.period_ms / 1000,
        "body_bytes": question.body_bytes,
        "messages": question.messages,
        "sealed": question.sealed,
        "solar_mah_per_day": question.solar_mah_per_day,
        **as_dict(outlook),
    }


def _show_plan(question: Question, outlook: Plan) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    pack, life = question.pack, outlook.life
    cells = f"{pack.series}s{pack.parallel}p " if pack.series * pack.parallel > 1 else ""
    seals = "sealed" if question.sealed else "in the clear"
    console = Console(file=sys.stdout, highlight=False)
    for warning in outlook.warnings:
        console.print(f"WARNING: {warning}.", markup=False)
    lines = [
        f"{question.board} over {question.carrier}, a wake every {question.period_ms / 1000:g} s"
        f" with {question.messages} message(s) of {question.body_bytes} B, {seals}",
        f"battery       {cells}{pack.battery.label}, {pack.temperature_c:g} C:"
        f" {life.capacity_mah:,.0f} mAh that can be used at this load",
        f"a wake        {outlook.wake_ms:,.0f} ms, {outlook.wake_mc:,.1f} mC,"
        f" peak {outlook.peak_ma:.0f} mA",
        f"drawn         {_span(life.mah_per_day)} mAh a day",
    ]
    if question.solar_mah_per_day:
        lines.append(f"without sun   {_days(outlook.without_sun)}")
        lines.append(
            f"life          the panel's {question.solar_mah_per_day:g} mAh a day carry it"
            if outlook.carried
            else f"life          {_days(life)}"
        )
    else:
        lines.append(f"life          {_days(life)}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in ("where the charge goes", "mAh a day, likely", "low", "high", "share"):
        shown.add_column(head, justify="left" if head.startswith("where") else "right")
    for part in outlook.parts:
        ends = part.mah_per_day
        shown.add_row(part.name, f"{ends.median:.4g}", f"{ends.low:.4g}", f"{ends.high:.4g}",
                      f"{part.share:.1%}")  # fmt: skip
    console.print(shown)
    note = (
        "Modelled, not measured. Likely: the middle of the draws; low and high hold 90 % of them."
    )
    console.print(note, soft_wrap=True)
    if outlook.stand_ins:
        console.print("Stand-ins, without a source: " + ", ".join(outlook.stand_ins) + ".",
                      markup=False, soft_wrap=True)  # fmt: skip
    for what in outlook.left_out:
        console.print(f"Left out: {what}.", markup=False, soft_wrap=True)


def _span(ends: Spread) -> str:
    return f"{ends.median:.4g} ({ends.low:.4g} to {ends.high:.4g})"


def _days(life: Life) -> str:
    from drupelet_tools.telemetry.energy.battery_life import YEARS_MAX

    days = life.days
    low, likely, high = (
        f"{end:,.0f}" if end < YEARS_MAX * 365 else f"over {YEARS_MAX * 365:,.0f}"
        for end in (days.low, days.median, days.high)
    )
    return f"likely {likely} days, low {low}, high {high} ({days.median / 365.25:.1f} years)"


def _check_rows() -> tuple[str, Rows]:
    from drupelet_tools.telemetry.forecast.published import checks

    return "the model against published figures", [
        {
            "what": check.what,
            "kind": check.kind,
            "published": check.published,
            "modelled": round(check.modelled, 4),
            "unit": check.unit,
            "deviation": round(check.deviation, 4),
            "source": check.source,
        }
        for check in checks()
    ]


def _board_rows(name: str) -> tuple[str, Rows]:
    from drupelet_tools.telemetry.blackbox import codes
    from drupelet_tools.telemetry.energy.board_table import load_board

    board: Board = load_board(name)
    rows = [
        {
            "state": codes.STATES[state],
            "carrier": ", ".join(row.carriers) or "any",
            "mA": row.typical_ma,
            "low": row.low_ma,
            "high": row.high_ma,
            "known": "stand-in" if row.unknown else "yes",
            "source": row.source,
        }
        for state, currents in sorted(board.currents.items())
        for row in currents
    ]
    leak = board.leakage
    currents_of_leak = {"mA": leak.typical_ma, "low": leak.low_ma, "high": leak.high_ma}
    known = "no: left out" if leak.unknown else "yes"
    rows.append(
        {
            "state": "board leakage",
            "carrier": "any",
            **currents_of_leak,
            "known": known,
            "source": leak.source,
        }
    )
    return f"{board.label}, {board.voltage_v} V, table {board.version}", rows


def _wake_rows(name: str) -> tuple[str, Rows]:
    """The steps of a wake; one without a charge of its own draws the current of a state."""
    from drupelet_tools.telemetry.blackbox import codes
    from drupelet_tools.telemetry.energy.board_table import load_board

    rows: Rows = []
    for step in load_board(name).wake:
        own = {"step": f"{step.step} {step.variant}".strip(),
               "carrier": ", ".join(step.carriers) or "any"}  # fmt: skip
        draws = "its charge" if step.charge_uc is not None else codes.STATES[step.state]
        for unit, value in (("ms", step.time_ms), ("uC", step.charge_uc)):
            if value is not None:
                rows.append({**own, "unit": unit, **_ends(value, "draws", draws)})
    return "steps of a wake", rows


def _carrier_rows(name: str) -> tuple[str, Rows]:
    from drupelet_tools.telemetry.energy.carriers import load_carrier

    carrier = load_carrier(name)
    figures = {
        "added to a frame (bytes)": carrier.frame_bytes,
        "rate (kbit/s)": carrier.rate_kbit_s,
        "connecting and waiting (ms)": carrier.exchange_ms,
    }
    rows = [{"figure": what, **_ends(value)} for what, value in figures.items()]
    return f"{carrier.label}, table {carrier.version}", rows


def _ends(figure: Figure, *more: str) -> dict[str, Any]:
    known = "stand-in" if figure.unknown else "yes"
    extra = {more[0]: more[1]} if more else {}
    return {"typical": figure.typical, "low": figure.low, "high": figure.high, **extra,
            "known": known, "source": figure.source}  # fmt: skip


def _battery_rows(name: str) -> tuple[str, Rows]:
    from drupelet_tools.telemetry.energy.batteries import load_battery

    cell = load_battery(name)
    figures = {
        "capacity (mAh)": cell.capacity_mah,
        "usable (share)": cell.usable,
        "lost by itself (share a year)": cell.self_discharge_year,
        "protection circuit (mA)": cell.protection_ma,
        **{
            name: value
            for name, value in (
                ("cut-off (V)", cell.cut_off_v),
                ("most for long (mA)", cell.steady_ma),
                (f"most for {cell.pulse_s:g} s (mA)", cell.pulse_ma),
            )
            if value is not None
        },
        "factor by load": cell.by_load.spread,
        "factor by temperature": cell.by_temperature.spread,
    }
    rows: Rows = [{"figure": what, **_ends(value)} for what, value in figures.items()]
    return f"{cell.label}, {cell.nominal_v:g} V, table {cell.version}, one cell", rows


def _table_rows() -> tuple[str, Rows]:
    from drupelet_tools.telemetry.energy.batteries import battery_names, load_battery
    from drupelet_tools.telemetry.energy.board_table import board_names, load_board
    from drupelet_tools.telemetry.energy.carriers import carrier_names, load_carrier

    rows: Rows = []
    for name in board_names():
        board = load_board(name)
        currents = [row for own in board.currents.values() for row in own]
        stand_ins = sum(row.unknown for row in currents)
        summary = f"{len(currents)} currents, {stand_ins} of them stand-ins"
        rows.append({"kind": "board", "name": name, "what": board.label, "figures": summary,
                     "version": board.version})  # fmt: skip
    for name in battery_names():
        battery = load_battery(name)
        summary = f"{battery.capacity_mah.typical:g} mAh, {battery.nominal_v:g} V"
        rows.append({"kind": "battery", "name": name, "what": battery.label, "figures": summary,
                     "version": battery.version})  # fmt: skip
    for name in carrier_names():
        carrier = load_carrier(name)
        rows.append({"kind": "carrier", "name": name, "what": carrier.label, "figures": "3",
                     "version": carrier.version})  # fmt: skip
    return "tables of the energy model", rows


def _show(title: str, rows: Rows, *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    sources = list(dict.fromkeys(str(row["source"]) for row in rows if "source" in row))
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name, value in rows[0].items():
        right = isinstance(value, int | float) or name == "source"
        shown.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        cells = {**row, "source": sources.index(row["source"]) + 1} if sources else row
        shown.add_row(*(_cell(name, value) for name, value in cells.items()))
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    console.print(shown)
    for at, source in enumerate(sources, 1):
        console.print(f"{at:2}  {source}", markup=False, soft_wrap=False)


def _cell(name: str, value: object) -> str:
    if name == "deviation" and isinstance(value, float):
        return f"{value:+.1%}"
    return f"{value:g}" if isinstance(value, float) else str(value)
