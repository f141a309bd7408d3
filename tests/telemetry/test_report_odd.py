"""Pages from logs that are odd: boots that are wakes, holes, clocks and names of nowhere."""

import pytest

from drupelet_tools.telemetry.analysis.fleet_file import battery_plan
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.page import report
from telemetry import box_writer as box

A, B = bytes.fromhex("a0000001"), bytes.fromhex("b0000002")
WALL_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PERIOD_MS = 900_000
AWAKE_MS = 2_000
WAKES = 96
ESP32 = {"name": "A", "board": "esp32", "carrier": "serial"}


def lake_of(folder, datas, name=ESP32):
    source = folder / "in"
    source.mkdir(parents=True)
    for at, data in enumerate(datas):
        (source / f"{at:04}.dbx").write_bytes(data)
    job.ingest([source], folder / "lake", {A.hex(): name}, None)
    return folder / "lake"


def device_of(folder, datas, **options):
    return report.build(lake_of(folder, datas), plan=battery_plan("18650"), **options)["devices"][
        0
    ]


def wake(number, clock=True):
    events = [(0, box.BOOT, 4, number, 0), box.state(0, 2)]
    events += [box.counter(AWAKE_MS, 2, AWAKE_MS), box.state(AWAKE_MS, 0)]
    wall = {"wall_ms": WALL_MS + number * PERIOD_MS, "uncertainty_ms": 30} if clock else {}
    return box.segment(A, number, 0, [events], **wall)


def test_wakes_that_are_boots_cost_their_boots_beside_those_that_go_on(tmp_path):
    """What a board sleeps between them is in no log, but two clocks tell it."""
    apart = device_of(tmp_path / "boots", [wake(number) for number in range(1, WAKES + 1)])
    events = [(0, box.BOOT, 1, 1, 0)]
    for at in range(WAKES):
        events += [box.state(at * PERIOD_MS, 2), box.state(at * PERIOD_MS + AWAKE_MS, 0)]
    end_ms = WAKES * PERIOD_MS
    events += [box.counter(end_ms, 0, end_ms - WAKES * AWAKE_MS)]
    events += [box.counter(end_ms, 2, WAKES * AWAKE_MS)]
    whole = box.segments(A, 1, events, wall_ms=WALL_MS, uncertainty_ms=30)
    together = device_of(tmp_path / "one", whole)
    per_day = 17.52 / 3600 * 24 * HOUR_MS / PERIOD_MS  # mC of a boot
    boots = per_day * (1 - 1 / WAKES)  # the log in one piece has one, too
    assert apart["mah_per_day"] - boots == pytest.approx(together["mah_per_day"], rel=0.03)
    dearer = apart["mah_per_day"] / together["mah_per_day"]
    found = together["life"]["days"] / dearer
    assert apart["life"]["days_low"] < found < apart["life"]["days_high"]
    assert apart["hours"] == pytest.approx(WAKES * AWAKE_MS / HOUR_MS), "the log's own time"


def test_a_lost_wake_is_taken_to_have_slept_as_the_others(tmp_path):
    every = device_of(tmp_path / "all", [wake(number) for number in range(1, WAKES + 1)])
    some = device_of(
        tmp_path / "some", [wake(number) for number in range(1, WAKES + 1) if number % 9]
    )
    assert some["mah_per_day"] == pytest.approx(every["mah_per_day"], rel=0.02)


def test_no_life_is_told_of_wakes_that_no_clock_tells_apart(tmp_path):
    device = device_of(tmp_path, [wake(number, clock=False) for number in range(1, 9)])
    assert device["mah_modelled"] > 0
    assert device["mah_per_day"] is None and device["life"] is None


