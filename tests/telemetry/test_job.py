"""The Spark wiring: the same rows as the plain functions, once, whatever arrives and dies."""

import json
import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from drupelet_tools import telemetry
from drupelet_tools.bench import corpus_files
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.intake import following, job
from drupelet_tools.telemetry.lake import delta
from drupelet_tools.telemetry.spark import session, sql
from drupelet_tools.telemetry.tables import schemas
from telemetry import fleet
from telemetry.follow_script import Follow
from telemetry.lake_content import INNER, content
from telemetry.reference_decode import Copy, decode, read_header
from telemetry.reference_summary import summarise
from telemetry.segment_log import spoil


def never():
    raise AssertionError("nothing new: Spark must not be needed")


def ids(device):
    return fleet.MEMBERS[device][0].hex()


@pytest.fixture(scope="module")
def whole(spark, tmp_path_factory):
    """The fleet ingested in one go."""
    folder = tmp_path_factory.mktemp("whole")
    fleet.write(folder)
    counts = job.ingest([folder], folder / "lake", fleet.names(), spark)
    return folder, counts


def test_tables_are_those_of_the_plain_functions(whole):
    folder, counts = whole
    state = delta.open_lake(folder / "lake")
    expected = 0
    for device, *_ in fleet.MEMBERS.values():
        paths = sorted(folder.glob(f"{device.hex()}-*.dbx"))
        copies = [Copy(str(p), p.read_bytes(), read_header(p.read_bytes())) for p in paths]
        expected += len(copies)
        for table, rows in summarise(decode(copies)).items():
            stored = [r for r in state.read(table).to_pylist() if r["device"] == device.hex()]
            names = list(rows[0]) if rows else []
            stored = [{name: row[name] for name in names} for row in stored]
            assert sorted(map(repr, stored)) == sorted(map(repr, rows)), table
    assert counts == {
        "segments": expected,
        "repeated": 0,
        "new": expected,
        "devices": 4,
        "events": sum(row["events"] for row in state.read("segments").to_pylist()),
        "quarantined": 0,
    }
    devices = {row["name"]: row for row in state.read_devices().to_pylist()}
    assert devices["C"] == {
        "device": ids("C"), "name": "C", "carriers": "serial, stick", "board": "esp32",
        "firmware": None, "firmware_set": None,
    }  # fmt: skip


def test_the_same_again_adds_nothing_and_needs_no_spark(whole):
    folder, counts = whole
    before = content(folder / "lake")
    again = job.ingest([folder, *folder.glob("a*.dbx")], folder / "lake", {}, never)
    assert (again["segments"], again["new"], again["events"]) == (counts["segments"], 0, 0)
    assert content(folder / "lake") == before


def test_in_pieces_with_repeats_and_damage_mended_is_the_same(whole, spark, tmp_path):
    folder, _ = whole
    paths = sorted(folder.glob("*.dbx"), key=lambda p: (p.name[::-1], p.name))
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    for at, path in enumerate(paths):
        data = path.read_bytes()
        if at % 2:
            (first / path.name).write_bytes(spoil(data, 0) if at == 1 else data)
    pack = bytearray()
    for path in paths:
        inputs.append_to_pack(pack, path.read_bytes())
    (second / "all.dbxpack").write_bytes(pack)
    root = tmp_path / "lake"
    news = job.ingest([first], root, fleet.names(), spark)
    assert news["quarantined"] == 1
    news = job.ingest([second, first], root, {}, spark)
    assert news["new"] == len(paths) - len(paths) // 2 + 1, "the mended copy is news"
    stored, wanted = content(root), content(folder / "lake")
    assert stored == wanted, "the damaged copy of a whole one tells nothing"
    assert job.ingest([second, first], root, {}, never)["new"] == 0


def test_unreadable_headers_are_kept_as_reasons_once(spark, tmp_path):
    fleet.write(tmp_path, only=["A"])
    path = next(tmp_path.glob("*.dbx"))
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    (tmp_path / "odd.dbxpack").write_bytes(struct.pack("<I", 7) + b"abc")
    root = tmp_path / "lake"
    assert job.ingest([tmp_path], root, {}, spark)["quarantined"] == 2
    rows = delta.open_lake(root).read("quarantine").to_pylist()
    assert {(r["device"], r["file"], r["reason"]) for r in rows} == {
        ("", str(path), "header crc"),
        ("", str(tmp_path / "odd.dbxpack"), "pack: bad length at 0"),
    }
    assert job.ingest([tmp_path], root, {}, never)["new"] == 0
    assert [row["device"] for row in delta.open_lake(root).read_devices().to_pylist()] == [
        ids("A")
    ]


