"""Figures and page, from lakes whose rows are written by hand (no Spark)."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet_tools.telemetry.analysis import figures
from drupelet_tools.telemetry.analysis.fleet_file import battery_plan
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.commands import telemetry
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.page import report
from drupelet_tools.telemetry.spark import session
from drupelet_tools.telemetry.text import cells
from telemetry import fleet, fleet_rows

VOID = {"meta", "br", "hr", "img", "input", "link", "path", "rect", "line", "circle"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return fleet_rows.demo_lake(tmp_path_factory.mktemp("fleet") / "lake")


@pytest.fixture(scope="module")
def page(root):
    html = root.parent / "report.html"
    report.write_report(root, html, fleet.results())
    return html.read_text("utf-8")


class Reader(HTMLParser):
    """Checks that tags close in order, and collects tables and what a browser would load."""

    def __init__(self):
        super().__init__()
        self.stack, self.loads, self.titles, self.text = [], [], 0, []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "href", "data", "action", "poster", "srcset", "xlink:href"):
                self.loads.append(value)
        self.titles += tag == "title" and "svg" not in self.stack
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.stack.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.stack):
            self.text.append(data)


def test_the_page_is_whole_and_loads_nothing(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.stack == []
    assert reader.titles == 1
    assert [load for load in reader.loads if not load.startswith("#")] == []
    outside = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert set(re.findall(r"https?://[^\s\"'<]+", outside)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not re.search(r"@import|url\(\s*['\"]?(?:http|//)", outside)
    assert len(page) < 2_000_000


def test_tables_carry_every_figure_without_scripts(page):
    text = " ".join(
        " ".join(re.sub(r"<script.*?</script>|<[^>]+>", " ", page, flags=re.S).split()).split()
    )
    assert "120 / 120" in text
    assert "Modelled, not measured" in text
    assert "ESP32-PICO-ZERO manual table 6" in text
    for name in fleet.MEMBERS:
        assert re.search(rf'<th><a href="#device-\w+">{name}</a></th>', page)
    assert page.count('<div class="chart"') == 6
    assert page.count("<svg") >= 6
    for words in ("What needs attention first", "Battery life", "Assumed:", "Silent devices",
                  "Retransmissions and duplicates", "What it was spent on"):  # fmt: skip
        assert words in page, words


def test_bytes_by_hand(root):
    all_figures = figures.figures(delta.open_lake(root), fleet.results())
    one = {name: row for row in all_figures["devices"] for name in [row["name"]]}
    per_round = fleet.ROUND_BYTES
    b = one["B"]
    client = 2 * fleet.ROUNDS * (per_round[1] - per_round[15])
    assert b["client_bytes"] == client
    assert b["telemetry_bytes"] == 2 * fleet.ROUNDS * per_round[15]
    assert b["bytes_per_message"] == pytest.approx(client / 120)
    overhead = client - 2 * fleet.ROUNDS * per_round[3]
    assert b["overhead_per_message"] == pytest.approx(overhead / 120)
    framing = per_round[1] - sum(size for kind, size in per_round.items() if kind != 1)
    assert b["traffic"]["lines"][0]["framing"] == framing * fleet.ROUNDS
    links = sum(len(carriers) for _, carriers, _, _ in fleet.MEMBERS.values())
    whole = all_figures["fleet"]
    assert whole["client_bytes_sent"] == links * client / 2
    assert whole["deliveries_away"] == 4 * 120 - 4 * 30
    assert whole["bytes_per_message"] == pytest.approx(links * client / 2 / 360)


def test_charge_by_hand(root):
    all_figures = figures.figures(delta.open_lake(root))
    for row in all_figures["devices"]:
        spent = fleet.events_of(row["name"]).ms
        assert row["state_ms"] == spent
        if row["board"] == "esp32":
            radio = (110.0, 178.0) if "mqtt" in row["carriers"] else (35.5, 35.5)
            busy = 35.5 * (spent[2] + spent[5] + spent[6]) + 0.8 * spent[1]
            total = (busy + radio[0] * spent[3] + radio[1] * spent[4]) / 3.6e6
            total += row["health"]["boots"] * 17.52 / 3600  # mC of a boot
            assert row["mah_modelled"] == pytest.approx(total, abs=1e-9)
            assert row["mah_modelled_low"] < total < row["mah_modelled_high"]
        else:
            assert row["mah_modelled"] is None


def test_results_by_name_or_by_id_and_without(root):
    state = delta.open_lake(root)
    by_id = {fleet.MEMBERS["A"][0].hex(): {"expected": 9, "delivered": 8}}
    rows = {row["name"]: row for row in figures.figures(state, by_id)["devices"]}
    assert (rows["A"]["expected"], rows["A"]["delivered"]) == (9, 8)
    assert (rows["B"]["expected"], rows["B"]["delivered"]) == (None, 120)
    assert rows["B"]["duplicates"] == 2


def test_names_cannot_break_out_of_the_page(root):
    state = delta.open_lake(root)
    for facts in state.names.values():
        facts["name"] = "</script><b>&x"
        facts["carriers"] = "<i>"
    html = report.render(figures.figures(state))
    reader = Reader()
    reader.feed(html)
    assert reader.stack == []
    assert "</script><b>" not in html
    assert "<i>" not in re.sub(r"<script.*?</script>", "", html, flags=re.S)


def odd(value):
    """A copy of figures in which each text is one that would be HTML."""
    if isinstance(value, dict):
        return {key: odd(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [odd(part) for part in value]
    return f"<x title='{value}'>&amp;" if isinstance(value, str) else value


def test_no_text_in_the_figures_is_html(root):
    plan = battery_plan("18650")
    all_figures = odd(figures.figures(delta.open_lake(root), None, plan))
    assert all_figures["attention"] and all_figures["batteries"] and all_figures["tables"]
    html = re.sub(r"<script.*?</script>", "", report.render(all_figures), flags=re.S)
    assert "<x" not in html and html.count("&lt;x") > 50
    assert "&amp;amp;" in html, "an entity stays what somebody wrote"
    reader = Reader()
    reader.feed(html)
    assert reader.stack == []


def test_the_sections_are_written_without_html():
    folder = Path(report.__file__).parent
    for path in [*folder.glob("sections*.py"), Path(cells.__file__), folder / "report.py"]:
        assert not re.findall(r"""["'][^"'\n]*</?[a-z]+[ >]""", path.read_text("utf-8")), path.name


def test_a_change_that_rounds_to_none_is_no_fall():
    assert [cells.change(share) for share in (0.314, -0.02, -0.0004, 0)] == [
        "+31.4%", "-2.0%", "+0.0%", "+0.0%",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (None, "\N{EN DASH}"), (0.004321, "0.00432"), (1.2345, "1.23"), (12.34, "12.3"),
     (12345.6, "12,346"), (1e-7, "0.000000100"), (0.99999, "1.000")],
)  # fmt: skip
def test_three_digits(value, text):
    assert cells.significant(value) == text


