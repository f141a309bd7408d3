"""The ingest without Spark: killed anywhere, fed anything, always the same tables once."""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from drupelet_tools.bench import corpus, corpus_files
from drupelet_tools.telemetry import ARROW_POOL
from drupelet_tools.telemetry.base import scratch
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.blackbox import crc
from drupelet_tools.telemetry.commands.telemetry import app
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import commit, delta, worker
from drupelet_tools.telemetry.spark import session
from drupelet_tools.telemetry.tables import schemas
from repeats import few
from telemetry import box_writer as box
from telemetry import fleet, kill_child
from telemetry.lake_content import content
from telemetry.reference_decode import Copy, decode, read_header
from telemetry.reference_summary import summarise
from telemetry.segment_log import spoil

KILLS = 8


def ingest(paths, root, **options):
    return job.ingest([paths] if not isinstance(paths, list) else paths, root, {}, None, **options)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boxes")
    corpus_files.write(folder / "in", corpus_files.Corpus(120_000, 8, 3, damage=True, seed=5))
    ingest(folder / "in", folder / "lake", events=True)
    return folder


# --- exactly once ---


def test_killed_at_any_point_and_run_again_the_tables_are_the_same(boxes, tmp_path):
    started = time.monotonic()
    ingest(boxes / "in", tmp_path / "timed", events=True)
    whole_s = time.monotonic() - started
    rng = random.Random(4)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["telemetry.kill_child"])
    root = tmp_path / "lake"
    killed = 0
    for _ in range(KILLS):
        child = context.Process(target=kill_child.ingest, args=([str(boxes / "in")], str(root)))
        child.start()
        time.sleep(rng.random() * whole_s)
        child.kill()
        child.join()
        killed += child.exitcode == -signal.SIGKILL
    assert killed > KILLS // 2
    ingest(boxes / "in", root, events=True)
    assert content(root) == content(boxes / "lake")
    assert ingest(boxes / "in", root, events=True)["new"] == 0


