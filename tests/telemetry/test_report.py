"""Figures and page, from a lake that the plain worker function made (no Spark)."""

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from drupelet_tools.telemetry import (
    command,
    figures,
    inputs,
    lake,
    report,
    sections,
    session,
    worker,
)
from drupelet_tools.telemetry.errors import TelemetryError
from telemetry import fleet

VOID = {"meta", "br", "hr", "img", "input", "link", "path", "rect", "line", "circle"}


def make_lake(folder):
    fleet.write(folder)
    root = folder / "lake"
    state = lake.create_lake(root)
    work = {}
    for found in inputs.scan(inputs.find_files([folder], root)):
        work.setdefault(found.device, []).append(asdict(found.source))
    plan = [{"device": device, "old": [], "new": new} for device, new in work.items()]
    (root / "plans" / "x.json").write_text(json.dumps(plan), "utf-8")
    part = lake.Part(**worker.run_group(str(root), "plans/x.json", "x"))
    state.names = inputs.read_names(folder / "names.json")
    lake.supersede(state, [part])
    lake.publish(state)
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_lake(tmp_path_factory.mktemp("fleet"))


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
        assert re.search(rf'<th scope="row"><a href="#device-\w+">{name}</a></th>', page)
    assert page.count('<div class="chart"') == 3
    assert page.count("<svg") >= 3


def test_bytes_by_hand(root):
    found = figures.figures(lake.open_lake(root), fleet.results())
    one = {name: row for row in found["devices"] for name in [row["name"]]}
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
    whole = found["fleet"]
    assert whole["client_bytes_sent"] == links * client / 2
    assert whole["deliveries_away"] == 4 * 120 - 4 * 30
    assert whole["bytes_per_message"] == pytest.approx(links * client / 2 / 360)


def test_charge_by_hand(root):
    found = figures.figures(lake.open_lake(root))
    for row in found["devices"]:
        spent = fleet.events_of(row["name"]).ms
        assert row["state_ms"] == spent
        if row["board"] == "esp32":
            radio = (110.0, 178.0) if "mqtt" in row["carriers"] else (35.5, 35.5)
            busy = 35.5 * (spent[2] + spent[5] + spent[6]) + 0.8 * spent[1]
            total = (busy + radio[0] * spent[3] + radio[1] * spent[4]) / 3.6e6
            assert row["mah_modelled"] == pytest.approx(total, abs=1e-9)
            assert row["mah_modelled_low"] < total < row["mah_modelled_high"]
        else:
            assert row["mah_modelled"] is None


def test_results_by_name_or_by_id_and_without(root):
    state = lake.open_lake(root)
    by_id = {fleet.MEMBERS["A"][0].hex(): {"expected": 9, "delivered": 8}}
    rows = {row["name"]: row for row in figures.figures(state, by_id)["devices"]}
    assert (rows["A"]["expected"], rows["A"]["delivered"]) == (9, 8)
    assert (rows["B"]["expected"], rows["B"]["delivered"]) == (None, 120)
    assert rows["B"]["duplicates"] == 2


def test_latency_counts_the_undelivered_as_longest():
    def row(device, event, message, wall_ms, spread=10):
        return {"device": device, "event": event, "message": message, "wall_ms": wall_ms,
                "wall_uncertainty_ms": spread}  # fmt: skip

    rows = [row("a", "created", f"{n:08x}", 1_000 * n) for n in range(10)]
    rows += [row("b", "delivered", f"{n:08x}", 1_000 * n + 100 * n) for n in range(8)]
    found = figures.quantiles(figures.latencies(rows)["b"])
    assert found == {
        "messages": 10, "timed": 8, "undelivered": 2, "no_clock": 0, "uncertainty_ms": 20,
        "p50_ms": 400, "p90_ms": None,
    }  # fmt: skip
    rows[0]["wall_ms"] = None
    rows[12]["wall_uncertainty_ms"] = None
    found = figures.quantiles(figures.latencies(rows)["b"])
    assert (found["no_clock"], found["timed"], found["uncertainty_ms"]) == (1, 7, None)
    assert figures.quantiles([])["p50_ms"] is None


def test_names_cannot_break_out_of_the_page(root):
    state = lake.open_lake(root)
    for facts in state.names.values():
        facts["name"] = "</script><b>&x"
        facts["carriers"] = "<i>"
    html = report.render(figures.figures(state))
    reader = Reader()
    reader.feed(html)
    assert reader.stack == []
    assert "</script><b>" not in html
    assert "<i>" not in re.sub(r"<script.*?</script>", "", html, flags=re.S)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (None, "\N{EN DASH}"), (0.004321, "0.00432"), (1.2345, "1.23"), (12.34, "12.3"),
     (12345.6, "12,346"), (1e-7, "0.000000100"), (0.99999, "1.000")],
)  # fmt: skip
def test_three_digits(value, text):
    assert sections.significant(value) == text


def run(*arguments):
    return CliRunner().invoke(command.app, [str(argument) for argument in arguments])


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
    state = lake.create_lake(tmp_path / "nothing")
    lake.publish(state)
    cases = [
        (("ingest", tmp_path / "none", "--lake", tmp_path / "l"), "no such file"),
        (("ingest", empty, "--lake", tmp_path / "l"), "no black-box segments"),
        (("ingest", root.parent, "--lake", file / "l"), "cannot write the lake"),
        (("ingest", root.parent, "--lake", tmp_path / "l", "--names", bad), "not JSON"),
        (("report", "--lake", tmp_path / "none", "--html", tmp_path / "x"), "no lake here"),
        (("report", "--lake", state.root, "--html", tmp_path / "x"), "lake is empty"),
        (("report", "--lake", root, "--html", file / "x.html"), "cannot write the report"),
        (("report", "--lake", root, "--html", empty), "cannot write the report"),
        (("report", "--lake", root, "--html", tmp_path / "x", "--results", bad), "not JSON"),
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
