"""What a person sees while a board is flashed: lines, a progress bar, the self-test's table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from drupelet_host.base import output
from drupelet_host.cli.common import table

_RESULTS = {True: "passed", False: "FAILED", None: "-"}


class Report:
    """Prints; `quiet` (for --json) prints nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet

    def note(self, text: str) -> None:
        """Print one finished step."""
        if not self._quiet:
            output.line(text)

    def table(self, checks: list[tuple[str, bool | None, str]]) -> None:
        """Print the self-test's table."""
        if not self._quiet:
            table(("check", "result", "seen"), [(n, _RESULTS[p], seen) for n, p, seen in checks])

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show a progress bar on standard error while the block sends; remove it afterwards."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        with Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(),
            console=Console(stderr=True), transient=True, disable=self._quiet,
        ) as bar:  # fmt: skip
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
