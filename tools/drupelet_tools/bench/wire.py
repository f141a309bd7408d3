"""`drupelet bench wire`: what messages cost on a link, and on the carriers below it."""

import os
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait

from drupelet.base.limits import FRAME_SIZE_MAX
from drupelet.node import BATCH, CARRIER_SERIAL, CARRIER_STICK, INTERACTIVE
from drupelet_tools.bench import backlog, mqtt_anchor
from drupelet_tools.bench.anchors import ANCHORS
from drupelet_tools.bench.backlog_stick import stick_rows
from drupelet_tools.bench.columns import WIRE, Row
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.bench.pipe import MESSAGE_BYTES, MESSAGE_KIND, Pair
from drupelet_tools.bench.profiles import Profile
from drupelet_tools.bench.table import Table, pick
from drupelet_transports.board.mqtt_packet import PUBLISH_HEAD_SIZE_MAX, publish_into
from drupelet_transports.common.framing import encode_into, wire_size_max

SCENARIOS = ("transfer", "in_sync", "wake", "cold")
# Measured when it is named: it takes minutes of real time.
BACKLOG = "backlog"
ALL_SCENARIOS = (*SCENARIOS, BACKLOG)
MODES = ("batch", "interactive")
COUNTS = (1, 10, 100, 1000)
BODY = 100
HELD = (100, 1000)
MISSING = (1, 10, 100)
SEEDS = 100
# A profile that lists whole ids says the same whatever is missing: so many seeds show it.
ALIKE = 10
# A topic carries prefix, receiver and sender; this prefix is as short as the anchor's topic.
_TOPIC = b"t/42424242/41414141"
_TOPICS = ("t", "sensors/field/device-0001/data")
# docs/DESIGN.md 20: bytes per message at so many messages, unsealed and sealed.
_BUDGETS = {
    ("batch", False): {1: 153, 10: 111, 100: 106, 1000: 106},
    ("interactive", False): {1: 173, 10: 120, 100: 115, 1000: 114},
    ("batch", True): {1: 213, 10: 118, 100: 109, 1000: 108},
    ("interactive", True): {1: 263, 10: 130, 100: 117, 1000: 116},
}
_IN_SYNC_BUDGET = {False: 24, True: 54}
# One reading when a device wakes from deep sleep, sealed.
_WAKE_BUDGET = 150
# Median and 95th percentile of the whole recovery.
_COLD_BUDGET = {(1000, 10): (300, 400)}
_OURS = "compact-1"
_WAKES = (_OURS, "bsp-1")


@dataclass(frozen=True)
class Plan:
    """What to measure: choices of a command line, and how much of it."""

    profiles: Sequence[Profile]
    scenarios: Sequence[str] = SCENARIOS
    modes: Sequence[str] = MODES
    counts: Sequence[int] = COUNTS
    held: Sequence[int] = HELD
    missing: Sequence[int] = MISSING
    seeds: int = SEEDS
    body: int = BODY
    mqtt: bool = True
    published: bool = True


def measure(plan: Plan, say: Callable[[str], None]) -> Iterator[list[Row]]:
    """Yield rows as they are measured. Raises BenchError."""
    for profile in plan.profiles:
        for mode in plan.modes:
            for count in plan.counts if {"transfer", "in_sync"} & set(plan.scenarios) else ():
                say(f"{profile.name} {mode} {count} …")
                for sealed in _sealings(profile):
                    yield _transfer(plan, profile, mode, count, sealed)
                    if mode == "batch" and "transfer" in plan.scenarios:
                        yield _by_stick(plan, profile, count, sealed)
            if "wake" in plan.scenarios and mode == "batch" and profile.name in _WAKES:
                say(f"{profile.name} wake …")
                yield _wake(plan, profile)
            if "cold" in plan.scenarios:
                say(f"{profile.name} {mode} cold …")
                yield _cold(plan, profile, mode, say)
    if BACKLOG in plan.scenarios:
        for measure_backlog in _BACKLOGS:
            yield from measure_backlog(plan, say)
    if plan.mqtt and "transfer" in plan.scenarios:
        say("MQTT QoS 1 …")
        yield _mqtt(plan)
    if plan.published:
        yield [row for row in _published() if row["scenario"] in plan.scenarios]


def _sealings(profile: Profile) -> tuple[bool, ...]:
    """Without and with a seal: what it adds is the same for every profile."""
    return (False, True) if profile.name == _OURS else (False,)


def _row(
    scenario: str, profile: str, mode: str, source: str = "measured", sealed: bool = False
) -> Row:
    row: Row = {column.name: None for column in WIRE}
    return row | {
        "scenario": scenario, "profile": profile, "mode": mode, "source": source,
        "sealed": sealed, "note": "",
    }  # fmt: skip


