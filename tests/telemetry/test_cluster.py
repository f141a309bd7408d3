"""A real standalone cluster: master, two workers and driver, each with an address of its own."""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from drupelet_tools.bench import corpus_files
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.spark.session import java_options
from telemetry.lake_content import content
from telemetry.netns_cluster import Cluster

INGEST_S = 250
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Black boxes of eight devices, some damaged, in several files."""
    folder = tmp_path_factory.mktemp("inbox")
    wanted = corpus_files.Corpus(events=60_000, devices=8, files=6, damage=True, seed=5)
    corpus_files.write(folder / "in", wanted)
    job.ingest([folder / "in"], folder / "lake", {}, None)
    return folder


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of the workers' machines: it has what we depend on, and nothing of ours."""
    python = tmp_path_factory.mktemp("python") / "python"
    plain = Path(sys.base_prefix) / "bin" / "python3"
    # On PYTHONPATH the *.pth that leads to us counts for nothing. Modules of the place itself, not
    # of a copy, are compiled already.
    libraries = sysconfig.get_paths()["purelib"]
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {plain} "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [python, "-c", "import pyarrow, numpy, drupelet_tools.telemetry"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "No module named 'drupelet_tools.telemetry'" in done.stderr
    return python


@pytest.fixture(scope="module")
def our_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What docs/cluster.md calls drupelet.zip: the content of the wheel."""
    archive = tmp_path_factory.mktemp("code") / "drupelet.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for root in ("firmware", "transports", "host", "tools"):
            for path in sorted((ROOT / root).glob("drupelet*/**/*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    out.write(path, path.relative_to(ROOT / root))
    return archive


def ingest(
    cluster: Cluster, inbox: Path, lake: Path, python: Path, *conf: str
) -> "subprocess.Popen[str]":
    settings = [
        f"spark.driver.host={cluster.driver_address}", f"spark.pyspark.python={python}",
        "spark.executor.memory=512m", f"spark.driver.extraJavaOptions={java_options()}",
        f"spark.executor.extraJavaOptions={java_options()}", *conf,
    ]  # fmt: skip
    words = [
        *(sys.executable, "-c"),
        "from drupelet_tools.telemetry.commands.telemetry import app; app()",
        *("ingest", str(inbox / "in"), "--lake", str(lake), "--json", "--master", cluster.url),
        *(word for one in settings for word in ("--conf", one)),
    ]
    return subprocess.Popen(
        cluster.driver(words),
        env={**os.environ, "SPARK_LOCAL_IP": cluster.driver_address},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_workers_with_our_code_from_us_make_the_tables_of_one_process_though_one_dies(
    cluster: Cluster, inbox: Path, tmp_path: Path, bare_python: Path, our_code: Path
) -> None:
    """A worker dies in the middle of its first task; the other one repeats what it had."""
    lake = tmp_path / "lake"
    launched = cluster.launched(0)
    running = ingest(
        cluster, inbox, lake, bare_python, f"spark.submit.pyFiles={our_code}",
        "spark.speculation=true", "spark.speculation.multiplier=1.1",
        "spark.speculation.quantile=0.3",
    )  # fmt: skip
    try:
        cluster.kill_busy_worker(0, launched)
        out, error = running.communicate(timeout=INGEST_S)
    finally:
        running.kill()
        running.wait(INGEST_S)
    assert running.returncode == 0, error
    assert json.loads(out)["segments"] > 0
    assert content(lake) == content(inbox / "lake")
