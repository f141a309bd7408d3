"""Other systems' logs: the real ones with their figures, and every kind of bad input."""

import gzip
import json
import os
from pathlib import Path

import pytest

from drupelet_tools.telemetry.analysis import figures, watch
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.imports import foreign_frames, mapping
from drupelet_tools.telemetry.imports.lines import read_frames
from drupelet_tools.telemetry.lake import delta
from telemetry.command_line import run
from telemetry.imported_lines import HEAD, MAPPING, line, write

# Real logs are read in place, never copied here; where they are is the machine's own matter.
NEAR = Path(__file__).resolve().parents[3] / "shared" / "data"
DATA = Path(os.environ.get("DRUPELET_DATA", NEAR))
TOWER = "campusiot_ems-tourperret-A81758FFFE04B1C1.ndjson.gz"
INDOOR = "campusiot_IMST_33323431007C727B.ndjson.gz"
CONTACTS = "campusiot_ems_contacts.csv"
real = pytest.mark.skipif(not (DATA / TOWER).is_file(), reason="the real logs are not here")
DAY_MS = 86_400_000
WRAP_MS = 2**22 * 1000  # a 32-bit clock of 1,024 Hz comes round in so long: 48.5 days


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Figures of the three real logs, each in a lake of its own."""
    by_log = {}
    for name, file in (
        ("campusiot-tower", TOWER), ("campusiot-indoor", INDOOR), ("campusiot-contacts", CONTACTS)
    ):  # fmt: skip
        root = tmp_path_factory.mktemp("real") / "lake"
        counts = foreign_frames.import_files([DATA / file], name, root)
        all_figures = figures.figures(delta.open_lake(root))
        by_log[name] = (counts, all_figures["devices"][0], all_figures)
    return by_log


@real
def test_the_towers_outages_gaps_and_repeats(imported):
    counts, device, figures = imported["campusiot-contacts"]
    assert (counts.frames, counts.devices, counts.unusable) == (26_250, 1, 0)
    assert device["device"] == "lora-a81758fffe04b1c1"
    log, seen = device["integrity"], device["presence"]
    # 213 counters of 24,682 never came: 0.86 %. 1,781 frames came again with the same counter,
    # and once the counter began anew.
    assert (log["segments"], log["segments_missing"]) == (24_469, 213)
    assert log["missing_share"] == pytest.approx(0.0086, abs=0.00005)
    assert log["repeats"] == 1_781
    assert device["health"]["boots"] == 2
    # It was away for 48.5 days four times, each time one turn of a 32-bit clock of 1,024 Hz
    # and less than an hour more.
    longest = [row["ms"] for row in seen["outage_list"][:4]]
    assert [round(ms / DAY_MS, 1) for ms in longest] == [48.6, 48.6, 48.6, 48.5]
    assert all(0 < ms - WRAP_MS < 3_600_000 for ms in longest)
    assert seen["outages"] == 9
    assert seen["outage_list"][4]["ms"] / DAY_MS == pytest.approx(9.5, abs=0.01)
    problems = [line["problem"] for line in figures["attention"]]
    assert any("away 9 times" in what and "48.6 days" in what for what in problems)
    assert any("213 numbers" in what and "0.86%" in what for what in problems)


@real
def test_the_towers_battery_falls_though_single_readings_do_not_show_it(imported):
    counts, device, _ = imported["campusiot-tower"]
    assert counts.frames == 12_614
    battery = device["battery"]
    assert battery["readings"] == 12_613
    # 4,000 readings apart the voltage is where it was, whatever the season does to it.
    raw = battery["mv_trend_raw"]
    assert raw["low"] < 0 < raw["high"] and not raw["found"]
    assert battery["mv_per_c"] == pytest.approx(2.27, abs=0.05)
    # At one temperature it falls by a seventh of a millivolt a day.
    trend = battery["mv_trend"]
    assert trend["found"]
    assert trend["slope"] == pytest.approx(-0.143, abs=0.005)
    assert -0.20 < trend["low"] < trend["high"] < -0.10
    # A fortnight of that fall is less than what one reading can be wrong by.
    assert 14 * -trend["slope"] < battery["mv_noise"]
    longest = device["presence"]["outage_list"][0]["ms"]
    assert longest / DAY_MS == pytest.approx(48.55, abs=0.01)
    assert device["integrity"]["segments_missing"] == 126
    assert device["integrity"]["repeats"] == 1_983


@real
def test_the_indoor_node_starts_its_counter_again_and_again(imported):
    counts, device, _ = imported["campusiot-indoor"]
    assert counts.frames == 13_352
    assert device["name"] == "IMST_C727B"
    assert device["health"]["boots"] == 22
    log = device["integrity"]
    assert (log["segments"], log["repeats"]) == (13_169, 183)
    assert log["segments"] + log["repeats"] == counts.frames
    assert log["segments_missing"] == 76_946  # most frames of the sweep reach no gateway
    # Payloads by the file's own words: 86 of 6 bytes, 3,296 of 8, 9,957 of 16, 13 of 32.
    payload = 86 * 6 + 3_296 * 8 + 9_957 * 16 + 13 * 32
    assert device["traffic"]["content_bytes_sent"] == payload
    assert device["traffic"]["client_bytes"] == payload + 13 * counts.frames
    assert device["metrics"].keys().isdisjoint({"sync_successful", "battery_voltage"})


@real
def test_the_same_files_again_add_nothing(tmp_path):
    root = tmp_path / "lake"
    first = foreign_frames.import_files([DATA / INDOOR], "campusiot-indoor", root)
    again = foreign_frames.import_files([DATA / INDOOR], "campusiot-indoor", root)
    assert (first.new, again.new) == (True, False)
    assert len(delta.open_lake(root).read("segments")) == 13_169


def test_frames_become_rows_of_the_same_tables(tmp_path):
    lines = [HEAD, line(0, 5), line(600, 6), line(660, 6), line(1200, 8), line(1500, 7),
             line(90_000, 0), line(90_600, 1, soc="0.5"),
             line(0, 1, node="B", volts="")]  # fmt: skip
    counts = foreign_frames.import_files(*write(tmp_path, lines))
    assert counts.rows == {"segments": 7, "messages": 7, "health": 3, "battery": 7,
                         "traffic": 12, "state_time": 5, "quarantine": 0}  # fmt: skip
    state = delta.open_lake(tmp_path / "lake")
    rows = [row for row in state.read("segments").to_pylist() if row["device"] == "x-a"]
    # The late frame 7 is no new start; the repeat of 6 is a second copy; 0 is a new start.
    keys = [(row["boot"], row["number"], row["copies"]) for row in rows]
    assert sorted(keys) == [(1, 5, 1), (1, 6, 2), (1, 7, 1), (1, 8, 1), (2, 0, 1), (2, 1, 1)]
    assert all(row["wall_offset_ms"] in (1_700_000_000_000, 1_700_090_000_000) for row in rows)
    spent = state.read("state_time").to_pylist()
    air = {(row["device"], row["boot"], row["state"]): row["ms"] for row in spent}
    # 33 bytes at SF7: 77 ms by the formula, five sightings.
    assert air["x-a", 1, 4] == round(5 * 71.936)
    assert air["x-a", 1, 0] == 1_500_000 - air["x-a", 1, 4]
    battery = state.read("battery").to_pylist()
    assert {row["mv"] for row in battery} == {3600}
    assert [row["soc_pct"] for row in battery if row["soc_pct"] is not None] == [50.0]
    device = next(d for d in figures.figures(state)["devices"] if d["device"] == "x-a")
    assert device["mah_modelled"] > 0
    assert device["sync"]["sends"][:3] == [5, 1, 0]
    assert device["integrity"]["segments_missing"] == 0


def test_two_files_of_a_device_belong_together(tmp_path):
    paths, mapping, root = write(tmp_path, [HEAD, line(0, 1), line(600, 2)], "one.csv")
    more, _, _ = write(tmp_path, [HEAD, line(600, 2), line(1200, 3)], "two.csv")
    counts = foreign_frames.import_files([*paths, *more], mapping, root)
    assert counts.frames == 4
    rows = delta.open_lake(root).read("segments").to_pylist()
    assert [(row["number"], row["copies"]) for row in rows] == [(1, 1), (2, 1), (3, 1)]
    with pytest.raises(TelemetryError, match=r"x-a is in the lake.*one call"):
        foreign_frames.import_files(more, mapping, root)
    assert delta.open_lake(root).read("segments").num_rows == 3


BAD = [
    ([HEAD, line(0, 1), 'A,"17,2,3,4,5,6'], "line 3: a quote that opens here is never closed"),
    ([HEAD, line(0, 1), "A,1,2"], "line 3: 3 cells under 7 heads"),
    ([HEAD, line(0, 1), line(5, "x")], "line 3: n is no number: 'x'"),
    ([HEAD, line(0, 1), line(5, -1)], "line 3: n = -1: want a whole number"),
    ([HEAD, line(0, 1), line(5, "1e999")], "line 3: n is no number"),
    ([HEAD, line(0, 1), line(10**12, 2)], "line 3: at = "),
    ([HEAD, line(0, 1), f"A,,{2},20,SF7,3,"], "line 3: no at"),
    ([HEAD, line(0, 1), line(5, 2, volts="high")], "line 3: volts is no number: 'high'"),
]


@pytest.mark.parametrize(("lines", "complaint"), BAD)
def test_a_bad_line_ends_the_import_before_anything_is_written(tmp_path, lines, complaint):
    paths, mapping, root = write(tmp_path, lines)
    with pytest.raises(TelemetryError) as stopped:
        foreign_frames.import_files(paths, mapping, root)
    assert complaint in str(stopped.value)
    assert "--skip-unusable" in str(stopped.value)
    assert not root.exists()
    # Left out on request: the place is in quarantine, the rest is there.
    counts = foreign_frames.import_files(paths, mapping, root, skip_unusable=True)
    assert (counts.frames, counts.unusable) == (1, 1)
    [place] = delta.open_lake(root).read("quarantine").to_pylist()
    assert place["reason"].startswith("line 3: ")
    text = paths[0].read_bytes()
    assert text[place["offset"] :].splitlines()[0].decode() == lines[2]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{}\n", "no dev_eui: no line fits the mapping 'campusiot-tower'"),
        ("[1]\n", "not a JSON object"),
        ('{"a": \n', "not JSON"),
        ("[" * 100_000 + "\n", "not JSON"),
        ("", "no frames in it"),
        ("\n\n", "no frames in it"),
    ],
)
def test_a_file_of_another_kind_is_one_line(tmp_path, text, complaint):
    (tmp_path / "log").write_text(text, "utf-8")
    done = run(
        "import", tmp_path / "log", "--mapping", "campusiot-tower", "--lake", tmp_path / "l"
    )
    assert done.exit_code == 1
    assert complaint in done.stderr and str(tmp_path / "log") in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "l").exists()


def test_a_cut_gzip_a_missing_file_and_a_long_line(tmp_path):
    record = {"dev_eui": "A", "reported_at": 1_700_000_000_000, "fcnt": 1, "payload_size": 3}
    whole = gzip.compress((json.dumps(record) + "\n").encode() * 5000)
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "bad").write_bytes(whole[:30] + b"\0" * 40)
    (tmp_path / "long").write_bytes(b"x" * (1 << 20) + b"yy")
    cases = [("cut", "cut or damaged"), ("bad", "cut or damaged"), ("long", "longer than"),
             ("none", "No such file"), (".", "Is a directory")]  # fmt: skip
    for name, complaint in cases:
        path = tmp_path / name
        done = run("import", path, "--mapping", "campusiot-tower", "--lake", tmp_path / "l")
        assert done.exit_code == 1, name
        assert complaint in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("schema = 1", "schema = ", "not TOML"),
        ("schema = 1", "schema = 3", "schema 3"),
        ('format = "csv"', 'format = "xml"', "format 'xml'"),
        ("[time]", "[times]", "[time] is missing"),
        ('field = "node"', 'field = "node"\nconstant = "x"', "either field or constant"),
        ('board = "nrf52840-sx1262"', 'board = "toaster"', "board 'toaster'"),
        ('unit = "s"', 'unit = "weeks"', "time.unit 'weeks'"),
        ('counter = "n"', "", "frame.counter is missing"),
        ("overhead_bytes = 13", "overhead_bytes = -1", "overhead_bytes = -1"),
        ('unit = "V"', 'unit = "kV"', "battery.mv.unit 'kV'"),
        ("soc_pct = {", "charge = {", "battery.charge"),
        ("schema = 1", "schema = 1\nframes = 2", "'frames' is no part"),
    ],
)
def test_a_broken_mapping_is_one_clear_line(tmp_path, old, new, complaint):
    assert old in MAPPING
    arguments = write(tmp_path, [HEAD, line(0, 1)], mapping_text=MAPPING.replace(old, new))
    with pytest.raises(TelemetryError) as stopped:
        foreign_frames.import_files(*arguments)
    assert complaint in str(stopped.value)
    assert str(stopped.value).startswith(arguments[1]) and "\n" not in str(stopped.value)


def test_an_unknown_mapping_names_those_there_are(tmp_path):
    with pytest.raises(TelemetryError, match=r"campusiot-contacts, campusiot-indoor"):
        mapping.load_mapping(str(tmp_path / "none.toml"))
    for name in ("campusiot-tower", "campusiot-indoor", "campusiot-contacts"):
        known, _ = mapping.load_mapping(name)
        assert known.name == name and "ODbL" in known.source


def test_an_unknown_data_rate_names_file_line_and_rate(tmp_path):
    bad = line(0, 1).replace("SF7BW125", "DR5")
    with pytest.raises(TelemetryError, match=r"log\.csv: line 2: data rate 'DR5'"):
        foreign_frames.import_files(*write(tmp_path, [HEAD, bad]))


def test_iso_times_and_nested_fields():
    known = mapping.parse_mapping(
        MAPPING.replace('"csv"', '"ndjson"').replace('unit = "s"', 'unit = "iso"').replace(
            'field = "at"', 'field = "meta.times.1"'), "m")  # fmt: skip
    record = {"node": "Ä", "meta": {"times": [0, "2026-01-02T03:04:05+01:00"]}, "n": 1, "size": 2}
    frame = mapping.frame_of(record, known)
    assert (frame.device, frame.wall_ms) == ("x-ä", 1_767_319_445_000)
    with pytest.raises(ValueError, match=r"no meta\.times\.1"):
        mapping.frame_of({**record, "meta": {"times": [0]}}, known)


def test_a_large_line_by_line_file_is_read_in_order(tmp_path):
    lines = [HEAD, *(line(at * 10, at) for at in range(5000))]
    paths, named, _ = write(tmp_path, lines)
    known, _ = mapping.load_mapping(named)
    steps = []
    frames, unusable = read_frames(paths[0], known, steps.append)
    assert [frame.counter for frame in frames] == list(range(5000))
    assert not unusable
    assert 0 < sum(steps) <= paths[0].stat().st_size
    assert len(watch.presence([], None, None)["outage_list"]) == 0