def serial_size(frame: bytes) -> int:
    """Bytes of a frame on a serial line: COBS, CRC and delimiter."""
    return encode_into(bytearray(wire_size_max(len(frame))), frame, len(frame))


def mqtt_size(frame: bytes) -> int:
    """Bytes of the PUBLISH packet around a frame, on one leg."""
    out = bytearray(PUBLISH_HEAD_SIZE_MAX + len(_TOPIC) + FRAME_SIZE_MAX)
    return publish_into(out, _TOPIC, frame, len(frame))


_FRAMINGS = (("serial", serial_size), ("mqtt", mqtt_size))


def _on_carriers(row: Row, pair: Pair, count: int) -> list[Row]:
    """A row for each live carrier around what went through the pipe."""
    rows = []
    for carrier, size_of in _FRAMINGS:
        size = sum(size_of(frame) for _, frame in pair.frames)
        rows.append(row | {"carrier": carrier, "carrier_bytes_per_message": _per(size, count)})
    return rows


def _per(size: int, count: int) -> float | None:
    return round(size / count, 2) if count else None


def _measured(row: Row, pair: Pair, count: int) -> Row:
    total = pair.total_bytes
    return row | {
        "messages": count, "total_bytes": total, "bytes_per_message": _per(total, count),
        "frames": len(pair.frames),
    }  # fmt: skip


def _judged(row: Row, budget: int | None, figure: float) -> Row:
    if row["profile"] != _OURS or budget is None:
        return row
    return row | {"budget": budget, "over": figure > budget}


def _transfer(plan: Plan, profile: Profile, mode: str, count: int, sealed: bool) -> list[Row]:
    """A warm contact that sends `count` messages, then one in which nothing is new."""
    rows: list[Row] = []
    chosen = INTERACTIVE if mode == "interactive" else BATCH
    with Pair(profile, chosen, sealed=sealed) as pair:
        pair.connect()
        pair.publish(pair.bodies(1, plan.body))
        pair.run()
        pair.mark()
        if pair.sealed is not None:
            pair.sealed.open_epoch(0)
        pair.contact()
        pair.publish(pair.bodies(count, plan.body))
        pair.run()
        if pair.b.node.delivered != count + 1:
            raise BenchError(f"{profile.name}: {pair.b.node.delivered - 1} of {count} arrived")
        if "transfer" in plan.scenarios:
            row = _measured(_row("transfer", profile.name, mode, sealed=sealed), pair, count)
            row |= {"body": plan.body, "held": count + 1, "missing": count}
            row["note"] = "A opens a key epoch" if sealed else ""
            budget = _BUDGETS[mode, sealed].get(count)
            row = _judged(row, budget, row["bytes_per_message"])
            rows += _on_carriers(row, pair, count)
        if "in_sync" in plan.scenarios:
            pair.mark()
            pair.contact()
            pair.run()
            row = _measured(_row("in_sync", profile.name, mode, sealed=sealed), pair, 0)
            row |= {"held": count + 1, "missing": 0}
            row = _judged(row, _IN_SYNC_BUDGET[sealed], row["total_bytes"])
            rows += _on_carriers(row, pair, 0)
    return rows


def _wake(plan: Plan, profile: Profile) -> list[Row]:
    """A sleeper wakes, says one reading, hears that it arrived, and sleeps again; sealed."""
    rows: list[Row] = []
    with Pair(profile, BATCH, sealed=True) as pair:
        assert pair.sealed is not None
        pair.connect()
        for _ in range(4):  # both ends have confirmed each other's epoch then
            pair.publish(pair.bodies(1, plan.body))
            pair.run()
        for note in ("key state from the snapshot", "cold boot: an epoch is opened"):
            if rows:
                pair.sealed.reboot(0)
            else:
                pair.sealed.sleep(0)
            pair.mark()
            pair.publish(pair.bodies(1, plan.body))
            pair.run()
            row = _measured(_row("wake", profile.name, "batch", sealed=True), pair, 1)
            row |= {"body": plan.body, "note": note}
            row = _judged(row, None if rows else _WAKE_BUDGET, row["total_bytes"])
            rows.append(_on_carriers(row, pair, 1)[0])
    return rows


def _by_stick(plan: Plan, profile: Profile, count: int, sealed: bool) -> list[Row]:
    """The same as bundles on a stick, with the acknowledgements that ride back."""
    with Pair(profile, BATCH, CARRIER_STICK, sealed=sealed) as pair:
        pair.connect()
        pair.publish(pair.bodies(count, plan.body))
        size = pair.carry()
        row = _measured(_row("transfer", profile.name, "batch", sealed=sealed), pair, count)
        return [
            row | {
                "body": plan.body, "held": count, "missing": count, "carrier": "stick",
                "carrier_bytes_per_message": _per(size, count),
                "note": "first contact" + ("; total without the seal" if sealed else ""),
            }
        ]  # fmt: skip


