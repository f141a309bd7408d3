"""Black boxes as a Spark source: batch with filters, and a stream that reads each file once."""

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, StringContains

from drupelet_tools.telemetry import source
from drupelet_tools.telemetry.errors import TelemetryError
from drupelet_tools.telemetry.schemas import TABLES
from telemetry import fleet
from telemetry.test_decode import events_of, log_of, spoil


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boxes")
    written = fleet.write(folder)
    last = written["A"][-1]
    last.write_bytes(spoil(last.read_bytes(), 0))
    return folder


def rows_of(boxes, device=None):
    """Every event of the files, by the plain decoder."""
    found = []
    for path in sorted(boxes.glob("*.dbx")):
        name = path.name.split("-")[0]
        if device in (None, name):
            log = log_of(path.read_bytes())
            fields = events_of(log)
            found += [
                (name, *row)
                for row in zip(
                    fields.boot, fields.time_ms, fields.code, fields.a, fields.b, fields.c,
                    strict=True,
                )
            ]  # fmt: skip
    return sorted(found)


def test_without_spark_the_filters_are_taken_or_given_back(boxes):
    reader = source.BoxReader({"path": str(boxes), "partitions": "3"})
    device = fleet.MEMBERS["B"][0].hex()
    wanted = [
        EqualTo(("device",), device),
        In(("code",), (10, 15)),
        GreaterThan(("boot_ms",), 5_000),
    ]
    rest = [StringContains(("device",), "b"), EqualTo(("elsewhere",), 1)]
    assert list(reader.pushFilters([*wanted, *rest])) == rest
    shares = reader.partitions()
    batches = [batch for share in shares for batch in reader.read(share)]
    assert all(batch.schema.equals(TABLES["events"]) for batch in batches)
    found = sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())
    plain = [r for r in rows_of(boxes, device) if r[3] in (10, 15) and r[2] > 5_000]
    assert [(r[0], r[1], *r[4:]) for r in found] == plain
    assert len(found) > 50


def test_no_path_is_one_line():
    with pytest.raises(TelemetryError, match="load\\(\\) wants files"):
        source.BoxReader({}).partitions()


def test_batch(spark, boxes):
    source.register(spark)
    frame = spark.read.format("drupelet").load(str(boxes))
    found = frame.select("device", "boot", "boot_ms", "code", "a", "b", "c").collect()
    assert sorted(map(tuple, found)) == rows_of(boxes)
    device = fleet.MEMBERS["C"][0].hex()
    few = frame.where(f"device = '{device}' AND code = 10 AND boot_ms >= 9000")
    wanted = [r for r in rows_of(boxes, device) if r[3] == 10 and r[2] >= 9_000]
    assert few.count() == len(wanted) > 10
    bad = spark.read.format("drupelet").option("table", "quarantine").load(str(boxes)).collect()
    assert [(row.device, row.block, row.reason) for row in bad] == [
        (fleet.MEMBERS["A"][0].hex(), 0, "block crc")
    ]


def test_a_stream_reads_each_file_once_also_after_a_restart(spark, boxes, tmp_path):
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
    for path in paths[5:]:
        (inbox / path.name).write_bytes(path.read_bytes())
    assert drain() == len(rows_of(boxes))
