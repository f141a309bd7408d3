r"""The pictures of docs/screenshots.md, made anew:

    DRUPELET_PICTURES=docs/pictures .venv/bin/python -m pytest --tier long \
        tests/browser/test_pictures.py

Whoever changes a page looks at them.
"""

import os
from pathlib import Path

import pytest

from browser.chromium import Page, browser
from browser.home_page import served
from browser.report_tab import opened
from drupelet_tools.telemetry.analysis.fleet_file import battery_plan
from drupelet_tools.telemetry.page import report
from host.conftest import make_home  # noqa: F401 - a fixture
from telemetry import fleet, fleet_rows

pytestmark = pytest.mark.long
DESK, PHONE = (1440, 900), (390, 844)
# Name of a picture -> page, size of the window, whether dark, section at its top.
REPORTS = {
    "report-attention": ("large", DESK, False, "attention"),
    "report-battery-dark": ("large", DESK, True, "battery"),
    "report-cost": ("large", DESK, False, "cost"),
    "report-attention-phone": ("large", PHONE, False, "attention"),
    "report-battery-phone-dark": ("large", PHONE, True, "battery"),
    "report-index": ("index", DESK, False, "attention"),
    "report-demo": ("small", DESK, False, "now"),
    "report-demo-phone-dark": ("small", PHONE, True, "now"),
}
MESSAGES = ("soil 21 %", "soil 20 %, valve open", '{"battery_mv": 3700}', "pump on", "pump off")


@pytest.fixture
def pictures(tmp_path):
    """The folder for the pictures."""
    folder = Path(os.environ.get("DRUPELET_PICTURES", tmp_path)).resolve()
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def tab():
    with browser() as address:
        page = Page(address)
        yield page
        page.close()


def test_pictures_of_the_report(tab, pictures, tmp_path):
    small = fleet_rows.demo_lake(tmp_path / "lake-small")
    report.write_report(small, tmp_path / "small.html", fleet.results())
    large = fleet_rows.large_lake(tmp_path / "lake-large", 100, upgraded=range(0, 100, 4))
    report.write_report(large, tmp_path / "large.html", plan=battery_plan("18650"))
    larger = fleet_rows.large_lake(tmp_path / "lake-larger", 130)
    report.write_report(larger, tmp_path / "index.html", plan=battery_plan("18650"))
    for name, (page, (width, height), dark, section) in REPORTS.items():
        opened(tab, tmp_path / f"{page}.html", width=width, height=height,
               mobile=width == PHONE[0], dark=dark)  # fmt: skip
        if section != "attention":
            tab.evaluate(f"document.getElementById('{section}').scrollIntoView()")
        tab.screenshot(pictures / f"{name}.webp")
        assert (pictures / f"{name}.webp").stat().st_size > 10_000  # not an empty sheet


def test_pictures_of_the_home_page(tab, pictures, make_home):  # noqa: F811 - the fixture
    with served(make_home, MESSAGES) as (url, _):
        for name, (width, height), dark in (("web", DESK, False), ("web-phone-dark", PHONE, True)):
            tab.open(url, width, height, mobile=width == PHONE[0], dark=dark)
            tab.screenshot(pictures / f"{name}.webp")
            assert (pictures / f"{name}.webp").stat().st_size > 5_000