def test_a_large_pack_is_planned_in_pieces(boxes, tmp_path, monkeypatch):
    pack = tmp_path / "in" / "all.dbxpack"
    pack.parent.mkdir()
    whole = sorted((boxes / "in").glob("*.dbxpack"))
    pack.write_bytes(b"".join(path.read_bytes() for path in whole))
    rows = [len(one) for one in inputs.scan_batches([pack], None)]
    monkeypatch.setattr(inputs, "WINDOW_SIZE", 1 << 16)
    pieces = list(inputs.scan_batches([pack], 100))
    assert sum(map(len, pieces)) == rows[0]
    assert len(pieces) > 2
    assert all(len(one) < 100 + 2 * (1 << 16) // 4_096 for one in pieces)
    monkeypatch.setattr(job, "BATCH_SEGMENTS", 100)
    ingest(pack.parent, tmp_path / "lake", events=True)
    stored, wanted = content(tmp_path / "lake"), content(boxes / "lake")
    assert len(stored.pop("quarantine")) == len(wanted.pop("quarantine"))
    assert stored == wanted


def test_a_listing_ends_behind_a_pack_that_half_fills_it(boxes):
    """Where a pack ends few boots are cut in two."""
    packs = sorted((boxes / "in").glob("*.dbxpack"))
    assert len(packs) > 1
    (first,) = map(len, inputs.scan_batches(packs[:1], None))
    for rows_max, ends_there in ((2 * first, True), (2 * first + 2, False)):
        piece = next(inputs.scan_batches(packs, rows_max))
        assert (len(piece) == first) == ends_there


def test_progress_goes_from_nothing_to_all(boxes, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "WATCH_S", 0.01)
    monkeypatch.setattr(job, "BATCH_SEGMENTS", 1)
    steps = []
    watch = lambda done, total: steps.append((done, total))  # noqa: E731
    ingest(boxes / "in", tmp_path / "lake", watch=watch)
    (total,) = {total for _, total in steps}
    assert total == sum(path.stat().st_size for path in (boxes / "in").glob("*.dbxpack"))
    done = [one for one, _ in steps]
    assert done == sorted(done)
    assert 0.9 * total < done[-1] <= total
    steps.clear()
    ingest(boxes / "in", tmp_path / "lake", watch=watch)
    assert steps[-1][0] > 0.9 * total, "what is known is done"


def test_a_second_run_decodes_only_what_is_new(boxes, tmp_path, monkeypatch):
    files = sorted((boxes / "in").glob("*.dbxpack"))
    ingest(files[:2], tmp_path / "lake")
    looked_at = []
    check = worker.decode.check

    def count(entries):
        looked_at.append(len(entries))
        return check(entries)

    monkeypatch.setattr(worker.decode, "check", count)
    counts = ingest(files, tmp_path / "lake")
    assert counts["repeated"] > counts["new"] > 0
    assert sum(looked_at) <= 2 * counts["new"], "known segments are not read again"
    looked_at.clear()
    assert ingest(files, tmp_path / "lake")["new"] == 0
    assert looked_at == []


def test_how_a_group_is_dealt_and_cut_plays_no_part(boxes, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "CHUNK_BLOCKS", 37)
    monkeypatch.setattr(job, "BATCH_SEGMENTS", 1)
    monkeypatch.setattr("drupelet_tools.telemetry.intake.plan.GROUP_BYTES_MIN", 1)
    monkeypatch.setattr("drupelet_tools.telemetry.intake.plan.GROUP_BYTES_MAX", 100_000)
    ingest(boxes / "in", tmp_path / "lake", events=True)
    assert len(delta.open_lake(tmp_path / "lake").files["piece"]) > 5
    assert content(tmp_path / "lake") == content(boxes / "lake")


def random_events(rng, count):
    """Any events in any order, with counters that grow."""
    now = 0
    events = [(0, box.BOOT, rng.randrange(5), 1, 0), (0, box.DESCRIPTOR, 1, 0, 99_999)]
    counters = {}
    for _ in range(count):
        now += rng.randrange(2_000)
        kind = rng.random()
        if kind < 0.4:
            events.append(box.state(now, rng.randrange(8)))
        elif kind < 0.7:
            index = rng.choice([0, 1, 2, 3, 8, 10, 65, 66, 100, 150])
            counters[index] = counters.get(index, 0) + rng.randrange(1_000)
            events.append(box.counter(now, index, counters[index]))
        elif kind < 0.9:
            word = rng.randrange(50)
            events.append((now, rng.randrange(10, 18), rng.randrange(4), rng.randrange(5), word))
        else:
            code = rng.choice([30, 31, 33, 99])
            events.append((now, code, rng.randrange(4), rng.randrange(3_000, 4_000), 7))
    return events


def random_fleet(rng, folder):
    folder.mkdir()
    number = 0
    for device in range(rng.randrange(1, 4)):
        for boot in range(1, rng.randrange(2, 5)):
            events = random_events(rng, rng.randrange(5, 700))
            sizes = {"per_block": rng.choice([41, 41, 7]), "per_segment": rng.choice([8, 8, 3])}
            wall = {"wall_ms": 1_795_000_000_000 + boot * 10**9, "uncertainty_ms": 20}
            name = bytes([0xD0 + device, 1, 2, 3])
            for data in box.segments(name, boot, events, **sizes, **wall):
                chance = rng.random()
                if chance < 0.1:
                    continue
                spoilt = bytearray(data)
                if chance < 0.35:
                    spoilt[rng.randrange(32, len(spoilt))] ^= 4
                if chance > 0.9:
                    del spoilt[rng.randrange(33, len(spoilt)) :]
                for _ in range(2 if 0.3 < chance < 0.4 else 1):
                    (folder / f"{number:05}.dbx").write_bytes(spoilt)
                    number += 1
    return sorted(folder.glob("*.dbx"))


@pytest.mark.parametrize("seed", few(4, range(12)))
def test_pieces_give_what_a_plain_decoder_gives_for_the_whole(seed, tmp_path):
    """Another decoder, a device at a time and without pieces, is the judge."""
    rng = random.Random(seed)
    files = random_fleet(rng, tmp_path / "in")
    logs = {}
    for path in files:
        data = path.read_bytes()
        head = read_header(data)
        logs.setdefault(head.device, []).append(Copy(str(path), data, head))
    rng.shuffle(files)
    pieces = rng.choice([1, 2, 3])
    for at in range(pieces):
        if files[at::pieces]:
            ingest(files[at::pieces], tmp_path / "lake")
    state = delta.open_lake(tmp_path / "lake")
    # The plain decoder knows nothing of other devices.
    state.clocks = schemas.TABLES["clocks"].empty_table()
    wanted = {}
    for copies in logs.values():
        for table, rows in summarise(decode(copies)).items():
            wanted.setdefault(table, []).extend(rows)
    for table, rows in wanted.items():
        # Which of equal files came first, and how often, depends on the pieces.
        names = set(rows[0] if rows else ()) - {"file", "copies"}
        stored = [{n: row[n] for n in sorted(names)} for row in state.read(table).to_pylist()]
        wanted = [{n: row[n] for n in sorted(names)} for row in rows]
        assert sorted(map(repr, stored)) == sorted(map(repr, wanted)), table


# --- what is given ---


def test_small_files_are_packed_and_a_lake_can_be_made_of_its_packs(tmp_path):
    (tmp_path / "in").mkdir()
    fleet.write(tmp_path / "in")
    first = ingest(tmp_path / "in", tmp_path / "lake")
    packs = list((tmp_path / "lake" / "packs").iterdir())
    assert 1 <= len(packs) <= 4 < first["new"]
    ingest(tmp_path / "lake" / "packs", tmp_path / "again")
    assert content(tmp_path / "again") == content(tmp_path / "lake")
    for row in delta.open_lake(tmp_path / "lake").read("sources").to_pylist():
        with open(tmp_path / "lake" / row["pack"], "rb") as pack:
            pack.seek(row["pack_offset"])
            with open(row["file"], "rb") as file:
                assert pack.read(row["size"]) == file.read()


def test_a_pack_that_ends_within_a_segment_gives_what_is_there(tmp_path):
    data = box.segments(b"\1\2\3\4", 1, box.Duty().run(200).events)[0]
    pack = bytearray()
    inputs.append_to_pack(pack, data)
    inputs.append_to_pack(pack, data[:16] + b"\x09" + data[17:])  # a bad header crc
    inputs.append_to_pack(pack, box.segments(b"\5\2\3\4", 1, box.Duty().run(200).events)[0])
    (tmp_path / "a.dbxpack").write_bytes(pack[:-700])
    counts = ingest(tmp_path / "a.dbxpack", tmp_path / "lake")
    assert counts["quarantined"] == 2
    rows = delta.open_lake(tmp_path / "lake").read("segments").to_pylist()
    assert [(row["device"], row["blocks"], row["blocks_bad"]) for row in rows] == [
        ("01020304", 8, 0), ("05020304", 7, 1),
    ]  # fmt: skip


def test_events_on_request(boxes):
    state = delta.open_lake(boxes / "lake")
    events = state.read("events")
    assert events.num_rows == sum(state.read("segments")["events"].to_pylist())
    assert events.schema.equals(schemas.TABLES["events"])
    boots = {
        (boot.device.hex(), boot.boot): boot for boot in corpus.fleet(120_000, 8, 5)
    }  # fmt: skip
    rows = events.slice(0, 2_000).to_pylist()
    for row in rows:
        boot = boots[row["device"], row["boot"]]
        at = (row["number"] * 8 + row["block"]) * 41
        place = at + int(np.searchsorted(boot.time_ms[at : at + 41], row["boot_ms"]))
        while (boot.code[place], boot.a[place]) != (row["code"], row["a"]):
            place += 1
        assert boot.time_ms[place] == row["boot_ms"]
        assert (boot.b[place], boot.c[place]) == (row["b"], row["c"])


def test_the_crc_of_a_run_of_blocks_and_of_each():
    rng = np.random.default_rng(1)
    for count in (0, 1, 2, 3, 15, 16, 17, 100):
        blocks = rng.integers(0, 256, (count, 512), dtype=np.uint8)
        checksums = np.array([zlib.crc32(block) for block in blocks], dtype=np.uint32)
        assert not crc.bad_blocks(blocks, checksums).any()
        for bad in range(count):
            spoilt = blocks.copy()
            spoilt[bad, rng.integers(512)] ^= 1 << rng.integers(8)
            assert np.flatnonzero(crc.bad_blocks(spoilt, checksums)).tolist() == [bad]
        if count:
            checksums[0] ^= 1
            assert np.flatnonzero(crc.bad_blocks(blocks, checksums)).tolist() == [0]


def test_two_histories_under_one_number_are_not_added_up_in_pieces_either(tmp_path):
    first = box.segments(b"\1\2\3\4", 1, box.Duty().run(30).events)
    other = box.segments(b"\1\2\3\4", 1, box.Duty(9).run(50).events)
    for name, datas in (("a", first), ("b", other)):
        (tmp_path / name).mkdir()
        for at, data in enumerate(datas):
            (tmp_path / name / f"{at}.dbx").write_bytes(data)
    for order in ("ab", "ba"):
        root = tmp_path / f"lake-{order}"
        for name in order:
            ingest(tmp_path / name, root)
        state = delta.open_lake(root)
        assert sum(state.read("segments")["events"].to_pylist()) == 150, "the longer one counts"
        [row] = state.read("quarantine").to_pylist()
        assert row["reason"] == "other bytes under a number already seen"
        assert row["file"].endswith("/a/0.dbx")
        assert ingest(tmp_path / "b", root)["new"] == 0


# --- rows of others ---


def test_rows_from_elsewhere_are_added_once_and_stay(tmp_path):
    fleet.write(tmp_path)
    root = tmp_path / "lake"
    rows = {"battery": [{"device": "lora-1", "boot": 0, "boot_ms": 5, "wall_ms": 9, "mv": 3_600}]}
    names = {"lora-1": {"name": "tower", "carriers": "", "board": ""}}
    assert commit.append(root, rows, "import:1", names)
    assert not commit.append(root, rows, "import:1", names)
    ingest(tmp_path, root)
    state = delta.open_lake(root)
    assert state.read("battery")["mv"].to_pylist().count(3_600) == 1
    assert "tower" in state.read_devices()["name"].to_pylist()
    with pytest.raises(TelemetryError, match="import:2: battery"):
        commit.append(root, {"battery": [{"device": "x", "boot": "one"}]}, "import:2")


# --- bad input at the command line: one line, status 1, nothing changed ---


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def first_log(root):
    return root / "table" / "_delta_log" / f"{0:020}.json"


def cut_log(root):
    for path in first_log(root).parent.glob("*.json"):
        path.write_text("{")


def log_of_a_later_version(root):
    entry = first_log(root).read_text()
    assert delta.DESCRIPTION in entry
    first_log(root).write_text(entry.replace(delta.DESCRIPTION, "schema version 9"))


@pytest.mark.parametrize(
    ("spoil_lake", "remedy"),
    [
        (cut_log, "_delta_log: cannot read the log: "),
        (
            log_of_a_later_version,
            f"of schema version 9, and this is schema version {schemas.SCHEMA_VERSION}",
        ),
    ],
)
def test_a_log_that_cannot_be_used(tmp_path, spoil_lake, remedy):
    fleet.write(tmp_path, only=["A"])
    ingest(tmp_path, tmp_path / "lake")
    spoil_lake(tmp_path / "lake")
    done = run("ingest", tmp_path, "--lake", tmp_path / "lake")
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert remedy in done.stderr
    assert f"and {tmp_path / 'lake' / 'packs'} into a new folder" in done.stderr


def test_bad_paths_and_files(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "00000001.DRP").write_bytes(b"DRP1")
    (tmp_path / "file").write_text("not a lake")
    fleet.write(tmp_path, only=["A"])
    (tmp_path / "names.json").write_text("[1")
    for words, remedy in (
        (("ingest", tmp_path / "none", "--lake", tmp_path / "l"), "no such file"),
        (("ingest", tmp_path / "empty", "--lake", tmp_path / "l"), "no black-box segments"),
        (("ingest", tmp_path / "00000001.DRP", "--lake", tmp_path / "l"), "drupelet stick"),
        (("ingest", tmp_path, "--lake", tmp_path / "file"), "cannot write the lake"),
        (("ingest", tmp_path, "--lake", tmp_path / "l"), "names.json: not JSON"),
        (("query", "SELECT 1", "--lake", tmp_path / "empty"), "no lake here"),
    ):
        done = run(*words)
        assert done.exit_code == 1, words
        assert done.stderr.count("\n") == 1, done.stderr
        assert remedy in done.stderr, done.stderr
    assert not (tmp_path / "l" / "plans").exists() or not list(
        (tmp_path / "l" / "plans").iterdir()
    )


def test_a_file_that_becomes_shorter_while_it_is_read_changes_nothing(tmp_path, monkeypatch):
    fleet.write(tmp_path, only=["A"])
    path = sorted(tmp_path.glob("*.dbx"))[0]
    make_plan = job.make_plan

    def cut_first(*given):
        plan = make_plan(*given)
        path.write_bytes(path.read_bytes()[:100])
        return plan

    monkeypatch.setattr(job, "make_plan", cut_first)
    with pytest.raises(TelemetryError, match="became shorter while it was read; run the ingest"):
        ingest(tmp_path, tmp_path / "lake")
    assert delta.open_lake(tmp_path / "lake").is_empty


@pytest.mark.parametrize("kind", schemas.KINDS)
def test_a_file_of_the_lake_that_is_gone_or_cut_is_named(boxes, tmp_path, kind):
    root = tmp_path / "lake"
    shutil.copytree(boxes / "lake", root)
    if kind == schemas.FOREIGN:
        commit.append(root, {"battery": [{"device": "x", "boot": 0, "mv": 3_600}]}, "import:1")
    path = Path(delta.open_lake(root).paths(kind)[0])
    whole = path.read_bytes()
    for spoilt in (lambda: path.write_bytes(whole[:-7]), path.unlink):
        spoilt()
        done = run("report", "--lake", root, "--html", tmp_path / "page.html")
        assert done.exit_code == 1
        assert done.stderr.count("\n") == 1
        assert path.name in done.stderr and "put it back" in done.stderr
    path.write_bytes(whole)
    assert run("report", "--lake", root, "--html", tmp_path / "page.html").exit_code == 0


def test_decoding_imports_no_spark():
    program = (
        "import sys; from drupelet_tools.telemetry.intake import job;"
        "from drupelet_tools.telemetry.tables import summary;"
        "sys.exit('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 0


def test_a_damaged_copy_is_mended_by_a_later_one(tmp_path):
    data = box.segments(b"\1\2\3\4", 1, box.Duty().run(200, 9).events)[0]
    for name, bytes_ in (("a", spoil(data, 2)), ("b", data)):
        (tmp_path / f"{name}.dbx").write_bytes(bytes_)
        ingest(tmp_path / f"{name}.dbx", tmp_path / "lake")
    ingest(tmp_path / "b.dbx", tmp_path / "whole")
    mended, wanted = (delta.open_lake(tmp_path / name) for name in ("lake", "whole"))
    for table in ("state_time", "traffic", "messages", "health"):
        assert mended.read(table).equals(wanted.read(table)), table
    assert mended.read("segments")["blocks_bad"].to_pylist() == [0]
    assert mended.read("quarantine").num_rows == 0, "nothing is lost"


def test_what_a_killed_session_left_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    for name in (
        f"drupelet-spark-{ended.pid}-x",
        f"drupelet-spark-{os.getpid()}-x",
        "drupelet-spark-y",
    ):
        (tmp_path / name).mkdir()
    scratch.sweep(session.FOLDER_PREFIX)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"drupelet-spark-{os.getpid()}-x",
        "drupelet-spark-y",
    ]


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_of_a_cluster_only_its_name_is_set(master, tmp_path):
    """Addresses, Python, partitions and adaptive execution are its owner's."""
    cluster = session.cluster_of(master, ["spark.executor.memory=2g", "spark.a.b=c=d"])
    settings = dict(session.configuration(tmp_path, cluster).getAll())
    assert settings.pop("spark.master") == master
    assert settings.pop("spark.executor.memory") == "2g" and settings.pop("spark.a.b") == "c=d"
    assert sorted(settings) == [
        "spark.app.name", f"spark.executorEnv.{ARROW_POOL}", "spark.log.level",
        "spark.ui.showConsoleProgress",
    ]  # fmt: skip


def test_what_is_given_wins_over_ours(tmp_path):
    cluster = session.cluster_of("local[2]", ["spark.sql.shuffle.partitions=9"])
    settings = dict(session.configuration(tmp_path, cluster).getAll())
    assert settings["spark.sql.shuffle.partitions"] == "9"
    assert settings["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("text", ["", "spark.x", "=1", "executor.memory=2g"])
def test_a_setting_that_is_none_is_one_line(text):
    with pytest.raises(TelemetryError, match=r"write spark\.KEY=VALUE") as caught:
        session.cluster_of("yarn", [text])
    assert "\n" not in str(caught.value)


def test_why_spark_did_not_start_is_the_jvms_own_word(tmp_path):
    log = tmp_path / "jvm.log"
    log.write_text(
        'Setting Spark log level to "ERROR".\n'
        "26/11/21 18:20:00 ERROR Backend: All masters are unresponsive! Giving up.\n"
    )
    broken = RuntimeError("An error occurred while calling None")
    reason = session.why_not_started(log, "spark://nowhere:7077", broken)
    assert reason.startswith("Spark did not start: 26/11/21 18:20:00 ERROR Backend: All masters")
    assert reason.endswith("is --master spark://nowhere:7077 right?")
    log.unlink()
    reason = session.why_not_started(log, session.LOCAL_MASTER, RuntimeError("no gateway"))
    assert reason.endswith(": no gateway")
