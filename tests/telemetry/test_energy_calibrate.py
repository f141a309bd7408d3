"""Factors are found again from measured charge, and what cannot be told is said."""

import json

import numpy as np
import pytest

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.calibration import (
    device_factors,
    fitting,
    measured_series,
    timelines,
)
from drupelet_tools.telemetry.energy import batteries, battery_life, board_table
from drupelet_tools.telemetry.forecast import deployment
from telemetry import box_writer as box
from telemetry import fleet, fleet_rows
from telemetry.command_line import run

DEVICE = b"\xa1\xb2\xc3\xd4"
TRUE = {0: 1.5, 2: 0.8, 3: 1.2, 4: 0.9}  # of a device, over the table


def spells(rounds=60, seed=3):
    """(state, ms) of a device that sleeps, wakes, listens and sends, never twice the same."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(rounds):
        for state, low, high in ((0, 800, 1500), (2, 20, 90), (3, 30, 200), (4, 5, 80)):
            found.append((state, int(generator.integers(low, high))))
    return found


def current_of(state, factors=TRUE):
    return board_table.load_board("esp32").current(state, ("mqtt",)).typical_ma * factors.get(
        state, 1
    )


def samples(found, step_ms=1, noise=0.02, seed=5):
    """(ms, mA) as an instrument sees it."""
    generator = np.random.default_rng(seed)
    ma = np.concatenate([np.full(ms // step_ms, current_of(state)) for state, ms in found])
    ma = ma * (1 + noise * generator.standard_normal(len(ma)))
    return np.arange(len(ma)) * float(step_ms), ma


def changes_of(found):
    starts = np.concatenate(([0], np.cumsum([ms for _, ms in found])))
    return [(int(start), state) for start, (state, _) in zip(starts, found, strict=False)] + [
        (int(starts[-1]), "end")
    ]


def states_file(folder, found):
    lines = ["time_ms,state", *(f"{time},{state}" for time, state in changes_of(found))]
    (folder / "states.csv").write_text("\n".join(lines) + "\n")
    return folder / "states.csv"


LAYOUTS = {
    "ppk2": ("Timestamp(ms),Current(uA),D0-D7", lambda t, i: f"{t:.2f},{i * 1000:.3f},00000000"),
    "joulescope": ("#time (s),current (A),voltage (V)",
                   lambda t, i: f"{t / 1000:.6f},{i / 1000:.9f},3.3"),
    "ina219": ("Timestamp[ms],BusV[V],ShuntV[mV],LoadV[V],Current[mA]",
               lambda t, i: f"{t:.0f},3.3,0.1,3.3,{i:.4f}"),
    "plain": ("time_ms,current_ma", lambda t, i: f"{t:.1f},{i:.5f}"),
}  # fmt: skip


def series_file(folder, kind, found, **more):
    header, line = LAYOUTS[kind]
    rows = [line(t, i) for t, i in zip(*samples(found, **more), strict=True)]
    (folder / f"{kind}.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder / f"{kind}.csv"


def fit_of(folder, kind="ppk2", states=None, **more):
    states = states or spells()
    series = measured_series.read_series(series_file(folder, kind, states, **more))
    timeline = timelines.read_states(states_file(folder, states))
    return fitting.fit(series, timeline, board_table.load_board("esp32"), "mqtt")


@pytest.mark.parametrize("kind", LAYOUTS)
def test_factors_are_found_again_from_each_instrument(tmp_path, kind):
    found = fit_of(tmp_path, kind)
    assert [row.state for row in found.factors] == [0, 2, 3, 4]
    for row in found.factors:
        assert row.determined, row
        assert row.value.typical == pytest.approx(TRUE[row.state], rel=0.02)
        assert row.value.low <= row.value.typical <= row.value.high
    assert found.calibrated_mah == pytest.approx(found.measured_mah, rel=0.01)
    assert abs(found.modelled_mah / found.measured_mah - 1) > 0.03
    assert found.residual_share < 0.05 < found.residual_before


def test_an_instrument_that_was_started_later_is_aligned(tmp_path):
    states = spells()
    time_ms, ma = samples(states)
    late = 7_340
    drawn = np.concatenate(([0.0], np.cumsum(ma[late:-1]) / 3.6e6))
    series = measured_series.Series("x", time_ms[late:] - late, drawn)
    timeline = timelines.read_states(states_file(tmp_path, states))
    board = board_table.load_board("esp32")
    offset_ms = fitting.align(series, timeline, board, "mqtt", offset_ms=7_000, range_ms=1_000)
    assert offset_ms == pytest.approx(late, abs=2)
    fitted = fitting.fit(series, timeline, board, "mqtt", offset_ms=offset_ms)
    for row in fitted.factors:
        assert row.value.typical == pytest.approx(TRUE[row.state], rel=0.05)


def test_a_series_of_another_run_is_refused(tmp_path):
    series = measured_series.read_series(series_file(tmp_path, "plain", spells(seed=9)))
    timeline = timelines.read_states(states_file(tmp_path, spells()))
    with pytest.raises(TelemetryError, match=r"do not go together.*--align 5s looks for it"):
        fitting.fit(series, timeline, board_table.load_board("esp32"), "mqtt")


def test_what_was_measured_in_a_state_that_nobody_knows_counts_for_none(tmp_path):
    states = spells()
    half = len(states) // 2
    series = measured_series.read_series(series_file(tmp_path, "plain", states))
    written = timelines.read_states(states_file(tmp_path, states))
    state = written.state.copy()
    state[half:] = -1
    timeline = timelines.Timeline("x", written.time_ms, state, written.end_ms)
    fitted = fitting.fit(series, timeline, board_table.load_board("esp32"), "mqtt")
    assert fitted.hours == pytest.approx(sum(ms for _, ms in states[:half]) / 3.6e6, rel=0.01)
    for row in fitted.factors:
        assert row.value.typical == pytest.approx(TRUE[row.state], rel=0.03)


def test_measured_charge_is_what_one_adds_up_by_hand(tmp_path):
    (tmp_path / "x.csv").write_text("time_s,current_ma\n0,10\n1800,20\n3600,5\n")
    series = measured_series.read_series(tmp_path / "x.csv")
    assert series.drawn_mah.tolist() == [0, 5, 15]
    (tmp_path / "g.csv").write_text(
        "time,soc,charge_mah\n2026-01-01T00:00Z,9,2000\n2026-01-01T01:00Z,9,1990\n"
    )
    gauge = measured_series.read_series(tmp_path / "g.csv")
    assert gauge.is_gauge and gauge.hours == 1 and gauge.drawn_mah.tolist() == [0, 10]


def test_a_gauge_that_reads_in_steps_tells_the_states_that_days_differ_in(tmp_path):
    """Days of another share of receiving; a gauge of whole mAh every hour."""
    generator = np.random.default_rng(1)
    states = []
    for _ in range(24 * 10):
        awake = int(generator.integers(100_000, 1_200_000))
        states += [(3, awake), (2, 600_000), (0, 3_000_000 - awake)]
    edges = np.concatenate(([0], np.cumsum([ms for _, ms in states])))
    mah = np.concatenate(([0], np.cumsum([current_of(s) * ms / 3.6e6 for s, ms in states])))
    rows = [f"{t / 1000:.0f},{round(9000 - np.interp(t, edges, mah))}"
            for t in range(0, int(edges[-1]), 3_600_000)]  # fmt: skip
    (tmp_path / "g.csv").write_text("time_s,charge_mah\n" + "\n".join(rows) + "\n")
    series = measured_series.read_series(tmp_path / "g.csv")
    timeline = timelines.read_states(states_file(tmp_path, states))
    fitted = fitting.fit(series, timeline, board_table.load_board("esp32"), "mqtt")
    by_state = {row.state: row for row in fitted.factors}
    assert by_state[3].determined
    assert by_state[3].value.typical == pytest.approx(TRUE[3], rel=0.03)
    # 10 uA of sleep beside 110 mA: no gauge of this kind tells it, and the fit says so.
    assert not by_state[0].determined and by_state[0].value.typical == 1


def test_states_that_always_go_together_are_not_told_apart(tmp_path):
    states = [(2, 1000), (3, 1000)] * 40
    rows = [f"{n * 2},{500 - n * 0.1}" for n in range(41)]
    (tmp_path / "g.csv").write_text("time_s,charge_mah\n" + "\n".join(rows) + "\n")
    series = measured_series.read_series(tmp_path / "g.csv")
    timeline = timelines.read_states(states_file(tmp_path, states))
    fitted = fitting.fit(series, timeline, board_table.load_board("esp32"), "mqtt")
    assert fitted.calibrated_mah == pytest.approx(fitted.measured_mah, rel=0.02)


def test_factors_stay_within_their_bounds():
    modelled, measured = np.array([[1.0], [2.0]]), np.array([1000.0, 2000.0])
    free = np.ones(1, bool)
    assert fitting.bounded_least_squares(modelled, measured, free) == fitting.FACTOR_MAX
    assert fitting.bounded_least_squares(modelled, -measured, free) == fitting.FACTOR_MIN
    two = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    factors = fitting.bounded_least_squares(two, two @ [2.0, 3.0], np.ones(2, bool))
    assert factors == pytest.approx([2.0, 3.0], rel=1e-6)


def black_box(folder, found, lost=()):
    events = [box.state(time, state) for time, state in changes_of(found)[:-1]]
    events.append((changes_of(found)[-1][0], box.HEAP_LOW, 0, 0, 40_000))
    for number, data in enumerate(box.segments(DEVICE, 1, events, per_segment=2)):
        if number not in lost:
            (folder / f"{number:04}.dbx").write_bytes(data)
    return folder


def test_the_black_box_gives_the_states_that_the_csv_gives(tmp_path):
    states = spells()
    (tmp_path / "box").mkdir()
    logged = timelines.read_segments([black_box(tmp_path / "box", states)], None)
    written = timelines.read_states(states_file(tmp_path, states))
    assert logged.device == DEVICE.hex()
    assert logged.time_ms.tolist() == written.time_ms.tolist()
    assert logged.state.tolist() == written.state.tolist()
    assert logged.end_ms == written.end_ms


WALL_MS = 1_790_000_000_000


def waking_board(folder, wakes=40, clock=True):
    """A board that boots for each wake, 60 s apart, and a gauge on the wall clock."""
    generator = np.random.default_rng(2)
    drawn, rows = 0.0, []
    for boot in range(1, wakes + 1):
        start = (boot - 1) * 60_000
        ms = {2: int(generator.integers(500, 4000)), 3: int(generator.integers(500, 9000))}
        events = [(0, box.BOOT, 4 if boot > 1 else 1, boot, 0), box.state(0, 2),
                  box.state(ms[2], 3), (ms[2] + ms[3], box.HEAP_LOW, 0, 0, 40_000)]  # fmt: skip
        wall = {"wall_ms": WALL_MS + start, "uncertainty_ms": 30} if clock else {}
        (folder / f"{boot:04}.dbx").write_bytes(box.segment(DEVICE, boot, 0, [events], **wall))
        stamp = np.datetime64(WALL_MS + start, "ms")
        rows.append(f"{stamp},{9000 - drawn:.6f}")
        drawn += sum(current_of(state) * t for state, t in ms.items()) / 3.6e6
        drawn += current_of(0) * (60_000 - sum(ms.values())) / 3.6e6
    return rows


def test_boots_are_put_behind_each_other_by_the_clock(tmp_path):
    """What most boards do: each wake is a boot, and deep sleep is in no log."""
    (tmp_path / "box").mkdir()
    rows = waking_board(tmp_path / "box")
    (tmp_path / "g.csv").write_text("time,charge_mah\n" + "\n".join(rows) + "\n")
    timeline = timelines.read_segments([tmp_path / "box"], None)
    assert timeline.origin_ms == WALL_MS
    lengths = np.diff(np.append(timeline.time_ms, timeline.end_ms))
    assert lengths[timeline.state == -1].sum() == 0
    assert set(timeline.state[lengths > 0].tolist()) == {0, 2, 3}
    done = run("energy", "calibrate", tmp_path / "g.csv", "--board", "esp32", "--carrier", "mqtt",
               "--segments", tmp_path / "box", "--output", tmp_path / "c.toml",
               "--json")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    found = {row["state"]: row for row in json.loads(done.stdout)["factors"]}
    for state in (2, 3):
        assert found[state]["factor"] == pytest.approx(TRUE[state], rel=0.02)


def test_boots_without_a_clock_are_told(tmp_path):
    waking_board(tmp_path, clock=False)
    with pytest.raises(TelemetryError, match="several boots without a clock"):
        timelines.read_segments([tmp_path], None)


def test_a_gap_in_the_black_box_is_told(tmp_path):
    with pytest.raises(TelemetryError, match="the log has gaps"):
        timelines.read_segments([black_box(tmp_path, spells(), lost=(1,))], None)


def calibrated(folder):
    (folder / "box").mkdir()
    found = spells()
    done = run("energy", "calibrate", series_file(folder, "ppk2", found), "--board", "esp32",
               "--carrier", "mqtt", "--segments", black_box(folder / "box", found),
               "--output", folder / "c.toml", "--json")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    return folder / "c.toml", json.loads(done.stdout)


def test_a_plan_tells_modelled_measured_and_calibrated_apart(tmp_path):
    file, fitted = calibrated(tmp_path)
    assert fitted["device"] == DEVICE.hex()
    words = ("energy", "plan", "--board", "esp32", "--carrier", "mqtt", "--every", "15m",
             "--battery", "18650")  # fmt: skip
    plain = json.loads(run(*words, "--json").stdout)
    both = json.loads(run(*words, "--calibration", file, "--json").stdout)
    assert {name: both[name] for name in plain} == plain
    assert both["measured"]["measured_mah"] == fitted["measured_mah"]
    asleep = [next(part["mah_per_day"]["typical"] for part in told["parts"]
                   if part["name"] == "sleep") for told in (both, both["calibrated"])]  # fmt: skip
    assert asleep[1] / asleep[0] == pytest.approx(TRUE[0], rel=0.02)
    shown = run(*words, "--calibration", file).stdout
    for line in ("modelled life ", "calibrated life ", "measured ", "PPK2 series ppk2.csv"):
        assert line in shown


def test_a_second_device_goes_into_the_same_file_and_is_chosen_by_name(tmp_path):
    file, _ = calibrated(tmp_path)
    found = spells(seed=8)
    done = run("energy", "calibrate", series_file(tmp_path, "plain", found), "--board", "esp32",
               "--carrier", "mqtt", "--states", states_file(tmp_path, found), "--device", "other",
               "--output", file)  # fmt: skip
    assert done.exit_code == 0 and "residual of a window" in done.stdout
    assert set(device_factors.read_calibrations(file)) == {DEVICE.hex(), "other"}
    words = ("energy", "plan", "--board", "esp32", "--carrier", "mqtt", "--every", "15m",
             "--battery", "18650", "--calibration", file)  # fmt: skip
    done = run(*words)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "choose with --device" in done.stderr
    assert "Calibration of other" in run(*words, "--device", "other").stdout


def lake_with(folder, board="esp32"):
    """A file that calibrates device A of the demo lake, and a stranger."""
    root = fleet_rows.demo_lake(folder / "lake")
    for name in (fleet.MEMBERS["A"][0].hex(), "stranger"):
        device_factors.write_calibration(folder / "c.toml", device_factors.Calibration(
            name, board, "serial", "INA219 series x.csv, 2 h, 99 windows",
            {2: batteries.Figure(2.0, 1.9, 2.1, "fit")}, 7.5, 5.0, 7.4, 0.03, 2.0,
        ))  # fmt: skip
    return root, folder / "c.toml"


def test_the_report_has_modelled_measured_and_calibrated_side_by_side(tmp_path):
    root, file = lake_with(tmp_path)
    pages = []
    for more in ((), ("--calibration", file)):
        done = run("report", "--lake", root, "--html", tmp_path / "r.html", "--battery", "18650",
                   "--json", *more)  # fmt: skip
        assert done.exit_code == 0, done.stderr
        pages.append((json.loads(done.stdout), (tmp_path / "r.html").read_text(), done.stderr))
    (plain, plain_page, _), (fitted, page, said) = pages
    assert "calibrations of no device of the lake: 'stranger'" in said
    rows = [{row["name"]: row for row in told["devices"]} for told in (plain, fitted)]
    told = rows[1]["A"].pop("calibrated")
    assert rows[0]["A"].pop("calibrated") is None
    assert rows[0] == rows[1], "what is modelled changes by nothing"
    assert rows[1]["B"]["calibrated"] is None
    own = rows[1]["A"]
    idle = 35.5 * own["state_ms"]["2"] / 3.6e6
    assert told["mah_log"] == pytest.approx(own["mah_modelled"] + idle)
    assert told["life"]["days"] < own["life"]["days"]
    assert (told["measured_mah"], told["modelled_mah"], told["calibrated_mah"]) == (7.5, 5.0, 7.4)
    assert "Modelled, measured, calibrated" in page and "INA219 series x.csv" in page
    assert "Modelled, measured, calibrated" not in plain_page


def test_a_calibration_of_another_board_is_refused(tmp_path):
    root, file = lake_with(tmp_path, "pico-w")
    done = run("report", "--lake", root, "--html", tmp_path / "r.html", "--calibration", file)
    assert done.exit_code == 1 and not (tmp_path / "r.html").exists()
    assert "it is of board pico-w, and the lake has esp32 for A" in done.stderr


def test_a_calibrated_board_keeps_what_was_not_measured():
    calibration = device_factors.Calibration(
        "x", "esp32", "mqtt", "test", {3: batteries.Figure(2.0, 1.9, 2.1, "fit")},
        1.0, 1.0, 1.0, 0.0, 1.0,
    )  # fmt: skip
    board = board_table.load_board("esp32")
    own = calibration.apply(board)
    assert own.current(3, ["mqtt"]).typical_ma == 220
    assert (own.current(3, ["mqtt"]).low_ma, own.current(3, ["mqtt"]).high_ma) == (209, 231)
    assert own.current(3, ["serial"]).typical_ma == 35.5
    assert own.current(4, ["mqtt"]) == board.current(4, ["mqtt"])
    pack = batteries.Pack(batteries.load_battery("lipo"))
    lives = [battery_life.life(battery_life.Use("x", b, ("mqtt",), {3: 1000}), pack)
             for b in (board, own)]  # fmt: skip
    assert lives[0].mean_ma.typical * 2 == lives[1].mean_ma.typical
    question = deployment.Question("esp32", "mqtt", 900_000, pack)
    assert deployment.plan(question, calibration=calibration, draws=10).wake_mc > (
        deployment.plan(question, draws=10).wake_mc
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("t,amps\n1,2\n", "header 't,amps' is not known; known are Timestamp(ms),Current(uA)"),
        ("", "header '' is not known"),
        ("time_s,current_ma\n1,2\n", "two rows or more"),
        ("time_s,current_ma\n1,2\n2,x\n", "line 3: want a time and a number"),
        ("time_s,current_ma\n1,2\n2\n", "line 3: want a time and a number"),
        ("time_s,current_ma\n3,2\n2,1\n", "time goes back at row 2"),
        ("time_s,current_ma\n1,2\n2,nan\n3,1\n", "not a finite number"),
        ("time_s,charge_mah\n1,2\n2,3\n", "the charge does not fall"),
        ("time,charge_mah\nnoon,2\n2,3\n", "line 2: want a time"),
        ("time_s,current_ma\n" + "".join(f"{n},-1\n" for n in range(99)), "wrong way round"),
        ("time_s,current_ma\n1,2\n2,3\n", "want 9 rows or more"),
    ],
)
def test_a_series_that_cannot_be_used_is_one_line(tmp_path, text, complaint):
    (tmp_path / "x.csv").write_text(text)
    states = states_file(tmp_path, spells())
    done = run("energy", "calibrate", tmp_path / "x.csv", "--board", "esp32", "--carrier", "mqtt",
               "--states", states, "--output", tmp_path / "c.toml")  # fmt: skip
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert complaint in done.stderr
    assert not (tmp_path / "c.toml").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time,state\n", "want the header time_ms,state"),
        ("time_ms,state\n1,2\n", "fewer than two changes"),
        ("time_ms,state\n1,naps\n", "line 2: want a time and a state: deep sleep, light sleep"),
        ("time_ms,state\n2,1\n1,2\n", "times of the states must rise"),
    ],
)
def test_states_that_cannot_be_used_are_one_line(tmp_path, text, complaint):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(TelemetryError, match=complaint):
        timelines.read_states(tmp_path / "s.csv")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('board = "esp32"', 'board = "toaster"', "no current table for board 'toaster'"),
        ("schema = 1", "schema = 2", "schema 2: this version reads 1"),
        ("typical = ", "tyPical = ", "typical is missing"),
        ("hours = ", "hrs = ", "hours is missing"),
        ("[[device]]", "[[devices]]", "device: want tables [[device]]"),
        ("state = 0", "state = 9", "state 9 is none of esp32"),
    ],
)
def test_a_calibration_file_that_is_none_is_one_line(tmp_path, old, new, complaint):
    file, _ = calibrated(tmp_path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    done = run("energy", "plan", "--board", "esp32", "--carrier", "mqtt", "--every", "15m",
               "--battery", "18650", "--calibration", file)  # fmt: skip
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert complaint in done.stderr
