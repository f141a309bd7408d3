"""What is given to `report` and in names.json: each mistake is one line, none is passed over."""

import json
import os
import re

import pytest

from drupelet_tools.telemetry.analysis import figures
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.page import report
from telemetry import fleet, fleet_rows
from telemetry.command_line import run

A = fleet.MEMBERS["A"][0].hex()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return fleet_rows.demo_lake(tmp_path_factory.mktemp("arguments") / "lake")


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"A": {"expected": "120"}}, "'A': expected = '120': want a whole number"),
        ({A: {"delivered": 1.5}}, f"'{A}': delivered = 1.5"),
        ({"A": {"duplicates": True}}, "'A': duplicates = True"),
        ({"A": {"out_of_order": -1}}, "'A': out_of_order = -1: want"),
        ({"A": {"created": 10**400}}, "'A': created = 1000"),
        (
            {"A": {"expected": 1}, "Z": {"expected": 1}},
            "'Z' is no device of the lake; it has A, B",
        ),
    ],
)
def test_results_that_cannot_be_used_are_one_line(root, tmp_path, row, complaint):
    (tmp_path / "r.json").write_text(json.dumps(row), "utf-8")
    done = run("report", "--lake", root, "--html", tmp_path / "r.html",
               "--results", tmp_path / "r.json")  # fmt: skip
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"r.json: {complaint}" in done.stderr
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"A": {"name": "A", "carrier": "serial", "board": "esp32"}}', "'A': 'name' is no count"),
        ('{"A": {"expcted": 120}}', "'A': 'expcted' is no count"),
        ('[["A", 120]]', "holds no counts by device"),
        ('{"A": 120}', "holds no counts by device"),
        ("name,expected\nA,120\n", "not JSON (Expecting value: line 1 column 1 (char 0))"),
        ("PK\x03\x04", "not JSON (Expecting value: line 1 column 1 (char 0))"),
    ],
)
def test_results_of_another_kind_are_told_what_was_expected(root, tmp_path, text, complaint):
    (tmp_path / "r.json").write_text(text, "utf-8")
    done = run("report", "--lake", root, "--html", tmp_path / "r.html",
               "--results", tmp_path / "r.json")  # fmt: skip
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"r.json: {complaint}" in done.stderr
    shape = '; --results is JSON like {"<name or id>": {"expected": 120}}, with any of expected,'
    assert shape in done.stderr
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a pipe"])
def test_a_report_replaces_files_only(root, tmp_path, kind):
    """What is no file stays what it is, and nothing is left beside it."""
    page = tmp_path / "page.html"
    place = tmp_path / "pipe" if kind == "link to a pipe" else page
    if kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    if place != page:
        page.symlink_to(place)
    before = place.stat()
    done = run("report", "--lake", root, "--html", page)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    why = "cannot write the report: it is not a file; name another"
    assert f"{place.name}: {why}" in done.stderr
    assert (place.stat().st_ino, place.stat().st_mode) == (before.st_ino, before.st_mode)
    assert set(tmp_path.iterdir()) == {page, place}


