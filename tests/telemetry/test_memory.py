"""Memory that is free goes back to the system, in this process and in Spark's workers."""

import subprocess
import sys

import pyarrow as pa

HELD = """
import sys
sys.argv = ["-"]
from drupelet_tools.telemetry.base.memory import give_back
import numpy as np, pyarrow as pa

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

row = pa.array(np.arange(1000, dtype=np.int64)).take(pa.array(np.arange(1000)))
before = resident_mb()
# Small ones: the C library keeps these, too, until it is told.
table = [row.take(row) for _ in range(9000)]
between = resident_mb()
del table
give_back()
print(pa.default_memory_pool().backend_name, between - before, resident_mb() - before)
"""


def test_what_is_free_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD], capture_output=True, text=True, check=True, timeout=60
    )
    name, held_mb, left_mb = done.stdout.split()
    assert name == "system"
    assert int(held_mb) > 50
    assert int(left_mb) < 15


def test_workers_have_the_same_allocator(spark) -> None:
    def name(_batches):
        yield pa.RecordBatch.from_pydict({"name": [pa.default_memory_pool().backend_name]})

    rows = spark.range(2).mapInArrow(name, "name string").collect()
    assert {row["name"] for row in rows} == {"system"}
