"""The walk of a Pico from its image to a member of a group, over both of its cables.

`drupelet bench pico-cuts` is the same with as many power cuts as one likes (docs/boards.md).
"""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from board.box_segments import segments
from drupelet.base.events import CODE_BOOT, CODE_DESCRIPTOR
from drupelet_tools.bench.command import app
from drupelet_tools.bench.pico_walk import BOARD, HOST, URLS, Plan, walk
from drupelet_tools.telemetry.tables.summary import read
from pico.board import allow, check_memory
from telemetry.segment_log import events_of

# Messages of each side, of which two are long, the first of 4,096 bytes; power cuts.
SIZES = (pytest.param(12, 3, id="short"), pytest.param(50, 5, id="long", marks=pytest.mark.long))
PICO = 4  # what a black box calls this kind of board (docs/SPEC.md 6.1)
BOARD_KIND = 3  # of a descriptor
WALK_S = 900  # on cores that others use too; half of it where they are free
# Drawn anew in each run; a run that failed is repeated with the number that it printed.
SEED = int(os.environ.get("DRUPELET_WALK_SEED", "0")) or int.from_bytes(os.urandom(3)) + 1


@pytest.mark.parametrize("carrier", URLS)
@pytest.mark.parametrize(("messages", "cuts"), SIZES)
def test_everything_is_delivered_once_and_in_order(
    image: Path, tmp_path: Path, carrier: str, messages: int, cuts: int
) -> None:
    allow(2 * WALK_S)
    print(f"DRUPELET_WALK_SEED={SEED}")
    walked = walk(image, tmp_path / "walk", Plan(carrier, messages, 0.05, cuts, SEED, WALK_S))
    assert walked.delivered == {BOARD: 2 * messages, HOST: 2 * messages}
    assert walked.right, walked
    assert walked.cuts.total() == cuts
    assert walked.cuts["program torn"] and walked.cuts["erase torn"]
    assert walked.damaged > 0
    check_memory(walked.counters)
    assert walked.keyless == 1, "keys were asked for once, before there were any"
    assert walked.forged == 0, "what the cable damaged was never taken for a forgery"
    # Of its boots the console tells where it is none of the carriers, the black box anyway.
    assert walked.boots == sorted(set(walked.boots)), "no boot has the number of another"
    assert bool(walked.boots) == (carrier == "uart")
    events = events_of(read(segments(tmp_path / "walk/board")))
    rows = list(zip(events.code, events.a, events.b, strict=True))
    boots = [b for code, _, b in rows if code == CODE_BOOT]
    assert boots == sorted(set(boots)) and 1 <= boots[-1] <= cuts + 1
    kinds = {b for code, a, b in rows if (code, a) == (CODE_DESCRIPTOR, BOARD_KIND)}
    assert kinds == {PICO}


def test_the_command_tells_what_came_of_a_walk(image: Path) -> None:
    allow(WALK_S)
    words = ["pico-cuts", "--image", str(image), "--cuts", "1", "--messages", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "1 power cuts: 1 program torn" in done.stdout
    assert "2 messages; A has 2, host has 2; every one once and in order: yes" in done.stdout
    assert "bytes of stack in use" in done.stdout


def test_a_carrier_that_a_pico_has_not_got_is_wrong_usage() -> None:
    done = CliRunner().invoke(app, ["pico-cuts", "--carrier", "mqtt"])
    assert done.exit_code == 2 and "mqtt" in done.output
