"""A large fleet in buckets: the figures of each device are those of the fleet in one piece."""

import json
import os
import re
import time

import pytest

from drupelet_host.cli import exit_codes
from drupelet_tools.telemetry.analysis import attention, buckets, slices
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan, battery_plan, parse_plan
from drupelet_tools.telemetry.analysis.report_figures import build
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.lake import commit, delta
from drupelet_tools.telemetry.page import report
from telemetry import fleet_rows
from telemetry.command_line import run
from telemetry.fleet_rows import DAY_MS, START_MS, message, segment
from telemetry.lake_figures import lake_of

DEVICES = 50
PLAN = battery_plan("18650")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Groups of ten that lie across the buckets, because names go another way than ids."""
    root = fleet_rows.large_lake(tmp_path_factory.mktemp("large") / "lake", DEVICES, days=9)
    state = delta.open_lake(root)
    names = {
        device: {**facts, "name": f"n{at * 7 % DEVICES}"}
        for at, (device, facts) in enumerate(state.names.items())
    }
    later_ms = time.time_ns() // 1_000_000 + 1
    keys = commit.key_rows(commit.name_keys(names, state.names, later_ms))
    commit.commit(state, commit.Change([], keys))
    return root


@pytest.fixture
def small(monkeypatch):
    """Slices of twenty devices, buckets of ten, in this process."""
    monkeypatch.setattr(buckets, "SLICE_DEVICES", 20)
    monkeypatch.setattr(buckets, "BUCKET_DEVICES", 10)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


def task(root, plan=PLAN, results=None, folder=None, days=None):
    return buckets.Task(root, results, plan, None, days, 0, folder, "pages")


def cut(row):
    """What must not depend on the bucket."""
    short = buckets.shortened(row, "")
    return {name: short[name] for name in (*buckets.KEPT_WITHIN, "life", "health", "mah_modelled",
                                           "delivered", "client_bytes",
                                           "firmware_runs")}  # fmt: skip


@pytest.mark.usefixtures("small")
def test_each_device_is_as_in_one_piece(root):
    whole = build(root, plan=PLAN)
    found = buckets.run(task(root), None, None)
    assert found["now_ms"] == whole["now_ms"]
    names = [row["name"] for row in found["devices"]]
    assert names == [f"n{at}" for at in range(DEVICES)]
    for one, other in zip(found["devices"], whole["devices"], strict=True):
        assert cut(one) == cut(other), one["name"]
    for name in ("devices", "delivered", "deliveries_away", "client_bytes_sent",
                 "shortest_life_days", "expected"):  # fmt: skip
        assert found["fleet"][name] == whole["fleet"][name], name
    for name in ("mah_modelled", "bytes_per_message", "soc_pct_per_day"):
        assert found["fleet"][name] == pytest.approx(whole["fleet"][name]), name
    assert found["fleet"]["carriers"] == whole["fleet"]["carriers"]
    # Whom an outlier lies far from is its page.
    kinds = [
        [(row["kind"], row["device"], row["problem"]) for row in rows if row["kind"] != "outlier"]
        for rows in (found["attention"], whole["attention"])
    ]
    assert kinds[0] == kinds[1] and ("silent" in {kind for kind, _, _ in kinds[0]})
    assert [row["devices"] for row in found["pages"]] == [10] * 5


def test_no_room_for_temporary_files_is_one_line(root, tmp_path):
    state = delta.open_lake(root)
    with pytest.raises(TelemetryError, match=r"cannot write temporary files: .*TMPDIR") as refused:
        slices.write_slices(tmp_path / "none", state, {"d0000000": 0}, ())
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("small")
def test_a_message_of_a_group_counts_as_undelivered_in_another_bucket(tmp_path):
    """Nobody in B's bucket has any message of A: the tag alone says that they share a group."""
    ids = [f"a00000{at:02}" for at in range(12)]
    rows = [message(ids[0], turn, "created", START_MS + turn, group_tag=7) for turn in range(6)]
    rows.append(message(ids[11], 99, "created", START_MS, group_tag=7))
    rows.append(message(ids[0], 99, "delivered", START_MS + 5, group_tag=7))
    state = lake_of(tmp_path, messages=rows, health=[fleet_rows.health(own) for own in ids],
                    segments=[segment(own, 0, 0, DAY_MS, START_MS) for own in ids])  # fmt: skip
    whole = {r["device"]: r["latency"]["undelivered"] for r in build(state.root)["devices"]}
    found = buckets.run(task(state.root), None, None)
    assert {r["device"]: r["latency"]["undelivered"] for r in found["devices"]} == whole
    assert whole[ids[11]] == 6


