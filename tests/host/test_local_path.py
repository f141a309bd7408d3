"""A URI is no local folder: `s3a://bucket/lake` was once made here, as a folder named `s3a:`."""

import os
import subprocess
from pathlib import Path

import pytest

from drupelet.base.errors import DrupeletError
from drupelet_host.base.local_path import NotLocalError, local_path
from drupelet_tools.telemetry.imports import foreign_frames
from host.conftest import COMMAND

LAKE = "s3a://bucket/lake"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("lake", "lake"), ("/a/b", "/a/b"), ("./s3a:/b", "s3a:/b"), ("a:b", "a:b"),
        ("C:/x", "C:/x"),
        ("file:///a/b%20c", "/a/b c"), ("file://localhost/a", "/a"), ("FILE:/a", "/a"),
    ],
)  # fmt: skip
def test_what_is_local(given: str, path: str) -> None:
    assert local_path(given) == Path(path)


@pytest.mark.parametrize(
    "uri", [LAKE, "s3://b/k", "hdfs:///x", "https://h/x", "abfss://c@a/x", "file://host/x",
            "sc://host:1", "file:lake", "S3A:bucket/lake", Path(LAKE)],
)  # fmt: skip
def test_what_is_not(uri: str | Path) -> None:
    with pytest.raises(NotLocalError, match="mount it or copy it here") as caught:
        local_path(uri)
    assert str(caught.value).startswith(str(uri).partition("/")[0])


@pytest.mark.parametrize(
    "words",
    [
        ["telemetry", "ingest", "in", "--lake", "lake", "--names", LAKE],
        ["telemetry", "report", "--lake", "lake", "--html", "page.html", "--results", LAKE],
        ["telemetry", "report", "--lake", "lake", "--html", "page.html", "--fleet", LAKE],
        ["telemetry", "import", LAKE, "--mapping", "campusiot-tower", "--lake", "lake"],
        ["telemetry", "import", "in", "--mapping", LAKE, "--lake", "lake"],
        ["bench", "corpus", "--out", LAKE],
        ["demo", "--out", LAKE],
        ["demo", "--out", "out", "--input", LAKE],
        ["sim", "contacts", LAKE],
        ["export-telemetry", LAKE, "--home", "home"],
    ],
)
def test_every_command_refuses_it_in_one_line(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "in").mkdir()
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == "", done
    assert len(done.stderr.splitlines()) == 1
    assert f"{LAKE}: only files and folders of this machine" in done.stderr
    assert os.listdir(tmp_path) == ["in"]


def test_the_functions_refuse_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DrupeletError, match="s3a://bucket/lake: only files and folders"):
        foreign_frames.import_files([Path(LAKE)], "campusiot-tower", Path("lake"))
    assert os.listdir(tmp_path) == []