def test_views_show_only_what_counts(spark, tmp_path, capfd):
    written = fleet.write(tmp_path)
    late = written["A"][-1].rename(tmp_path / "late")
    root = tmp_path / "lake"
    job.ingest([tmp_path], root, fleet.names(), spark)
    # The last segment of A comes alone: the part that it shared still counts for the others.
    late = late.rename(tmp_path / "late.dbx")
    job.ingest([late], root, {}, spark)
    state = delta.open_lake(root)
    names, rows, more = sql.select(
        spark, state, "SELECT name, count(*) FROM segments JOIN devices USING (device) GROUP BY 1"
    )
    assert names == ["name", "count(1)"] and not more
    assert dict(rows) == {name: len(paths) for name, paths in written.items()}
    with pytest.raises(TelemetryError, match="query: ") as error:
        sql.select(spark, state, "SELECT nonsense FROM nowhere")
    assert "\n" not in str(error.value)
    capfd.readouterr()
    with pytest.raises(TelemetryError, match=r"query: .*`nonsense`") as error:
        sql.select(spark, state, "SELECT nonsense FROM segments")
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", ""), "Spark prints its plan and a Java stack by itself"


def test_a_query_names_the_file_that_cannot_be_read(whole, spark, tmp_path):
    root = tmp_path / "lake"
    shutil.copytree(whole[0] / "lake", root)
    part = next((root / "table" / "kind=piece").iterdir())
    for spoilt in (lambda: part.write_bytes(b"no parquet" * 100), part.unlink):
        spoilt()
        with pytest.raises(TelemetryError, match="cannot read this part of the lake") as error:
            sql.select(spark, delta.open_lake(root), "SELECT count(*) FROM segments")
        assert part.name in str(error.value) and "\n" not in str(error.value)


def test_only_what_reads_is_a_query(whole):
    for statement in ("DROP TABLE messages", "", "  insert into segments SELECT 1", ";"):
        with pytest.raises(TelemetryError, match="query: want a SELECT"):
            sql.run(statement, whole[0] / "lake", "local[2,3]")


def test_what_py4j_says_of_a_jvm_that_is_gone_is_left_out():
    """It logs by the root logger, from finalisers, and so at any time."""
    theirs = logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "x", (), None)
    ours = logging.LogRecord("root", logging.ERROR, "/x/telemetry/intake/job.py", 1, "y", (), None)
    assert [session.is_not_py4j(record) for record in (theirs, ours)] == [False, True]


def test_a_worker_that_cannot_write_is_one_line_and_changes_nothing(spark, tmp_path, monkeypatch):
    fleet.write(tmp_path, only=["A"])
    root = tmp_path / "lake"
    make_plan = job.make_plan

    def lose_the_folder(*given):
        shutil.rmtree(root / "table" / "kind=piece")
        return make_plan(*given)

    monkeypatch.setattr(job, "make_plan", lose_the_folder)
    with pytest.raises(TelemetryError, match="a worker could not go on"):
        job.ingest([tmp_path], root, {}, spark)
    assert delta.open_lake(root).is_empty
    monkeypatch.undo()
    assert job.ingest([tmp_path], root, {}, spark)["new"] > 0


def test_workers_that_are_killed_are_replaced(whole, spark, tmp_path):
    """A task whose worker dies is tried again; its first try's files do not count."""
    folder, counts = whole
    marks = tmp_path / "marks"
    marks.mkdir()

    class Mortal:
        def __init__(self, task):
            self.task = task

        def work(self, at, attempt):
            result = self.task.work(at, attempt)
            if not (marks / str(at)).exists():
                (marks / str(at)).touch()
                os.kill(os.getpid(), signal.SIGKILL)  # all is written, and nobody hears of it
            return result

    make_tasks = job.over_plans
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "over_plans", lambda task: make_tasks(Mortal(task)))
        news = job.ingest([folder], tmp_path / "lake", fleet.names(), spark)
    assert len(list(marks.iterdir())) > 0
    assert news == counts
    assert content(tmp_path / "lake") == content(folder / "lake")


def test_workers_that_die_again_and_again_are_one_line_and_change_nothing(spark, tmp_path):
    fleet.write(tmp_path, only=["A"])
    root = tmp_path / "lake"

    def die(batches):
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "over_plans", lambda _: die)
        with pytest.raises(
            TelemetryError, match=r"Spark gave up: .*worker.*run the ingest"
        ) as error:
            job.ingest([tmp_path], root, {}, spark)
    assert "\n" not in str(error.value)
    assert delta.open_lake(root).is_empty
    assert job.ingest([tmp_path], root, {}, spark)["new"] > 0


