"""`drupelet simulate`: an owner's program for days, with the boards' own code."""

import gc
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from drupelet_tools.sim import board_code, stand_in
from drupelet_tools.sim.simulate_command import simulate
from drupelet_tools.telemetry.blackbox.codes import STATES
from drupelet_tools.telemetry.energy.board_table import load_board

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WELL = EXAMPLES / "well_level/app.py"


def run(program: Path, *words: str) -> tuple[int, dict[str, Any], list[str]]:
    """Exit code, figures, lines on stderr."""
    app = typer.Typer()
    app.command()(simulate)
    done = CliRunner().invoke(app, [str(program), "--days", "1", "--json", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    figures = json.loads(done.stdout) if done.stdout else {}
    return done.exit_code, figures, done.stderr.splitlines()


def test_a_well_for_a_day() -> None:
    code, figures, output = run(WELL)
    assert code == 0 and not output
    assert figures["readings"] == figures["delivered"] == figures["boots"] == 96
    lengths = {len(b'{"level_mm":%d}' % level) for level in (0, 10, 100, 1000)}
    assert 96 * min(lengths) <= figures["payload_bytes"] <= 96 * max(lengths)
    seconds = {row["what"]: row["s"] for row in figures["charge"]}
    assert sum(seconds.values()) == 86_400
    assert seconds["sensor"] == pytest.approx(96 * 0.05), "the probe warms up for 50 ms"
    board = load_board("rp2040")
    for row in figures["charge"]:
        (current,) = board.currents[STATES.index(row["what"])]
        assert row["mah"] == pytest.approx(current.typical_ma * row["s"] / 3600)
    assert figures["life_days_low"] < figures["life_days"] < figures["life_days_high"]
    assert figures["sent_bytes"] > figures["payload_bytes"] + figures["black_box_bytes"]


def test_a_seed_gives_the_same_day_and_another_seed_another() -> None:
    first, same, other = (
        run(WELL, "--seed", seed, "--link", "loss=20") for seed in ("3", "3", "4")
    )
    assert first == same
    assert first[1]["sent_bytes"] != other[1]["sent_bytes"]


def test_a_bad_line_costs_bytes_and_time_and_loses_nothing_for_long() -> None:
    _, clean, _ = run(WELL)
    _, lossy, _ = run(WELL, "--link", "loss=20,baud=9600")
    assert lossy["loss_percent"] == 20 and lossy["baud"] == 9600
    assert lossy["sent_bytes"] > clean["sent_bytes"] and lossy["life_days"] < clean["life_days"]
    assert lossy["readings"] >= lossy["delivered"] >= 90, "the last ones may still be under way"


def test_a_shorter_period_costs_battery() -> None:
    _, seldom, _ = run(WELL, "--period", "3600")
    _, often, _ = run(WELL, "--period", "600")
    assert (seldom["readings"], often["readings"]) == (24, 144)
    assert often["life_days"] < seldom["life_days"]


def test_a_feeder_stays_awake() -> None:
    code, figures, _ = run(EXAMPLES / "actuator/app.py")
    assert code == 0 and figures["boots"] == 1 and figures["readings"] == 0
    assert "deep sleep" not in {row["what"] for row in figures["charge"]}


def test_ram_is_lost_in_deep_sleep(tmp_path: Path) -> None:
    """A program that counts in RAM counts from the beginning at each wake."""
    program = tmp_path / "app.py"
    program.write_text(
        "import time\nimport helper\nbegun = time.time()\n"
        "def sample(now):\n  import later\n  helper.count += later.ONE\n"
        "  assert 0 <= now // 1000 - begun <= 1, 'the clock is the simulation\\'s'\n"
        "  return b'%d' % helper.count\n"
    )
    (tmp_path / "helper.py").write_text("count = 0\n")
    (tmp_path / "later.py").write_text("ONE = 1\n")
    code, figures, output = run(program, "--period", "1800")
    assert code == 0 and not output
    assert figures["payload_bytes"] == figures["delivered"] >= 47, "one digit each"
    assert not list(tmp_path.rglob("*.pyc")), "nothing is left beside the program"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def sample(now):\n  return probe()\ndef probe():\n  return {}['depth']\n",
         "sample: KeyError: 'depth' (\"app.py\", line 4, in probe), 96 times"),
        ("def sample(now):\n  return 'text'\n",
         "sample: TypeError: sample() returned str: return bytes, or None, 96 times"),
        ("def sample(now) return 1\n", "SyntaxError: expected ':' (app.py, line 1)"),
        ("import machine\nmachine.Magic()\n",
         "AttributeError: module 'machine' has no attribute 'Magic'"
         ' ("app.py", line 2, in <module>)'),
        ("", "ValueError: it has neither sample(now) nor delivered(message)"),
    ],
)  # fmt: skip
def test_an_error_of_the_program_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    program = tmp_path / "app.py"
    program.write_text(text)
    code, _, output = run(program)
    assert (code, output) == (1, [f"drupelet simulate: {line}"])


