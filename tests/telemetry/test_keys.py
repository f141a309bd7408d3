"""What an ingest reads of a lake's keys, and how many files they are in."""

import pyarrow as pa
import pytest

from drupelet_tools.telemetry.lake import commit, delta
from drupelet_tools.telemetry.tables.schemas import KEY

A, B, C = "a0000001", "b0000002", "c0000003"


def keys_of(*boots, numbers=range(4)):
    return commit.key_rows(
        {"device": device, "boot": boot, "number": number, "size": 4096, "header_crc": 1,
         "first_crc": 2, "damaged": False, "taken_ms": 0}
        for device, boot in boots for number in numbers
    )  # fmt: skip


@pytest.fixture
def state(tmp_path):
    return delta.create_lake(tmp_path / "lake")


def add(state, keys):
    commit.commit(state, commit.Change([], keys))
    return state.refreshed()


def test_only_keys_of_the_boots_in_question_are_read(state):
    names = commit.name_keys({A: {"name": "well"}, C: {"name": "hut"}}, {}, 1)
    state = add(state, keys_of((A, 1), (A, 2), (B, 1), (B, 2), (C, 1)))
    state = add(state, commit.key_rows(names))
    boots = pa.table({"device": [A, B], "boot": [1, 2]})
    rows = state.keys([A, B], boots, [1, 2, 9]).to_pylist()
    assert {(row["device"], row["boot"], row["number"]) for row in rows} == {
        (A, 1, 1), (A, 1, 2), (B, 2, 1), (B, 2, 2), (A, None, None),
    }  # fmt: skip
    assert [row["device"] for row in state.keys([A, C]).to_pylist()] == [A, C]
    assert state.keys([]).num_rows == 0


def test_keys_are_merged_while_they_can_be_held(state, monkeypatch):
    monkeypatch.setattr(commit, "MERGED_MAX", 64)
    for boot in range(1, 65):
        state = add(state, keys_of((A, boot)))
    assert state.key_columns(["number"]).num_rows == 256
    rows = [one.rows for one in state.files[KEY]]
    assert max(rows) <= 64 and len(rows) <= 8