def run(*arguments):
    return CliRunner().invoke(telemetry.app, [str(argument) for argument in arguments])


def test_csv_holds_a_line_per_device_and_no_formula(root, tmp_path):
    done = run("report", "--lake", root, "--html", tmp_path / "r.html", "--csv")
    assert done.exit_code == 0, done.stderr
    lines = list(csv.DictReader((tmp_path / "r.csv").read_text("utf-8").splitlines()))
    assert [line["name"] for line in lines] == sorted(fleet.MEMBERS)
    devices = figures.figures(delta.open_lake(root))["devices"]
    for line, row in zip(lines, devices, strict=True):
        assert float(line["bytes_per_message"]) == row["bytes_per_message"]
        assert float(line["latency.p50_ms"]) == row["latency"]["p50_ms"]
        assert line["battery.mv_last"] == ""
    assert report.flat({"name": "=1+1", "x": {"y": "@z", "list": [1]}, "n": -1}) == {
        "name": "'=1+1", "x.y": "'@z", "n": -1,
    }  # fmt: skip


def test_two_devices_of_one_name_are_told_apart(root):
    state = delta.open_lake(root)
    for facts in state.names.values():
        facts["name"] = "twin"
    found = figures.figures(state)
    labels = [row["label"] for row in found["devices"]]
    assert len(set(labels)) == 4 and all(label.startswith("twin (") for label in labels)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--check",), ("Casals", "held out", "-51.9%", "DTIM10", "2465.8")),
        (("--board", "pico-w"), ("stand-in", "Pico W", "in the figures")),
        (("--battery", "aa-alkaline"), ("AA alkaline", "kurokatta", "stand-in")),
        ((), ("nrf52840-sx1262", "pi-zero-2w", "l91")),
    ],
)
def test_the_energy_tables_are_shown_with_their_sources(arguments, words):
    done = run("energy", *arguments)
    assert done.exit_code == 0, done.stderr
    told = " ".join(done.stdout.split())
    for word in words:
        assert word in told, word
    rows = [json.loads(line) for line in run("energy", *arguments, "--json").stdout.splitlines()]
    assert len(rows) > 4


