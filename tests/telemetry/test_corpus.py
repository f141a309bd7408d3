"""A damaged corpus against the truth that its generator knows: nothing lost, nothing twice."""

import json
from collections import defaultdict
from types import SimpleNamespace

import pytest

from drupelet.base.limits import EVENTS_PER_BLOCK
from drupelet_tools.bench import corpus_files
from drupelet_tools.bench.errors import BenchError
from drupelet_tools.telemetry.blackbox import codes
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.tables import schemas

CORPUS = corpus_files.Corpus(events=400_000, devices=16, files=5, damage=True, seed=3)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """The corpus, its truth, and the lake that was made of it."""
    folder = tmp_path_factory.mktemp("corpus")
    written = corpus_files.write(folder / "in", CORPUS)
    counts = job.ingest([folder / "in"], folder / "lake", {}, None)
    truth = json.loads((folder / "in" / "truth.json").read_text("utf-8"))
    return SimpleNamespace(
        folder=folder, written=written, counts=counts, state=delta.open_lake(folder / "lake"),
        boots={(row["device"], row["boot"]): row for row in truth["boots"]},
        read=read_copies(truth["copies"]),
    )  # fmt: skip


def is_damaged(copy):
    return bool(copy["flipped"]) or copy["cut"] is not None


def read_copies(copies):
    """The copies that an ingest has to look into, by segment.

    Of copies that look alike by their first 48 bytes and size, one will do if it is whole;
    bytes that were seen already are not looked at again.
    """
    found = {}
    families = defaultdict(list)
    for copy in copies:
        families[copy["device"], copy["boot"], copy["number"]].append(copy)
    for key, family in families.items():
        family.sort(key=lambda c: (-c["size"], c["first_crc"], c["file"], c["offset"]))
        firsts = {}
        for copy in family:
            firsts.setdefault((copy["size"], copy["first_crc"]), copy)
        chosen = list(firsts.values())
        if any(map(is_damaged, chosen)):
            distinct = {}
            for copy in family:
                distinct.setdefault((copy["size"], copy["content"]), copy)
            chosen = list(distinct.values())
        found[key] = chosen
    return found


def surviving(damaged):
    """Blocks of each boot, counted from its start, of which a good copy was read."""
    found = defaultdict(set)
    for (device, boot, number), copies in damaged.read.items():
        for copy in copies:
            good = set(range(copy["whole"])) - set(copy["flipped"])
            found[device, boot] |= {number * 8 + block for block in good}
    return found


def test_the_corpus_is_as_bad_as_it_should_be(damaged):
    copies = [copy for family in damaged.read.values() for copy in family]
    blocks = sum(copy["whole"] for copy in copies)
    assert 0.005 < sum(len(copy["flipped"]) for copy in copies) / blocks < 0.02
    assert sum(copy["cut"] is not None for copy in copies) > 5
    assert damaged.written["segments"] > len(damaged.read)
    clocks = {row["clock"] for row in damaged.boots.values()}
    assert clocks == {"set", "none", "jump", "set back"}


def test_every_damaged_block_is_in_quarantine_and_nothing_else(damaged):
    """A damaged copy of which a whole one with the same head came costs nothing, nor does one that
    is only cut, once the whole one is there."""
    wanted, made_good = [], 0
    for copies in damaged.read.values():
        whole = {(c["size"], c["first_crc"]) for c in copies if not is_damaged(c)}
        blocks = max((c["whole"] for c in copies if not is_damaged(c)), default=0)
        for copy in copies:
            cut = copy["cut"]
            bad = [*copy["flipped"]]
            if cut is not None and cut < blocks:
                made_good += 1
            elif cut is not None:
                bad.append(cut)
            if (copy["size"], copy["first_crc"]) in whole:
                made_good += len(bad)
            else:
                wanted += [(copy["file"], copy["offset"] + 32 + 512 * block) for block in bad]
    rows = damaged.state.read("quarantine").to_pylist()
    assert sorted((row["file"], row["offset"]) for row in rows) == sorted(wanted)
    assert all(row["reason"] for row in rows)
    assert damaged.counts["quarantined"] == len(wanted) + made_good > 50
    assert made_good > 0


def test_every_segment_counts_once(damaged):
    alive = surviving(damaged)
    wanted = 0
    for key, blocks in alive.items():
        last = damaged.boots[key]["blocks"] - 1
        short = damaged.boots[key]["events"] - last * EVENTS_PER_BLOCK
        wanted += sum(short if block == last else EVENTS_PER_BLOCK for block in blocks)
    rows = damaged.state.read("segments").to_pylist()
    assert sum(row["events"] for row in rows) == wanted < damaged.counts["events"]
    assert len(rows) == len(damaged.read)
    assert damaged.counts["segments"] == damaged.written["segments"]
    assert damaged.counts["new"] == sum(map(len, damaged.read.values()))


