"""What changed since the last look: all of it, once, and little is kept in mind."""

import itertools
import os
import random
import shutil
import time

import pytest

from drupelet_tools.bench import corpus_files
from drupelet_tools.telemetry.files import changes, inputs
from drupelet_tools.telemetry.files.changes import Inbox
from drupelet_tools.telemetry.intake import job
from drupelet_tools.telemetry.lake import delta


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def listed(monkeypatch):
    """The folders that are listed."""
    names, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: names.append(os.fspath(path)) or scandir(path))
    return names


def inbox(*paths, lake_at="/no lake", settle_s=0.0):
    return Inbox([*paths], type(paths[0])(lake_at), settle_s)


def taken(box):
    """The names of what a look offers, which is taken."""
    changed = box.look()
    box.take(changed)
    return [one.path.name for one in changed]


def test_it_finds_what_an_ingest_finds(folder):
    for name in ("a.dbx", "b.dbxpack", "c.dbx-other", "d.txt", ".dbx", "B1.BOD", "BOX7.PRT"):
        (folder / name).write_bytes(b"DRBX" * 300)
    (folder / "below" / "deeper").mkdir(parents=True)
    (folder / "below" / "deeper" / "e.dbx").write_bytes(b"x")
    (folder / "packs").mkdir()
    (folder / "packs" / "f.dbxpack").write_bytes(b"x")
    (folder / "fifo.dbx").mkdir()
    os.mkfifo(folder / "g.dbx")
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "h.dbx").write_bytes(b"x")
    (folder / "link").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "i.dbx").symlink_to(outside / "h.dbx")
    (folder / "nowhere.dbx").symlink_to(outside / "gone.dbx")
    corpus_files.write(folder / "corpus", corpus_files.Corpus(2_000, 2, 1, seed=3))
    root = folder / "lake"
    job.ingest([folder / "corpus"], root, {}, None)
    job.ingest([folder / "corpus"], folder / "other lake", {}, None)
    assert len(list(root.glob("packs/*"))) == 1
    for given in ([folder], [folder, folder / "a.dbx", folder / "below"], [root / "packs"]):
        wanted = inputs.find_files(given, root.resolve())
        box = Inbox(given, root.resolve(), 0.0)
        changed = box.look()
        offered = [one.path for one in changed if changes.is_input(one)]
        assert sorted(offered) == sorted(wanted) and box.problems == []
        box.take(changed)
        box.take(box.look())  # one that was given by itself and with its folder
        assert box.look() == []


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_state_of_a_file_is_offered_once(folder, seed, monkeypatch):
    """Against a plain memory of all states."""
    monkeypatch.setattr(changes, "QUIET_S", 0.002)
    monkeypatch.setattr(changes, "FULL_LOOK_S", 0.005)
    monkeypatch.setattr(changes, "ENTRIES_AT_ONCE", 3)
    rng = random.Random(seed)
    box, known = inbox(folder), set()
    for turn in range(150):
        where = folder / rng.choice(["", "a", "b", "a/c"])
        where.mkdir(parents=True, exist_ok=True)
        path = where / f"{rng.randrange(6)}.dbx"
        kind = rng.randrange(5)
        if kind < 2:
            path.write_bytes(b"x" * rng.randrange(9))
        elif kind == 2 and path.exists():
            path.rename(where / f"{rng.randrange(6)}.dbx")
        elif kind == 3:
            path.unlink(missing_ok=True)
        elif kind == 4 and rng.random() < 0.1:
            shutil.rmtree(where, ignore_errors=True)
            folder.mkdir(exist_ok=True)
        time.sleep(0.02 if turn == 149 else rng.choice([0.0, 0.0, 0.004]))
        for one in box.look():
            info = one.path.stat()
            state = (one.path, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            assert state not in known
            known.add(state)
            box.take([one])
    for path in folder.rglob("*.dbx"):
        info = path.stat()
        assert (path, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns) in known
    assert box.look() == [] and box.problems == []
    there = len(list(folder.rglob("*.dbx")))
    for room, is_enough in ((there, True), (there - 1, False)):
        monkeypatch.setattr(changes, "REMEMBERED_MAX", room)
        assert box.look() == []
        assert is_enough != bool(box.problems), "what is gone is forgotten"


def test_a_folder_that_is_quiet_is_not_listed_but_for_a_full_look(folder, listed, monkeypatch):
    for name in ("quiet", "busy"):
        (folder / name).mkdir()
        (folder / name / "a.dbxpack").write_bytes(b"x")
    clock_s, wall_ns = [1e6], time.time_ns()
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns + 2 * changes.QUIET_S * 10**9)
    box = inbox(folder)
    assert taken(box) == ["a.dbxpack", "a.dbxpack"]
    assert taken(box) == []
    listed.clear()
    assert taken(box) == [] and listed == []
    (folder / "busy" / "b.dbx").write_bytes(b"x")
    assert taken(box) == ["b.dbx"] and listed == [str(folder / "busy")]
    with open(folder / "quiet" / "a.dbxpack", "ab") as pack:
        pack.write(b"more")
    assert taken(box) == [], "the times of its folder do not tell"
    clock_s[0] += changes.FULL_LOOK_S
    assert taken(box) == ["a.dbxpack"]


