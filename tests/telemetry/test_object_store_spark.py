"""Spark on object storage: its workers read and write there, and a query finds it."""

import json
import subprocess
import sys

from drupelet_tools.telemetry.base.place import place
from drupelet_tools.telemetry.intake import job
from telemetry import s3_server
from telemetry.bucket_boxes import boxes, bucket, ingest, server, tables_of, upload

__all__ = ["boxes", "bucket", "server"]

COMMAND_S = 300
STATEMENT = (
    "SELECT (SELECT count(*) FROM events) AS events, (SELECT count(*) FROM hours) AS hours,"
    " (SELECT count(*) FROM pieces) AS pieces"
)


def test_workers_of_spark_read_and_write_there_and_a_query_finds_it(
    boxes, bucket, server, spark, tmp_path, monkeypatch
):
    packs, _ = boxes
    ingest(packs[:2], tmp_path / "lake")
    wanted = tables_of(tmp_path / "lake")
    inbox = upload(packs[:2], f"{bucket}/inbox")
    root = f"{bucket}/lake"
    # Workers of a session that was there before have its environment.
    own = s3_server.ENVIRONMENT | {"AWS_ENDPOINT_URL": server.url}
    for name, value in own.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    job.ingest([place(inbox)], place(root), {}, spark, events=True)
    assert tables_of(root) == wanted
    words = [*(sys.executable, "-m", "drupelet_host", "telemetry"),
             *("query", "--lake", root, "--json", STATEMENT)]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, done.stdout.splitlines())
    assert {name: row[name] for name in ("events", "hours")} == {
        name: len(wanted[name][1]) for name in ("events", "hours")
    }
    assert row["pieces"] > 0