def test_a_count_that_is_null_is_not_known(root, tmp_path):
    (tmp_path / "r.json").write_text('{"A": {"expected": null, "delivered": null}}', "utf-8")
    done = run("report", "--lake", root, "--html", tmp_path / "r.html", "--json",
               "--results", tmp_path / "r.json")  # fmt: skip
    told = {row["name"]: row for row in json.loads(done.stdout)["devices"]}
    assert (told["A"]["expected"], told["A"]["delivered"]) == (None, 120)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--now", "9999-12-31T23:59:59-23:59"], "want a time from 2000 to 2100"),
        (["--now", "0001-01-01T00:00:00+23:59"], "want a time from 2000 to 2100"),
        (["--now", "1999-12-31"], "want a time from 2000 to 2100"),
        (["--csv", "--html", "o.csv"], "--html o.csv: --csv writes a file of this name"),
    ],
)
def test_other_arguments(root, tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    done = run("report", "--lake", root, "--html", "x.html", *words)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert complaint in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_devices_of_the_fleet_file_that_are_not_there_are_told(root, tmp_path):
    text = '[device.A]\nperiod_s = 9\n[device."b0000002"]\nperiod_s = 9\n'
    (tmp_path / "f.toml").write_text(text, "utf-8")
    words = (
        "report",
        "--lake",
        root,
        "--html",
        tmp_path / "x.html",
        "--fleet",
        tmp_path / "f.toml",
    )
    assert run(*words).stderr == ""
    more = "".join(f"[device.new-{at:02}]\nperiod_s = 9\n" for at in range(10))
    (tmp_path / "f.toml").write_text(text + more, "utf-8")
    done = run(*words)
    assert done.exit_code == 0
    assert done.stderr.count("\n") == 1
    assert "f.toml: no device of the lake: 'new-00', " in done.stderr
    assert done.stderr.endswith("'new-07' and 2 more\n")


def test_no_name_ends_a_script_or_keeps_it_from_ending(root):
    state = delta.open_lake(root)
    for facts in state.names.values():
        facts["name"] = "<!--<script>\ud800"
    html = report.render(figures.figures(state))
    scripts = "".join(re.findall(r"<script.*?</script>", html, flags=re.DOTALL))
    assert "<!--<script>" not in html
    assert r"\u003c!--\u003cscript>" in scripts


# --- names.json ---


@pytest.mark.parametrize("carriers", ["", "MQTT", " Mqtt , serial"])
def test_charge_is_by_the_carriers_that_a_board_has(root, carriers):
    """Those that were told, in any case of letters; else those on which it counted traffic."""
    state = delta.open_lake(root)
    wanted = {row["name"]: row for row in figures.figures(state)["devices"]}
    (b,) = (facts for facts in state.names.values() if facts["name"] == "B")
    b["carriers"] = carriers
    told = {row["name"]: row for row in figures.figures(state)["devices"]}
    assert wanted["B"]["mah_modelled"] > 0
    assert told["B"]["mah_modelled"] == wanted["B"]["mah_modelled"]


def test_names_are_brought_to_one_form():
    told = inputs.clean_names({
        "A1B2C3D4": {"name": "x\ud800", "carrier": "Stick, MQTT", "board": "ESP32"},
        "b0000002": {"carrier": ["serial", None, ""], "board": "board"},
        "c0000003": {"carrier": "-"},
    })  # fmt: skip
    assert told == {
        "a1b2c3d4": {"name": "x\N{REPLACEMENT CHARACTER}", "carriers": "stick, mqtt",
                     "board": "esp32"},
        "b0000002": {"name": "", "carriers": "serial", "board": ""},
        "c0000003": {"name": "", "carriers": "", "board": ""},
    }  # fmt: skip
    assert inputs.clean_names(told) == told


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({"carrier": "wifi"}, "a0000001: carrier 'wifi': leave it out, or want one of ble, lora,"),
        ({"carrier": ["mqtt", "tin can"]}, "carrier 'tin can'"),
        (
            {"board": "esp23"},
            "a0000001: board 'esp23': leave it out, or want one of board, ",
        ),
    ],
)
def test_an_unknown_board_or_carrier_is_one_line(tmp_path, facts, complaint):
    fleet.write(tmp_path, only=["A"])
    (tmp_path / "names.json").write_text(json.dumps({A: facts}), "utf-8")
    done = run("ingest", tmp_path, "--lake", tmp_path / "lake")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
    assert complaint in done.stderr
    assert "names.json: a0000001: " in done.stderr
    assert not (tmp_path / "lake" / "manifest.json").exists()
    with pytest.raises(TelemetryError, match="a0000001"):
        job.ingest([tmp_path], tmp_path / "lake", {A: facts}, None)
