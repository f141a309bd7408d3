"""Whole channel runs of the JavaScript peer: same deliveries and order, except where it is wrong.

Every recording in tests/vectors/data, and every other one under ../shared, is replayed.
docs/conformance.md lists the differences of the first file one by one, with the sentence that
decides.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from published import VECTORS
from sds_replay import Replayed, differences, replay, rest

ROOT = Path(__file__).resolve().parents[2]
# Other recordings may lie beside the clone; they are replayed as well.
BESIDE = ROOT.parent / "shared/vectors/sds"
FIRST = "sds_js_0.0.8_traces"


def recordings() -> list[Path]:
    """Paths of all recordings; of two with one name, the clone's own."""
    paths = {
        path.name: path
        for folder in (BESIDE, VECTORS / "sds")
        for path in folder.glob("sds_js_*traces*.json")
    }
    return list(paths.values())


@cache
def traces() -> dict[str, dict[str, Any]]:
    return {
        f"{path.stem}/{trace['name']}": trace
        for path in sorted(recordings())
        for trace in json.loads(path.read_text("utf-8"))["traces"]
    }


@cache
def replayed(name: str) -> list[Replayed]:
    return replay(traces()[name])


NAMES = sorted(traces())
each = pytest.mark.parametrize("name", NAMES)


def test_there_are_runs() -> None:
    assert len([name for name in NAMES if name.startswith(FIRST)]) == 6


@each
def test_deliveries_are_what_the_text_says(name: str) -> None:
    for run in replayed(name):
        assert run.participant.delivered == run.model.delivered
        assert run.participant.ordered() == run.model.ordered()
        assert run.participant.channel.log.incoming.count == len(run.model.waiting)


@each
def test_the_peer_delivers_the_same_in_the_same_order_except_where_it_is_wrong(name: str) -> None:
    for run in replayed(name):
        wrong = differences(run)
        assert not wrong["never"]
        assert rest(run.peer["delivered"], wrong) == rest(run.participant.delivered, wrong)
        if not any(wrong.values()):
            assert run.peer["delivered"] == run.participant.delivered


@each
def test_what_we_send_is_what_the_peer_sent(name: str) -> None:
    """Byte for byte up to the filter, where both had the same log."""
    for run in replayed(name):
        early = {*differences(run)["early"], *differences(run)["after"]}
        for theirs, ours in run.sent:
            if theirs != ours:
                assert early & set(theirs.causal), "the peer names what it should not have"
                assert (theirs.lamport, theirs.content) == (ours.lamport, ours.content)


def test_every_difference_is_in_the_table() -> None:
    page = (ROOT / "docs/conformance.md").read_text("utf-8")
    table = re.findall(r"^\| (n\d-l\d+-n?r) (p\d) \| (\w+) \| ([0-9a-f, ]+) \|", page, re.M)
    listed = {(run, who, kind): ids.split(", ") for run, who, kind, ids in table}
    found = {}
    for name in NAMES:
        if name.startswith(f"{FIRST}/"):
            for run in replayed(name):
                for kind, ids in differences(run).items():
                    if ids:
                        key = (name.rpartition("/")[2], run.model.name, kind)
                        found[key] = [id[:8] for id in ids]
    assert listed == found
