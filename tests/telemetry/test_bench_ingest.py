"""The engines of `drupelet bench ingest` agree, and its rows say what they should."""

import os
import subprocess
import sys

import pytest

from drupelet_tools.bench import corpus_files, ingest, ingest_engines, process_tree
from drupelet_tools.bench.columns import INGEST


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "in"
    made = corpus_files.write(folder, corpus_files.Corpus(60_000, 8, 4, seed=2))
    return folder, made


def test_every_engine_makes_the_same_tables(corpus, tmp_path):
    folder, made = corpus
    assert made["files"] == 4
    told = {}
    for engine in ("numpy", "polars", "duckdb"):
        run, stop = ingest_engines.ENGINES[engine](folder, tmp_path / engine)
        assert run()["events"] == made["events"]
        stop()
        told[engine] = ingest_engines.digest(tmp_path / engine)
    assert told["numpy"] == told["polars"] == told["duckdb"]
    assert all(rows[0] > 0 for rows in told["numpy"].values())


def test_a_row_has_every_column():
    plan = ingest.Plan(events=20_000, engines=("numpy",), small=False, export=False)
    (row,) = ingest.measure(plan, print)
    assert {column.name for column in INGEST} == set(row)
    assert row["ratio_to_numpy"] == 1.0
    assert row["cpu_s"] > 0 and row["peak_mb"] > 20


def test_the_cpu_of_a_process_that_has_ended_still_counts():

    before = process_tree.cpu_s(os.getpid())
    program = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
    assert process_tree.cpu_s(os.getpid()) - before >= 0.29
