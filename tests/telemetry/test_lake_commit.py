"""Commits, compaction and retention: others may write and read, and a kill changes nothing."""

import errno
import json
import multiprocessing
import os
import random
import signal
import tarfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from drupelet_tools.bench import corpus_files
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.intake import job, migrate
from drupelet_tools.telemetry.lake import commit, compact, delta, repack
from drupelet_tools.telemetry.tables import schemas
from drupelet_tools.telemetry.tables.settle import settled
from repeats import few
from telemetry import box_writer as box
from telemetry import fleet, kill_child
from telemetry.command_line import run
from telemetry.lake_content import content

PLACES = ("file", "offset")
OLD_LAKE = Path(__file__).parent / "lake-v3.tar.xz"
LAKE_BEFORE = Path(__file__).parent / "lake-v4.tar.xz"


def ingest(paths, root, **options):
    return job.ingest(paths, root, {}, None, **options)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    """A damaged corpus in many packs, and what is in a lake of it."""
    folder = tmp_path_factory.mktemp("commit")
    corpus_files.write(folder / "in", corpus_files.Corpus(60_000, 6, 12, damage=True, seed=6))
    ingest([folder / "in"], folder / "lake", events=True)
    return sorted((folder / "in").glob("*.dbxpack")), content(folder / "lake")


def without_places(tables):
    """Tables, but for which of two equal damaged copies is named."""
    plain = dict(tables)
    plain["quarantine"] = sorted(
        "/".join(
            part for part in row.split(", ") if "'file'" not in part and "'offset'" not in part
        )
        for row in tables["quarantine"]
    )
    return plain


def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["telemetry.kill_child"])
    return context


# --- at once ---


