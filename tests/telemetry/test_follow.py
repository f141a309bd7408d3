"""An ingest that goes on: whatever comes, stops halfway or dies, the tables are those of one
ingest of everything."""

import json
import multiprocessing
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from drupelet.store.states import STATE_DELIVERED
from drupelet_host.base import clock
from drupelet_host.home import config
from drupelet_host.home.config import Config, Peer
from drupelet_host.member.member import Member
from drupelet_host.view.log_view import LogView
from drupelet_tools import telemetry
from drupelet_tools.bench import corpus_files
from drupelet_tools.telemetry.base.errors import LastingError
from drupelet_tools.telemetry.files import agent_export, inputs
from drupelet_tools.telemetry.intake import following, job
from drupelet_tools.telemetry.lake import commit, compact, delta
from repeats import few
from telemetry import box_writer as box
from telemetry import fleet, kill_child
from telemetry.command_line import run
from telemetry.follow_script import Follow
from telemetry.lake_content import content
from telemetry.segment_log import spoil


def ingest(paths, root, **options):
    return job.ingest(paths, root, {}, None, **options)


def segment(number, boot=1, device=b"\1\2\3\4", blocks=8):
    readings = [[(at, box.BATTERY, 0, at, 3_000) for at in range(41)]] * blocks
    return box.segment(device, boot, number, readings)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    """A damaged corpus in many packs, and a lake of it made by one ingest."""
    folder = tmp_path_factory.mktemp("boxes")
    corpus_files.write(folder / "in", corpus_files.Corpus(60_000, 8, 12, damage=True, seed=9))
    ingest([folder / "in"], folder / "lake", events=True)
    return folder


