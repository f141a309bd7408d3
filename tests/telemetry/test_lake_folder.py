"""The lake's folder: what is somebody's own stays, whatever it is called and where it lies."""

import os
import shutil
from pathlib import Path

import pytest

from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.files import inputs
from drupelet_tools.telemetry.imports import foreign_frames
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import commit, delta
from telemetry import fleet
from telemetry.command_line import run
from telemetry.imported_lines import HEAD, MAPPING, line, write

RUN = "0123456789ab"


def ingest(path, root):
    return job.ingest([path], root, {}, None)


def boxes(folder, only=("A",)):
    folder.mkdir(parents=True)
    fleet.write(folder, only=only)
    return folder


def everything(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("folder", ["packs", "table", "plans"])
def test_a_folder_that_is_no_lake_is_refused_and_left_as_it_is(tmp_path, folder):
    own = tmp_path / "mine" / folder
    own.mkdir(parents=True)
    (own / "2026.dbxpack").write_bytes(b"years of logs")
    before = everything(tmp_path)
    with pytest.raises(TelemetryError, match=rf"{folder}: holds files.*new folder"):
        ingest(boxes(tmp_path / "in"), tmp_path / "mine")
    with pytest.raises(TelemetryError, match="not a lake"):
        commit.append(tmp_path / "mine", {}, "import:1")
    assert before.items() <= everything(tmp_path).items()
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [folder]


def test_a_lake_that_lost_its_log_keeps_its_packs(tmp_path):
    root = tmp_path / "lake"
    told = ingest(boxes(tmp_path / "in"), root)
    shutil.rmtree(root / "table" / "_delta_log")
    before = everything(root)
    with pytest.raises(TelemetryError, match=r"has no _delta_log.*packs as input"):
        ingest(tmp_path / "in", root)
    assert everything(root) == before
    assert ingest(root / "packs", tmp_path / "again")["new"] == told["new"]


def test_a_lake_that_another_ingest_makes_meanwhile_is_no_strange_folder(tmp_path, monkeypatch):
    root = tmp_path / "lake"
    is_file = Path.is_file

    def is_file_late(path):
        """Between the look for the lake's log, which was not there, and that for other files."""
        if path == root / delta.OLD_MANIFEST:
            monkeypatch.setattr(Path, "is_file", is_file)
            ingest(boxes(tmp_path / "other", only=("B",)), root)
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", is_file_late)
    ingest(boxes(tmp_path / "in"), root)
    assert delta.open_lake(root).read_devices().num_rows == 2


def test_a_first_commit_that_is_not_finished_leaves_no_lake_yet_and_nothing_strange(tmp_path):
    root = tmp_path / "lake"
    log = root / "table/_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json#1").write_text("{")
    with pytest.raises(TelemetryError, match="no lake here"):
        delta.open_lake(root)
    ingest(boxes(tmp_path / "in"), root)
    assert delta.open_lake(root).read_devices().num_rows == 1


def test_a_pack_that_lies_in_the_lake_itself_is_not_packed_again(tmp_path):
    first, root = tmp_path / "first", tmp_path / "lake"
    told = ingest(boxes(tmp_path / "in"), first)
    ingest(boxes(tmp_path / "other", only=("B",)), root)
    [pack] = (first / "packs").iterdir()
    moved = pack.rename(root / "packs" / pack.name)
    data = moved.read_bytes()
    assert ingest(root / "packs", root)["new"] == told["new"]
    assert moved.read_bytes() == data
    packs = delta.open_lake(root).read("sources")["pack"].to_pylist()
    assert packs.count(f"packs/{pack.name}") == told["new"]
    assert len(list((root / "packs").iterdir())) == 2


def test_an_ingest_that_fails_before_its_first_commit_can_be_run_again(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    root = tmp_path / "lake"
    monkeypatch.setattr(job, "take_in", killed)
    with pytest.raises(KeyboardInterrupt):
        ingest(boxes(tmp_path / "in"), root)
    monkeypatch.undo()
    assert not list((root / "plans").iterdir())
    shutil.rmtree(root / "table" / "_delta_log")  # as if killed while it made the folders
    (root / "plans" / RUN).mkdir()
    assert ingest(tmp_path / "in", root)["new"] > 0
    assert not delta.open_lake(root).is_empty


# --- what is given ---


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "p.dbx")
    for path in (tmp_path / "p.dbx", "/dev/null"):
        done = run("ingest", path, "--lake", tmp_path / "lake")
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert f"{path}: neither a file nor a folder" in done.stderr
    with pytest.raises(TelemetryError, match="no black-box segments"):
        ingest(tmp_path, tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_linked_folders_below_a_given_one_are_read_once(tmp_path, monkeypatch):
    away = boxes(tmp_path / "away")
    (away / "round").symlink_to(away)
    given = tmp_path / "in"
    given.mkdir()
    for name in ("one", "two"):
        (given / name).symlink_to(away)
    (given / "lost").symlink_to(tmp_path / "none")
    (given / "lake").symlink_to(tmp_path / "lake")
    told = ingest(given, tmp_path / "lake")
    assert told["new"] == len(list(away.glob("*.dbx"))) == told["segments"]
    assert ingest(given, tmp_path / "lake")["segments"] == told["segments"], "not its own packs"
    monkeypatch.setattr(inputs, "FOLDERS_MAX", 1)
    with pytest.raises(TelemetryError, match="more than 1 folders; does a link lead out of it"):
        ingest(given, tmp_path / "lake")


def test_a_device_of_an_import_takes_no_black_boxes_and_the_other_way_round(tmp_path):
    same = MAPPING.replace('"x-"', '""')
    [device, *_] = fleet.MEMBERS["A"]
    log, named, root = write(tmp_path, [HEAD, line(0, 1, node=device.hex())], mapping_text=same)
    foreign_frames.import_files(log, named, root)
    before = everything(root)
    told = rf"lake: {device.hex()} is in the lake from an import.*another lake"
    with pytest.raises(TelemetryError, match=told):
        ingest(boxes(tmp_path / "in"), root)
    assert everything(root) == before
    assert ingest(boxes(tmp_path / "other", only=("B",)), root)["new"] > 0
    ingest(tmp_path / "in", tmp_path / "second")
    with pytest.raises(TelemetryError, match="in the lake from its black boxes"):
        foreign_frames.import_files(log, named, tmp_path / "second")
    assert delta.open_lake(root).imported() == {device.hex()}
