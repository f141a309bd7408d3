"""Battery life before anything is deployed: what a wake costs on a board, and how many there are.

    a day = wakes * (boot + storage + join + work + messages * (transmit + receive)) + sleep

Currents, times and charges are those of the tables that the report uses (`boards/*.toml`, with
their `[[wake]]` rows, and `carriers/*.toml`); life comes of `battery_life.life_of`. Everything
is *modelled*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.calibration.device_factors import Calibration
from drupelet_tools.telemetry.energy import airtime
from drupelet_tools.telemetry.energy.batteries import Pack
from drupelet_tools.telemetry.energy.battery_life import (
    DRAWS,
    HOURS_PER_DAY,
    YEARS_MAX,
    Life,
    Loads,
    Spread,
    generator_of,
    life_of,
    spread,
)
from drupelet_tools.telemetry.energy.board_table import (
    MS_PER_HOUR,
    UC_PER_MAH,
    Board,
    Current,
    board_names,
)
from drupelet_tools.telemetry.energy.board_table import load_board as _load_board
from drupelet_tools.telemetry.energy.carriers import Carrier, carrier_names, load_carrier
from drupelet_tools.telemetry.energy.figure import Draws, Figure
from drupelet_tools.telemetry.energy.wake import WakeStep, find_step

MS_PER_DAY = 86_400_000
SLEEP, IDLE, RECEIVE, SEND, SENSOR = 0, 2, 3, 4, 6  # of codes.STATES
PARTS = (
    "boot", "storage", "join", "work", "transmit", "receive", "sleep", "board leakage", "supply",
    "battery itself",
)  # fmt: skip
# A reading in a frame of its own, compact-1, and its acknowledgement: bytes beside the body.
MESSAGE_BYTES = Figure(12, 9, 16, "record and frame head of compact-1: ours")
ACK_BYTES = Figure(8, 5, 12, "an acknowledgement of compact-1 in a frame of its own: ours")
SEAL_BYTES = Figure(15, 15, 23, "a seal: 15 bytes, 23 until the peer confirmed the key epoch")
BODY_BYTES_MAX = 32_768
# A board at its own voltage does with a pack of this much less: 3.0 V and 3.2 V at 3.3 V.
VOLTS_SHORT = 0.35


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan is asked about. Times in ms, shares from 0 to 1."""

    board: str
    carrier: str
    period_ms: float
    pack: Pack
    body_bytes: int = 100
    messages: int = 1  # in each wake
    sealed: bool = True
    address: str = "dhcp"
    boot: str = "stock"
    mount_every: int = 1
    work_ms: float = 0.0
    retransmit_share: float = 0.0
    spreading: int = 7
    baud: int = 115_200
    leakage_ma: float | None = None  # of the board, where the owner measured it
    solar_mah_per_day: float = 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """Charge of one part of a day, mAh at the battery."""

    name: str
    mah_per_day: Spread
    share: float  # of the whole, by the middles of the draws


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer. `warnings` are what the owner must know before trusting the number."""

    life: Life
    without_sun: Life
    wake_ms: float
    wake_mc: float
    peak_ma: float
    parts: tuple[Part, ...]
    carried: bool  # by the panel alone, in the median draw
    warnings: tuple[str, ...]
    stand_ins: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(slots=True)
class _Day:
    """mAh of each part and the sum of mA^2 h, as draws or at the typical figures."""

    generator: np.random.Generator | None
    count: int
    board: Board
    carrier: str
    mah: dict[str, Draws] = field(default_factory=dict)
    square: Draws = field(default_factory=lambda: np.zeros(1))
    awake_ms: Draws = field(default_factory=lambda: np.zeros(1))
    currents: dict[int, Draws] = field(default_factory=dict)
    used: dict[str, Current | Figure] = field(default_factory=dict)

    def value(self, figure: Figure, what: str) -> Draws:
        """Draws of a figure, or its typical value; remembered as used."""
        self.used[what] = figure
        if self.generator is None:
            return np.full(self.count, figure.typical)
        return figure.draw(self.generator, self.count)

    def current(self, state: int) -> Draws:
        """mA in a power state: one draw for all steps that are in it."""
        if state not in self.currents:
            row = self.board.current(state, (self.carrier,))
            assert row is not None  # a test holds that every board has every state
            self.currents[state] = self.value(row.figure, f"current {_state_name(state)}")
        return self.currents[state]

    def add(self, part: str, times: float, ms: Draws, ma: Draws) -> None:
        """`times` a day, so long at so much."""
        hours = times * ms / MS_PER_HOUR
        self.mah[part] = self.mah.get(part, np.zeros(self.count)) + hours * ma
        self.square = self.square + hours * ma * ma
        self.awake_ms = self.awake_ms + times * ms

    def step(self, part: str, times: float, row: WakeStep) -> None:
        """A step of the wake, by its own charge where the table has one."""
        what = f"{row.step} {row.variant}".strip()
        ms = self.value(row.time_ms, f"time of {what}")
        if row.charge_uc is None:
            self.add(part, times, ms, self.current(row.state))
            return
        uc = self.value(row.charge_uc, f"charge of {what}")
        self.add(part, times, ms, uc / np.maximum(ms, 1e-9))


def _state_name(state: int) -> str:
    from drupelet_tools.telemetry.blackbox import codes

    return codes.STATES[state]


def board_of(name: str) -> Board:
    """A board's table, or one line with those that there are."""
    if name not in board_names():
        raise TelemetryError(f"--board {name!r}: no such table; have {', '.join(board_names())}")
    return _load_board(name)


