"""The engines of `drupelet bench ingest` agree, and its rows say what they should."""

import os
import random
import shutil
import subprocess
import sys
import time

import pytest

from drupelet_tools.bench import (
    corpus_files,
    ingest,
    ingest_engines,
    ingest_robust,
    lake_content,
    process_tree,
)
from drupelet_tools.bench.columns import INGEST
from drupelet_tools.bench.ingest_claims import claims


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


def test_killed_on_its_way_an_ingest_keeps_every_row_and_one_that_lacks_some_is_noticed(
    corpus, monkeypatch, tmp_path
):
    folder, _ = corpus
    ingest_robust.take_in(folder, tmp_path / "whole")
    wanted = lake_content.content(tmp_path / "whole")
    assert wanted["hours"].num_rows > 0
    monkeypatch.setattr(ingest_robust, "KILLS", 2)
    killed = ingest_robust.kill_processes(folder, tmp_path / "killed", 0.5, random.Random(1))
    row = ingest_robust.compared("killed", wanted, tmp_path / "killed")
    assert killed > 0 and row["kept"] and "identical" in row["figure"]
    (tmp_path / "part").mkdir()
    pack = max(folder.iterdir(), key=lambda file: file.stat().st_size)
    shutil.copy(pack, tmp_path / "part")
    ingest_robust.take_in(tmp_path / "part", tmp_path / "less")
    assert not ingest_robust.compared("less", wanted, tmp_path / "less")["kept"]


def test_a_row_has_every_column():
    plan = ingest.Plan(events=20_000, engines=("numpy",), small=False, export=False, repeats=1)
    (row,) = ingest.measure(plan, print)
    assert {column.name for column in INGEST} == set(row)
    assert row["ratio_to_numpy"] == 1.0
    assert row["cpu_s"] > 0 and row["peak_mb"] > 20


def test_the_cpu_of_a_process_that_has_ended_still_counts():
    before = process_tree.cpu_s(os.getpid())
    program = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", program], timeout=60, check=True)
    # Linux rounds each of the four counters of a process down to a tick of 10 ms.
    assert process_tree.cpu_s(os.getpid()) - before > 0.3 - 4 * 0.01 - 0.001


def test_of_several_runs_the_one_with_the_least_cpu_counts(tmp_path):
    costs = iter([(5.0, 100), (4.0, 90), (3.0, 80), (6.0, 120)])

    def run(_root, engine, *_):
        cpu_s, peak_mb = next(costs)
        return {"engine": engine, "cpu_s": cpu_s, "peak_mb": peak_mb, "jvm_mb": 0}, [[1]]

    made = {"events": 1, "files": 1}
    jobs = [ingest.Job("tables", name, tmp_path, made) for name in ("numpy", "spark")]
    rows, _ = ingest.best_runs(tmp_path, jobs, 2, print, run)
    assert [(row["engine"], row["cpu_s"], row["peak_mb"]) for row in rows] == [
        ("numpy", 3.0, 100),
        ("spark", 4.0, 120),
    ]


def row(work, events, cpu_s, **more):
    return {
        "work": work, "engine": "spark", "events": events, "files": 8, "cpu_s": cpu_s,
        "peak_mb": 1000, "ratio_to_numpy": None, **more,
    }  # fmt: skip


def test_claims_are_kept_or_broken():
    good = [
        row("tables", 32_000_000, 10.0, ratio_to_numpy=1.25),
        row("scale", 8_000_000, 3.0),
        row("scale", 256_000_000, 76.0, peak_mb=1090),
        row("files", 7_872_000, 3.0),
        row("files", 7_872_000, 5.4, files=8_000),
        row("export, without", 8_000_000, 3.0),
        row("export, with", 8_000_000, 8.0),
    ]
    told = claims(good)
    assert [one["kept"] for one in told] == [True] * 5
    assert [one["figure"] for one in told] == ["1.25", "1.0%", "1.09", "1.80", "1.60"]
    bad = [
        row("tables", 32_000_000, 10.0, ratio_to_numpy=1.31),
        row("scale", 8_000_000, 3.0),
        row("scale", 256_000_000, 110.0, peak_mb=1200),
        row("files", 7_872_000, 3.0),
        row("files", 7_872_000, 6.1, files=8_000),
        row("export, without", 8_000_000, 3.0),
        row("export, with", 8_000_000, 11.5),
    ]
    assert [one["kept"] for one in claims(bad)] == [False] * 5
    (small,) = claims([row("tables", 8_000_000, 3.0, ratio_to_numpy=1.6)])
    assert small["kept"] is None, "nothing is promised for few events"


def test_the_peak_of_the_jvms_is_told_apart(tmp_path):
    """A process that is called java counts as one; its parent does not."""
    program = tmp_path / "java"
    program.symlink_to(sys.executable)
    peak = process_tree.Peak(os.getpid())
    child = subprocess.Popen(
        [program, "-Sc", "import time; held = b'1' * 50_000_000; time.sleep(60)"]
    )
    try:
        for _ in range(200):
            if peak.jvm_mb > 50:
                break
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()
        peak.stop()
    assert 50 < peak.jvm_mb < peak.mb


def test_processes_are_found_by_a_word_of_their_command_line():
    program = "import time\ntime.sleep(60)  # a-word-of-its-own"
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        assert process_tree.named(os.getpid(), "a-word-of-its-own") == [child.pid]
        assert process_tree.named(os.getpid(), "another-word") == []
    finally:
        child.kill()
        child.wait()