def test_the_files_are_a_delta_table_that_anything_reads(whole):
    """The stored types are those of the table's schema, as readers without us see it."""
    folder, counts = whole
    table = DeltaTable(folder / "lake" / "table")
    for path in delta.open_lake(folder / "lake").paths(schemas.PIECE):
        assert pq.read_schema(path).names == schemas.FILES[schemas.PIECE].names
    rows = table.to_pyarrow_table(filters=[("kind", "=", schemas.PIECE)])
    assert rows.num_rows == counts["new"]
    assert sum(rows["events"].to_pylist()) == counts["events"]


def test_pieces_can_be_queried_as_they_are_stored(whole, spark):
    folder, counts = whole
    state = delta.open_lake(folder / "lake")
    asked = "SELECT count(*), sum(size(messages)) FROM pieces"
    [(pieces, messages)] = sql.select(spark, state, asked).rows
    assert pieces == counts["new"]
    assert messages >= state.read("messages").num_rows


def test_a_session_that_is_there_already_is_used_and_left(spark, whole, tmp_path):
    folder, counts = whole
    names = inputs.read_names(folder / "names.json")
    assert telemetry.ingest(spark, [str(folder)], str(tmp_path / "lake"), names) == counts
    assert content(tmp_path / "lake") == content(folder / "lake")
    assert spark.range(3).count() == 3


def test_a_cluster_of_processes_gives_the_same_tables(whole, tmp_path):
    """Two executors, each a JVM of its own with its own Python workers."""
    folder, counts = whole
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "from drupelet_tools.telemetry.commands.telemetry import app; app()",
            *("ingest", str(folder), "--lake", str(tmp_path / "lake"), "--json"),
            *("--names", str(folder / "names.json"), "--master", "local-cluster[2,1,1024]"),
        ],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == counts
    assert content(tmp_path / "lake") == content(folder / "lake")


def test_views_are_what_read_gives_with_clocks_from_others_and_boots_in_pieces(
    spark, tmp_path, monkeypatch
):
    wanted = corpus_files.Corpus(events=60_000, devices=8, files=3, damage=True, seed=5)
    corpus_files.write(tmp_path / "in", wanted)
    for path in sorted((tmp_path / "in").glob("*.dbxpack")):
        job.ingest([path], tmp_path / "lake", {}, None, events=True)
    state = delta.open_lake(tmp_path / "lake")
    assert len(state.clocks)
    monkeypatch.setattr(delta, "SHARE_PIECES", 64)
    assert len(state.shares()) > 2, "several workers put the tables together"
    sql.register(spark, state)
    for table in schemas.TABLES:
        if table in INNER:
            continue
        frame = spark.table(table)
        assert frame.columns == schemas.TABLES[table].names
        plain = [tuple(row.values()) for row in state.read(table).to_pylist()]
        rows = [tuple(row.asDict(recursive=True).values()) for row in frame.collect()]
        assert sorted(map(repr, rows)) == sorted(map(repr, plain)), table


def test_a_follower_gives_large_batches_to_a_session(whole, spark, tmp_path, monkeypatch):
    folder, counts = whole
    monkeypatch.setattr(following, "HERE_BYTES_MAX", 4_000)
    here, there = job.run_here, job.on_spark
    ran = []
    monkeypatch.setattr(job, "run_here", lambda *given: ran.append("here") or here(*given))
    monkeypatch.setattr(job, "on_spark", lambda one: ran.append("there") or there(one))
    ending = threading.Event()

    def on_batch(batch):
        if batch["files"] == 1:
            ending.set()

    late = tmp_path / "late"
    late.mkdir()
    first = sorted(folder.glob("*.dbx"))[0]

    def until(seconds):
        if seconds and not list(late.iterdir()):
            shutil.copy(first, late)
        return ending.wait(min(seconds, 0.2))

    others = [path for path in sorted(folder.glob("*.dbx")) if path != first]
    news = telemetry.follow(
        spark, [*others, late], tmp_path / "lake", fleet.names(),
        until=until, every_s=1, settle_s=0.2, on_batch=on_batch,
    )  # fmt: skip
    assert news["new"] == counts["new"] and ran == ["there", "here"]
    stored, wanted = content(tmp_path / "lake"), content(folder / "lake")
    assert stored == wanted


def test_a_session_that_does_not_start_is_said_and_done_without(whole, tmp_path, monkeypatch):
    folder, counts = whole
    monkeypatch.setattr(following, "HERE_BYTES_MAX", 0)
    monkeypatch.setattr(following, "SPARK_WAITING_BYTES", 0)

    def start():
        raise TelemetryError("no Java found; Spark needs Java 17 or later: run tools/setup")

    followed = Follow([folder], tmp_path / "lake", names=fleet.names(), spark=start)
    assert followed.news == [counts["new"]]
    (problem,) = followed.problems
    assert problem.endswith("run tools/setup; it goes on without Spark")
    assert content(tmp_path / "lake") == content(folder / "lake")