def carrier_of(board: Board, name: str) -> Carrier:
    """A carrier's table, or one line with those that the board has."""
    own = ", ".join(board.carriers)
    if name not in carrier_names():
        raise TelemetryError(f"--carrier {name!r}: no such table; {board.name} has {own}")
    if name not in board.carriers:
        raise TelemetryError(f"--carrier {name}: {board.name} does not have it; it has {own}")
    return load_carrier(name)


def plan(
    question: Question,
    *,
    calibration: Calibration | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Plan:
    """Life and where the charge goes, with a calibration's currents if one is given.

    Raises:
        TelemetryError: the question does not hold together; one line that says why.
    """
    board = board_of(question.board)
    carrier = carrier_of(board, question.carrier)
    if calibration is not None:
        board = calibration.apply(board)
    if question.leakage_ma is not None:
        told = question.leakage_ma
        board = replace(board, leakage=Current(told, told, told, "given by --leakage"))
    _check(question, board, carrier)
    generator = generator_of(f"plan {board.name} {carrier.name}", seed)
    typical = _Day(None, 1, board, carrier.name)
    drawn = _Day(generator, draws, board, carrier.name)
    for day in (typical, drawn):
        _fill(day, question, carrier)
    wakes = MS_PER_DAY / question.period_ms
    wake_ms = float(typical.awake_ms[0]) / wakes
    awake = {name: value for name, value in typical.mah.items() if name not in PARTS[6:]}
    wake_mc = math.fsum(float(value[0]) for value in awake.values()) * UC_PER_MAH / 1000 / wakes
    loads = _loads(typical, drawn, board, question.pack)
    state = generator.bit_generator.state
    without_sun = life_of(loads, question.pack, generator)
    generator.bit_generator.state = state
    solar_ma = question.solar_mah_per_day / HOURS_PER_DAY
    life = life_of(loads, question.pack, generator, solar_ma) if solar_ma else without_sun
    peak = _peak_ma(board, carrier, question.pack)
    return Plan(
        life=life,
        without_sun=without_sun,
        wake_ms=wake_ms,
        wake_mc=wake_mc,
        peak_ma=peak[1],
        parts=_parts(typical, drawn, without_sun),
        carried=life.days.median * HOURS_PER_DAY >= YEARS_MAX * 8_765,
        warnings=tuple(_warnings(board, question.pack, peak)),
        stand_ins=tuple(sorted(what for what, told in typical.used.items() if told.unknown)),
        left_out=("leakage of the board: measure it, give it as --leakage",)
        if board.leakage.unknown
        else (),
    )


def as_dict(plan: Plan) -> dict[str, Any]:
    """The plan for `--json`."""
    fields = asdict(plan)
    for name in ("life", "without_sun"):
        fields[name] = {
            key: value if not isinstance(value, dict) else _ends(value)
            for key, value in fields[name].items()
        }
    fields["parts"] = [
        {**row, "mah_per_day": _ends(row["mah_per_day"])} for row in fields["parts"]
    ]
    return fields


def _ends(row: Mapping[str, float]) -> dict[str, float]:
    return {"low": row["low"], "likely": row["median"], "high": row["high"],
            "typical": row["typical"]}  # fmt: skip


def wake_mc(
    board: str, carrier: str, *, address: str = "static", boot: str = "fast", mount: bool = False
) -> float:
    """Charge of one wake with a message of 6 bytes in the clear, mC, at typical figures."""
    from drupelet_tools.telemetry.energy.batteries import load_battery

    question = Question(
        board, carrier, MS_PER_DAY, Pack(load_battery("lipo")), body_bytes=6, sealed=False,
        address=address, boot=boot, mount_every=1 if mount else 1_000_000_000,
    )  # fmt: skip
    return plan(question, draws=1).wake_mc


def _check(question: Question, board: Board, carrier: Carrier) -> None:
    if not 0 <= question.body_bytes <= BODY_BYTES_MAX:
        raise TelemetryError(
            f"--body {question.body_bytes}: a message has 0 to {BODY_BYTES_MAX:,} bytes"
        )
    variants = [row.variant for row in board.wake if row.step == "boot"]
    if question.boot not in variants and question.boot != "stock":
        raise TelemetryError(f"--boot {question.boot}: no figure for {board.name}; leave it out")
    if question.solar_mah_per_day and not question.pack.battery.rechargeable:
        raise TelemetryError(
            f"--solar: a {question.pack.battery.name} cannot be charged; take lipo, 18650 or"
            " lifepo4"
        )
    if carrier.name == "lora":
        size = question.body_bytes + _message(question).high + carrier.frame_bytes.high
        if size > airtime.FRAME_BYTES_MAX:
            most = airtime.FRAME_BYTES_MAX - (size - question.body_bytes)
            raise TelemetryError(
                f"--body {question.body_bytes}: a LoRa frame carries {most:g} at most"
            )


def _message(question: Question) -> Figure:
    return _sum(MESSAGE_BYTES, SEAL_BYTES) if question.sealed else MESSAGE_BYTES


def _sum(one: Figure, other: Figure) -> Figure:
    return Figure(one.typical + other.typical, one.low + other.low, one.high + other.high,
                  f"{one.source}; {other.source}", one.unknown or other.unknown)  # fmt: skip


def _fill(day: _Day, question: Question, carrier: Carrier) -> None:
    """All parts of a day, sleep last: it is what is left of the period."""
    board = day.board
    wakes = MS_PER_DAY / question.period_ms
    zero = np.zeros(day.count)
    for name in PARTS[:8]:
        day.mah[name] = zero
    day.square, day.awake_ms = zero, zero
    for step, part, variant, times in (
        ("boot", "boot", question.boot, wakes),
        ("mount", "storage", "", wakes / question.mount_every),
        ("join", "join", question.address, wakes),
    ):
        told = find_step(board.wake, step, carrier.name, variant)
        if told is not None:
            day.step(part, times, told)
    if question.work_ms:
        day.add("work", wakes, np.full(day.count, question.work_ms), day.current(SENSOR))
    sends = wakes * question.messages * (1 + question.retransmit_share)
    sent, answer = _message(question), ACK_BYTES
    if question.sealed:
        answer = _sum(ACK_BYTES, SEAL_BYTES)
    out = question.body_bytes + day.value(sent, "bytes of a message")
    back = day.value(answer, "bytes of an acknowledgement")
    head = day.value(carrier.frame_bytes, "bytes that the carrier adds")
    day.add("transmit", sends, _air_ms(day, question, carrier, out + head), day.current(SEND))
    beyond = board.operation("frame_sent", (carrier.name,))
    if beyond is not None and not beyond.charge_uc.unknown:  # windows and waiting are in it
        uc = day.value(beyond.charge_uc, "charge of a frame")
        day.mah["receive"] = day.mah["receive"] + sends * uc / UC_PER_MAH
    else:
        heard = _air_ms(day, question, carrier, back + head)
        day.add("receive", sends, heard, day.current(RECEIVE))
        # The connection is made once in a wake; each repetition waits for its answer again.
        waits = wakes * (1 + question.retransmit_share)
        ms = day.value(carrier.exchange_ms, "time of the exchange")
        day.add("receive", waits, ms, day.current(RECEIVE))
    slept = MS_PER_DAY - day.awake_ms
    if float(np.median(slept)) < 0:
        wake_s = float(np.median(day.awake_ms)) / wakes / 1000
        raise TelemetryError(
            f"a wake takes {wake_s:.3g} s and comes every {question.period_ms / 1000:g} s: the"
            " board never sleeps; take a longer --every"
        )
    awake_ms = day.awake_ms
    day.add("sleep", 1.0, np.maximum(slept, 0.0), day.current(SLEEP))
    day.awake_ms = awake_ms
    if not board.leakage.unknown:
        leak = day.value(board.leakage.figure, "board leakage")
        day.mah["board leakage"] = leak * HOURS_PER_DAY
        day.square = day.square + leak * leak * HOURS_PER_DAY


def _air_ms(day: _Day, question: Question, carrier: Carrier, size: Draws) -> Draws:
    """Time of a frame of so many bytes, ms."""
    if carrier.name == "lora":
        ms = [airtime.time_on_air_ms(round(bytes_), question.spreading) for bytes_ in size]
        return np.asarray(ms)
    if carrier.name == "serial":
        return size * 10_000 / question.baud
    return size * 8 / day.value(carrier.rate_kbit_s, "rate of the carrier")


def _loads(typical: _Day, drawn: _Day, board: Board, pack: Pack) -> Loads:
    """Mean current and that of the mean coulomb at the battery; fills in the supply's part."""
    means, pulses = [], []
    for day in (typical, drawn):
        rail = sum(day.mah.values(), np.zeros(day.count))
        factor = np.ones(day.count)
        if board.supply.kind == "switching":
            efficiency = day.value(board.supply.efficiency, "efficiency of the supply")
            factor = board.voltage_v / (pack.nominal_v * efficiency)
        for name in day.mah:
            day.mah[name] = day.mah[name] * factor
        quiescent = day.value(board.supply.quiescent_ma, "quiescent current of the supply")
        day.mah["supply"] = quiescent * HOURS_PER_DAY
        means.append((rail * factor) / HOURS_PER_DAY + quiescent)
        pulses.append(day.square / np.maximum(rail, 1e-12) * factor)
    return Loads(means[1], pulses[1], float(means[0][0]), float(pulses[0][0]))


def _parts(typical: _Day, drawn: _Day, life: Life) -> tuple[Part, ...]:
    """The parts of a day, and what the battery loses by itself over its life without sun."""
    lost = life.capacity_mah * life.self_discharge_share / max(life.days.typical, 1e-9)
    found = {
        name: spread(float(typical.mah[name][0]), drawn.mah[name])
        for name in PARTS[:-1]
        if float(np.max(drawn.mah[name])) > 0
    }
    found[PARTS[-1]] = Spread(lost, lost, lost, lost)
    whole = math.fsum(value.median for value in found.values())
    return tuple(Part(name, value, value.median / whole) for name, value in found.items())


def _peak_ma(board: Board, carrier: Carrier, pack: Pack) -> tuple[float, float]:
    """The highest current of what a wake does, at the battery: as a rule, and at most."""
    rows = [board.current(state, (carrier.name,)) for state in (IDLE, RECEIVE, SEND)]
    usual = max(row.typical_ma for row in rows if row is not None)
    most = max(row.high_ma for row in rows if row is not None)
    if board.supply.kind == "switching":
        factor = board.voltage_v / pack.nominal_v
        usual *= factor / board.supply.efficiency.typical
        most *= factor / board.supply.efficiency.low
    return usual, most


def _range(low: float, high: float) -> str:
    return f"{high:.0f} mA" if low == high else f"{low:.3g} to {high:.0f} mA"


def _warnings(board: Board, pack: Pack, peak_ma: tuple[float, float]) -> list[str]:
    found = []
    cell, cells = pack.battery, pack.parallel
    usual, most = peak_ma
    limit, seconds = cell.pulse_ma or cell.steady_ma, cell.pulse_s if cell.pulse_ma else 0
    if limit is not None and most > limit.low * cells:
        sure = usual > limit.typical * cells
        follows = (
            "the voltage breaks down and the board resets, whatever the life below says"
            if sure
            else "the voltage may break down, in the cold and near the end first"
        )
        found.append(
            f"{cell.label}: {'one cell' if cells == 1 else f'{cells} cells'} can give"
            f" {_range(limit.low * cells, limit.typical * cells)}"
            f" {f'for {seconds:g} s' if seconds else 'steadily'}, and this board draws"
            f" {_range(usual, most)} when its radio works: {follows}. Take another battery, or a"
            " capacitor that carries the pulse"
        )
    if board.supply.kind != "switching" and pack.nominal_v < board.voltage_v - VOLTS_SHORT:
        found.append(
            f"{pack.nominal_v:g} V is too little for a board of {board.voltage_v:g} V: put"
            f" {math.ceil(board.voltage_v / cell.nominal_v)} cells in series, like"
            f" --battery {cell.name}:{math.ceil(board.voltage_v / cell.nominal_v)}s"
        )
    return found
