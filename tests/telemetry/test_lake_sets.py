"""The tables are a function of the set of segments, whatever order and pieces they came in."""

import random

import pytest

from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.tables import schemas
from repeats import few
from telemetry import box_writer as box
from telemetry import fleet
from telemetry.segment_log import spoil

DEVICE = b"\1\2\3\4"


def tables(root):
    """All that a reader sees, as sorted rows."""
    state = delta.open_lake(root)
    found = {"devices": state.read_devices().to_pylist()}
    for table in schemas.TABLES:
        found[table] = sorted(map(repr, state.read(table).to_pylist()))
    return found


def copies_of(data, device, at, number):
    """A segment of four blocks, whole or in trouble."""
    other = box.segment(device, 1, number, [[(7, box.BATTERY, 0, at, number)]])
    return (
        [data, spoil(data, 1)],  # damaged, and a whole one with the same head
        [spoil(data, 1), spoil(data, 2)],  # each makes good what the other lacks
        [data, data[: 32 + 512 * 2]],  # cut between two blocks
        [data[:-100]],  # cut within one
        [data, other],
        [data],
    )[(at + number) % 6]


def contents():
    """Segments of the demo's fleet, most of them in trouble of some kind."""
    found = []
    for at, name in enumerate(fleet.MEMBERS):
        device = fleet.MEMBERS[name][0]
        datas = box.segments(
            device, 1, fleet.events_of(name).events, per_block=11, per_segment=4,
            wall_ms=None if at == 1 else fleet.WALL_MS, uncertainty_ms=20,
        )  # fmt: skip
        for number, data in enumerate(datas):
            whole = len(data) == 32 + 512 * 4
            found += copies_of(data, device, at, number) if whole else [data]
    found.append(box.segment(DEVICE, 1, 2**20, [[(0, box.BATTERY, 0, 1, 0)]]))
    found.append(b"DRBX" + bytes(60))
    return sorted(set(found))


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    """The files, and the tables when all come at once."""
    folder = tmp_path_factory.mktemp("sets")
    (folder / "in").mkdir()
    for at, data in enumerate(contents()):
        (folder / "in" / f"{at:04}.dbx").write_bytes(data)
    job.ingest([folder / "in"], folder / "lake", fleet.names(), None, events=True)
    return sorted((folder / "in").iterdir()), tables(folder / "lake")


def test_the_set_has_every_kind_of_trouble(boxes):
    _, wanted = boxes
    reasons = " ".join(wanted["quarantine"])
    for reason in ("block crc", "cut block", "other bytes", "beyond the last", "header crc"):
        assert reason in reasons
    assert any("'copies': 2" in row for row in wanted["segments"])
    assert any("'blocks_bad': 0" in row and "'copies': 2" in row for row in wanted["segments"])
    assert len(wanted["clocks"]) == 1


@pytest.mark.parametrize("seed", few(2, range(8)))
def test_any_order_and_pieces_give_the_same_tables(boxes, tmp_path, seed):
    files, wanted = boxes
    rng = random.Random(seed)
    files = rng.sample(files, len(files))
    cuts = sorted(rng.sample(range(1, len(files)), rng.randrange(1, 12)))
    for low, high in zip([0, *cuts], [*cuts, len(files)], strict=True):
        again = rng.sample(files[:low], min(low, 3))  # and some that are known
        names = fleet.names() if low == 0 else {}
        job.ingest([*files[low:high], *again], tmp_path / "lake", names, None, events=True)
    found = tables(tmp_path / "lake")
    assert found.keys() == wanted.keys()
    for table, rows in wanted.items():
        if table not in schemas.INNER_TABLES:
            assert found[table] == rows, table