def test_command_writes_the_report(root, tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(fleet.results()), "utf-8")
    done = run("report", "--lake", root, "--html", tmp_path / "r.html", "--results",
               tmp_path / "r.json", "--json")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["fleet"]["expected"] == 480
    assert (tmp_path / "r.html").exists()


def test_every_error_of_the_command_is_one_line(root, tmp_path):
    empty, bad, file = tmp_path / "empty", tmp_path / "bad.json", tmp_path / "file"
    empty.mkdir()
    bad.write_text("{", "utf-8")
    file.write_text("x", "utf-8")
    state = delta.create_lake(tmp_path / "nothing")
    (tmp_path / "boxes").mkdir()
    fleet.write(tmp_path / "boxes")
    cases = [
        (("ingest", tmp_path / "none", "--lake", tmp_path / "l"), "no such file"),
        (("ingest", empty, "--lake", tmp_path / "l"), "no black-box segments"),
        (("ingest", tmp_path / "boxes", "--lake", file / "l"), "cannot write the lake"),
        (("ingest", tmp_path / "boxes", "--lake", tmp_path / "l", "--names", bad), "not JSON"),
        (("report", "--lake", tmp_path / "none", "--html", tmp_path / "x"), "no lake here"),
        (("report", "--lake", state.root, "--html", tmp_path / "x"), "lake is empty"),
        (("report", "--lake", root, "--html", file / "x.html"), "cannot write the report"),
        (("report", "--lake", root, "--html", empty), "cannot write the report"),
        (("report", "--lake", root, "--html", tmp_path / "x", "--results", bad), "not JSON"),
        (("report", "--lake", root, "--html", tmp_path / "x", "--battery", "9V"), "battery '9V'"),
        (("report", "--lake", root, "--html", tmp_path / "x", "--fleet", bad), "not TOML"),
        (("report", "--lake", root, "--html", tmp_path / "x", "--fleet", empty), "cannot read"),
        (("report", "--lake", root, "--html", tmp_path / "x", "--now", "noon"), "ISO time"),
        (("energy", "--board", "toaster"), "board 'toaster'"),
        (("query", "SELECT 1", "--lake", tmp_path / "none"), "no lake here"),
        (("query", "SELECT 1", "--lake", state.root), "lake is empty"),
    ]
    for arguments, complaint in cases:
        done = run(*arguments)
        assert done.exit_code == 1, arguments
        assert complaint in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert isinstance(done.exception, SystemExit)


def test_no_java_is_one_line_that_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TelemetryError, match=r"no Java found.*tools/setup"):
        session.check_java()
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", "utf-8")
    old.chmod(0o755)
    with pytest.raises(TelemetryError, match=r"11\.0\.2.*tools/setup"):
        session.check_java()
