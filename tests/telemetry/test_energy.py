"""Identities and errors of the modelled charge."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.energy import board_table
from drupelet_tools.telemetry.energy.board_table import charges, load_board, parse_board
from drupelet_tools.telemetry.tables.summary import summarise
from telemetry import box_writer as box
from telemetry.segment_log import log_of

TABLE = """
board = "x"
label = "x"
version = "1"
source = "test"
voltage_v = 3.3
board_leakage = { mA = 0.5, low = 0.4, high = 1.0, source = "measured" }
state = [
    { state = 0, mA = 0.01, low = 0.01, high = 0.02, source = "a" },
    { state = 4, mA = 100, low = 90, high = 120, source = "b", carriers = ["mqtt"] },
    { state = 4, mA = 20, low = 20, high = 20, source = "c" },
]
"""


def test_charge_is_current_times_time():
    board = parse_board(TABLE, "x.toml")
    rows = charges(board, {0: 3_600_000, 4: 36_000}, ["mqtt"])
    found = {row.name: (row.mah, row.low_mah, row.high_mah) for row in rows}
    assert found["deep sleep"] == pytest.approx((0.01, 0.01, 0.02), abs=1e-12)
    assert found["send"] == pytest.approx((1.0, 0.9, 1.2), abs=1e-12)
    assert found["board leakage"] == pytest.approx((0.505, 0.404, 1.01), abs=1e-12)


def test_the_carrier_chooses_the_row():
    board = load_board("esp32")
    assert board.current(4, ["mqtt"]).typical_ma == 178.0
    assert board.current(4, ["serial", "mqtt"]).typical_ma == 178.0
    assert board.current(4, ["serial"]).typical_ma == 35.5
    assert board.current(4, []).unknown


def test_every_state_of_every_board_has_a_figure_with_a_source():
    assert "esp32" in board_table.board_names()
    for name in board_table.board_names():
        board = load_board(name)
        assert board.name == name
        for state in range(7):
            current = board.current(state, ["mqtt"])
            assert current is not None
            assert len(current.source) > 10


def test_sum_over_states_is_the_total_and_splitting_changes_nothing():
    board = load_board("esp32")
    duty = box.Duty().run(500, counters_every=11)
    totals = set()
    for per_block in (41, 7, 1):
        rows = summarise(log_of(*box.segments(b"\1\2\3\4", 1, duty.events, per_block)))
        ms = {row["state"]: row["ms"] for row in rows["state_time"]}
        by_state = charges(board, ms, ["mqtt"])
        direct = sum(board.current(s, ["mqtt"]).typical_ma * t / 3.6e6 for s, t in ms.items())
        assert sum(row.mah for row in by_state) == pytest.approx(direct, abs=1e-9)
        assert sum(row.ms for row in by_state) == max(e[0] for e in duty.events)
        totals.add(sum(row.mah for row in by_state))
    assert len(totals) == 1


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    rounds=st.integers(1, 60),
    counters_every=st.integers(0, 9),
    per_block=st.integers(1, 41),
    per_segment=st.integers(1, 8),
)
def test_cutting_a_log_into_other_blocks_and_segments_changes_no_charge(
    rounds, counters_every, per_block, per_segment
):
    duty = box.Duty().run(rounds, counters_every)
    duty.enter(2, 5)
    board = load_board("esp32")
    cut = box.segments(b"\1\2\3\4", 1, duty.events, per_block, per_segment)
    rows = summarise(log_of(*cut))["state_time"]
    ms = {row["state"]: row["ms"] for row in rows}
    # Time is known up to the last event; what came after is in no log.
    logged = max(event[0] for event in duty.events)
    assert sum(ms.values()) == logged
    whole = summarise(log_of(*box.segments(b"\1\2\3\4", 1, duty.events)))["state_time"]
    assert ms == {row["state"]: row["ms"] for row in whole}
    direct = sum(board.current(s, ["mqtt"]).typical_ma * t / 3.6e6 for s, t in ms.items())
    total = sum(row.mah for row in charges(board, ms, ["mqtt"]))
    assert total == pytest.approx(direct, rel=1e-9, abs=1e-9)


def test_unknown_time_is_listed_without_charge():
    row = charges(load_board("esp32"), {-1: 1_000}, [])[0]
    assert (row.name, row.ms, row.mah, row.unknown) == ("unknown", 1_000, 0.0, True)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('board = "x"', "board = ", "not TOML"),
        ("voltage_v = 3.3", "", "voltage_v"),
        ("mA = 100, low = 90", "mA = 100, low = 190", "low <= mA"),
        ("mA = 20,", 'mA = "much",', "much"),
    ],
)
def test_a_broken_table_is_one_clear_line(old, new, complaint):
    assert old in TABLE
    with pytest.raises(TelemetryError, match=complaint) as told:
        parse_board(TABLE.replace(old, new), "boards/x.toml")
    assert str(told.value).startswith("boards/x.toml: ")
    assert "\n" not in str(told.value)


def test_an_unknown_board_is_named():
    with pytest.raises(TelemetryError, match="'toaster'"):
        load_board("toaster")
