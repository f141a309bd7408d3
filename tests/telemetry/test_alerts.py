"""`drupelet telemetry alerts`: its lines, its JSON, and the statuses for a cron job."""

import json
import subprocess
import sys

import pytest

from drupelet_host.cli import exit_codes
from drupelet_tools.telemetry.analysis import attention
from drupelet_tools.telemetry.lake import delta
from telemetry import fleet_rows
from telemetry.command_line import run
from telemetry.fleet_rows import DAY_MS, START_MS, health, segment
from telemetry.lake_figures import HOUR, A, B, lake_of

NOW = "2026-09-22T14:13Z"  # a day after START_MS, but for 20 s


def quiet_lake(folder, hours=24, **own):
    """Two devices that are heard every hour until so many hours after START_MS."""
    segments = [segment(d, n, n * HOUR, (n + 1) * HOUR - 1, START_MS)
                for d in (A, B) for n in range(hours)]  # fmt: skip
    rows = {"segments": segments, "health": [health(A, **own), health(B)]}
    return lake_of(folder, **rows).root


def test_nothing_is_status_0_and_notices_do_not_change_it(tmp_path):
    done = run("alerts", quiet_lake(tmp_path), "--now", NOW)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "nothing needs attention\n", "")
    done = run("alerts", quiet_lake(tmp_path / "noticed", events_lost=7), "--now", NOW)
    assert done.exit_code == 0
    assert done.stdout.startswith(f"notice: {A}: 7 events did not fit into its log (since 2026-")


def test_a_warning_is_status_10_and_an_alarm_11(tmp_path):
    done = run("alerts", quiet_lake(tmp_path / "one", errors=3), "--now", NOW)
    assert done.exit_code == exit_codes.WARNINGS == 10
    assert done.stdout.splitlines()[0].startswith(f"warning: {A}: 3 errors in its log (since ")
    root = quiet_lake(tmp_path / "two", errors=3)
    fleet_rows.commit.append(root, {"quarantine": [{
        "device": B, "boot": 1, "number": 3, "reason": attention.COLLISIONS[0],
    }]}, "other")  # fmt: skip
    done = run("alerts", root, "--now", NOW)
    assert done.exit_code == exit_codes.ALARMS == 11
    first, second = done.stdout.splitlines()
    assert first.startswith(f"alarm: {B}: two devices with one id: ")
    assert "(since 2026-09-21 17:13 UTC)" in first and second.startswith("warning: ")


def test_without_a_time_silence_counts_to_this_machines_clock(tmp_path):
    """What the report takes for now, the newest log, would never tell that all has stopped."""
    root = quiet_lake(tmp_path)
    done = run("alerts", root, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == exit_codes.ALARMS
    assert told["attention"][0]["kind"] == "fleet silent"
    assert told["now_ms"] > START_MS + 30 * DAY_MS
    assert (told["alarms"], told["warnings"], told["notices"]) == (3, 0, 0)
    assert set(told["attention"][0]) == {
        "severity", "kind", "weight", "device", "label", "since_ms", "problem", "remedy",
    }  # fmt: skip


def test_the_fleet_file_says_who_is_missing_and_which_battery_is_weak(tmp_path):
    plan = tmp_path / "fleet.toml"
    plan.write_text(f'[default]\nbattery = "18650"\n[device.well]\n[device."{A}"]\n')
    root = quiet_lake(tmp_path)
    done = run("alerts", root, "--now", NOW, "--fleet", plan)
    assert done.exit_code == exit_codes.WARNINGS
    assert done.stderr == ""
    assert done.stdout.startswith("warning: well: is in the fleet file and was never heard; check")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("alerts",), exit_codes.USAGE),
        (("alerts", "LAKE", "--what"), exit_codes.USAGE),
        (("alerts", "none"), exit_codes.REFUSED),
        (("alerts", "LAKE", "--now", "noon"), exit_codes.REFUSED),
        (("alerts", "LAKE", "--fleet", "none"), exit_codes.REFUSED),
    ],
)
def test_no_failure_has_a_status_of_an_alert(tmp_path, words, status):
    root = quiet_lake(tmp_path)
    done = run(*(str(root) if word == "LAKE" else word for word in words))
    assert done.exit_code == status
    assert done.exit_code not in (0, exit_codes.WARNINGS, exit_codes.ALARMS)
    empty = delta.create_lake(tmp_path / "empty")
    assert run("alerts", empty.root).exit_code == exit_codes.REFUSED


def test_the_whole_command_as_a_process(tmp_path):
    """As cron runs it; and the name of a file is no order to a terminal."""
    root = fleet_rows.demo_lake(tmp_path / "lake")
    fleet_rows.commit.append(root, {"quarantine": [{
        "device": "", "boot": 0, "number": 0, "reason": "no magic", "file": "in/\x1b[2J.dbx",
    }]}, "bad")  # fmt: skip
    words = [sys.executable, "-c", "from drupelet_host.cli.app import main; main()",
             "telemetry", "alerts", str(root)]  # fmt: skip
    done = subprocess.run(
        [*words, "--now", "2026-11-18T11:08Z"], capture_output=True, text=True, check=False
    )
    assert done.returncode == exit_codes.WARNINGS, done.stderr
    assert "\x1b" not in done.stdout and "unknown device: a piece of the input" in done.stdout
    assert done.stdout.count("\n") == len(done.stdout.splitlines()) >= 1
    later = subprocess.run(words, capture_output=True, check=False)
    assert later.returncode == exit_codes.ALARMS
