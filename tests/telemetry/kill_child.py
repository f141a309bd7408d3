"""What a process that is to be killed does: it ingests, follows or compacts without Spark."""

import time
from pathlib import Path

from drupelet_tools.telemetry.base.place import place
from drupelet_tools.telemetry.intake import following, job
from drupelet_tools.telemetry.lake import compact as compaction


def ingest(paths, root):
    """Take in what is new under some paths."""
    job.ingest([place(path) for path in paths], place(root), {}, None, events=True)


def follow(paths, root, end):
    """Take in what comes until the file `end` is there, and some looks more.

    Beside that file `.began` says that this process has come so far.
    """
    pace = following.Pace(every_s=0.05, settle_s=0.1, unfinished_s=1.0, files_max=2)
    last_looks = []

    def wait(seconds):
        time.sleep(seconds)
        if seconds and Path(end).exists():
            last_looks.append(seconds)
        return len(last_looks) > 10

    given = [Path(path) for path in paths]
    Path(end).with_suffix(".began").touch()
    following.Follower(given, Path(root), {}, events=True, pace=pace).run(wait)


def compact(root):
    """Make few files of many."""
    compaction.compact(place(root))