def test_time_that_is_not_known_makes_no_device_thrifty(tmp_path):
    first = box.segment(A, 1, 0, [[box.state(0, 2), box.counter(HOUR_MS, 2, HOUR_MS)]])
    last = box.segment(A, 1, 5, [[box.state(9 * HOUR_MS, 2), box.state(10 * HOUR_MS, 1)]])
    device = device_of(tmp_path, [first, last])
    assert device["state_ms"][codes.STATE_UNKNOWN] == 8 * HOUR_MS
    assert device["mah_per_day"] == pytest.approx(device["life"]["mah_per_day"], rel=0.05)


@pytest.mark.parametrize("odd", ["anchor", "block"])
def test_one_clock_of_nowhere_stops_no_page(tmp_path, odd):
    states = [box.state(at * 60_000, 2 + at % 2) for at in range(200)]
    sound = box.segments(A, 1, states, wall_ms=WALL_MS, uncertainty_ms=30)
    last = (1 << 48) - 1
    blocks = [[box.state(0, 2)], [box.state(last if odd == "block" else 9, 3)]]
    wall_ms = last if odd == "anchor" else WALL_MS
    datas = [*sound, box.segment(B, 1, 0, blocks, wall_ms=wall_ms, uncertainty_ms=30)]
    found = report.write_report(lake_of(tmp_path / "both", datas), tmp_path / "page.html")
    alone = device_of(tmp_path / "alone", sound)
    (device,) = (row for row in found["devices"] if row["name"] == "A")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    for key in ("mah_modelled", "mah_per_day", "state_ms", "presence"):
        assert device[key] == alone[key], key


@pytest.mark.parametrize(
    "odd", ["\x01", "\x1b[2J", "\x7f", "\u2028", "\u2029", "\ufffe", "\ud800"]
)
def test_names_that_no_page_can_hold_are_mended(tmp_path, odd):
    """A drawing that is given one ends the process."""
    assert codes.as_text(f"well{odd}") == "well\ufffd" + odd[1:]
    segment = box.segment(A, 1, 0, [[box.state(0, 2), box.counter(HOUR_MS, 2, HOUR_MS)]])
    root = lake_of(tmp_path, [segment], {**ESP32, "name": f"well{odd}"})
    found = report.write_report(root, tmp_path / "page.html")
    assert found["devices"][0]["name"].startswith("well\ufffd")


def test_two_devices_of_one_name_have_a_bar_each(tmp_path):
    segments = [
        box.segment(id, 1, 0, [[box.state(0, 2), box.counter(HOUR_MS, 2, HOUR_MS)]])
        for id in (A, B)
    ]
    source = tmp_path / "in"
    source.mkdir()
    for at, data in enumerate(segments):
        (source / f"{at}.dbx").write_bytes(data)
    job.ingest([source], tmp_path / "lake", {A.hex(): ESP32, B.hex(): ESP32}, None)
    report.write_report(tmp_path / "lake", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "A (a0000001) · serial" in page and "A (b0000002) · serial" in page


def test_a_clock_that_is_far_ahead_makes_nobody_else_silent(tmp_path):
    """It is told as wrong; that of a whole fleet in the future is the fleet's own."""

    def hours(id, wall_ms):
        events = [box.state(0, 2), box.counter(HOUR_MS, 2, HOUR_MS)]
        return [box.segment(id, 1, n, [events], wall_ms=wall_ms + n * HOUR_MS) for n in range(9)]

    def complaints(name, logs):
        lake = lake_of(tmp_path / name, [data for log in logs for data in log])
        found = report.build(lake)
        return found["now_ms"], {(line["device"], line["kind"]) for line in found["attention"]}

    ahead_ms = 4_000_000_000_000  # in 2096
    now_ms, told = complaints("one", [hours(A, WALL_MS), hours(B, ahead_ms)])
    assert WALL_MS < now_ms < WALL_MS + 10 * HOUR_MS
    assert (B.hex(), "clock") in told and not any(kind == "silent" for _, kind in told)
    now_ms, told = complaints("all", [hours(A, ahead_ms), hours(B, ahead_ms)])
    assert now_ms > ahead_ms and not any(kind in ("clock", "silent") for _, kind in told)
