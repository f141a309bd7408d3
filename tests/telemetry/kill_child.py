"""What a process that is to be killed does: it ingests or compacts without Spark."""

from pathlib import Path

from drupelet_tools.telemetry import compact as compaction
from drupelet_tools.telemetry import job


def ingest(paths, root):
    """Take in what is new under some paths."""
    job.ingest([Path(path) for path in paths], Path(root), {}, None, events=True)


def compact(root):
    """Make few files of many."""
    compaction.compact(Path(root))