def _cold(plan: Plan, profile: Profile, mode: str, say: Callable[[str], None]) -> list[Row]:
    """B has lost some of what A holds, and A does not know. A row for each size."""
    rows: list[Row] = []
    for held in plan.held:
        for missing in plan.missing:
            if missing >= held:
                continue
            cold = ColdStart(profile, mode, held, missing, plan.body)
            try:
                runs, note = cold_runs(cold, plan.seeds), ""
            except BenchError as error:
                say(f"it is not told that B lost something: {error}")
                runs, note = cold_runs(replace(cold, anew=True), plan.seeds), "A meets B anew"
            totals = sorted(run[0] for run in runs)
            median = round(statistics.median(totals))
            row = _row("cold", profile.name, mode) | {
                "messages": missing, "body": plan.body, "held": held, "missing": missing,
                "total_bytes": median, "bytes_per_message": _per(median, missing),
                "p95_bytes": totals[-(-95 * len(totals) // 100) - 1],
                "payload_bytes": round(statistics.median(run[1] for run in runs)),
                "frames": round(statistics.median(run[2] for run in runs)), "seeds": len(runs),
                "carrier": "serial",
                "carrier_bytes_per_message": _per(
                    round(statistics.median(run[3] for run in runs)), missing
                ),
                "note": note,
            }  # fmt: skip
            median_max, p95_max = _COLD_BUDGET.get((held, missing), (None, 0))
            row = _judged(row, median_max, median)
            if row["over"] is False:
                row["over"] = row["p95_bytes"] > p95_max
            rows.append(row)
    return rows


@dataclass(frozen=True)
class ColdStart:
    """A cold contact."""

    profile: Profile
    mode: str
    held: int
    missing: int
    body: int
    anew: bool = False

    def run(self, seed: int) -> tuple[int, int, int, int]:
        """With one seed's messages: (bytes but for the missing messages', bytes of those, frames,
        the first on a serial line). Raises BenchError when B does not get them."""
        mode = INTERACTIVE if self.mode == "interactive" else BATCH
        with Pair(self.profile, mode, seed=seed) as pair:
            if self.anew:
                self._meet_anew(pair)
            else:
                self._lose(pair)
            pair.mark()
            pair.run()
            have = sum(1 for _ in pair.b.handles())
            if have != self.held:
                raise BenchError(f"{self.profile.name} {self.mode}: B has {have} of {self.held}")
            ends = (pair.a, pair.b)
            records = sum(end.account.records(CARRIER_SERIAL, MESSAGE_KIND) for end in ends)
            size = sum(
                end.account.link_bytes(CARRIER_SERIAL, False, (MESSAGE_BYTES,)) for end in ends
            )
            # A message that B had is no payload: it belongs to what the recovery cost.
            payload = size * self.missing // records
            serial = sum(serial_size(frame) for _, frame in pair.frames)
            return pair.total_bytes - payload, payload, len(pair.frames), serial - payload

    def _lose(self, pair: Pair) -> None:
        """B has all that A has, then comes back with an older copy of its store."""
        pair.connect()
        bodies = pair.bodies(self.held, self.body)
        pair.publish(bodies[: self.held - self.missing])
        pair.run()
        pair.back_up()
        pair.publish(bodies[self.held - self.missing :])
        pair.run()
        # A contact in which nothing is new, as most are: both say which store they have.
        pair.contact()
        pair.run()
        pair.restore()

    def _meet_anew(self, pair: Pair) -> None:
        """Neither knows what the other has: what is left to do where nothing tells of a loss."""
        bodies = pair.bodies(self.held, self.body)
        lost = set(pair.draw.sample(range(self.held), self.missing))
        for number, body in enumerate(bodies):
            pair.a.publish(body, number, 0)
            if number not in lost:
                pair.b.publish(body, number, 0)
        pair.a.consume()
        pair.b.consume()
        pair.connect()


def _end_with_parent() -> None:
    """A worker whose starter was killed waits for work no longer."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def cold_runs(cold: ColdStart, seeds: int) -> list[tuple[int, int, int, int]]:
    """Every seed's figures; but where the first ones are all the same, so are the rest."""
    runs = [cold.run(seed) for seed in range(min(seeds, ALIKE))]
    differ = len({run[0] for run in runs}) > 1 or cold.profile.name == _OURS
    if seeds > ALIKE and differ:
        with ProcessPoolExecutor(
            mp_context=get_context("spawn"), initializer=_end_with_parent
        ) as pool:
            runs += pool.map(cold.run, range(ALIKE, seeds))
    return runs


def _backlog_over_broker(plan: Plan, say: Callable[[str], None]) -> Iterator[list[Row]]:
    """B was away while A posted all, and comes back: as fast as A, or slowed to a tenth."""
    for profile in plan.profiles:
        for mode in plan.modes:
            for count in backlog.COUNTS if plan.counts == COUNTS else plan.counts:
                chosen = INTERACTIVE if mode == "interactive" else BATCH
                free = _transfer(
                    replace(plan, scenarios=["transfer"]), profile, mode, count, sealed=False
                )[0]
                for slowed in (False, True):
                    say(f"{profile.name} {mode} {count} backlog{' slowed' if slowed else ''} …")
                    cost = backlog.over_broker(profile, chosen, count, plan.body, slowed)
                    budget = round(backlog.BYTES_RATIO_MAX * free["bytes_per_message"])
                    copies_max = backlog.DUPLICATES_SHARE_MAX * count
                    row = _row(BACKLOG, profile.name, mode) | {
                        "messages": count, "body": plan.body, "held": count, "missing": count,
                        "total_bytes": cost.total_bytes, "frames": cost.frames,
                        "bytes_per_message": _per(cost.total_bytes, count), "carrier": "mqtt",
                        "carrier_bytes_per_message": _per(cost.carrier_bytes, count),
                        "duplicates": cost.duplicates, "budget": budget,
                        "note": f"{cost.away_bytes} B while B was away; {cost.seconds} s"
                        + ("; B slowed to a tenth" if slowed else ""),
                    }  # fmt: skip
                    over = cost.total_bytes > budget * count or cost.duplicates > copies_max
                    yield [row | {"over": over}]


def _backlog_over_stick(plan: Plan, say: Callable[[str], None]) -> Iterator[list[Row]]:
    """Four visits of a stick, to a host and to a receiver with small tables."""
    counts = backlog.COUNTS if plan.counts == COUNTS else plan.counts
    for profile in plan.profiles:
        if profile.name in _WAKES:  # sticks carry groups of BSP, which both of them speak
            say(f"{profile.name} backlog over a stick …")
            yield list(stick_rows(profile, counts, plan.body))


# What measures the rows of `backlog`: one function for each carrier.
_BACKLOGS: "Sequence[Callable[[Plan, Callable[[str], None]], Iterator[list[Row]]]]" = (
    _backlog_over_broker,
    _backlog_over_stick,
)


def _mqtt(plan: Plan) -> list[Row]:
    """MQTT QoS 1 in the same run, for each topic: one leg, and from end to end."""
    rows = []
    for topic in _TOPICS:
        legs = mqtt_anchor.measure(topic, 100, plan.body)
        for size, note in ((legs[0], "to the broker"), (sum(legs), "through the broker")):
            rows.append(
                _row("transfer", "mqtt qos 1", f"topic {topic}") | {
                    "messages": 100, "body": plan.body, "total_bytes": size,
                    "bytes_per_message": _per(size, 100), "carrier": "mqtt", "note": note,
                    "carrier_bytes_per_message": _per(size, 100),
                }
            )  # fmt: skip
    return rows


def _published() -> Iterator[Row]:
    for anchor in ANCHORS:
        yield _row(anchor.scenario, anchor.profile, anchor.mode, "published") | {
            "messages": anchor.messages, "body": 100 if anchor.messages else None,
            "held": anchor.held, "missing": anchor.missing, "sealed": anchor.sealed,
            "total_bytes": anchor.total_bytes, "note": anchor.note,
            "bytes_per_message": _per(anchor.total_bytes, anchor.messages or anchor.missing or 0),
        }  # fmt: skip


def tables(rows: Sequence[Row]) -> list[Table]:
    """A table for each scenario."""
    names = {
        "transfer": "profile mode messages body sealed total_bytes bytes_per_message carrier"
        " carrier_bytes_per_message frames budget over source note",
        "in_sync": "profile mode held sealed total_bytes carrier frames budget over source note",
        "wake": "profile mode body sealed total_bytes carrier carrier_bytes_per_message frames"
        " budget over source note",
        BACKLOG: "profile mode messages body total_bytes bytes_per_message carrier"
        " carrier_bytes_per_message frames visits duplicates budget over note",
        "cold": "profile mode held missing sealed total_bytes p95_bytes payload_bytes frames"
        " seeds budget over source note",
    }
    titles = {
        "transfer": "A sends, B acknowledges: bytes in both directions",
        "in_sync": "A contact in which nothing is new",
        "wake": "A wakes from deep sleep, says one reading, hears that it arrived",
        BACKLOG: "B was away, and comes back",
        "cold": "B has lost some of what A holds, and A does not know",
    }
    printed = []
    for scenario, title in titles.items():
        chosen = [row for row in rows if row["scenario"] == scenario]
        if scenario == "in_sync":
            # The framing is another column's; one carrier says it all.
            chosen = [row for row in chosen if row["carrier"] != "mqtt"]
        printed.append(Table(title, pick(WIRE, names[scenario]), chosen))
    return printed
