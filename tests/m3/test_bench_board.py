"""`drupelet bench board`: its columns, that counts repeat, and what the sets must leave free."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from drupelet_tools.bench import m3, pico
from drupelet_tools.bench.boards import ROWS
from drupelet_tools.bench.columns import BOARD, kinsn_columns
from drupelet_tools.bench.command import app
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.m3.image import image
from pico.board import BUILD_S, allow
from repeats import few

# What programs that read `--json` may rely on, in this order; more may follow.
COLUMNS = [
    "board", "set", "image_bytes", "heap", "used_after_boot", "free_after_boot", "modules_heap",
    "stack_peak", "heap_peak", "alloc_per_record", "alloc_per_epoch", "kinsn_publish",
    "kinsn_receive", "kinsn_ack", "kinsn_idle", "kinsn_seal_100", "boot_ms",
    "flash_programs_per_message", "flash_erases_per_message",
]  # fmt: skip
TIMED = [name for name in COLUMNS if name.startswith("kinsn_")]
STACK = 8192
SMALL_FREE_MIN = 196 * 1024  # on a Pico
# What a set may hold of a Cortex-M3's heap after its boot, and the smallest heap that it runs in.
USED_MAX = {"small": 32 * 1024, "micro": 11 * 1024}
HEAP_MIN = {"small": 40 * 1024, "micro": 11 * 1024}
SMALL_SEAL_MAX = 500  # thousand instructions


def measured(row: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["board", "--row", row, "--json"])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["rows"]
    assert list(found)[: len(COLUMNS)] == COLUMNS
    reasons = found["why_not"]
    for name in COLUMNS:
        assert found[name] is not None or name in reasons or name[:6] + "*" in reasons, name
    return dict(found)


def test_names_of_columns_and_rows() -> None:
    assert [column.name for column in BOARD][: len(COLUMNS)] == COLUMNS
    assert [" ".join(row) for row in ROWS] == ["m3 small", "m3 micro", "rp2 small", "rp2 full"]


def test_an_unknown_row_is_wrong_usage() -> None:
    done = CliRunner().invoke(app, ["board", "--row", "m4 small"])
    assert done.exit_code == 2 and "m4 small" in done.output


@pytest.mark.parametrize("set_name", few(1, ["micro", "small"]))
def test_two_runs_count_the_same(set_name: str, tmp_path: Path) -> None:
    figures = measured(f"m3 {set_name}")
    bench = m3.Bench(set_name, image(set_name), tmp_path)
    again = bench.run({"mode": "count", "bare": bench.bare()[0]}, counted=True)
    for name, count in kinsn_columns(again).items():
        if name not in figures["why_not"]:
            assert count == pytest.approx(figures[name], rel=0.01), name
    check_bounds(set_name, figures)


def test_the_small_set_keeps_its_bounds() -> None:
    check_bounds("small", measured("m3 small"))


def check_bounds(set_name: str, figures: dict[str, Any]) -> None:
    """What a set may take of a Cortex-M3."""
    assert figures["alloc_per_record"] == figures["alloc_per_epoch"] == 0
    assert figures["used_after_boot"] + figures["free_after_boot"] <= figures["heap"]
    assert figures["used_after_boot"] <= figures["heap_min"] <= figures["heap"]
    assert figures["used_after_boot"] <= USED_MAX[set_name]
    assert figures["heap_min"] <= HEAP_MIN[set_name]
    assert 0 < figures["stack_peak"] <= STACK
    assert figures["kinsn_seal_100"] is None or figures["kinsn_seal_100"] <= SMALL_SEAL_MAX


def test_the_smallest_heap_is_the_first_that_the_set_runs_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = m3.Bench("micro", tmp_path, tmp_path)
    for least in (9, 10, 16):
        monkeypatch.setattr(m3.Bench, "runs_in", lambda _, heap, least=least: heap >= least * 1024)
        assert m3.smallest_heap(bench, 9 * 1024 + 500) == least * 1024
    monkeypatch.setattr(m3.Bench, "runs_in", lambda *_: False)
    with pytest.raises(BenchError, match="does not run in the heap that it is for"):
        m3.smallest_heap(bench, 9 * 1024)


def test_the_small_set_leaves_a_pico_most_of_its_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind of call there are some; the figures of the command are of eight messages."""
    allow(2 * BUILD_S)  # where no image is there yet, others may be built before it
    monkeypatch.setattr(pico, "MESSAGES", 2)
    figures = measured("rp2 small")
    assert figures["free_after_boot"] >= SMALL_FREE_MIN
    assert figures["alloc_per_record"] == figures["alloc_per_epoch"] == 0
    assert figures["used_after_boot"] < figures["heap_peak"] < figures["heap"]
    assert figures["stack_peak"] > 0
    assert all(figures[name] > 0 for name in TIMED), figures