def expected_counters(damaged):
    """Highest value of each counter in the blocks that are left."""
    found = {}
    for key, blocks in surviving(damaged).items():
        highest = defaultdict(int)
        for block, index, value in damaged.boots[key]["counters"]:
            if block in blocks:
                highest[index] = max(highest[index], value)
        found[key] = highest
    return found


def test_every_total_is_exact(damaged):
    wanted = expected_counters(damaged)
    traffic = defaultdict(dict)
    for row in damaged.state.read("traffic").to_pylist():
        carrier = codes.CARRIERS.index(row["carrier"])
        direction = codes.DIRECTIONS.index(row["direction"])
        kind = codes.TRAFFIC_KINDS.index((row["kind"], row["unit"]))
        traffic[row["device"], row["boot"]][64 + carrier * 32 + direction * 16 + kind] = row[
            "value"
        ]
    for key, highest in wanted.items():
        assert traffic[key] == {i: v for i, v in highest.items() if i >= 64 and v}
    for row in damaged.state.read("health").to_pylist():
        for index, name in codes.HEALTH_COUNTERS.items():
            assert row[name] == wanted[row["device"], row["boot"]].get(index, 0)
    whole = [
        key for key, highest in wanted.items()
        if dict(highest) == {int(i): v for i, v in damaged.boots[key]["totals"].items()}
    ]  # fmt: skip
    assert len(whole) > 0.9 * len(wanted), "damage costs a total only where the last block is gone"


def test_time_per_state_is_exact_or_unknown(damaged):
    wanted = expected_counters(damaged)
    found = defaultdict(dict)
    for row in damaged.state.read("state_time").to_pylist():
        found[row["device"], row["boot"]][row["state"]] = row["ms"]
    exact = 0
    for key, ms in found.items():
        truth = damaged.boots[key]
        told = {state: value for state, value in wanted[key].items() if state < 8 and value}
        true = {int(i): v for i, v in truth["totals"].items() if int(i) < 8}
        known = {state: value for state, value in ms.items() if state >= 0}
        assert all(told.get(state, 0) <= value <= true[state] for state, value in known.items())
        if told == true:
            exact += 1
            assert known == true
            # The first four ms of a boot come before its first power state.
            assert ms.get(codes.STATE_UNKNOWN, 0) <= 4
        assert sum(ms.values()) <= truth["last_ms"]
    assert exact > 0.9 * len(found)


def test_clocks_that_jump_or_are_unknown_are_aligned(damaged):
    known = defaultdict(lambda: [0, 0])
    jumps = 0
    for row in damaged.state.read("segments").to_pylist():
        truth = damaged.boots[row["device"], row["boot"]]
        tally = known[truth["clock"]]
        tally[1] += 1
        jumps += row["clock_jump"]
        if row["wall_offset_ms"] is None:
            continue
        tally[0] += 1
        error = abs(row["wall_offset_ms"] - truth["wall_ms"])
        assert error <= row["wall_uncertainty_ms"], (truth["clock"], row)
        assert (row["wall_source"] == "pairs") == (truth["clock"] in ("none", "set back"))
    assert jumps > 0
    assert known["set"][0] == known["set"][1]
    assert known["jump"][0] == known["jump"][1]
    for clock in ("none", "set back"):
        assert known[clock][0] > 0.8 * known[clock][1], (clock, known)


def test_arrival_in_pieces_and_in_any_order_gives_the_same_tables(damaged, tmp_path):
    files = sorted((damaged.folder / "in").glob("*.dbxpack"), reverse=True)
    for file in files:
        job.ingest([file], tmp_path / "lake", {}, None)
    again = delta.open_lake(tmp_path / "lake")
    for table, schema in schemas.TABLES.items():
        # Of two equal damaged copies the first to come is named.
        names = [name for name in schema.names if name not in ("file", "offset")]
        wanted = sorted(map(repr, damaged.state.read(table).select(names).to_pylist()))
        if table not in schemas.INNER_TABLES:
            assert sorted(map(repr, again.read(table).select(names).to_pylist())) == wanted, table


def test_a_corpus_follows_from_its_seed_and_keeps_out_of_other_folders(tmp_path):
    small = corpus_files.Corpus(events=4_000, devices=4, files=2, damage=True, seed=9)
    corpus_files.write(tmp_path / "a", small)
    corpus_files.write(tmp_path / "b", small)
    for path in sorted((tmp_path / "a").glob("*.dbxpack")):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    with pytest.raises(BenchError, match="not empty"):
        corpus_files.write(tmp_path / "a", small)
