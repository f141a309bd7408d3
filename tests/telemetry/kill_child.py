"""A process that ingests without Spark, to be killed."""

from pathlib import Path

from drupelet_tools.telemetry import job


def ingest(paths, root):
    """What the killed process does."""
    job.ingest([Path(path) for path in paths], Path(root), {}, None, events=True)
