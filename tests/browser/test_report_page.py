"""The report in a real browser: nothing from a network, no error, charts drawn, usable."""

import struct

import pytest

from browser import chromium
from browser.report_tab import DRAWN, PLACES, opened
from drupelet_tools.telemetry.analysis import buckets
from drupelet_tools.telemetry.analysis.fleet_file import battery_plan
from drupelet_tools.telemetry.page import report
from repeats import few
from telemetry import fleet, fleet_rows

PHONE, DESK = 390, 1440


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Path of the page by name: a demo's four devices and a fleet of a hundred."""
    folder = tmp_path_factory.mktemp("pages")
    small = fleet_rows.demo_lake(folder / "small")
    report.write_report(small, folder / "small.html", fleet.results())
    large = fleet_rows.large_lake(folder / "large", 100)
    report.write_report(large, folder / "large.html", plan=battery_plan("18650"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "ONE_PAGE_DEVICES", 90)
        patch.setattr(buckets, "BUCKET_DEVICES", 60)
        report.write_report(large, folder / "index.html", plan=battery_plan("18650"))
    return {name: folder / f"{name}.html" for name in ("small", "large", "index")}


@pytest.fixture(scope="module")
def address():
    with chromium.browser() as told:
        yield told


@pytest.fixture
def tab(address):
    page = chromium.Page(address)
    yield page
    page.close()


def test_a_hundred_devices_fit_in_two_megabytes(pages):
    assert pages["large"].stat().st_size <= 2_000_000


@pytest.mark.parametrize(("name", "charts"), [("small", 6), ("large", 8)])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_draws_its_charts_and_asks_for_nothing(tab, pages, name, charts, width, tmp_path):
    opened(tab, pages[name], width=width, mobile=width == PHONE)
    assert tab.evaluate(PLACES) == charts
    assert tab.requests == [pages[name].as_uri()]
    assert (tab.said, tab.thrown) == ([], [])
    # Each chart has marks on it, inside of the page's width.
    marks = tab.evaluate(
        "[...document.querySelectorAll('.chart')].map(place => "
        "place.querySelectorAll('.mark-rect path, .mark-line path, .mark-symbol path').length)"
    )
    assert min(marks) > 0
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    inside = "[...document.querySelectorAll('.chart svg')].every(svg => {"
    inside += "const box = svg.getBoundingClientRect();"
    inside += "return box.width > 200 && box.right <= innerWidth + 1; })"
    assert tab.evaluate(inside)
    tab.screenshot(tmp_path / "page.png")
    data = (tmp_path / "page.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (width, 900)
    assert len(data) > 20_000  # not an empty sheet


@pytest.mark.parametrize("name", ["small", "large", "index"])
@pytest.mark.parametrize(
    ("width", "dark"), few(2, ((PHONE, False), (DESK, True), (PHONE, True), (DESK, False)))
)
def test_it_fits_the_screen_and_the_finger(tab, pages, name, width, dark):
    opened(tab, pages[name], width=width, mobile=width == PHONE, dark=dark)
    tab.evaluate("document.querySelectorAll('details').forEach(page => { page.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    small = "[...document.querySelectorAll('a, summary, input, th.sorts, button')]"
    small += ".map(place => [place.textContent, place.getBoundingClientRect()])"
    small += ".filter(([_, box]) => box.width && (box.height < 24 || box.width < 24))"
    small += ".map(([text, box]) => [text, box.width, box.height])"
    assert tab.evaluate(small) == []
    # On a phone a table is as wide as the screen: rows are cards that name each of their cells.
    wide = "[...document.querySelectorAll('.scroll')].filter(frame => "
    wide += "frame.scrollWidth > frame.clientWidth + 1).length"
    labels = "[...document.querySelectorAll('.cards td')].filter(cell => "
    labels += "getComputedStyle(cell, '::before').content === 'none').length"
    if width == PHONE:
        assert (tab.evaluate(wide), tab.evaluate(labels)) == (0, 0)
    else:
        assert tab.evaluate(labels) > 0


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_contents_lead_to_their_sections(tab, pages, width):
    opened(tab, pages["large"], width=width, mobile=width == PHONE)
    links = tab.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash)")
    assert links == ["#attention", "#now", "#battery", "#delivery", "#cost", "#devices", "#more"]
    order = tab.evaluate("[...document.querySelectorAll('h2')].map(head => '#' + head.id)")
    assert order == links, "in the order of the page"
    for link in links:
        tab.evaluate(f"document.querySelector('nav a[href=\"{link}\"]').click()")
        below = f"document.querySelector('{link}').getBoundingClientRect().top"
        bar = "document.querySelector('nav').getBoundingClientRect()"
        tab.until(f"{below} >= {bar}.bottom - 1 && {below} < 300 && {bar}.top >= -1")


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_index_leads_to_a_device_on_its_page(tab, pages, width):
    opened(tab, pages["index"], width=width, mobile=width == PHONE)
    silent = "document.querySelector('.attention .alarm a')"
    target = tab.evaluate(f"{silent}.getAttribute('href')")
    assert target == "index-pages/0001.html#device-d0000003"
    tab.evaluate(f"{silent}.click()")
    tab.until("document.getElementById('device-d0000003')?.open")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    back = tab.evaluate("document.querySelector('header a').href")
    assert back == pages["index"].as_uri()
    assert (tab.said, tab.thrown) == ([], [])


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_axes_are_legible(tab, pages, width):
    """No two labels of an axis touch, and a chart has one legend."""
    opened(tab, pages["large"], width=width, mobile=width == PHONE)
    touching = """[...document.querySelectorAll('.chart .role-axis-label')].flatMap(axis => {
      const boxes = [...axis.querySelectorAll('text')].filter(t => t.style.opacity !== '0' &&
        t.getAttribute('opacity') !== '0').map(t => [t.textContent, t.getBoundingClientRect()]);
      return boxes.slice(1).filter(([text, box], at) => {
        const last = boxes[at][1];
        return box.left < last.right - 1 && last.left < box.right - 1 &&
          box.top < last.bottom - 3 && last.top < box.bottom - 3;
      }).map(([text]) => text); })"""
    assert tab.evaluate(touching) == []
    legends = "[...document.querySelectorAll('.chart')].map(place => "
    legends += "place.querySelectorAll('.role-legend').length)"
    assert max(tab.evaluate(legends)) == 1
    log = "document.querySelector('#chart-life').textContent.includes('log scale')"
    assert tab.evaluate(log)
    times = tab.evaluate("document.querySelector('#chart-volts').textContent")
    assert "UTC" in times and not {"AM", "PM"} & set(times.split())


def test_without_scripts_the_still_pictures_and_tables_are_there(tab, pages):
    tab.open(pages["small"].as_uri(), scripts=False)
    tree = tab.call("DOM.getDocument")["root"]["nodeId"]
    found = {
        what: len(tab.call("DOM.querySelectorAll", nodeId=tree, selector=what)["nodeIds"])
        for what in (".chart svg", "table", "#pages details[open]")
    }
    assert found[".chart svg"] == 6
    assert found["#pages details[open]"] == 4
    assert found["table"] > 15
    assert tab.said == []


def test_a_devices_page_opens_when_it_is_asked_for(tab, pages):
    opened(tab, pages["large"], width=DESK)
    assert tab.evaluate("document.querySelectorAll('#pages details[open]').length") == 0
    tab.evaluate("document.querySelector('tbody a[href=\"#device-d0000007\"]').click()")
    tab.until("document.getElementById('device-d0000007').open")
    assert tab.evaluate(
        "Math.abs(document.getElementById('device-d0000007').getBoundingClientRect().top) < 200"
    )
    tab.evaluate(
        "(field => { field.value = 'NODE-03'; field.dispatchEvent(new Event('input')); })"
        "(document.getElementById('find'))"
    )
    shown = "[...document.querySelectorAll('#pages details')].filter(p => !p.hidden).length"
    assert tab.evaluate(shown) == 10


def test_a_table_sorts_by_the_head_that_is_pressed(tab, pages):
    opened(tab, pages["large"], width=DESK)
    charge = "[...document.querySelectorAll('#devices + .scroll tbody tr')]"
    charge += ".map(row => parseFloat(row.children[13].textContent.replace(/,/g, '')))"
    before = tab.evaluate(charge)
    press = "document.querySelector('#devices + .scroll thead').rows[0].children[13].click()"
    tab.evaluate(press)
    assert tab.evaluate(charge) == sorted(before, reverse=True) != before
    tab.evaluate(press)
    assert tab.evaluate(charge) == sorted(before)


def test_dark_and_paper(tab, pages, tmp_path):
    opened(tab, pages["small"], width=DESK, dark=True)
    colour = "getComputedStyle(document.body).backgroundColor"
    assert tab.evaluate(colour) == "rgb(21, 24, 27)"
    ink = "getComputedStyle(document.querySelector('.chart .role-axis-title text')).fill"
    assert tab.evaluate(ink) == "rgb(196, 202, 209)"
    tab.open(pages["small"].as_uri())
    tab.until(f"{DRAWN} === {PLACES}")
    tab.pdf(tmp_path / "page.pdf")
    data = (tmp_path / "page.pdf").read_bytes()
    assert data.startswith(b"%PDF") and len(data) > 50_000
    tab.call("Emulation.setEmulatedMedia", media="print")
    hidden = "getComputedStyle(document.querySelector('.scroll')).overflowX"
    assert tab.evaluate(hidden) == "visible"
    assert (tab.said, tab.thrown) == ([], [])
