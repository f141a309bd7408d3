"""Where devices are: true distances, worst first, on the page and in what is refused."""

import math
import re

import pytest

from drupelet_tools.telemetry.analysis import buckets
from drupelet_tools.telemetry.analysis.fleet_file import parse_plan
from drupelet_tools.telemetry.analysis.report_figures import build
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.page import fleet_map, report
from telemetry import fleet_rows

# The poles of cold: known distances on a sphere of the mean radius.
DEGREE_KM = math.pi * fleet_map.EARTH_RADIUS_KM / 180


def device(name, latitude, longitude, **severities):
    return {"label": name, "device": name, "position": (latitude, longitude),
            "severities": severities, "presence": {"last_wall_ms": None}}  # fmt: skip


@pytest.mark.parametrize(("middle", "position", "east_km", "north_km"), [
    ((0.0, 0.0), (1.0, 0.0), 0, DEGREE_KM),
    ((0.0, 0.0), (0.0, -2.0), -2 * DEGREE_KM, 0),
    ((60.0, 10.0), (61.0, 10.0), 0, DEGREE_KM),
    ((0.0, 179.9), (0.0, -179.9), 0.2 * DEGREE_KM, 0),
    ((-90.0, 0.0), (-89.0, 90.0), DEGREE_KM, 0),
    ((46.5, 8.0), (46.5, 8.0), 0, 0),
    ((90.0, 0.0), (-90.0, 0.0), 0, 180 * DEGREE_KM),
])  # fmt: skip
def test_distance_and_direction_from_the_middle_are_true(middle, position, east_km, north_km):
    assert fleet_map.offset_km(middle, position) == pytest.approx((east_km, north_km), abs=1e-6)


def test_the_worst_come_first_and_the_middle_is_between_them():
    rows = fleet_map.placed([
        device("fine", 10, 179.9, odd="notice"),
        {**device("nowhere", 0, 0), "position": None},
        device("bad", 10, -179.9, silent="alarm", clock="warning"),
        device("so so", 10.1, 179.9, clock="warning"),
    ])  # fmt: skip
    assert [(row["device"]["label"], row["state"]) for row in rows] == [
        ("bad", "alarm"), ("so so", "warning"), ("fine", "no problem"),
    ]  # fmt: skip
    assert max(abs(row["east_km"]) for row in rows) < 0.2 * DEGREE_KM
    assert fleet_map.placed([{**device("nowhere", 0, 0), "position": None}]) == []


@pytest.mark.parametrize(("east_km", "north_km", "text"), [
    (3, 3, "4.2 km NE"), (0, -1_500, "1,500.0 km S"), (-2, 0.1, "2.0 km W"), (0, 0.04, "0.0 km"),
])  # fmt: skip
def test_a_distance_in_words(east_km, north_km, text):
    assert fleet_map.compass(east_km, north_km) == text


@pytest.mark.parametrize(("text", "reason"), [
    ("[default]\nlatitude = 1\nlongitude = 2",
     "[default]: latitude is a device's own: put it under [device"),
    ("[device.A]\nlatitude = 1", "[device.A]: a position needs longitude, too"),
    ("[device.A]\nlatitude = 91\nlongitude = 2",
     "[device.A]: latitude = 91: want a number from -90 to 90"),
    ("[device.A]\nlatitude = nan\nlongitude = 2", "[device.A]: latitude = nan: want a number"),
    ('[device.A]\nlatitude = "1"\nlongitude = 2', "[device.A]: latitude = '1': want a number"),
])  # fmt: skip
def test_what_is_no_position_is_one_line(text, reason):
    with pytest.raises(TelemetryError, match=re.escape(f"fleet.toml: {reason}")):
        parse_plan(text, "fleet.toml")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return fleet_rows.demo_lake(tmp_path_factory.mktemp("map") / "lake")


PLACES = """
[device.A]
latitude = 46.5775
longitude = 7.9859
[device.B]
latitude = 46.5475
longitude = 7.9800
"""


@pytest.mark.parametrize("many", [False, True])
def test_the_page_has_a_map_where_positions_are_known(root, tmp_path, monkeypatch, many):
    if many:
        monkeypatch.setattr(buckets, "ONE_PAGE_DEVICES", 2)
    plan = parse_plan(PLACES, "fleet.toml")
    report.write_report(root, tmp_path / "map.html", plan=plan)
    text = (tmp_path / "map.html").read_text("utf-8")
    assert 'id="chart-map"' in text and "East of the middle (km)" in text
    links = re.findall(r'href="geo:([^"]+)"', text)
    assert set(links) <= {"46.5775,7.9859", "46.5475,7.98"} and links
    report.write_report(root, tmp_path / "none.html")
    without = (tmp_path / "none.html").read_text("utf-8")
    assert 'id="chart-map"' not in without and "geo:" not in without


def test_a_position_is_in_the_figures(root):
    devices = {row["name"]: row for row in build(root, plan=parse_plan(PLACES, "x"))["devices"]}
    assert devices["A"]["position"] == (46.5775, 7.9859) and devices["C"]["position"] is None