def test_processes_give_the_same_and_their_pages(root, monkeypatch, tmp_path):
    monkeypatch.setattr(buckets, "SLICE_DEVICES", 34)
    monkeypatch.setattr(buckets, "BUCKET_DEVICES", 17)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(buckets, "ONE_PAGE_DEVICES", 40)
    html = tmp_path / "fleet.html"
    (tmp_path / "fleet-pages").mkdir()
    for name in ("0009.html", "notes.html"):
        (tmp_path / "fleet-pages" / name).write_text("older")
    found = report.write_report(root, html, plan=PLAN)
    pages = sorted(path.name for path in (tmp_path / "fleet-pages").iterdir())
    assert pages == ["0001.html", "0002.html", "0003.html", "notes.html"]
    index = html.read_text()
    assert len(index) < 200_000
    # Every link of the index leads to a place that is there.
    links = set(re.findall(r'href="(fleet-pages/[^"]+)"', index))
    assert {link.partition("#")[0] for link in links} == {f"fleet-pages/{n}" for n in pages[:3]}
    for link in links:
        page, _, device = link.partition("#")
        assert not device or f'id="{device}"' in (tmp_path / page).read_text(), link
    for name in pages[:3]:
        text = (tmp_path / "fleet-pages" / name).read_text()
        assert 'href="../fleet.html"' in text and len(text) < 1_000_000
    assert found["fleet"]["devices"] == DEVICES
    assert sum(found["counts"].values()) == len(found["attention"]) < attention.ROWS_MAX


@pytest.mark.usefixtures("small")
def test_what_is_of_no_device_stands_in_the_index(root, monkeypatch, tmp_path):
    monkeypatch.setattr(buckets, "ONE_PAGE_DEVICES", 40)
    plan = parse_plan('[device.well]\nperiod_s = 9\n[device.n3]\nfirmware = "2"', "fleet.toml")
    fleet_rows.commit.append(root, {"quarantine": [{
        "device": "", "boot": 0, "number": 0, "reason": "no magic", "file": "<x>.dbx",
    }]}, "bad")  # fmt: skip
    found = report.write_report(root, tmp_path / "x.html", plan=plan)
    kinds = {row["kind"]: row["label"] for row in found["attention"]}
    assert kinds["never heard"] == "well" and kinds["unreadable"] == "unknown device"
    text = (tmp_path / "x.html").read_text()
    assert "&lt;x&gt;.dbx" in text and "<x>" not in text
    assert "nrf52840-sx1262 · 2" in text or "esp32 · 2" in text or "· 2</th>" in text


@pytest.mark.usefixtures("small")
def test_no_text_in_the_index_is_html(root):
    def odd(value):
        if isinstance(value, dict):
            return {key: odd(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [odd(part) for part in value]
        return f"<x title='{value}'>&amp;" if isinstance(value, str) else value

    found = buckets.run(task(root), None, None)
    html = re.sub(r"<script.*?</script>", "", report.render_index(odd(found)), flags=re.S)
    assert "<x" not in html and html.count("&lt;x") > 50 and "&amp;amp;" in html


@pytest.mark.usefixtures("small")
def test_the_command_writes_all_figures_of_a_large_fleet(root, monkeypatch, tmp_path):
    monkeypatch.setattr(buckets, "ONE_PAGE_DEVICES", 40)
    html = tmp_path / "x.html"
    done = run("report", "--lake", root, "--html", html, "--csv")
    assert done.exit_code == 0, done.stderr
    assert len((tmp_path / "x.csv").read_text().splitlines()) == DEVICES + 1
    assert (tmp_path / "x-pages" / "0005.html").exists()


@pytest.mark.usefixtures("small")
def test_alerts_of_a_large_fleet_are_those_of_a_small_one(root, monkeypatch):
    words = ("alerts", root, "--now", "2026-09-30T14:13Z", "--json", "--battery", "18650")
    whole = run(*words)
    monkeypatch.setattr(buckets, "ONE_PAGE_DEVICES", 40)
    paged = run(*words)
    assert whole.exit_code == paged.exit_code == exit_codes.ALARMS
    told = [
        [(row["kind"], row["device"]) for row in json.loads(done.stdout)["attention"]
         if row["kind"] != "outlier"]
        for done in (whole, paged)
    ]  # fmt: skip
    assert told[0] == told[1] and len(told[0]) > 1


def test_an_empty_lake_and_a_folder_that_cannot_be_made(tmp_path, root, monkeypatch):
    state = delta.create_lake(tmp_path / "empty")
    with pytest.raises(TelemetryError, match="lake is empty"):
        buckets.run(task(state.root, FleetPlan()), None, None)
    monkeypatch.setattr(buckets, "ONE_PAGE_DEVICES", 40)
    (tmp_path / "y-pages").write_text("a file")
    with pytest.raises(TelemetryError, match="y-pages: cannot write the pages"):
        report.write_report(root, tmp_path / "y.html")
