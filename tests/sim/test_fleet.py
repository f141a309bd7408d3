"""Fleets of small groups, and recorded contact traces."""

import itertools
import json
import random
import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet_tools.sim.command import app
from drupelet_tools.sim.contacts import MEDIAN_S, P90_S, SHARE, TraceError, draw, read
from drupelet_tools.sim.fleet import DAY_MS, Workload, run_group
from drupelet_tools.sim.oracle import Oracle
from drupelet_tools.sim.readers import FrameIds


def call(*arguments: str) -> dict[str, float]:
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def test_drawn_contacts_have_the_statistics_of_the_real_ones() -> None:
    rng = random.Random(1)
    end_ms = 4000 * DAY_MS
    times = list(draw(rng, end_ms))
    lasted = sorted((until - since) / 1000 for since, until in times)
    assert abs(statistics.median(lasted) / MEDIAN_S - 1) < 0.1
    assert abs(lasted[int(len(lasted) * 0.9)] / P90_S - 1) < 0.1
    assert abs(sum(lasted) * 1000 / end_ms / SHARE - 1) < 0.1
    assert all(one[1] < other[0] for one, other in itertools.pairwise(times))


def test_a_fleet_delivers_and_costs_the_same_per_delivery_whatever_its_size() -> None:
    small = call("fleet", "--nodes", "10", "--jobs", "1")
    large = call("fleet", "--nodes", "30", "--jobs", "2")
    for figures in (small, large):
        assert figures["published"] == figures["nodes"] * 24
        possible = figures["published"] * 4
        assert figures["deliveries"] + figures["still_to_come"] == possible
        assert figures["deliveries"] > possible / 3
        assert 1 < figures["multiplier_bytes"] < 6
    assert large["cpu_ms_per_delivery"] < 3 * small["cpu_ms_per_delivery"]


@pytest.mark.parametrize(("seed", "is_read"), [(8, True), (9, False)])
def test_the_oracle_reads_the_frames_of_one_group_in_eight(
    monkeypatch: pytest.MonkeyPatch, seed: int, is_read: bool
) -> None:
    """Both are judged by what they deliver; what is read must be as the specification has it."""
    read_frames: list[bytes] = []
    leaving = Oracle.read_leaving

    def noted(oracle: Oracle, node: str, peer: str, frame: bytes) -> FrameIds | None:
        read_frames.append(frame)
        return leaving(oracle, node, peer, frame)

    monkeypatch.setattr(Oracle, "read_leaving", noted)
    total = run_group((seed, 3, Workload()))
    assert total.deliveries > 24
    assert len(read_frames) == (total.frames if is_read else 0)


def test_a_seed_is_a_run() -> None:
    first, second = (run_group((5, 3, Workload(days=1))) for _ in range(2))
    first.cpu_s = second.cpu_s = 0
    assert first == second


@pytest.mark.parametrize("kind", ["csv", "one"])
def test_traces_of_both_formats(tmp_path: Path, kind: str) -> None:
    events = [(0, "a", "b", "up"), (4000, "a", "b", "down"), (5000, "c", "b", "up")]
    events += [(9000, "b", "c", "down"), (9500, "a", "c", "up"), (20000, "a", "c", "down")]
    file = tmp_path / "trace"
    if kind == "csv":
        file.write_text("t,a,b,state\n" + "".join(f"{t},{a},{b},{s}\n" for t, a, b, s in events))
    else:
        file.write_text("".join(f"{t} CONN {a} {b} {s}\n" for t, a, b, s in events))
    trace = read(file)
    assert trace.nodes == ["a", "b", "c"]
    assert trace.pairs[("b", "c")] == [(5_000_000, 9_000_000)]
    figures = call("contacts", str(file), "--epoch", "60", "--readings-per-day", "48")
    assert figures["nodes"] == 3
    assert figures["contacts"] == 3
    assert figures["deliveries"] > 0


def test_a_contact_that_is_never_over_lasts_until_the_end_or_is_told(tmp_path: Path) -> None:
    file = tmp_path / "trace"
    file.write_text("0,a,b,up\n5,a,c,up\n9,a,c,down\n100,b,c,up\n")
    trace = read(file)
    assert trace.pairs == {("a", "b"): [(0, 100_000)], ("a", "c"): [(5000, 9000)]}
    done = CliRunner().invoke(app, ["contacts", str(file), "--epoch", "60", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["contacts"] == 2
    assert "contacts that begin with the last line's time last no time: 1 left out" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no contact"),
        ("1,a,b,sideways\n", "line 1"),
        ("5,a,b,up\n1,a,b,down\n", "time goes back"),
        ("x,a,b,up\ny,a,b,up\n", "line 1"),
        ("\0\xff\n", "line 1"),
        ("#" * 5000 + "\n1,a,b,up\n2,a,b,down\n", "line 1: a line is at most 4096 characters"),
    ],
)
def test_a_trace_that_is_no_use_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(TraceError, match=told):
        read(file)
    done = CliRunner().invoke(app, ["contacts", str(file)])
    assert done.exit_code == 1
    assert done.output.count("\n") == 1


def test_other_mistakes_are_one_line(tmp_path: Path) -> None:
    for arguments in (
        ["contacts", str(tmp_path / "none")],
        ["fleet", "--nodes", "3", "--group", "5"],
        ["fleet", "--nodes", "7", "--group", "5"],
        ["fleet", "--nodes", "10", "--mode", "loud"],
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 1
        assert done.output.count("\n") == 1
