"""`drupelet telemetry serve`: its metrics, what a scrape reads, and the dashboard's queries."""

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from drupelet_tools.telemetry.analysis.attention import SEVERITIES
from drupelet_tools.telemetry.analysis.fleet_file import FleetPlan
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.commands import serve
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import compact, delta
from drupelet_tools.telemetry.monitor import fleet_page, fleet_watch, newest_bins
from drupelet_tools.telemetry.monitor.fleet_watch import FleetWatch
from drupelet_tools.telemetry.monitor.newest_bins import NewestBins
from drupelet_tools.telemetry.spark import sql
from drupelet_tools.telemetry.tables.hour_bins import HOUR_MS
from drupelet_tools.telemetry.tables.schemas import HOUR_SUMS, STATE_COLUMNS
from repeats import few
from telemetry import box_writer as box
from telemetry import fleet_rows
from telemetry.command_line import run, run_whole
from telemetry.prometheus_server import Prometheus, complaints_of
from telemetry.segment_log import spoil

DAY_MS = 24 * HOUR_MS
# Alerts count silence to this machine's clock, so the logs end some weeks before it.
WALL_MS = int(time.time() * 1000) // DAY_MS * DAY_MS - 40 * DAY_MS
PUMP, WELL, SPARE = (bytes.fromhex(name) for name in ("a0000001", "b0000002", "c0000003"))
HOSTILE = 'we\\ll "3"\n<script>alert(1)</script>{x="y"}'
MAIN = [sys.executable, "-c", "from drupelet_host.cli.app import main; main()", "telemetry"]
DASHBOARD = fleet_page.__file__.replace("fleet_page.py", "grafana/fleet.json")


