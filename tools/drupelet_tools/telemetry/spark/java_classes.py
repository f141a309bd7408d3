"""Spark's classes as a JVM has them once it is up, in a file that the next JVM maps into memory.

A JVM that finds the file starts with half of the CPU time. One that does not, or whose Java or
Spark is another by now, loads its classes from Spark's jars as ever. It takes 150 MB, so only
`tools/setup --for-tests` writes it: `python -m drupelet_tools.telemetry.spark.java_classes`.
"""

import tempfile
from pathlib import Path

from drupelet_tools.telemetry.spark import session

EXIT_S = 300  # the JVM writes the file when it exits


def write(archive: Path) -> None:
    """Start a JVM, let it do what telemetry does, and keep its classes. Raises TelemetryError."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    options = f"{session.JAVA_OPTIONS} -XX:ArchiveClassesAtExit={part}"
    conf = (("spark.driver.extraJavaOptions", options),)
    running = session.Session(session.Cluster(conf=conf))
    try:
        spark = running.wait()
        with tempfile.TemporaryDirectory() as folder:
            rows = f"{folder}/rows"
            spark.range(9).selectExpr("id", "array(string(id)) AS texts").write.parquet(rows)
            spark.read.parquet(rows).createOrReplaceTempView("stored")
            spark.sql(
                "SELECT id % 2 AS part, count(*), sum(size(texts)) FROM stored"
                " JOIN (SELECT id FROM stored WHERE id > 2) USING (id) GROUP BY 1 ORDER BY 1"
            ).toArrow()
    finally:
        running.stop(exit_s=EXIT_S)
    part.rename(archive)


if __name__ == "__main__":
    write(session.JAVA_CLASSES)
