"""What a process that is to be killed does: it ingests or compacts without Spark."""

from drupelet_tools.telemetry import compact as compaction
from drupelet_tools.telemetry import job
from drupelet_tools.telemetry.place import place


def ingest(paths, root):
    """Take in what is new under some paths."""
    job.ingest([place(path) for path in paths], place(root), {}, None, events=True)


def compact(root):
    """Make few files of many."""
    compaction.compact(place(root))
