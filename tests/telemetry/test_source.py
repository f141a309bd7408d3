"""Black boxes as a Spark source: batch, and a stream that gives each segment once."""

import json
import os
import shutil
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from drupelet.base.errors import DrupeletError
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.files import changes, inputs, stream_offset
from drupelet_tools.telemetry.spark import source
from drupelet_tools.telemetry.tables import choose
from drupelet_tools.telemetry.tables.schemas import TABLES
from telemetry import box_writer as box
from telemetry import fleet
from telemetry.segment_log import events_of, log_of, spoil


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boxes")
    written = fleet.write(folder)
    last = written["A"][-1]
    last.write_bytes(spoil(last.read_bytes(), 0))
    return folder


def rows_of(boxes, device=None):
    """Every event of the files, by the plain decoder."""
    rows = []
    for path in sorted(boxes.glob("*.dbx")):
        name = path.name.split("-")[0]
        if device in (None, name):
            log = log_of(path.read_bytes())
            fields = events_of(log)
            rows += [
                (name, *row)
                for row in zip(
                    fields.boot, fields.time_ms, fields.code, fields.a, fields.b, fields.c,
                    strict=True,
                )
            ]  # fmt: skip
    return sorted(rows)


def read_all(reader, shares):
    return [tuple(row.values()) for share in shares for batch in reader.read(share)
            for row in batch.to_pylist()]  # fmt: skip


def test_without_spark_all_rows_come(boxes):
    reader = source.BoxReader({"path": str(boxes), "partitions": "3"})
    shares = reader.partitions()
    batches = [batch for share in shares for batch in reader.read(share)]
    assert all(batch.schema.equals(TABLES["events"]) for batch in batches)
    rows = sorted(read_all(reader, shares))
    assert sorted((r[0], r[1], *r[4:]) for r in rows) == rows_of(boxes)
    # Spark reads a partition of its own where a source has none.
    assert list(reader.read(InputPartition(None))) == []


def test_files_without_a_good_segment_have_no_events_and_are_told(tmp_path):
    (tmp_path / "a.dbx").write_bytes(b"no segment")
    reader = source.BoxReader({"path": str(tmp_path)})
    assert read_all(reader, reader.partitions()) == []
    reader = source.BoxReader({"path": f"file://{tmp_path}", "table": "quarantine"})
    (row,) = read_all(reader, reader.partitions())
    assert row[-1] == "short header" and row[4] == str(tmp_path / "a.dbx")