def boot_log(device, boot, hours, wall_ms=WALL_MS, cause=1):
    """A boot that wakes, sends, sleeps, and writes its counters every half an hour."""
    at = (PUMP, WELL, SPARE).index(device)
    events = [(0, box.BOOT, cause, boot, 0), (0, box.DESCRIPTOR, 1, 0, 131_072),
              (0, box.DESCRIPTOR, 3, 1, 0), (0, box.DESCRIPTOR, 4, 2, 1 << 16)]  # fmt: skip
    for half in range(1, 2 * hours + 1):
        now = half * HOUR_MS // 2
        if half % 12 == 1:
            volts = max(3000, 4000 - 12 * (half // 12) - 240 * (boot - 1))
            events.append((now, box.BATTERY, 0, volts, 0))
            name = (at + 1) << 24 | boot << 16 | half
            events += [(now, box.CREATED, 0, 7, name), (now, box.DELIVERED, 0, 7, name)]
            other = (2 - at) << 24 | boot << 16 | half
            is_lost = half == 61 if device == PUMP else half % 5 == 0
            if not is_lost:
                events.append((now + 4_000, box.DELIVERED, 1, 7, other))
        now += 5_000
        values = {0: half * (HOUR_MS // 2 - 9_000), 2: half * 4_000, 4: half * 5_000,
                  10: 1 + half // 12, 11: 2 + half // 6, 64 + 1: half * 900,
                  64 + 16 + 1: half * 300, 64 + 32 + 1: half * 70}  # fmt: skip
        events += [box.counter(now, index, value) for index, value in values.items()]
        events.append((now, box.HEAP_LOW, 0, 0, 50_000 - half - 100 * at))
    return box.segments(device, boot, events, per_segment=2, wall_ms=wall_ms, uncertainty_ms=20)


def ingest(root, datas, names=None):
    inbox = Path(tempfile.mkdtemp(prefix="in", dir=root))
    for at, data in enumerate(datas):
        (inbox / f"{at:04}.dbx").write_bytes(data)
    job.ingest([inbox], root / "lake", names or {}, None)
    return delta.open_lake(root / "lake")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """A lake of two devices, ten days, in two boots each."""
    root = tmp_path_factory.mktemp("serve")
    names = {PUMP.hex(): {"name": HOSTILE}, WELL.hex(): {"name": "well", "carrier": ["serial"]}}
    datas = [
        data
        for device in (PUMP, WELL)
        for boot in (1, 2)
        for data in boot_log(device, boot, 120, WALL_MS + boot * 5 * DAY_MS)
    ]
    ingest(root, datas, names)
    return root


def metrics(text):
    """Values by the line's metric with its labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def scraped(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


class Served:
    """`drupelet telemetry serve` as a process."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [*MAIN, "serve", *map(str, words), "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.url = self.process.stdout.readline().strip()

    @property
    def target(self):
        return self.url.removeprefix("http://").removesuffix("/metrics")

    def stop(self):
        self.process.terminate()
        return self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def served(fleet):
    server = Served(fleet / "lake", "--battery", "18650")
    yield server
    out, err = server.stop()
    assert (out, err) == ("", "")


@pytest.fixture(scope="module")
def prometheus(served, tmp_path_factory):
    server = Prometheus(tmp_path_factory.mktemp("prometheus") / "own", served.target)
    server.wait_for("count_over_time(drupelet_fleet_attention_level[1m]) > 2")
    yield server
    server.stop()


# --- the newest bins ---


def expected(state):
    """Bins by device, from the whole tables."""
    hours = state.read("hours").to_pylist()
    sums_by_device = {}
    for device in {row["device"] for row in hours}:
        own = [row for row in hours if row["device"] == device]
        parts = {}
        for part in (part for row in own for part in row["traffic"]):
            if part["kind"] == "carrier":
                key = part["carrier"], part["direction"]
                parts[key] = parts.get(key, 0) + part["value"]
        sums = {name: sum(row[name] for row in own) for name in HOUR_SUMS}
        sums_by_device[device] = sums, parts
    return sums_by_device


def random_boots(rng):
    """Segments of some boots of three devices, some without a clock, some damaged or missing."""
    datas = []
    for device in (PUMP, WELL, SPARE):
        for boot in range(1, rng.randrange(2, 6)):
            wall_ms = WALL_MS + boot * DAY_MS if rng.random() < 0.8 else None
            cause = rng.choice((1, 4))
            own = boot_log(device, boot, rng.randrange(1, 20), wall_ms, cause)
            datas += [spoil(data, 0) if rng.random() < 0.1 else data for data in own]
    return datas


@pytest.mark.parametrize("seed", few(2, range(6)))
def test_bins_brought_up_to_date_are_as_those_of_the_whole_lake(tmp_path, seed):
    rng = random.Random(seed)
    datas = random_boots(rng)
    if seed % 2:
        rng.shuffle(datas)  # late ones, which change earlier boots
    kept = NewestBins()
    step = max(1, len(datas) // 7)
    for low in range(0, len(datas), step):
        state = ingest(tmp_path, datas[low : low + step])
        kept.update(state)
        anew = NewestBins()
        anew.update(state)
        assert kept.devices() == anew.devices()
        kept_sums = {
            name: (bins.sums, bins.carrier_bytes) for name, bins in kept.devices().items()
        }
        assert kept_sums == expected(state)
        if low // step == 3:
            compact.compact(tmp_path / "lake")
            kept.update(delta.open_lake(tmp_path / "lake"))
            assert kept.devices() == anew.devices()


def test_the_newest_hour_battery_memory_and_end_of_the_log(fleet):
    bins = NewestBins()
    bins.update(delta.open_lake(fleet / "lake"))
    pump = bins.devices()[PUMP.hex()]
    hours = [
        row for row in delta.open_lake(fleet / "lake").read("hours").to_pylist()
        if row["device"] == PUMP.hex() and row["boot"] == 2
    ]  # fmt: skip
    newest = hours[-2]  # the last one is not whole
    wanted = [newest[name] for name in STATE_COLUMNS]
    assert pump.state_ms == dict(zip(codes.STATES, wanted, strict=True))
    assert sum(wanted) == pytest.approx(HOUR_MS, abs=20_000)
    assert pump.hour_ms == newest["wall_ms"]
    assert pump.boot == 2 and pump.sums["boots"] == pump.sums["resets"] == 2
    assert pump.battery_mv == 4000 - 12 * 19 - 240
    assert pump.heap_low == 50_000 - 240
    assert pump.last_ms == WALL_MS + 15 * DAY_MS + 5_000


def test_an_update_reads_the_newest_boot_and_not_the_history(tmp_path, monkeypatch):
    for boot in range(1, 31):
        state = ingest(tmp_path, boot_log(PUMP, boot, 6, WALL_MS + boot * DAY_MS))
        if boot == 29:
            kept = NewestBins()
            kept.update(state)
    rows = []
    real = newest_bins.read_files

    def counted(*words):
        table = real(*words)
        rows.append((table.num_rows, table.num_columns))
        return table

    monkeypatch.setattr(newest_bins, "read_files", counted)
    monkeypatch.setattr(delta, "read_files", counted)
    kept.update(state)
    of_all = [count for count, columns in rows if columns > 2]
    # Of boots 29 and 30, out of 30.
    assert sum(of_all) == 2 * len(boot_log(PUMP, 30, 6))
    rows.clear()
    kept.update(state)
    assert rows == []


def test_boots_that_compaction_removes_are_in_no_sum(tmp_path, monkeypatch):
    """So sums are gauges; the number of the newest boot is a counter, and stays."""
    ingest(tmp_path, boot_log(PUMP, 1, 6))
    now_ns = time.time_ns() + 2 * DAY_MS * 1_000_000
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    state = ingest(tmp_path, boot_log(PUMP, 2, 6, WALL_MS + DAY_MS))
    kept = NewestBins()
    kept.update(state)
    before = kept.devices()[PUMP.hex()]
    assert compact.compact(tmp_path / "lake", keep_days=1).boots_removed == 1
    kept.update(delta.open_lake(tmp_path / "lake"))
    after = kept.devices()[PUMP.hex()]
    assert after.sums["boots"] == before.sums["boots"] - 1
    assert after.sums["messages_created"] < before.sums["messages_created"]
    text = run("serve", tmp_path / "lake", "--once").stdout
    counters = re.findall(r"# TYPE drupelet_fleet_(\S+) counter", text)
    assert counters == ["lake_reads_total", "lake_read_seconds_total", "device_boots_total"]


def test_imported_devices_have_figures_too(tmp_path):
    fleet_rows.large_lake(tmp_path / "lake", 5)
    bins = NewestBins()
    bins.update(delta.open_lake(tmp_path / "lake"))
    first = bins.devices()["d0000000"]
    assert first.sums["messages_delivered"] == 400 and first.sums["resets"] == 1
    assert set(first.carrier_bytes) == {("mqtt", "sent"), ("mqtt", "received")}
    assert 3000 < first.battery_mv < 4100 and first.state_ms is None
    text = run("serve", tmp_path / "lake", "--once").stdout
    assert complaints_of(text) == ""


# --- the page ---


def test_promtool_accepts_every_line_and_each_metric_says_what_it_is(fleet):
    text = run("serve", fleet / "lake", "--once", "--battery", "18650").stdout
    assert complaints_of(text) == ""
    names = {name.partition("{")[0] for name in metrics(text)}
    assert {f"drupelet_fleet_{name}" for name in (
        "devices", "silent_devices", "lake_version", "newest_data_timestamp_seconds",
        "device_last_heard_timestamp_seconds", "device_battery_volts",
        "device_battery_left_seconds", "device_battery_left_low_seconds",
        "device_battery_life_high_seconds", "device_boots_total", "device_resets",
        "device_messages_created", "device_messages_delivered", "device_messages_undelivered",
        "device_carrier_bytes", "device_state_seconds", "device_heap_low_bytes",
        "device_firmware_info",
        "device_attention_level", "device_problem_level", "device_latency_median_seconds",
    )} <= names  # fmt: skip
    for name in names:
        assert text.count(f"# HELP {name} ") == text.count(f"# TYPE {name} ") == 1


@pytest.mark.usefixtures("fleet")
def test_the_firmware_is_a_label_that_others_join_on(prometheus):
    rows = prometheus.query(
        "drupelet_fleet_device_boots_total * on (device)"
        " group_left (firmware) drupelet_fleet_device_firmware_info"
    )
    assert {labels["firmware"] for labels, _ in rows} == {"0.1.0 small"}


def test_a_hostile_name_is_one_label(fleet, prometheus):
    wanted = HOSTILE.replace("\n", "\ufffd")  # no page of the tools has control characters
    rows = prometheus.query(f'drupelet_fleet_device_boots_total{{device="{PUMP.hex()}"}}')
    assert [labels["name"] for labels, _ in rows] == [wanted]
    text = run("serve", fleet / "lake", "--once").stdout
    assert f'device="{PUMP.hex()}",name="we\\\\ll \\"3\\"\ufffd<script>' in text


def test_levels_are_those_of_the_alerts(fleet):
    alerts = json.loads(run("alerts", fleet / "lake", "--json", "--battery", "18650").stdout)
    values = metrics(run("serve", fleet / "lake", "--once", "--battery", "18650").stdout)
    levels = dict(zip(reversed(SEVERITIES), (1, 2, 3), strict=True))
    problems = {}
    for row in alerts["attention"]:
        key = row["device"], row["kind"]
        problems[key] = max(levels[row["severity"]], problems.get(key, 0))
    levels = {}
    for name, value in values.items():
        kind = re.search(r'problem="([^"]*)"', name)
        if kind:
            device = re.search(r'device="([^"]*)"', name)
            levels[device[1] if device else "", kind[1]] = value
    assert levels == problems and {"silent", "fleet silent", "undelivered"} <= {
        k for _, k in levels
    }
    for device in (PUMP.hex(), WELL.hex()):
        worst = max(level for (own, _), level in problems.items() if own == device)
        [level] = [v for n, v in values.items() if f'attention_level{{device="{device}"' in n]
        assert level == worst


def test_silence_comes_with_time_and_without_reading(fleet, monkeypatch):
    watch = FleetWatch(fleet / "lake", FleetPlan())
    watch.begin(whole=True)
    snapshot = watch.snapshot(None)
    silent_devices = {}
    for hours in (0, 6, 72):
        end = datetime.fromtimestamp(WALL_MS / 1000, UTC) + timedelta(days=15)
        now = end + timedelta(hours=hours)
        rows = json.loads(run("alerts", fleet / "lake", "--json", "--now", now.isoformat()).stdout)
        silent_devices[now] = sum(row["kind"] == "silent" for row in rows["attention"])
    monkeypatch.setattr(newest_bins, "read_files", None)
    monkeypatch.setattr(delta, "read_files", None)
    for now, silent in silent_devices.items():
        values = metrics(fleet_page.render(snapshot, now.timestamp() * 1000))
        assert values["drupelet_fleet_silent_devices"] == silent
    assert list(silent_devices.values()) == [0, 0, 2]


def test_devices_beyond_the_bound_have_no_series_but_count(fleet):
    watch = FleetWatch(fleet / "lake", FleetPlan())
    watch.begin(whole=True)
    text = fleet_page.render(watch.snapshot(None), WALL_MS + 40 * DAY_MS, devices_max=1)
    values = metrics(text)
    assert values["drupelet_fleet_devices"] == values["drupelet_fleet_silent_devices"] == 2
    assert values["drupelet_fleet_devices_without_series"] == 1
    assert PUMP.hex() in text and WELL.hex() not in text


# --- the server ---


def test_a_scrape_reads_the_lake_only_after_a_commit_and_the_next_one_shows_it(tmp_path):
    ingest(tmp_path, boot_log(PUMP, 1, 6))
    server = Served(tmp_path / "lake")
    try:
        for _ in range(3):
            values = metrics(scraped(server.url))
            assert values["drupelet_fleet_lake_reads_total"] == 1
            assert values["drupelet_fleet_devices"] == 1
        state = ingest(tmp_path, boot_log(WELL, 1, 6) + boot_log(PUMP, 2, 6, WALL_MS + DAY_MS))
        text = scraped(server.url)
        values = metrics(text)
        assert values["drupelet_fleet_lake_reads_total"] == 2
        assert values["drupelet_fleet_devices"] == 2
        assert values["drupelet_fleet_lake_version"] == state.version
        assert 'boots_total{device="a0000001",name="a0000001"} 2' in text
        shutil.rmtree(tmp_path / "lake")
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            scraped(server.url)
        assert refused.value.read().decode().count("\n") == 1
        other = ingest(tmp_path, boot_log(SPARE, 1, 6))  # another lake in its place
        values = metrics(scraped(server.url))
        assert values["drupelet_fleet_lake_version"] == other.version
        assert values["drupelet_fleet_devices"] == 1
        for path in ("/", "/metrics/", "/metricsx"):
            with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                scraped(server.url.replace("/metrics", path))
            assert refused.value.read() == b"only /metrics is here\n"
        assert metrics(scraped(f"{server.url}?x=1"))["drupelet_fleet_devices"] == 1
    finally:
        out, err = server.stop()
    assert (out, err) == ("", "")


def test_an_empty_lake_is_served(tmp_path):
    delta.create_lake(tmp_path / "lake")
    text = run("serve", tmp_path / "lake", "--once").stdout
    assert metrics(text)["drupelet_fleet_devices"] == 0 and complaints_of(text) == ""


def test_history_is_worked_out_again_only_when_it_has_rested(tmp_path, monkeypatch):
    """Newest bins show at once; what takes the whole history may be some versions behind."""
    ingest(tmp_path, boot_log(PUMP, 1, 6))
    watch = FleetWatch(tmp_path / "lake", FleetPlan())
    watch.begin(whole=True)
    state = ingest(tmp_path, boot_log(PUMP, 2, 6, WALL_MS + DAY_MS))
    snapshot = watch.snapshot(None)
    assert snapshot.version == state.version > snapshot.outlook.version
    assert snapshot.bins[PUMP.hex()].boot == 2
    end_s = time.monotonic() + 3600.0
    monkeypatch.setattr(time, "monotonic", lambda: end_s)
    snapshot = watch.snapshot(None)
    assert snapshot.outlook.version == state.version
    assert snapshot.reads == 2


def test_history_that_cannot_be_read_rests_too_and_newest_bins_go_on(tmp_path, monkeypatch):
    ingest(tmp_path, boot_log(PUMP, 1, 6))
    watch = FleetWatch(tmp_path / "lake", FleetPlan())
    watch.begin(whole=False)
    tries = []

    def refuse(*_):
        tries.append(time.sleep(0.2))
        raise TelemetryError("a process of the report was ended")

    monkeypatch.setattr(fleet_watch, "whole_or_in_buckets", refuse)
    with pytest.raises(TelemetryError, match="was ended"):
        watch.snapshot(None)
    assert watch.snapshot(None).bins and len(tries) == 1


def test_a_slow_look_keeps_no_scrape_waiting(tmp_path, monkeypatch):
    ingest(tmp_path, boot_log(PUMP, 1, 6))
    watch = FleetWatch(tmp_path / "lake", FleetPlan())
    watch.begin(whole=False)
    go_on = threading.Event()
    real = fleet_watch.open_lake
    monkeypatch.setattr(fleet_watch, "open_lake", lambda root: go_on.wait(60) and real(root))
    snapshot = watch.snapshot(0.01)
    assert snapshot.bins and snapshot.outlook is None
    assert "attention_level" not in fleet_page.render(snapshot, WALL_MS)
    go_on.set()
    assert watch.snapshot(None).outlook is not None


def test_errors_are_one_line(fleet, served, tmp_path):
    strange = tmp_path / "strange"
    shutil.copytree(fleet / "lake", strange)
    log = strange / "table/_delta_log/00000000000000000000.json"
    log.write_text(log.read_text().replace(delta.DESCRIPTION, delta.DESCRIPTION_BEFORE))
    port = served.target.rpartition(":")[2]
    for words, status, line in (
        ((tmp_path / "none",), 1, "no lake here; make one with"),
        ((strange,), 1, "bring it up with: drupelet telemetry migrate"),
        ((fleet / "lake", "--port", port), 1, "choose another port"),
        ((fleet / "lake", "--fleet", tmp_path / "none.toml"), 1, "cannot read it"),
        ((fleet / "lake", "--once", "--textfile", tmp_path / "a" / "b"), 4, "cannot be written"),
        ((), 2, "name the LAKE, or --dashboard"),
        ((fleet / "lake", "--port", "70000"), 2, "--port"),
    ):
        done = run_whole("serve", *words)
        assert (done.returncode, done.stdout) == (status, ""), (words, done)
        assert line in done.stderr and "Traceback" not in done.stderr
        assert status == 2 or done.stderr.count("\n") == 1


def test_the_textfile_is_written_once_or_again_and_again(fleet, tmp_path, monkeypatch):
    page = tmp_path / "fleet.prom"
    done = run("serve", fleet / "lake", "--textfile", page, "--once")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert complaints_of(page.read_text()) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["fleet.prom"]
    turns = []

    def turn(_seconds):
        turns.append(page.exists())
        page.unlink(missing_ok=True)
        if len(turns) == 3:
            raise KeyboardInterrupt

    # Only the module's own clock: other threads of this process sleep, too.
    clock = SimpleNamespace(time=time.time, sleep=turn)
    monkeypatch.setattr(serve, "time", clock)
    done = run("serve", fleet / "lake", "--textfile", page)
    assert (done.exit_code, turns) == (130, [True, True, True])


# --- figures beside other readers, and the dashboard ---


def test_values_agree_with_a_query_of_the_lake(spark, fleet):
    state = delta.open_lake(fleet / "lake")
    text = run("serve", fleet / "lake", "--once").stdout
    values = metrics(text)

    def of(metric, device, **more):
        wanted = [f'{key}="{word}"' for key, word in {"device": device, **more}.items()]
        [value] = [
            value for name, value in values.items()
            if name.startswith(f"drupelet_fleet_device_{metric}{{")
            and all(word in name for word in wanted)
        ]  # fmt: skip
        return value

    rows = sql.select(
        spark, state,
        "SELECT device, sum(resets), sum(messages_created), sum(messages_delivered) FROM days"
        " GROUP BY device",
    ).rows  # fmt: skip
    assert len(rows) == 2
    for device, *sums in rows:
        names = ("resets", "messages_created", "messages_delivered")
        assert [of(name, device) for name in names] == sums
    rows = sql.select(
        spark, state,
        "SELECT device, carrier, direction, sum(value) FROM traffic WHERE kind = 'carrier'"
        " AND unit = 'bytes' GROUP BY device, carrier, direction",
    ).rows  # fmt: skip
    assert len(rows) == 6
    for device, carrier, direction, count in rows:
        assert of("carrier_bytes", device, carrier=carrier, direction=direction) == count
    rows = sql.select(
        spark, state,
        "SELECT device, max(wall_offset_ms + last_ms), max(boot) FROM segments GROUP BY device",
    ).rows  # fmt: skip
    for device, last_ms, boot in rows:
        assert of("last_heard_timestamp_seconds", device) == last_ms / 1000
        assert of("boots_total", device) == boot
    rows = sql.select(
        spark, state, "SELECT device, max_by(mv, wall_ms) FROM battery GROUP BY device"
    ).rows
    for device, mv in rows:
        assert of("battery_volts", device) == mv / 1000


def expressions():
    """Title and expression of each query of the dashboard."""
    with open(DASHBOARD, encoding="utf-8") as file:
        board = json.load(file)
    return [
        (panel["title"], target["expr"])
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.mark.parametrize(("title", "expression"), expressions())
def test_each_query_of_the_dashboard_has_an_answer(prometheus, title, expression):
    assert prometheus.query(expression.replace("$device", ".*")), title


def test_a_query_finds_what_the_lake_has(prometheus):
    of = dict(expressions())
    now_s = time.time()
    ago = prometheus.query(of["Last heard"].replace("$device", "well"))
    assert [labels["name"] for labels, _ in ago] == ["well"]
    assert ago[0][1] == pytest.approx(now_s - (WALL_MS + 15 * DAY_MS + 5_000) / 1000, abs=60)
    [(_, worst)] = prometheus.query(of["The worst of all"])
    assert worst == 3
    left = prometheus.query(of["Empty first, by their own readings"])
    assert {labels["device"] for labels, _ in left} == {PUMP.hex(), WELL.hex()}
    assert [value for _, value in prometheus.query("up")] == [1]


def test_the_dashboard_is_of_no_machine():
    text = run("serve", "--dashboard").stdout
    board = json.loads(text)
    with open(DASHBOARD, encoding="utf-8") as file:
        assert text == file.read()
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource" and board["id"] is None
    sources = {json.dumps(part["datasource"]) for panel in board["panels"] if "targets" in panel
               for part in (panel, *panel["targets"])}  # fmt: skip
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    assert rows == ["What needs attention first", "The fleet now", "Battery",
                    "Delivery and latency", "Cost", "Devices"]  # fmt: skip
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    # Every metric that it names is one that the page can have, and panels do not overlap.
    named = set(re.findall(r"drupelet_fleet_\w+", text))
    with open(fleet_page.__file__, encoding="utf-8") as file:
        source = file.read()
    for name in named:
        short = name.removeprefix("drupelet_fleet_").removeprefix("device_")
        assert short in source or short.startswith("battery_"), name
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (place["x"] + x, place["y"] + y)
        for place in places for x in range(place["w"]) for y in range(place["h"])
    ]  # fmt: skip
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) == 23


# --- the page of the documentation ---


def blocks():
    """Kind and text of the fenced blocks of the section."""
    page = Path(__file__).parents[2] / "docs/telemetry.md"
    _, _, section = page.read_text("utf-8").partition("## Prometheus and Grafana")
    section, _, _ = section.partition("\n## ")
    return re.findall(r"^```(\w*)\n(.*?)^```$", section, re.M | re.S)


def test_every_block_of_the_section_runs(fleet, prometheus, tmp_path):
    (tmp_path / "fleet.toml").write_text('[default]\nbattery = "18650"\n')
    (tmp_path / "lake").symlink_to(fleet / "lake")
    script = [text.split() for kind, text in blocks() if kind == "sh"]
    assert [words[:3] for words in script] == [["drupelet", "telemetry", "serve"]] * 3
    server, once, dashboard = script
    assert "--once" in once and dashboard[-2:] == [">", "fleet.json"]
    done = subprocess.run([*MAIN, *once[2:]], capture_output=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert complaints_of((tmp_path / "fleet.prom").read_text()) == ""
    assert run(*dashboard[2:-2]).stdout.startswith("{")
    # The port of the page may be taken here; all else is as it stands.
    words = [str(tmp_path / word) if word in ("lake", "fleet.toml") else word for word in server]
    running = Served(*words[3:])
    assert "drupelet_fleet_devices 2" in scraped(running.url)
    running.stop()
    config, rules = (text for kind, text in blocks() if kind == "yaml")
    assert f"127.0.0.1:{serve.PORT}" in config
    for name, text in (("config", config), ("rules", rules)):
        (tmp_path / name).write_text(text)
        program = shutil.which("promtool") or "/usr/bin/promtool"
        done = subprocess.run(
            [program, "check", name, str(tmp_path / name)], capture_output=True, check=False
        )
        assert done.returncode == 0, done
    for expression in re.findall(r"expr: (.*)", rules):
        assert prometheus.query(expression), expression


def test_the_section_names_every_metric(fleet):
    page = Path(__file__).parents[2] / "docs/telemetry.md"
    text = page.read_text("utf-8").partition("## Prometheus and Grafana")[2]
    listed = set()
    for names in re.findall(r"^\| (`.*?) \|", text.partition("\n## ")[0], re.M):
        for name in re.findall(r"`([^`{]*)", names)[::1]:
            listed.add(name.replace("…_", "device_battery_"))
    served = run("serve", fleet / "lake", "--once", "--battery", "18650").stdout
    names = {name.partition("{")[0].removeprefix("drupelet_fleet_") for name in metrics(served)}
    assert names == {name for name in listed if re.fullmatch(r"[a-z0-9_]+", name)}
