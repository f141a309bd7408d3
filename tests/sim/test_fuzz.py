"""`drupelet sim fuzz`: every parser on both interpreters, and that the frames get far enough in.

How many of the frames are taken, and how many answered, is held for each: a fuzz that is refused
at its first check would find nothing.
"""

import pytest
from typer.testing import CliRunner

from drupelet_tools.sim.command import app
from drupelet_tools.sim.fuzz import DEPTHS, PARSERS, FuzzError, fuzz, parsers_of, shallow

FRAMES = {"cpython": 600, "micropython-i386": 300}


@pytest.mark.parametrize("interpreter", FRAMES)
def test_every_parser_takes_mutated_frames_deep_enough_and_does_not_grow(interpreter: str) -> None:
    frames = FRAMES[interpreter]
    rows = fuzz(frames, interpreter, 7, [])
    assert [row["parser"] for row in rows] == list(parsers_of(interpreter))
    for row in rows:
        assert row["frames"] == frames and row["taken"] + row["refused"] == frames
        assert 0 < row["refused"], f"{row['parser']}: nothing was wrong with any frame"
        assert not shallow(row), shallow(row)
        assert row["frames_per_s"] > 0


def test_a_shallow_fuzz_is_told() -> None:
    row = {"parser": "seal", "frames": 1000, "taken": 900, "answered": 900}
    assert not shallow(row)
    assert "took 6 of 1000" in shallow(row | {"taken": 6})
    assert "answered 0 of 1000" in shallow(row | {"answered": 0})
    # One in a hundred would be no depth: where a parser answers at all, it has to answer more.
    assert all(taken >= 8 for taken, _ in DEPTHS.values())


def test_parsers_of_hosts_run_on_cpython_only() -> None:
    assert set(parsers_of("micropython-i386")) < set(PARSERS)
    with pytest.raises(FuzzError, match="bsp-0"):
        fuzz(10, "micropython-i386", 1, ["bsp-0"])


@pytest.mark.parametrize("frames", ["nan", "inf", "1", "0", "-5"])
def test_a_number_of_frames_that_is_none(frames: str) -> None:
    done = CliRunner().invoke(app, ["fuzz", "--frames", frames, "--parser", "cobs"])
    assert done.exit_code == 2
    assert "Invalid value for '--frames'" in done.output


def test_the_command_prints_columns() -> None:
    done = CliRunner().invoke(app, ["fuzz", "--frames", "50", "--parser", "cobs"])
    assert done.exit_code == 0
    head, row = done.output.splitlines()
    assert "taken %" in head and "frames/s" in head
    assert row.split()[:2] == ["cobs", "50"] and len(row.split()) == 7