def test_two_ingests_at_once_both_land_and_nothing_counts_twice(boxes, tmp_path):
    packs, wanted = boxes
    root = tmp_path / "lake"
    # Two have packs of their own, and all three have some in common.
    shares = [packs[:7], packs[5:], packs[3:9]]
    children = [
        processes().Process(
            target=kill_child.ingest, args=([str(path) for path in own], str(root))
        )
        for own in shares
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert without_places(content(root)) == without_places(wanted)
    assert ingest(packs, root, events=True)["new"] == 0
    compact.compact(root)
    assert without_places(content(root)) == without_places(wanted)


def test_pieces_of_who_knew_fewer_descriptors_are_read(tmp_path):
    """Their lists are shorter; beside those of now they lack only what is behind their end."""
    events = [(0, box.DESCRIPTOR, field, 2, 65_536 + field) for field in (1, 2, 3, 4)]
    for boot in (1, 2):
        data = box.segments(b"\xa1\xb2\xc3\xd4", boot, events)
        (tmp_path / f"{boot}.dbx").write_bytes(data[0])
        ingest([tmp_path / f"{boot}.dbx"], tmp_path / "lake")
    rows = pq.read_table(delta.open_lake(tmp_path / "lake").paths(schemas.PIECE)[0])
    at = rows.schema.get_field_index("descriptors")
    shorter = pa.array([rows["descriptors"][0].as_py()[:4]], rows.schema.field(at).type)
    both = pa.concat_tables([
        rows.set_column(at, rows.schema.field(at), shorter),
        pq.read_table(delta.open_lake(tmp_path / "lake").paths(schemas.PIECE)[1]),
    ])  # fmt: skip
    health = settled(both, "health").to_pylist()
    assert [row["epoch_ms"] for row in health] == [65_538] * 2
    assert sorted((row["firmware"] or "", row["firmware_set"] or "") for row in health) == [
        ("", ""), ("0.1.4", "small"),
    ]  # fmt: skip


def test_a_commit_is_tried_again_and_in_the_end_told_of(boxes, tmp_path, monkeypatch):
    packs, _ = boxes
    root = tmp_path / "lake"
    ingest(packs[:1], root)
    read_state = delta.Lake.refreshed

    def all_keys(state):
        return state.key_columns(schemas.FILES[schemas.KEY].names)

    turns = []

    def another_is_faster(*given):
        state = read_state(*given)
        if len(turns) % 2 == 0 and len(turns) < 6:
            turns.append(state.version)
            commit.commit(
                delta.open_lake(root), commit.Change([], commit.key_rows([]), all_keys=all_keys)
            )
        elif len(turns) < 6:
            turns.append(state.version)
        return state

    monkeypatch.setattr(delta.Lake, "refreshed", another_is_faster)
    assert ingest(packs[1:2], root)["new"] > 0
    assert turns == [1, 1, 2, 2, 3, 3], "three others came between"
    monkeypatch.setattr(commit, "COMMIT_TRIES", 2)
    monkeypatch.setattr(commit, "try_once", lambda *_: False)
    before = content(root)
    with pytest.raises(TelemetryError, match=r"other writers were faster 2 times.*run it again"):
        ingest(packs[2:3], root)
    assert content(root) == before


def test_one_import_lands_once_when_two_are_made_at_once(tmp_path, monkeypatch):
    root = tmp_path / "lake"
    rows = {"battery": [{"device": "x", "boot": 0, "boot_ms": 5, "mv": 3_600}]}
    read_state = delta.Lake.refreshed

    def another_is_faster(*given):
        state = read_state(*given)
        monkeypatch.setattr(delta.Lake, "refreshed", read_state)
        assert commit.append(root, rows, "import:1")
        return state

    monkeypatch.setattr(delta.Lake, "refreshed", another_is_faster)
    assert not commit.append(root, rows, "import:1")
    assert delta.open_lake(root).read("battery").num_rows == 1


def test_a_reader_of_an_earlier_state_reads_on(boxes, tmp_path):
    packs, _ = boxes
    root = tmp_path / "lake"
    for pack in packs[:4]:
        ingest([pack], root)
    state = delta.open_lake(root)
    wanted = state.read("messages")
    compact.compact(root)
    ingest(packs[4:], root)
    assert len(delta.open_lake(root).read("messages")) > len(wanted)
    vars(state).pop("_pieces")  # read again
    assert state.read("messages").equals(wanted)


# --- compaction ---


def says_what_is_in_it(root):
    """Whether the log tells the rows and devices of each file as they are."""
    state = delta.open_lake(root)
    for kind in schemas.KINDS:
        for one, path in zip(state.files[kind], state.paths(kind), strict=True):
            devices = pq.read_table(path, columns=["device"])["device"].to_pylist()
            logged = (one.rows, one.device_min, one.device_max, one.size)
            assert logged == (len(devices), min(devices), max(devices), Path(path).stat().st_size)
    return True


def test_compaction_leaves_few_files_and_the_same_tables(boxes, tmp_path, monkeypatch):
    packs, wanted = boxes
    root = tmp_path / "lake"
    for pack in packs:
        ingest([pack], root, events=True)
    monkeypatch.setattr(delta, "SHARE_PIECES", 64)
    assert says_what_is_in_it(root)
    completed = run("compact", root, "--json")
    assert completed.exit_code == 0, completed.stderr
    done = json.loads(completed.stdout)
    assert done["files_before"] > 12 > 2 == done["files"]
    assert (done["packs_before"], done["packs"]) == (12, 1)
    assert without_places(content(root)) == without_places(wanted)
    assert compact.compact(root) == compact.Compacted(2, 2, 1, 1, 0, 0, [])
    assert says_what_is_in_it(root)
    assert ingest(packs, root)["new"] == 0
    assert delta.open_lake(root).version > 12


def packed(root):
    """The bytes of each segment that the lake's packs hold for a piece, by what it is."""
    rows = delta.open_lake(root).read("sources").to_pylist()
    return {
        tuple(row[name] for name in schemas.COPY_KEY): (root / row["pack"]).read_bytes()[
            row["pack_offset"] : row["pack_offset"] + row["size"]
        ]
        for row in rows
    }


def test_packs_become_few_and_hold_what_they_held(boxes, tmp_path, monkeypatch):
    packs, _ = boxes
    root = tmp_path / "lake"
    for pack in packs[:6]:
        ingest([pack], root)
    before, names = packed(root), {path.name for path in (root / "packs").iterdir()}
    largest = max((root / "packs" / name).stat().st_size for name in names)
    monkeypatch.setattr(repack, "PACK_SIZE", 2 * largest)
    assert 1 < compact.compact(root).packs < 6
    assert packed(root) == before
    left = {path.name for path in (root / "packs").iterdir()}
    assert names < left, "who reads the state before may need the old ones"
    assert compact.compact(root).orphans_removed == 0, "and they are young"
    for name in names:
        old_s = time.time() - 3600 * compact.ORPHAN_HOURS - 60
        os.utime(root / "packs" / name, (old_s, old_s))
    assert compact.compact(root).orphans_removed >= 6
    assert packed(root) == before
    assert ingest(packs[:6], root)["new"] == 0
    fresh = tmp_path / "again"
    ingest([root / "packs"], fresh)
    assert content(fresh)["messages"] == content(root)["messages"]


def test_packs_of_pieces_that_one_ingest_merged_become_one(boxes, tmp_path, monkeypatch):
    packs, _ = boxes
    root = tmp_path / "lake"
    monkeypatch.setattr(compact, "TIER_FILES", 4)
    for pack in packs[:4]:
        ingest([pack], root)
    before = packed(root)
    assert len(delta.open_lake(root).files[schemas.PIECE]) == 1
    assert compact.compact(root).packs == 1
    assert packed(root) == before


def test_a_pack_that_is_gone_or_cut_is_left_to_who_asks_for_it(boxes, tmp_path):
    packs, wanted = boxes
    root = tmp_path / "lake"
    for pack in packs:
        ingest([pack], root, events=True)
    # In the order in which they came: their names are random, and the middle of some holds a copy
    # that was not taken in.
    oldest_first = sorted((root / "packs").iterdir(), key=lambda one: one.stat().st_mtime_ns)
    gone, cut, hurt = oldest_first[:3]
    gone.unlink()
    os.truncate(cut, cut.stat().st_size - 1)
    data = bytearray(hurt.read_bytes())
    data[len(data) // 2] ^= 1
    hurt.write_bytes(data)
    bad = sorted(f"packs/{one.name}" for one in (gone, cut, hurt))
    done = run("compact", root, "--json")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert f"{root}/{bad[0]}: is gone or does not hold what was taken in" in done.stderr
    counts = json.loads(done.stdout)
    assert (counts["packs"], counts["packs_damaged"]) == (4, bad)
    assert without_places(content(root)) == without_places(wanted)
    assert set(bad) < set(delta.open_lake(root).read("sources")["pack"].to_pylist())
    assert compact.compact(root).packs_damaged == bad, "until somebody puts them back"


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("module", [repack, compact])
def test_a_compaction_that_has_no_room_leaves_nothing(boxes, tmp_path, monkeypatch, module):
    packs, wanted = boxes
    root = tmp_path / "lake"
    for pack in packs:
        ingest([pack], root, events=True)
    before = {path for path in root.rglob("*") if path.is_file()}
    monkeypatch.setattr(module, "finish", full_disk)
    refused = run("compact", root)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert f"{root}: cannot write the lake: No space left on device" in refused.stderr
    assert {path for path in root.rglob("*") if path.is_file()} == before
    monkeypatch.undo()
    assert compact.compact(root).packs == 1
    assert without_places(content(root)) == without_places(wanted)


def test_a_log_entry_that_a_power_cut_emptied_is_named(boxes, tmp_path):
    packs, _ = boxes
    root = tmp_path / "lake"
    for pack in packs[:2]:
        ingest([pack], root)
    newest = max((root / "table" / "_delta_log").glob("*.json"))
    newest.write_bytes(b"")
    for words in (("compact", root), ("report", "--lake", root, "--html", tmp_path / "x.html")):
        refused = run(*words)
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
        assert f"{newest}: is empty, as a power cut leaves it; remove it" in refused.stderr
    newest.unlink()
    assert ingest(packs[:2], root)["new"] > 0


def test_what_is_committed_is_on_the_disk(boxes, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(commit, "sync", synced.append)
    ingest(boxes[0][:1], tmp_path / "lake")
    log = tmp_path / "lake" / "table" / "_delta_log"
    assert synced == [log / f"{1:020}.json", log]


def test_compaction_keeps_the_order_of_many_devices(tmp_path):
    root = tmp_path / "lake"
    for number in range(20):
        (tmp_path / "in").mkdir(exist_ok=True)
        for device in range(30):
            events = [(number * 1000, box.BATTERY, 0, 3700, device)]
            data = box.segment(bytes([1, 2, 3, device]), 1, number, [events])
            (tmp_path / "in" / f"{device}.dbx").write_bytes(data)
        ingest([tmp_path / "in"], root)
    before = content(root)
    assert compact.compact(root).files == 2
    assert says_what_is_in_it(root)
    assert content(root) == before
    [path] = delta.open_lake(root).paths(schemas.PIECE)
    devices = pq.read_table(path, columns=["device"])["device"].to_pylist()
    assert devices == sorted(devices)


def test_an_ingest_makes_one_file_of_many_small_ones(boxes, tmp_path, monkeypatch):
    packs, wanted = boxes
    monkeypatch.setattr(compact, "TIER_FILES", 4)
    root = tmp_path / "lake"
    files = []
    for pack in packs:
        ingest([pack], root, events=True)
        files.append(len(delta.open_lake(root).files[schemas.PIECE]))
    assert files == [1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3]
    assert says_what_is_in_it(root)
    assert without_places(content(root)) == without_places(wanted)


def test_of_middle_sized_files_as_many_become_one_as_can_be_held(boxes, tmp_path, monkeypatch):
    packs, wanted = boxes
    monkeypatch.setattr(compact, "TIER_FILES", 4)
    root = tmp_path / "lake"
    ingest(packs[:1], root, events=True)
    (first,) = delta.open_lake(root).files[schemas.PIECE]
    monkeypatch.setattr(compact, "SHARE_PIECES", int(3.5 * first.rows))
    files = []
    for pack in packs[1:]:
        ingest([pack], root, events=True)
        files.append(len(delta.open_lake(root).files[schemas.PIECE]))
    assert max(files) < 8 < len(packs) - 1
    assert without_places(content(root)) == without_places(wanted)


def test_only_old_files_that_nothing_names_are_removed(boxes, tmp_path):
    packs, _ = boxes
    root = tmp_path / "lake"
    ingest(packs[:2], root)
    before = content(root)
    old_s = time.time() - 3600 * compact.ORPHAN_HOURS - 60
    gone, young = [], []
    for path in (root / "packs").iterdir():  # old ones that are named
        os.utime(path, (old_s, old_s))
    for folder, name in (("table/kind=piece", ".parquet"), ("packs", ".dbxpack"), ("plans", "")):
        for group, age in ((gone, "old"), (young, "young")):
            path = root / folder / f"{age}{name}"
            group.append(path)
            if folder == "plans":
                (path / "0").mkdir(parents=True)
            else:
                path.write_bytes(b"x")
            if group is gone:
                os.utime(path, (old_s, old_s))
    assert compact.compact(root).orphans_removed == len(gone)
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in young)
    assert content(root) == before
    names = delta.open_lake(root).read("sources")["pack"].to_pylist()
    assert names and all((root / name).exists() for name in names)


def test_boots_of_which_nothing_comes_are_removed_after_the_days_to_keep(tmp_path, monkeypatch):
    root = tmp_path / "lake"
    taken = [0]
    clock_ns = time.time_ns
    day_ns = 86_400 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: clock_ns() + taken[0] * day_ns)
    events = [(at * 1000, box.BATTERY, 0, 3700, 0) for at in range(80)]
    for day, boot, number in ((-100, 1, 0), (-99, 2, 0), (-10, 2, 1), (0, 3, 0)):
        taken[0] = day
        data = box.segments(b"\1\2\3\4", boot, events, first=number)[0]
        (tmp_path / f"{boot}-{number}.dbx").write_bytes(data)
        ingest([tmp_path / f"{boot}-{number}.dbx"], root)
    taken[0] = -95
    (tmp_path / "odd.dbx").write_bytes(b"DRBX" + bytes(60))
    ingest([tmp_path / "odd.dbx"], root)
    commit.append(root, {"battery": [{"device": "x", "boot": 0, "mv": 1}]}, "import:1",
                  {"x": {"name": "tower"}})  # fmt: skip
    taken[0] = 0
    for days in ("90 days", "0d", "9" * 20 + "d"):
        assert run("compact", root, "--keep", days).stderr.count("want a number of days") == 1
    completed = run("compact", root, "--keep", "90d", "--json")
    assert json.loads(completed.stdout)["boots_removed"] == 1
    state = delta.open_lake(root)
    assert [(row["boot"], row["number"]) for row in state.read("segments").to_pylist()] == [
        (2, 0), (2, 1), (3, 0),
    ]  # fmt: skip
    assert state.read("quarantine").num_rows == 0
    assert "x" not in state.read("battery")["device"].to_pylist()
    assert state.imported() == set()
    assert ingest([tmp_path / "1-0.dbx"], root)["new"] == 1, "what comes again is new"
    assert compact.compact(root, 90).boots_removed == 0


# --- kills ---


@pytest.mark.parametrize("kills", few(1, (10, 20)))
def test_killed_at_any_point_the_next_runs_give_the_same_tables(
    boxes, tmp_path, monkeypatch, kills
):
    packs, wanted = boxes
    started = time.monotonic()
    ingest(packs, tmp_path / "timed", events=True)
    whole_s = time.monotonic() - started
    rng = random.Random(8)
    root = tmp_path / "lake"
    killed = 0
    for turn in range(kills):
        own = [str(path) for path in rng.sample(packs, 4)]
        work = (
            (kill_child.compact, (str(root),))
            if turn % 2
            else (kill_child.ingest, (own, str(root)))
        )
        if turn % 2:
            ingest(rng.sample(packs, 2), root, events=True)
        child = processes().Process(target=work[0], args=work[1])
        child.start()
        time.sleep(rng.random() * whole_s)
        child.kill()
        child.join()
        killed += child.exitcode == -signal.SIGKILL
    assert killed > kills // 3
    ingest(packs, root, events=True)
    assert without_places(content(root)) == without_places(wanted)
    monkeypatch.setattr(compact, "ORPHAN_HOURS", 0)
    compact.compact(root)
    assert without_places(content(root)) == without_places(wanted)
    table = root / "table"
    there = {str(path) for path in table.glob("kind=*/*")}
    state = delta.open_lake(root)
    assert there == {path for kind in schemas.KINDS for path in state.paths(kind)}
    assert not list((root / "plans").iterdir())


class KilledError(Exception):
    """Stands for a kill at exactly one place."""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("work", ["ingest", "compact"])
def test_killed_right_before_or_after_a_commit(boxes, tmp_path, monkeypatch, work, after):
    packs, _ = boxes
    root, whole = tmp_path / "lake", tmp_path / "whole"
    for pack in packs[:3]:
        ingest([pack], root)
        ingest([pack], whole)
    before = content(root)
    tries = commit.try_once

    def killed(state, change):
        if after:
            assert tries(state, change)
        raise KilledError

    def do(folder):
        return ingest(packs[3:5], folder) if work == "ingest" else compact.compact(folder)

    monkeypatch.setattr(commit, "try_once", killed)
    with pytest.raises(KilledError):
        do(root)
    monkeypatch.undo()
    do(whole)
    if not after:
        assert content(root) == before
    do(root)
    assert content(root) == content(whole)


# --- a lake of version 3 ---


def is_told_to_migrate(version, root, *words):
    """Whether a command refuses a lake of an older version in one line with the remedy."""
    refused = run(*words, "--lake", root)
    return (
        (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
        and f"{root}: a lake of schema version {version}" in refused.stderr
        and f"drupelet telemetry migrate {root}" in refused.stderr
    )


def migrated(root, counts, wanted):
    """The lake after `migrate`, which has these counts, the same tables, and goes on."""
    completed = run("migrate", root, "--json")
    assert completed.exit_code == 0, completed.stderr
    assert json.loads(completed.stdout) == counts
    state = delta.open_lake(root)
    for table, old_rows in wanted.items():
        rows = state.read_devices() if table == "devices" else state.read(table)
        have, want = (
            sorted(flat(table, row) for row in some) for some in (rows.to_pylist(), old_rows)
        )
        if table == "events":  # only one ingest had asked for them
            assert set(want) < set(have)
        else:
            assert have == want, table
    again = run("migrate", root)
    assert (again.exit_code, "nothing to migrate" in again.stderr) == (1, True)
    assert ingest([root / "packs"], root)["new"] == 0, "it goes on where it was"
    return state


def unpacked(path, folder):
    """The lake in an archive, and the tables that it gave."""
    with tarfile.open(path) as archive:
        # Python 3.11.2, which is Debian 12's, has no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder / "lake", json.loads((folder / "tables.json").read_text("utf-8"))


@pytest.fixture
def old(tmp_path):
    """A lake that version 3 made of logs of the simulator, and the tables that it gave."""
    return unpacked(OLD_LAKE, tmp_path)


def test_a_lake_of_version_3_is_migrated_in_its_place(old):
    root, wanted = old
    for words in (("report", "--html", root.parent / "x.html"), ("query", "SELECT 1")):
        assert is_told_to_migrate(3, root, *words)
    migrated(root, {"segments": 18, "imports": 1, "names": 5}, wanted)
    assert sorted(path.name for path in root.iterdir()) == ["packs", "plans", "table"]


# --- a lake of version 4 ---


@pytest.fixture
def before(tmp_path):
    """What version 4 made of a lake of version 3 and of segments in all kinds of trouble."""
    return unpacked(LAKE_BEFORE, tmp_path)


def test_a_lake_of_version_4_is_migrated_in_its_place(before, monkeypatch):
    root, wanted = before
    assert is_told_to_migrate(4, root, "report", "--html", root.parent / "x.html")
    log = sorted((root / "table" / "_delta_log").iterdir())
    monkeypatch.setattr(migrate, "create_table", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        migrate.migrate(root)
    assert sorted((root / "table" / "_delta_log").iterdir()) == log, "killed: it is as it was"
    monkeypatch.undo()
    state = migrated(root, {"segments": 88, "imports": 1, "names": 9}, wanted)
    assert state.read("hours").num_rows >= 7, "one at least of each boot of a black box"
    compact.compact(root)
    assert delta.open_lake(root).read("segments").num_rows == len(wanted["segments"])


def test_a_migration_of_version_4_gives_way_to_another_writer(before, monkeypatch):
    root, _ = before
    make_plan = migrate.make_plan

    def meanwhile(*given):
        other_writer = DeltaTable(root / "table")
        other_writer.create_checkpoint()
        other_writer.alter.set_table_properties({"delta.checkpointInterval": "21"})
        return make_plan(*given)

    monkeypatch.setattr(migrate, "make_plan", meanwhile)
    refused = run("migrate", root)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "was written to meanwhile; nothing changed: run it again" in refused.stderr
    monkeypatch.undo()
    assert migrate.migrate(root).segments == 88


def flat(table, row):
    """A row of a table as text; in quarantine the lake's packs are named now.

    Without nulls: columns that came with a later version have nothing else here.
    """
    kept = {name: row[name] for name in row if table != "quarantine" or name not in PLACES}
    return repr(sorted(item for item in kept.items() if item[1] is not None))


def test_a_migration_that_is_killed_changes_nothing_or_is_finished(old, monkeypatch):
    root, _ = old
    before = {path for path in root.rglob("*") if path.is_file()}
    monkeypatch.setattr(migrate, "create_table", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        migrate.migrate(root)
    assert before <= {path for path in root.rglob("*") if path.is_file()}
    monkeypatch.undo()
    monkeypatch.setattr(migrate, "remove_old", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        migrate.migrate(root)
    monkeypatch.undo()
    assert migrate.migrate(root).segments == 18
    assert not (root / "manifest.json").exists()
    assert delta.open_lake(root).read("segments").num_rows == 21


def test_what_a_migration_misses_is_named_and_nothing_changes(old):
    root, _ = old
    pack = sorted((root / "packs").iterdir())[0]
    pack.unlink()
    refused = run("migrate", root)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert f"{pack}: has segments of the lake and is not there" in refused.stderr
    assert (root / "manifest.json").exists() and not (root / "table" / "_delta_log").exists()
    (root / "manifest.json").write_text('{"schema_version": 2, "parts": [], "names": {}}')
    assert "only version 3 can be migrated" in run("migrate", root).stderr


def test_a_lake_is_a_function_of_what_came_while_it_is_compacted(boxes, tmp_path, monkeypatch):
    """An ingest lands between the reading of a compaction and its commit."""
    packs, wanted = boxes
    root = tmp_path / "lake"
    for pack in packs[:4]:
        ingest([pack], root, events=True)
    key_rows = compact.key_rows

    def meanwhile(*given):
        """What follows the reading is first the making of the change, which has no new keys."""
        monkeypatch.setattr(compact, "key_rows", key_rows)
        ingest(packs[4:], root, events=True)
        return key_rows(*given)

    monkeypatch.setattr(compact, "key_rows", meanwhile)
    compact.compact(root)
    assert without_places(content(root)) == without_places(wanted)
    assert len(delta.open_lake(root).files["piece"]) > 1


def test_names_are_the_latest_that_were_told(tmp_path):
    fleet.write(tmp_path, only=["A"])
    (tmp_path / "names.json").unlink()
    device = fleet.MEMBERS["A"][0].hex()
    for name in ("first", "second", "second", "first"):
        job.ingest([tmp_path], tmp_path / "lake", {device: {"name": name}}, None)
        assert delta.open_lake(tmp_path / "lake").read_devices()["name"].to_pylist() == [name]
        time.sleep(0.002)
    compact.compact(tmp_path / "lake")
    assert delta.open_lake(tmp_path / "lake").read_devices()["name"].to_pylist() == ["first"]
