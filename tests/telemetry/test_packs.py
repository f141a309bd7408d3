"""Damage in packs and numbers that cannot be: what is intact counts, and the rest is told."""

import random

import pytest

from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.tables import choose
from repeats import few
from telemetry import box_writer as box

DEVICE, OTHER = b"\1\2\3\4", b"\5\2\3\4"


def segments(device=DEVICE, boot=1):
    """Segments of one to eight blocks."""
    events = [(at * 1000, box.BATTERY, 0, 3700, 0) for at in range(41 * 8)]
    return [
        box.segments(device, boot, events[: 41 * blocks], first=number)[0]
        for number, blocks in enumerate((8, 3, 1, 4, 1, 8, 2, 5))
    ]


def packed(datas):
    pack = bytearray()
    places = [inputs.append_to_pack(pack, data) for data in datas]
    return pack, places


def ingest(folder, packs):
    """One ingest of packs, of which each has a boot of its own, from 1 on; of each the rows of
    its segments, and what is in quarantine."""
    files = [folder / f"{boot}.dbxpack" for boot in range(1, len(packs) + 1)]
    for file, pack in zip(files, packs, strict=True):
        file.write_bytes(pack)
    job.ingest(files, folder / "lake", {}, None)
    state = delta.open_lake(folder / "lake")
    rows, quarantined = state.read("segments").to_pylist(), state.read("quarantine").to_pylist()
    return [
        (
            [row for row in rows if row["boot"] == boot],
            [row for row in quarantined if row["file"] == str(file)],
        )
        for boot, file in enumerate(files, 1)
    ]