def test_what_changed_within_the_hour_is_looked_at_each_time(folder, listed):
    (folder / "a.dbxpack").write_bytes(b"x")
    box = inbox(folder)
    assert taken(box) == ["a.dbxpack"]
    with open(folder / "a.dbxpack", "ab") as pack:
        pack.write(b"more")
    assert taken(box) == ["a.dbxpack"]
    assert len(listed) == 2


def test_more_than_a_look_may_offer_comes_with_the_next(folder, monkeypatch):
    monkeypatch.setattr(changes, "OFFERED_MAX", 7)
    monkeypatch.setattr(changes, "ENTRIES_AT_ONCE", 4)
    for at in range(20):
        (folder / f"{at % 3}").mkdir(exist_ok=True)
        (folder / f"{at % 3}" / f"{at:02}.dbx").write_bytes(b"x")
    box, names, looks = inbox(folder), [], 0
    while True:
        names += taken(box)
        looks += 1
        if not box.has_more:
            break
    assert sorted(names) == [f"{at:02}.dbx" for at in range(20)] and looks == 3
    assert taken(box) == []


def test_more_files_than_can_be_kept_in_mind_are_said(folder, monkeypatch):
    monkeypatch.setattr(changes, "REMEMBERED_MAX", 3)
    for at in range(4):
        (folder / f"{at}.dbx").write_bytes(b"x")
    box = inbox(folder)
    assert len(taken(box)) == 4
    (folder / "5.dbx").write_bytes(b"x")
    assert taken(box) == [] and "move away what was taken in" in box.problems[0]
    for at in range(2):
        (folder / f"{at}.dbx").unlink()
    assert taken(box) == ["5.dbx"] and box.problems == []


def test_what_is_set_aside_comes_again_after_longer_and_longer_or_once_it_changes(
    folder, monkeypatch
):
    clock_s = [1e6]
    monkeypatch.setattr(time, "monotonic", lambda: clock_s[0])
    (folder / "a.dbx").write_bytes(b"x")
    box, offered = inbox(folder), []
    for _ in range(2_000):
        for one in box.look():
            offered.append(clock_s[0])
            box.set_aside(one, 30.0)
        clock_s[0] += 1.0
    pauses = [after - before for before, after in itertools.pairwise(offered)]
    assert pauses == [30, 60, 120, 240, 480, 600]
    (folder / "a.dbx").write_bytes(b"xy")
    assert taken(box) == ["a.dbx"]


def test_a_lake_that_is_made_in_an_input_is_no_input(folder):
    (folder / "a.dbx").write_bytes(b"x")
    box = Inbox([folder], folder / "lake", 0.0)
    assert taken(box) == ["a.dbx"]
    delta.create_lake(folder / "lake")
    delta.create_lake(folder / "another")
    for name in ("lake", "another"):
        (folder / name / "packs" / "p.dbxpack").write_bytes(b"x")
    assert taken(box) == []
