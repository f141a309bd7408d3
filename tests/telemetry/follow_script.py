"""Follows inputs step by step in this process: between two looks something happens."""

from pathlib import Path

from drupelet_tools.telemetry.base.place import Remote
from drupelet_tools.telemetry.intake import following


class Script:
    """Steps that are carried out between looks; after the look behind the last one it is over."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.pauses = []

    def __call__(self, seconds):
        if seconds <= 0:
            return False
        self.pauses.append(seconds)
        if not self.steps:
            return True
        self.steps.pop(0)()
        return False


class Follow:
    """A run over a script; what it said."""

    def __init__(self, paths, root, *steps, names=None, events=False, spark=None, **pace):
        self.batches, self.problems = [], []
        pace = {"every_s": 0.001, "settle_s": 0.0, "unfinished_s": 0.0} | pace
        self.follower = following.Follower(
            [path if isinstance(path, Remote) else Path(path) for path in paths],
            root,
            names or {},
            spark=spark,
            events=events,
            pace=following.Pace(**pace),
            on_batch=self.batches.append,
            on_problem=self.problems.append,
        )
        self.script = Script(*steps)
        self.counts = self.follower.run(self.script)

    @property
    def news(self):
        """How much each batch brought."""
        return [batch["new"] for batch in self.batches]