@pytest.mark.parametrize("hurt", [0, 1, 2, 7])
def test_a_flipped_bit_of_a_length_costs_no_segment(tmp_path, hurt):
    packs, bad = [], []
    for bit in range(32):
        pack, places = packed(segments(boot=bit + 1))
        bad.append(places[hurt] - 4)
        pack[bad[bit] + bit // 8] ^= 1 << bit % 8
        packs.append(pack)
    wanted = [(number, (len(data) - 32) // 512, 0) for number, data in enumerate(segments())]
    for bit, (rows, quarantined) in enumerate(ingest(tmp_path, packs)):
        counts = [(row["number"], row["blocks"], row["blocks_bad"]) for row in rows]
        assert counts == wanted, bit
        assert [(row["offset"], row["reason"]) for row in quarantined] == [
            (bad[bit], f"pack: bad length at {bad[bit]}")
        ], bit


@pytest.mark.parametrize("hurt", range(7))
def test_a_length_that_spans_the_next_segment_costs_none(tmp_path, hurt):
    """It leads to a good header, but is not that of whole blocks."""
    datas = segments()
    pack, places = packed(datas)
    span = len(datas[hurt]) + 4 + len(datas[hurt + 1])
    inputs.PACK_LENGTH.pack_into(pack, places[hurt] - 4, span)
    ((rows, quarantined),) = ingest(tmp_path, [pack])
    assert [row["number"] for row in rows] == list(range(len(datas)))
    assert [row["reason"] for row in quarantined] == [f"pack: bad length at {places[hurt] - 4}"]


@pytest.mark.parametrize("seed", few(10, range(40)))
def test_what_is_intact_is_found_behind_any_damage(tmp_path, seed):
    """A length of any value, alone or with others, beside headers that are gone or cut files."""
    rng = random.Random(seed)
    datas = segments()
    cut = rng.randrange(len(datas))
    if rng.random() < 0.5:  # a file that was cut before it was packed
        datas[cut] = datas[cut][: rng.randrange(33, len(datas[cut]))]
    pack, places = packed(datas)
    lengths = rng.sample(range(8), rng.randrange(1, 5))
    for hurt in lengths:
        value = rng.choice((0, 31, 32, 544, 4128, 8260, 1 << 20, 2**32 - 1, rng.randrange(9000)))
        pack[places[hurt] - 4 : places[hurt]] = value.to_bytes(4, "little")
    headless = set(rng.sample(range(8), rng.randrange(3)))
    for hurt in headless:
        pack[places[hurt] + rng.choice((0, 12, 17, 30))] ^= 1 << rng.randrange(8)
    ((rows, quarantined),) = ingest(tmp_path, [pack])
    blocks_good = {row["number"]: row["blocks"] - row["blocks_bad"] for row in rows}
    for number, data in enumerate(datas):
        if number not in headless and number not in lengths:
            assert blocks_good[number] == (len(data) - 32) // 512, (number, quarantined)
        elif number not in headless and number != cut:
            assert number in blocks_good
    assert set(blocks_good) <= set(range(8)) - headless
    assert quarantined


@pytest.mark.parametrize("seed", few(8, range(20)))
def test_bytes_that_are_lost_or_too_many_cost_the_segment_they_are_in(tmp_path, seed):
    rng = random.Random(seed)
    datas = segments()
    pack, places = packed(datas)
    hurt = rng.randrange(8)
    at = places[hurt] + rng.randrange(-4, len(datas[hurt]) - 1)
    if rng.random() < 0.5:
        pack[at:at] = rng.randbytes(rng.randrange(1, 9))
    else:
        del pack[at : at + rng.randrange(1, 9)]
    ((rows, quarantined),) = ingest(tmp_path, [pack])
    blocks_good = {row["number"]: row["blocks"] - row["blocks_bad"] for row in rows}
    for number, data in enumerate(datas):
        # What is lost at a segment's end may reach into the next one's length and header.
        if number not in (hurt, hurt + 1):
            assert blocks_good[number] == (len(data) - 32) // 512
    assert quarantined


def test_a_length_that_leads_into_megabytes_of_nothing_costs_one_row(tmp_path):
    datas = segments()
    pack, _ = packed(datas[:2])
    with open(tmp_path / "a.dbxpack", "wb") as file:
        file.write(pack + b"\xff\xff\xff\x7f")
        file.truncate(1 << 26)
    counts = job.ingest([tmp_path / "a.dbxpack"], tmp_path / "lake", {}, None)
    assert (counts["segments"], counts["quarantined"]) == (3, 1)


@pytest.mark.parametrize("number", [2**32 - 1, choose.NUMBER_GAP_MAX + 8])
@pytest.mark.parametrize("alone", [False, True])
def test_a_number_far_beyond_its_boot_is_not_believed(tmp_path, number, alone):
    """One header would have a report say that four billion segments are missing."""
    events = [(0, box.BATTERY, 0, 1, 0)]
    far = box.segment(DEVICE, 1, number, [events])
    (tmp_path / "far.dbx").write_bytes(far)
    if alone:
        counts = job.ingest([tmp_path / "far.dbx"], tmp_path / "lake", {}, None)
        assert (counts["new"], counts["quarantined"], counts["devices"]) == (1, 0, 1)
        state = delta.open_lake(tmp_path / "lake")
        assert not len(state.read_devices()), "a number that cannot be makes no device"
        assert state.read("quarantine")["reason"].to_pylist() == [choose.REASON_FAR]
    for name, data in enumerate([*segments(), *segments(OTHER)]):
        (tmp_path / f"{name}.dbx").write_bytes(data)
    for _ in range(2):
        job.ingest([tmp_path], tmp_path / "lake", {}, None)
    state = delta.open_lake(tmp_path / "lake")
    assert sum(state.read("health")["segments_missing"].to_pylist()) == 0
    assert len(state.read("segments")) == 16
    assert 1 not in state.read("battery")["mv"].to_pylist()
    (row,) = state.read("quarantine").to_pylist()
    assert (row["device"], row["boot"], row["number"]) == (
        "01020304",
        1,
        number,
    )
    assert row["reason"] == choose.REASON_FAR and row["file"].endswith("far.dbx")


def test_what_was_far_counts_once_the_numbers_between_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "NUMBER_GAP_MAX", 3)
    datas = segments()
    for number in (0, 1, 7):
        (tmp_path / f"{number}.dbx").write_bytes(datas[number])
    job.ingest([tmp_path], tmp_path / "lake", {}, None)
    assert len(delta.open_lake(tmp_path / "lake").read("quarantine")) == 1
    (tmp_path / "7.dbx").unlink()  # it is in the lake: nobody has to bring it again
    for number in (4, 5):
        (tmp_path / f"{number}.dbx").write_bytes(datas[number])
    job.ingest([tmp_path], tmp_path / "lake", {}, None)
    state = delta.open_lake(tmp_path / "lake")
    assert state.read("segments")["number"].to_pylist() == [0, 1, 4, 5, 7]
    assert state.read("health")["segments_missing"].to_pylist() == [3]
    assert not len(state.read("quarantine"))