def test_no_path_is_one_line():
    with pytest.raises(TelemetryError, match="load\\(\\) wants files"):
        source.BoxReader({}).partitions()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"path": "missing"}, "missing: no such file or folder"),
        ({"path": "note.txt"}, "note.txt: no black box (*.dbx, *.dbxpack): it does not begin as"),
        ({"path": "empty"}, "empty: no black-box segments (*.dbx, *.dbxpack) in it"),
        ({"path": "https://host/box"}, "https://host/box: https:// is neither read nor"),
        ({"path": "note.txt", "partitions": "x"}, "option partitions: 'x' is not a number from 1"),
        ({"path": "note.txt", "partitions": "0"}, "option partitions: '0' is not a number from 1"),
        ({"path": "note.txt", "table": "evnts"}, "option table: 'evnts' is not events or"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, words, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("hello")
    with pytest.raises(DrupeletError) as caught:
        source.BoxReader(words).partitions()
    assert complaint in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_stream_says_what_is_wrong_with_its_options_and_that_it_reads_no_agents_folder(tmp_path):
    stream = Stream(tmp_path, settle_ms="soon")
    with pytest.raises(TelemetryError, match="option settle_ms: 'soon' is not a number from 0"):
        stream.numbers()
    (tmp_path / "store.db").touch()
    options = {"path": str(tmp_path)}
    with pytest.raises(TelemetryError, match="a stream follows folders of black boxes and this"):
        source.DrupeletSource(options).streamReader(source.DrupeletSource(options).schema())


def test_what_spark_raises_has_our_line(spark, tmp_path):
    """Its own switch leaves the traceback of its worker out."""
    source.register(spark)
    missing = tmp_path / "missing"
    switch = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"
    spark.conf.set(switch, "true")
    try:
        with pytest.raises(AnalysisException) as caught:
            spark.read.format("drupelet").load(str(missing)).count()
    finally:
        spark.conf.unset(switch)
    assert f"TelemetryError: {missing}: no such file or folder" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_batch(spark, boxes):
    source.register(spark)
    frame = spark.read.format("drupelet").load(str(boxes))
    rows = frame.select("device", "boot", "boot_ms", "code", "a", "b", "c").collect()
    assert sorted(map(tuple, rows)) == rows_of(boxes)
    bad = spark.read.format("drupelet").option("table", "quarantine").load(str(boxes)).collect()
    assert [(row.device, row.block, row.reason) for row in bad] == [
        (fleet.MEMBERS["A"][0].hex(), 0, "block crc")
    ]


def test_one_frame_used_in_ten_ways(spark, boxes):
    """Spark keeps what a source was given to leave out, and a later use would lack it."""
    source.register(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    plain = rows_of(boxes)
    device = fleet.MEMBERS["C"][0].hex()
    frame = spark.read.format("drupelet").load(str(boxes))

    def count(**fields):
        names = ("device", "boot", "boot_ms", "code")
        return sum(
            all(dict(zip(names, row[:4], strict=True))[name] == value
                for name, value in fields.items())
            for row in plain
        )  # fmt: skip

    tens, one = count(code=10), count(device=device)
    both = count(code=10, device=device)
    assert 0 < both < min(tens, one) < max(tens, one) < len(plain)
    created, own = frame.where("code = 10"), frame.where(f"device = '{device}'")
    ways = [
        (frame.count(), len(plain)),
        (created.count(), tens),
        (frame.count(), len(plain)),
        (own.count(), one),
        (created.where(f"device = '{device}'").count(), both),
        (created.union(own).count(), tens + one),
        (created.intersect(own).count(), both),
        (created.join(frame.select("device").distinct(), "device").count(), tens),
        (frame.where("device = 'ffffffff'").count(), 0),
        (frame.where("code = 10 AND boot_ms >= 9000").count(),
         sum(row[3] == 10 and row[2] >= 9_000 for row in plain)),
    ]  # fmt: skip
    assert [found for found, _ in ways] == [expected for _, expected in ways]
    assert created.join(own, frame.columns).count() == both
    frame.createOrReplaceTempView("boxes")
    totals = spark.sql(
        f"SELECT (SELECT count(*) FROM boxes WHERE code = 10), (SELECT count(*) FROM boxes),"
        f" (SELECT count(*) FROM boxes WHERE device = '{device}'),"
        f" (SELECT count(*) FROM boxes WHERE boot = 77)"
    ).collect()
    assert tuple(totals[0]) == (tens, len(plain), one, 0)
    cached = frame.cache()
    assert (cached.where("code = 10").count(), cached.count()) == (tens, len(plain))
    cached.unpersist()
    assert frame.count() == len(plain)
    assert sorted(row["count"] for row in frame.groupBy("code").count().collect()) == sorted(
        Counter(row[3] for row in plain).values()
    )


def test_a_stream_gives_each_segment_once_also_after_a_restart(spark, boxes, tmp_path):
    source.register(spark)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    paths = sorted(boxes.glob("*.dbx"))

    def drain():
        query = (
            spark.readStream.format("drupelet")
            .option("settle_ms", "0")
            .load(str(inbox))
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        return spark.read.parquet(str(tmp_path / "out")).count()

    for path in paths[:5]:
        (inbox / path.name).write_bytes(path.read_bytes())
    assert drain() == sum(len(events_of(log_of(p.read_bytes())).code) for p in paths[:5])
    # What was given goes another way, under another name, and with what is new in one pack.
    shutil.move(inbox / paths[0].name, inbox / "moved.dbx")
    (inbox / paths[1].name).chmod(0o600)
    pack = bytearray()
    for path in paths[2:]:
        inputs.append_to_pack(pack, path.read_bytes())
    (inbox / "all.dbxpack").write_bytes(pack)
    assert drain() == len(rows_of(boxes))
    assert drain() == len(rows_of(boxes))


# --- offsets, without Spark ---


def segments(count, device=b"\1\2\3\4", boot=1, first=0):
    return [box.segment(device, boot, first + at, [[(at, box.BATTERY, 0, at, at)]])
            for at in range(count)]  # fmt: skip


class Stream:
    """What Spark does with a reader: each batch, told apart from its repetition."""

    def __init__(self, folder, **options):
        self.options = {"path": str(folder), "settle_ms": "0", **options}
        self.reader = source.BoxStreamReader(self.options)
        self.offset = self.reader.initialOffset()

    def batch(self, limit=None):
        start = self.offset
        end = self.reader.latestOffset(start, limit or ReadAllAvailable())
        self.offset = json.loads(json.dumps(end))
        return start, self.offset

    def rows(self, start, end, anew=False):
        reader = source.BoxStreamReader(self.options) if anew else self.reader
        return sorted(read_all(reader, reader.partitions(start, end)))

    def numbers(self, limit=None):
        return [row[2] for row in self.rows(*self.batch(limit))]


def test_a_file_that_only_changes_its_name_or_mode_gives_nothing_new(tmp_path):
    stream = Stream(tmp_path)
    assert stream.numbers() == [] and stream.offset == stream.reader.initialOffset()
    for at, data in enumerate(segments(3)):
        (tmp_path / f"{at}.dbx").write_bytes(data)
    assert stream.numbers() == [0, 1, 2]
    before = stream.offset
    (tmp_path / "0.dbx").chmod(0o600)
    (tmp_path / "1.dbx").rename(tmp_path / "moved.dbx")
    shutil.copy(tmp_path / "2.dbx", tmp_path / "copy.dbx")
    assert stream.numbers() == [] and stream.offset == before


def test_a_grown_pack_gives_its_new_segments_only(tmp_path):
    stream = Stream(tmp_path)
    pack, datas = bytearray(), segments(9)
    for first, last in ((0, 4), (4, 5), (5, 9)):
        for data in datas[first:last]:
            inputs.append_to_pack(pack, data)
        (tmp_path / "a.dbxpack").write_bytes(pack)
        assert stream.numbers() == list(range(first, last))
    assert stream.offset["seen"] == {"01020304": "1:0-8"}


def test_a_replayed_batch_has_the_same_rows(tmp_path):
    stream = Stream(tmp_path)
    for at, data in enumerate(segments(6)):
        (tmp_path / f"{at}.dbx").write_bytes(data)
    whole = stream.batch(ReadMaxBytes(3 * 544))
    rows = stream.rows(*whole)
    assert [row[2] for row in rows] == [0, 1, 2]
    # Meanwhile files move, others come, and a longer copy of what was given is there.
    (tmp_path / "0.dbx").rename(tmp_path / "z.dbx")
    (tmp_path / "7.dbx").write_bytes(segments(1, boot=2)[0])
    longer = box.segment(b"\1\2\3\4", 1, 1, [[(1, box.BATTERY, 0, 9, 9)]] * 2)
    (tmp_path / "00.dbx").write_bytes(longer)
    for anew in (False, True):
        assert stream.rows(*whole, anew=anew) == rows
    assert stream.numbers() == [3, 4, 5, 0]
    (tmp_path / "z.dbx").unlink()
    with pytest.raises(TelemetryError, match="1 segments of a batch are gone"):
        stream.rows(*whole, anew=True)


def test_a_backlog_comes_in_batches_and_available_now_ends(tmp_path):
    stream = Stream(tmp_path)
    for at, data in enumerate(segments(7)):
        (tmp_path / f"{at}.dbx").write_bytes(data)
    stream.reader.prepareForTriggerAvailableNow()
    (tmp_path / "late.dbx").write_bytes(segments(1, boot=9)[0])
    batches = [stream.numbers(ReadMaxBytes(3 * 544)) for _ in range(4)]
    assert batches == [[0, 1, 2], [3, 4, 5], [6], []]
    assert stream.reader.getDefaultReadLimit() == ReadMaxBytes(source.BATCH_BYTES_MAX)


def test_a_batch_has_so_many_files_at_most(tmp_path):
    stream = Stream(tmp_path, maxfilespertrigger="2")
    pack = bytearray()
    for at, data in enumerate(segments(8)):
        if at < 5:
            (tmp_path / f"{at}.dbx").write_bytes(data)
        else:
            inputs.append_to_pack(pack, data)
    (tmp_path / "z.dbxpack").write_bytes(pack)
    batches = [stream.numbers() for _ in range(4)]
    assert batches == [[0, 1], [2, 3], [4, 5, 6, 7], []]
    with pytest.raises(TelemetryError, match="option maxFilesPerTrigger: '0' is not a number"):
        Stream(tmp_path, maxfilespertrigger="0").numbers()


def test_a_trigger_that_finds_nothing_opens_no_file_and_lists_no_quiet_folder(
    tmp_path, monkeypatch
):
    (tmp_path / "old").mkdir()
    for at, data in enumerate(segments(4)):
        (tmp_path / "old" / f"{at}.dbx").write_bytes(data)
    stream = Stream(tmp_path)
    assert stream.numbers() == [0, 1, 2, 3]
    opened, listed = [], []
    scandir, pread = os.scandir, inputs.Opened
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    monkeypatch.setattr(inputs, "Opened", lambda path: opened.append(path) or pread(path))
    assert stream.numbers() == []  # reads once more what is in the offset now
    opened.clear()
    assert stream.numbers() == [] and opened == [] and len(listed) == 4
    monkeypatch.setattr(changes, "QUIET_S", -1)
    stream.numbers()
    listed.clear()
    assert stream.numbers() == [] and opened == [] and listed == []
    (tmp_path / "old" / "9.dbx").write_bytes(segments(1, boot=2)[0])
    assert stream.numbers() == [0] and listed == [str(tmp_path / "old")]


def test_looks_of_a_stream_that_take_long_become_rare(tmp_path, monkeypatch):
    stream = Stream(tmp_path)
    assert stream.numbers() == []
    clock = iter(range(100))
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    assert stream.numbers() == []
    (tmp_path / "a.dbx").write_bytes(segments(1)[0])
    assert stream.numbers() == [], "it took a second"
    now_s = time.monotonic() + 1 / source.LOOKS_SHARE
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    assert stream.numbers() == [0]


def test_a_number_far_beyond_its_boot_is_left_out_until_it_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(choose, "NUMBER_GAP_MAX", 4)
    stream = Stream(tmp_path)
    (tmp_path / "far.dbx").write_bytes(segments(1, first=7)[0])
    assert stream.numbers() == []
    (tmp_path / "mid.dbx").write_bytes(segments(1, first=3)[0])
    assert stream.numbers() == [3, 7]


def test_a_checkpoint_of_another_version_is_one_line(tmp_path):
    with pytest.raises(TelemetryError, match="give the query a new checkpointLocation"):
        Stream(tmp_path).reader.latestOffset({"changed_ns": 0, "name": ""}, ReadAllAvailable())


KEYS = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5), st.integers(0, 12))


@given(st.lists(KEYS, max_size=60))
def test_what_was_seen_is_a_set(keys):
    seen, plain = stream_offset.Seen(), set()
    for key in keys:
        assert seen.has(key) == (key in plain)
        if key not in plain:
            seen.add(key)
            plain.add(key)
    again = stream_offset.Seen.of(json.loads(json.dumps(seen.text())))
    assert again.text() == seen.text()
    for key in ((d, boot, at) for d in "ab" for boot in range(6) for at in range(13)):
        assert again.has(key) == (key in plain)
    for device in "ab":
        numbers = [at for own, boot, at in plain if (own, boot) == (device, 3)]
        assert again.last(device, 3) == max(numbers, default=-1)


def test_boots_without_end_stay_a_short_offset_and_gaps_without_end_are_refused(monkeypatch):
    seen = stream_offset.Seen()
    for boot in range(5000):
        seen.add(("a", boot, 0))
    assert seen.text() == {"a": "0-4999:0"}
    monkeypatch.setattr(stream_offset, "SEEN_SIZE_MAX", 1 << 20)
    for at in range(200_000):
        seen.add(("b", 0, 2 * at))
    with pytest.raises(TelemetryError, match="drupelet telemetry ingest"):
        seen.text()