@pytest.fixture
def inbox(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


# --- what comes, comes once ---


def test_files_that_arrive_while_it_runs_make_the_tables_of_one_ingest(inbox, tmp_path):
    written = fleet.write(inbox.parent)
    whole = {name: [path.read_bytes() for path in paths] for name, paths in written.items()}
    pack = bytearray()

    def arrive(name, device):
        for at, data in enumerate(whole[device]):
            (inbox / name).mkdir(exist_ok=True)
            (inbox / name / f"{at}.dbx").write_bytes(data)

    def grow(first, last):
        for data in whole["B"][first:last]:
            inputs.append_to_pack(pack, data)
        (inbox / "b.dbxpack").write_bytes(pack)

    def name_them():
        (inbox / "names.json").write_text(json.dumps(fleet.names()))

    followed = Follow(
        [inbox],
        tmp_path / "lake",
        lambda: arrive("a", "A"),
        lambda: grow(0, 2),
        name_them,
        lambda: grow(2, 6),
        lambda: (inbox / "a").rename(inbox / "moved"),
        lambda: arrive("c", "C"),
        lambda: arrive("more", "A"),
        lambda: arrive("h", "host"),
        events=True,
    )
    assert followed.problems == []
    assert followed.news == [6, 2, 4, 6, 7], "what is known already makes no line"
    assert followed.counts["new"] == sum(map(len, whole.values()))
    ingest([inbox], tmp_path / "plain", events=True)
    assert content(tmp_path / "lake") == content(tmp_path / "plain")
    assert delta.open_lake(tmp_path / "lake").names == delta.open_lake(tmp_path / "plain").names


def test_a_backlog_comes_in_bounded_batches_each_of_which_counts(inbox, tmp_path):
    for at in range(25):
        (inbox / f"{at:02}.dbx").write_bytes(segment(at))
    followed = Follow([inbox], tmp_path / "lake", files_max=10)
    assert [batch["files"] for batch in followed.batches] == [10, 10, 5]
    assert delta.open_lake(tmp_path / "lake").version == 3
    size = len(segment(0))
    followed = Follow([inbox], tmp_path / "small", batch_bytes_max=3 * size)
    assert followed.news == [3] * 8 + [1]
    followed = Follow([inbox], tmp_path / "tiny", batch_bytes_max=1)
    assert followed.news == [1] * 25, "a file is never cut in two"
    for name in ("small", "tiny"):
        assert content(tmp_path / name) == content(tmp_path / "lake")


def test_an_end_between_two_batches_leaves_the_rest_for_the_next_run(inbox, tmp_path):
    for at in range(9):
        (inbox / f"{at}.dbx").write_bytes(segment(at))
    follower = following.Follower(
        [inbox],
        tmp_path / "lake",
        {},
        pace=following.Pace(settle_s=0, unfinished_s=0, files_max=4),
    )
    looks = []

    def end_behind_the_first_batch(seconds):
        looks.append(seconds)
        return len(looks) > 2  # before the look, before the first batch, before the second

    assert follower.run(end_behind_the_first_batch)["new"] == 4
    assert Follow([inbox], tmp_path / "lake").news == [5]


def test_the_function_of_the_library_ends_by_an_event(inbox, tmp_path):
    (inbox / "0.dbx").write_bytes(segment(0))
    ending, batches = threading.Event(), []

    def on_batch(counts):
        batches.append(counts)
        ending.set()

    counts = telemetry.follow(
        None,
        [str(inbox)],
        str(tmp_path / "lake"),
        {"01020304": {"name": "tower"}},
        until=lambda seconds: ending.wait(min(seconds, 1.0)),
        every_s=1,
        settle_s=0.1,
        on_batch=on_batch,
    )
    assert [batch["new"] for batch in batches] == [1] and counts["new"] == 1
    (device,) = delta.open_lake(tmp_path / "lake").read_devices().to_pylist()
    assert device["name"] == "tower"


# --- what has not come whole yet ---


def test_a_file_that_is_written_slowly_is_taken_when_it_is_whole(inbox, tmp_path):
    data = segment(0)

    def write_slowly():
        with open(inbox / "slow.dbx", "wb", buffering=0) as file:
            for at in range(0, len(data), 512):
                file.write(data[at : at + 512])
                time.sleep(0.05)

    writer = threading.Thread(target=write_slowly)
    followed = Follow(
        [inbox], tmp_path / "lake", writer.start, *[lambda: time.sleep(0.05)] * 60, settle_s=2
    )
    writer.join()
    assert followed.news == [1] and followed.batches[0]["quarantined"] == 0
    (inbox / "plain").mkdir()
    ingest([inbox], tmp_path / "plain")
    assert content(tmp_path / "lake") == content(tmp_path / "plain")


@pytest.mark.parametrize("name", ["a.dbx", "a.dbxpack", "a.dbx-other"])
@pytest.mark.parametrize("cut", [3, 10, 20, 40, 700, 32 + 4 + 8 * 512 - 1])
def test_a_copy_that_stopped_halfway_waits_for_its_rest(inbox, tmp_path, name, cut):
    pack = bytearray()
    for at in range(2):
        inputs.append_to_pack(pack, segment(at))
    whole = bytes(pack) if name.endswith("pack") else segment(0)
    path = inbox / name
    followed = Follow(
        [inbox],
        tmp_path / "lake",
        lambda: path.write_bytes(whole[:cut]),
        lambda: None,
        lambda: path.write_bytes(whole),
        unfinished_s=60.0,
    )
    assert len(followed.batches) == 1
    ingest([inbox], tmp_path / "plain")
    assert content(tmp_path / "lake") == content(tmp_path / "plain")


def test_a_file_that_stays_cut_is_taken_as_it_is_and_mended_by_the_whole_one(inbox, tmp_path):
    data = segment(0)
    path = inbox / "a.dbx"
    Follow([inbox], tmp_path / "lake", lambda: path.write_bytes(data[: 32 + 512 * 3 + 100]))
    cut = delta.open_lake(tmp_path / "lake")
    assert cut.read("quarantine").num_rows == 1
    assert cut.read("segments")["blocks"].to_pylist() == [4]
    followed = Follow([inbox], tmp_path / "lake", lambda: path.write_bytes(data))
    assert followed.news == [1]
    mended = delta.open_lake(tmp_path / "lake")
    ingest([inbox], tmp_path / "plain")
    plain = delta.open_lake(tmp_path / "plain")
    assert mended.read("quarantine").num_rows == 0
    for table in ("state_time", "traffic", "messages", "battery", "health", "hours", "days"):
        assert mended.read(table).equals(plain.read(table)), table
    for name in ("blocks", "blocks_bad", "events"):
        assert mended.read("segments")[name].equals(plain.read("segments")[name]), name


def test_files_of_a_clock_that_is_ahead_are_taken_by_ours(inbox, tmp_path):
    ahead = time.time() + 7_200
    (inbox / "a.dbx").write_bytes(segment(0))
    os.utime(inbox / "a.dbx", (ahead, ahead))
    pause = lambda: time.sleep(0.15)  # noqa: E731
    followed = Follow([inbox], tmp_path / "lake", pause, settle_s=60)
    assert followed.news == []
    followed = Follow([inbox], tmp_path / "lake", pause, pause, pause, settle_s=0.2)
    assert followed.news == [1]


# --- an agent's folder ---


def test_what_an_agent_stores_meanwhile_is_taken_in(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alice, us = bytes.fromhex("a11ce001"), bytes.fromhex("aaaa0003")
    peers = (Peer("alice", alice, "stick:"),)
    settings = Config(tmp_path / "home", "us", us, "orchard", 50, None, peers)
    config.create(settings)
    member = Member(settings)
    query = "SELECT number FROM members WHERE key = ?"
    ((sender,),) = member.store.connection.execute(query, (alice,)).fetchall()

    def store(number):
        body = b"\0" + segment(number, device=alice)
        member.store.put(
            member.telemetry, sender, bytes([number]) * 32, 0, bytes(8), 0,
            body, 0, len(body), STATE_DELIVERED,
        )  # fmt: skip
        member.commit()

    reads = []
    export = LogView.export_telemetry
    monkeypatch.setattr(
        LogView, "export_telemetry", lambda *given: reads.append(1) or export(*given)
    )
    pause = lambda: time.sleep(0.02)  # noqa: E731
    monkeypatch.setattr(agent_export, "SHARE", 1000.0)
    store(0)
    followed = Follow(
        [settings.home], tmp_path / "lake", pause, lambda: store(1), pause, lambda: store(2)
    )
    member.close(clock.now_ms())
    assert followed.problems == [] and followed.news == [1, 1, 1]
    assert len(reads) == 3, "only when the agent has stored something"
    devices = delta.open_lake(tmp_path / "lake").read_devices().to_pylist()
    assert [row["name"] for row in devices] == ["alice"]
    assert not list(tmp_path.glob(f"{agent_export.FOLDER_PREFIX}*")), "nothing is left"


# --- others at the same lake, and death ---


def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["telemetry.kill_child"])
    return context


def test_two_followers_and_an_ingest_at_once(boxes, tmp_path):
    packs = sorted((boxes / "in").glob("*.dbxpack"))
    (tmp_path / "in").mkdir()
    context = processes()
    root, end = tmp_path / "lake", tmp_path / "end"
    inbox = str(tmp_path / "in")
    followers = [
        context.Process(target=kill_child.follow, args=([inbox], str(root), str(end)))
        for _ in range(2)
    ]
    for child in followers:
        child.start()
    for pack in packs[:-1]:
        shutil.copy(pack, tmp_path / "in")
        time.sleep(0.05)
    ingest([tmp_path / "in"], root, events=True)
    compact.compact(root)
    shutil.copy(packs[-1], tmp_path / "in")
    end.touch()
    for child in followers:
        child.join(60)
        assert child.exitcode == 0
    tables, wanted = content(root), content(boxes / "lake")
    assert _without_places(tables) == _without_places(wanted)


@pytest.mark.parametrize("kills", few(1, (5, 10)))
def test_killed_at_any_point_nothing_is_lost_and_nothing_counts_twice(boxes, tmp_path, kills):
    packs = sorted((boxes / "in").glob("*.dbxpack"))
    (tmp_path / "in").mkdir()
    context = processes()
    root, end = tmp_path / "lake", tmp_path / "end"
    given = ([str(tmp_path / "in")], str(root), str(end))
    rng = random.Random(7)
    killed = 0
    for turn in range(kills):
        child = context.Process(target=kill_child.follow, args=given)
        child.start()
        for pack in packs[turn::kills]:
            shutil.copy(pack, tmp_path / "in")
        began = end.with_suffix(".began")
        while not began.exists():
            time.sleep(0.01)
        began.unlink()
        time.sleep(rng.random() * 0.8)
        child.kill()
        child.join()
        killed += child.exitcode == -signal.SIGKILL
    assert killed == kills
    assert delta.open_lake(root).version > 0, "some batches were committed"
    end.touch()
    kill_child.follow(*given)
    assert _without_places(content(root)) == _without_places(content(boxes / "lake"))


def _without_places(tables):
    """Not where the inputs were."""
    kept = dict(tables)
    kept["quarantine"] = sorted(
        ", ".join(word for word in row.split(", ") if not word.startswith("'file'"))
        for row in tables["quarantine"]
    )
    return kept


@contextmanager
def command(*words):
    """`drupelet telemetry ingest --follow` as a process."""
    program = "from drupelet_tools.telemetry.commands.telemetry import app; app()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "ingest", *map(str, words), "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_one_line(inbox, tmp_path, number):
    (inbox / "0.dbx").write_bytes(segment(0))
    words = (inbox, "--lake", tmp_path / "lake", "--every", "1s", "--json")
    with command(*words) as process:
        line = process.stdout.readline()
        assert json.loads(line)["new"] == 1 and json.loads(line)["files"] == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0 and out == ""
    first, last = err.splitlines()
    assert f"following {inbox}, every 1s" in first
    assert last.endswith(
        "ended; in all: segments 1, repeated 0, new 1, devices 1, events 328, quarantined 0"
    )


# --- what stands in the way ---


def test_what_is_wrong_at_the_beginning_is_one_line(tmp_path):
    (tmp_path / "note.txt").write_text("hello")
    (tmp_path / "00000001.DRP").write_bytes(b"DRP1")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text("{}")
    root = tmp_path / "lake"
    for words, remedy in (
        (("none", "--follow"), "no such file or folder"),
        (("note.txt", "--follow"), "does not begin as a segment does"),
        (("00000001.DRP", "--follow"), "drupelet stick"),
        ((".", "--follow", "--every", "soon"), "--every 'soon': want 1s to 1d"),
        ((".", "--follow", "--every", "0s"), "want 1s to 1d"),
        ((".", "--follow", "--max-files", "0"), "--max-files 0: want 1 to 65,536"),
        ((".", "--every", "30s"), "--every is for an ingest that goes on: add --follow"),
        ((".", "--max-files", "3"), "add --follow"),
        ((".", "--follow", "--lake", tmp_path / "old"), "drupelet telemetry migrate"),
    ):
        path = tmp_path if words[0] == "." else tmp_path / words[0]
        done = run("ingest", path, "--lake", root, *words[1:])
        assert done.exit_code == 1, words
        assert remedy in done.stderr and done.stderr.splitlines()[-1].count(remedy) == 1
        assert "Traceback" not in done.stderr


@contextmanager
def disk_full(size):
    """No file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 300, 1_500, 4_000])
def test_a_full_disk_is_said_and_what_came_meanwhile_is_taken_in_later(inbox, tmp_path, size):
    limit = disk_full(size)

    def fill():
        for at in range(3):
            (inbox / f"{at}.dbx").write_bytes(segment(at))
        limit.__enter__()

    followed = Follow(
        [inbox],
        tmp_path / "lake",
        fill,
        lambda: None,
        lambda: limit.__exit__(None, None, None),
        lambda: None,
    )
    assert len(followed.problems) == 2
    assert all(
        "cannot write the lake: " in line and "File too large" in line
        for line in followed.problems
    )
    assert all("\n" not in line for line in followed.problems)
    assert followed.news == [3]
    assert followed.script.pauses[2] > followed.script.pauses[1], "it waits longer each time"
    ingest([inbox], tmp_path / "plain")
    assert content(tmp_path / "lake") == content(tmp_path / "plain")


def test_the_pause_between_tries_is_bounded(tmp_path):
    follower = following.Follower([tmp_path], tmp_path / "lake", {})
    pauses = [follower.pause_s(0.0, failures) for failures in range(40)]
    assert pauses[:4] == [30, 30, 60, 120] and pauses[-1] == following.RETRY_MAX_S
    assert follower.pause_s(6.0, 0) == 120, "looks take a twentieth of the time at most"


def test_a_file_that_cannot_be_read_keeps_no_other_waiting(inbox, tmp_path, monkeypatch):
    for at in range(4):
        (inbox / f"{at}.dbx").write_bytes(segment(at))
    opened, is_barred = inputs.Opened, [True]

    def refuse(path):
        if path.name in ("1.dbx", "2.dbx") and is_barred[0]:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path)

    monkeypatch.setattr(inputs, "Opened", refuse)
    followed = Follow(
        [inbox],
        tmp_path / "lake",
        lambda: time.sleep(0.02),
        lambda: is_barred.clear() or is_barred.append(False),
        *(lambda: time.sleep(0.02),) * 4,
    )
    # Each is offered again after a pause of its own.
    assert followed.news[0] == 2 and sum(followed.news) == 4
    assert sorted(followed.problems) == [
        f"{inbox / name}: cannot read it: Permission denied" for name in ("1.dbx", "2.dbx")
    ], "said once, not at each look"


def test_an_imported_device_s_boxes_keep_no_other_waiting(inbox, tmp_path):
    root = tmp_path / "lake"
    commit.append(root, {"battery": [{"device": "09020304", "boot": 0, "mv": 3_600}]}, "import:1")
    (inbox / "a.dbx").write_bytes(segment(0, device=b"\x09\2\3\4"))
    (inbox / "b.dbx").write_bytes(segment(0))
    followed = Follow([inbox], root, lambda: None)
    assert followed.news == [1]
    (problem,) = followed.problems
    assert "09020304 is in the lake from an import" in problem


def test_a_folder_that_goes_away_and_comes_back(inbox, tmp_path):
    other = tmp_path / "stick"
    other.mkdir()
    (other / "0.dbx").write_bytes(segment(0))

    def swap():
        other.rename(tmp_path / "drawer")
        (inbox / "1.dbx").write_bytes(segment(1))

    def back():
        (tmp_path / "drawer").rename(other)
        (other / "2.dbx").write_bytes(segment(2))

    followed = Follow([other, inbox], tmp_path / "lake", swap, lambda: None, back)
    assert followed.news == [1, 1, 1]
    assert followed.problems == [f"{other}: No such file or directory"]


def test_names_that_are_broken_are_said_and_the_old_ones_stay(inbox, tmp_path):
    path = inbox / "names.json"
    path.write_text('{"01020304": {"name": "tower"}}')
    (inbox / "0.dbx").write_bytes(segment(0))

    def name_of():
        (device,) = delta.open_lake(tmp_path / "lake").read_devices().to_pylist()
        return device["name"]

    seen = []
    followed = Follow(
        [inbox],
        tmp_path / "lake",
        lambda: path.write_text("[1") and None,
        lambda: seen.append(name_of()),
        lambda: path.write_text('{"01020304": {"name": "mast"}}') and None,
    )
    (problem,) = followed.problems
    assert "names.json: not JSON" in problem
    assert seen == ["tower"] and name_of() == "mast", "with no new segment"


def test_a_lake_that_was_restored_is_filled_again(inbox, tmp_path):
    """What this process remembers must not stand against the lake."""
    root = tmp_path / "lake"

    def add(at):
        return lambda: (inbox / f"{at}.dbx").write_bytes(segment(at)) and None

    def restore():
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "backup", root)

    followed = Follow(
        [inbox],
        root,
        add(0),
        lambda: shutil.copytree(root, tmp_path / "backup"),
        add(1),
        restore,
        lambda: None,
    )
    assert followed.news == [1, 1, 1] and followed.problems == []
    ingest([inbox], tmp_path / "plain")
    assert content(root) == content(tmp_path / "plain")


def test_a_lake_that_is_gone_is_not_made_anew(inbox, tmp_path):
    """Its disk may only be unmounted."""
    root = tmp_path / "lake"
    (inbox / "0.dbx").write_bytes(segment(0))

    def unmount():
        root.rename(tmp_path / "elsewhere")
        (inbox / "1.dbx").write_bytes(segment(1))

    followed = Follow(
        [inbox], root, unmount, lambda: None, lambda: (tmp_path / "elsewhere").rename(root)
    )
    assert not any(tmp_path.glob("lake-*")) and followed.news == [1, 1]
    assert all("no lake here" in line for line in followed.problems) and followed.problems


def test_a_lake_of_another_version_ends_it(inbox, tmp_path):
    root = tmp_path / "lake"
    (inbox / "0.dbx").write_bytes(segment(0))

    def change():
        DeltaTable(root / "table").alter.set_table_description("schema version 9")
        (inbox / "1.dbx").write_bytes(segment(1))

    with pytest.raises(LastingError, match="of schema version 9, and this is"):
        Follow([inbox], root, change, lambda: None)


# --- what it costs ---


@pytest.mark.parametrize(
    ("tier_files", "batches"),
    [(16, 60), pytest.param(compact.TIER_FILES, 210, marks=pytest.mark.long)],
)
def test_many_small_batches_leave_few_files(inbox, tmp_path, monkeypatch, tier_files, batches):
    """A batch reads what may have its devices, so few files bound what it costs.

    Without anything that bounds them, a third of the batches leave a file of each kind.
    """
    monkeypatch.setattr(compact, "TIER_FILES", tier_files)
    count = iter(range(10_000))

    def add():
        at = next(count)
        (inbox / f"{at % 7}").mkdir(exist_ok=True)
        path = inbox / f"{at % 7}" / f"{at}.dbx"
        data = segment(at, blocks=2)
        path.write_bytes(
            spoil(data, 0, 3) if at % 3 else b"no segment" + bytes([at % 256, at >> 8])
        )

    followed = Follow([inbox], tmp_path / "lake", *[add] * batches)
    assert followed.news == [1] * batches
    files = delta.open_lake(tmp_path / "lake").files
    assert len(files["piece"]) < tier_files and len(files["foreign"]) < tier_files
    assert len(files["key"]) < 12
    ingest([inbox], tmp_path / "plain")
    assert content(tmp_path / "lake") == content(tmp_path / "plain")


def test_an_idle_look_opens_no_file(inbox, tmp_path):
    for at in range(20):
        (inbox / f"{at}.dbx").write_bytes(segment(at))
    (inbox / "b.dbxpack").write_bytes(
        b"".join([len(segment(30)).to_bytes(4, "little"), segment(30)])
    )
    (inbox / "names.json").write_text("{}")
    watching, seen, reads = [False], [], []

    def hook(event, given):
        if watching[0] and event == "open" and given[0] != "/proc/self/io":
            seen.append(given)

    def bytes_read():
        with open("/proc/self/io") as file:
            return int(file.readline().split()[1])

    def idle():
        reads.append(bytes_read())
        watching[0] = True

    def end():
        reads.append(bytes_read())
        watching[0] = False

    sys.addaudithook(hook)
    followed = Follow([inbox], tmp_path / "lake", lambda: None, idle, *[end] * 3)
    assert followed.news == [21] and seen == []
    # Reading the count is all that is read.
    assert reads[1] - reads[0] == reads[2] - reads[1] == reads[3] - reads[2]


# --- what the page shows ---


def shown(language):
    """The blocks of one language in the section of docs/telemetry.md."""
    page = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text("utf-8")
    section = page.split("\n## An ingest that goes on\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)


def test_the_unit_of_the_page_is_one(tmp_path):
    (unit,) = shown("ini")
    words = shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.M)[1])
    (command_line,) = re.findall(r"^drupelet (.*)$", "".join(shown("")), re.M)
    for given in (words[1:], shlex.split(command_line)):
        assert given[:2] == ["telemetry", "ingest"]
        refused = run(*given[1:], "--every", "never")
        assert refused.stderr.startswith("drupelet telemetry: --every 'never': want 1s to 1d")
    path = tmp_path / "drupelet-follow.service"
    path.write_text(unit.replace(words[0], sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # Of keys that it does not know it only warns.
    complaints = [line for line in done.stderr.splitlines() if str(path) in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


def test_the_program_of_the_page_runs(inbox, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    inbox.rename("inbox")
    (tmp_path / "inbox" / "0.dbx").write_bytes(segment(0))
    past_s = time.time() - 60
    monkeypatch.setattr(time, "time_ns", lambda: int((past_s + 120) * 1e9))  # it was left alone
    (program,) = shown("python")
    names = {}
    running = threading.Thread(target=exec, args=(program, names))
    running.start()
    while "new" not in capsys.readouterr().out:
        time.sleep(0.05)
    names["ending"].set()
    running.join()
    assert names["counts"]["new"] == 1
