"""A lake and inputs on object storage: the tables of a local lake, whatever goes wrong."""

import itertools
import multiprocessing
import random
import threading

import pytest

from drupelet_tools.telemetry.analysis import buckets
from drupelet_tools.telemetry.base.errors import TelemetryError
from drupelet_tools.telemetry.base.place import create, place
from drupelet_tools.telemetry.files.changes import Inbox
from drupelet_tools.telemetry.lake import compact, delta
from repeats import few
from telemetry import kill_child, s3_server
from telemetry.bucket_boxes import boxes, bucket, ingest, server, tables_of, upload
from telemetry.command_line import run
from telemetry.follow_script import Follow

__all__ = ["boxes", "bucket", "server"]


def test_inbox_and_lake_there_give_the_tables_of_a_local_lake(boxes, bucket, tmp_path):
    packs, wanted = boxes
    inbox = upload(packs[:5], f"{bucket}/inbox")
    root = f"{bucket}/a lake/of mine"
    assert ingest([inbox, *packs[5:7]], root)["new"] > 0
    again = ingest([f"{inbox}/{packs[0].name}", *packs], root)
    assert again["new"] > 0 and again["repeated"] > 0
    assert tables_of(root) == wanted
    assert ingest([bucket, *packs], root)["new"] == 0, "its own packs are no input"
    assert compact.compact(place(root)).files == 2
    assert tables_of(root) == wanted
    assert ingest([f"{root}/packs"], tmp_path / "lake")["new"] > 0
    ingest([inbox, *packs[5:]], tmp_path / "lake")
    assert tables_of(tmp_path / "lake") == wanted


def _refusal(work):
    """Why work was refused; nothing if it was done."""
    try:
        work()
    except TelemetryError as refused:
        return str(refused)
    return ""


def _commit_lost(method, path, before):
    """Every other commit is carried out and not answered."""
    return s3_server.LOST if method == "PUT" and "_delta_log" in path and before % 2 else None


@pytest.mark.parametrize(
    "fault",
    [
        s3_server.every(9, s3_server.BROKEN, "PUT", "GET", "HEAD"),
        s3_server.every(7, s3_server.BUSY, "PUT", "GET", "POST"),
        s3_server.every(5, s3_server.CUT, "GET"),
        _commit_lost,
    ],
    ids=["broken", "busy", "cut", "lost"],
)
def test_what_partly_fails_counts_once(boxes, bucket, server, fault):
    """A run goes on or is refused in one line; the next ones give the same tables."""
    packs, wanted = boxes
    root, refusals = f"{bucket}/lake", ""
    ingest(packs[:1], root)
    with server.failing(fault):
        for work in (
            lambda: ingest(packs[:3], root),
            lambda: ingest(packs[2:], root),
            lambda: compact.compact(place(root)),
        ):
            refusals += _refusal(work)
    assert "\n" not in refusals and (fault is not _commit_lost or refusals == "")
    assert server.faults.total() > 2
    ingest(packs, root)
    assert ingest(packs, root)["new"] == 0
    assert tables_of(root) == wanted
    state = delta.open_lake(place(root))
    for files in state.files.values():
        assert len({one.path for one in files}) == len(files)


def _pack_vanished(method, path, _before):
    """A pack is listed, and gone when it is read."""
    is_pack = method in ("GET", "HEAD") and path.endswith(".dbxpack")
    return s3_server.VANISHED if is_pack else None


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (_pack_vanished, "pack: cannot read it: No such file or directory"),
        (s3_server.every(1, s3_server.DENIED, "GET", "HEAD"), "permission denied; look at the"),
        (s3_server.every(1, s3_server.DENIED, "PUT"), "permission denied; look at the"),
    ],
    ids=["vanished", "read", "write"],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(boxes, bucket, server, fault, reason):
    packs, _ = boxes
    inbox = upload(packs[:2], f"{bucket}/inbox")
    root = f"{bucket}/lake"
    ingest(packs[:1], root)
    before = tables_of(root)
    with server.failing(fault), pytest.raises(TelemetryError, match=reason) as refused:
        ingest([inbox], root)
    text = str(refused.value)
    assert "\n" not in text and s3_server.ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in text
    assert tables_of(root) == before


def test_commands_name_what_is_wrong_in_one_line(bucket, monkeypatch):
    for words, reason in (
        (("compact", "s3://no-such-bucket/lake"), "no such bucket; make it"),
        (("alerts", f"{bucket}/lake"), "no lake here"),
        (("compact", "s3://somebody:hidden-word@x/lake"), "credentials in a URI"),
        (
            ("compact", "foo://x/lake"),
            "foo://x/lake: foo:// is neither read nor written; give a path",
        ),
    ):
        done = run(*words)
        text = done.stderr or str(done.exception)
        assert done.exit_code == 1 and reason in text and "hidden-word" not in text
        assert text.strip().count("\n") == 0
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "no connection to the store" in run("compact", f"{bucket}/lake").stderr