def test_what_cannot_be_simulated_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def sample(now): return b''\n")
    config = json.loads(WELL.with_name("drupelet.json").read_text())

    def refused(change: dict[str, Any] | None, *words: str) -> str:
        changed = json.dumps({**config, **change}) if change is not None else "{"
        (tmp_path / "drupelet.json").write_text(changed)
        code, _, output = run(tmp_path / "app.py", *words)
        assert code == 1 and len(output) == 1, output
        return output[0]

    mqtt = {**config["peers"][0], "url": "mqtt://localhost:1883/x"}
    assert "reached by mqtt: a cable is simulated" in refused({"peers": [mqtt]})
    assert "drupelet.json: cannot be read" in refused(None)
    assert "at least one peer" in refused({"peers": []})
    assert "drupelet.json" in refused({"peers_max": "many"})
    assert "no current table for board 'pdp11'" in refused({}, "--board", "pdp11")
    assert "no table for battery 'potato'" in refused({}, "--battery", "potato")
    for link in ("loss=100", "loss=x", "baud=9", "speed=9"):
        assert f"--link {link}: want loss=" in refused({}, "--link", link)
    assert "there is no such file" in run(tmp_path / "none.py")[2][0]
    config.pop("group")
    assert "group is missing" in refused({})


def test_the_process_is_as_it_was() -> None:
    before = sys.modules["time"], sys.modules.get("machine"), sys.dont_write_bytecode
    run(WELL, "--period", "43200")
    assert (sys.modules["time"], sys.modules.get("machine"), sys.dont_write_bytecode) == before
    assert not hasattr(gc, "mem_free") and not hasattr(sys, "print_exception")
    assert time.sleep is sys.modules["time"].sleep


def test_a_shorter_look_at_the_log_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated board looks at what is new in its log, a real one at all of it."""
    short = run(WELL, "--link", "loss=20")
    monkeypatch.setattr(board_code, "going_on", lambda plain: plain)
    assert run(WELL, "--link", "loss=20") == short


def test_the_command_is_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "drupelet_host", "simulate", str(WELL), "--days", "1"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    heads = [line[:14].strip() for line in done.stdout.splitlines() if line[:14].strip()]
    assert heads == [
        "board", "time", "readings", "bytes", "boots, flash", "charge", "battery life", "left out",
    ]  # fmt: skip


def test_the_stand_in_of_a_chip() -> None:
    passed: list[int] = []
    world = stand_in.World(lambda: 1_000_000, passed.append, 1)
    with stand_in.installed(world, EXAMPLES):
        machine, board_time = (importlib.import_module(name) for name in ("machine", "time"))
        pin = machine.Pin(26, machine.Pin.OUT)
        pin.on()
        readings = {machine.ADC(pin).read_u16() for _ in range(50)}
        other = machine.ADC(27).read_u16()
        board_time.sleep_ms(7)
        assert pin.value() == 1 and len(readings) > 10 and max(readings) - min(readings) < 200
        assert all(0 <= reading <= 65535 for reading in readings) and other not in readings
        assert passed == [7] and board_time.ticks_diff(5, 2) == 3