def test_a_report_is_written_there_as_it_is_here(boxes, bucket, tmp_path, monkeypatch):
    packs, _ = boxes
    ingest(packs, tmp_path / "lake")
    words = ("report", "--lake", tmp_path / "lake", "--csv", "--html")
    for many in (False, True):
        if many:  # an index and pages, of which an earlier report left more
            monkeypatch.setattr(buckets, "ONE_PAGE_DEVICES", 5)
            monkeypatch.setattr(buckets, "BUCKET_DEVICES", 4)
            (tmp_path / "old.html").write_text("x")
            upload([tmp_path / "old.html"], f"{bucket}/r-pages")
            file = create(place(f"{bucket}/r-pages/0009.html"))
            file.close()
        for page in (tmp_path / "r.html", f"{bucket}/r.html"):
            done = run(*words, page)
            assert (done.exit_code, done.stdout) == (0, f"report: {page}\n"), done.stderr
        here = {path.name: path.read_text("utf-8") for path in tmp_path.rglob("*r*/*.html")}
        here |= {name: (tmp_path / name).read_text("utf-8") for name in ("r.html", "r.csv")}
        there = {path.name: path.read_text("utf-8") for path in place(bucket).below()}
        assert there.pop("old.html", "x") == "x", "no page"
        assert there.keys() == here.keys() and ("0002.html" in here) == many
        assert all(there[name].splitlines() == here[name].splitlines() for name in here)
    refused = run(*words, "s3://no-such-bucket/r.html")
    assert refused.exit_code == 1 and "no such bucket" in refused.stderr


def test_an_ingest_asks_for_what_is_new_not_for_all_that_is_there(boxes, bucket, server):
    packs, _ = boxes
    root = f"{bucket}/lake"
    costs = []
    for pack in packs:
        with server.counting() as requests:
            assert ingest([pack], root)["new"] > 0
        costs.append(requests.total())
    assert max(costs[4:]) <= 80, costs
    with server.counting() as requests:
        assert ingest(packs[:1], root)["new"] == 0
    assert requests.total() <= 60, requests


# --- several at once, kills ---


def started(work, *arguments):
    """A process that knows the store: it begins with this one's environment."""
    child = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    child.start()
    return child


def test_two_ingests_at_once_into_a_bucket_both_land_once(boxes, bucket):
    packs, wanted = boxes
    root = f"{bucket}/lake"
    shares = [[str(path) for path in own] for own in (packs[:5], packs[3:])]
    children = [started(kill_child.ingest, own, root) for own in shares]
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0]
    assert tables_of(root) == wanted
    assert ingest(packs, root)["new"] == 0


@pytest.mark.parametrize("kills", few(1, (4, 6)))
def test_a_run_that_is_killed_leaves_the_bucket_a_lake(boxes, bucket, server, kills):
    """Each is killed at another request to the store, wherever that is."""
    packs, wanted = boxes
    root = f"{bucket}/lake"
    ingest(packs[:2], root)
    rng = random.Random(7)
    for turn in range(kills):
        reached, left = threading.Event(), [None] * rng.randrange(1, 40)

        def stop(*_given, reached=reached, left=left):
            if left:
                left.pop()
            else:
                reached.set()

        if turn % 2:
            ingest(rng.sample(packs, 1), root)
            work = (kill_child.compact, root)
        else:
            work = (kill_child.ingest, [str(path) for path in rng.sample(packs, 3)], root)
        with server.failing(stop):
            child = started(*work)
            while child.is_alive() and not reached.wait(0.01):
                pass
            child.kill()
            child.join()
    ingest(packs, root)
    assert tables_of(root) == wanted
    compact.compact(place(root))
    assert tables_of(root) == wanted


# --- an ingest that goes on ---


def _all_denied(*_):
    return s3_server.DENIED


def _commits_denied(method, path, _):
    return s3_server.DENIED if method == "PUT" and "/_delta_log/" in path else None


@pytest.mark.parametrize("fault", [_all_denied, _commits_denied])
def test_what_comes_to_a_bucket_is_taken_in_once_the_store_takes_it(boxes, bucket, server, fault):
    packs, wanted = boxes
    inbox, root = f"{bucket}/inbox", f"{bucket}/lake"
    away = server.failing(fault)
    followed = Follow(
        [place(inbox)],
        place(root),
        lambda: upload(packs[:3], inbox) and None,
        lambda: upload(packs[3:], inbox) and away.__enter__(),
        lambda: None,
        lambda: away.__exit__(None, None, None),
        lambda: None,
        lambda: None,
        events=True,
        files_max=2,
    )
    assert followed.problems and all(
        "permission denied; look at the credentials" in line for line in followed.problems
    )
    assert [batch["files"] for batch in followed.batches] == [2, 1, 2, 2, 1]
    assert tables_of(root) == wanted
    assert Follow([place(bucket)], place(root)).news == [], "its own packs are no input"


def test_an_idle_look_at_a_bucket_is_one_request_and_looks_become_fewer(
    boxes, bucket, server, monkeypatch
):
    packs, _ = boxes
    box = Inbox([place(upload(packs[:2], f"{bucket}/inbox"))], place(f"{bucket}/lake"), 0.0, 2.0)
    now_s = [1e6]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    changed = box.look()
    assert len(changed) == 2
    box.take(changed)
    asked = []
    for _ in range(40):
        now_s[0] += 2.0
        server.requests.clear()
        assert box.look() == []
        asked.append(len(server.requests))
    assert set(asked) == {0, 1}
    at_s = [2 * at for at, count in enumerate(asked) if count]
    pauses_s = [after - before for before, after in itertools.pairwise(at_s)]
    assert pauses_s == [4, 8, 16, 16, 16, 16]
    upload(packs[2:3], f"{bucket}/inbox")
    now_s[0] += 16.0
    assert len(box.look()) == 1
    now_s[0] += 2.0
    server.requests.clear()
    box.look()
    assert len(server.requests) == 1, "where something comes it looks often again"
