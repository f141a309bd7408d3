"""The remote log of a running agent: what is new goes there by itself, and comes from the others.

    [feed]
    place = "folder:/media/log"   # where our log is kept; without it, others' are only looked at
    watch = true                  # look at what the members announce
    period_ms = 10000             # new messages wait at most so long

A place that is not there, or full, is tried again; it is told of once.
"""

from collections.abc import Callable
from pathlib import Path

from drupelet.errors import DrupeletError
from drupelet.schedule import elapsed_ms
from drupelet_host.cas import FolderStore
from drupelet_host.config import FOLDER_PLACE, FeedSettings
from drupelet_host.member import Delivered, Member
from drupelet_host.remote_log_home import FeedWatch, HomeLog, open_folder


class AgentFeed:
    """Call `turn` often. took: who takes what enters the log; told: gets a line about trouble."""

    def __init__(
        self, member: Member, settings: FeedSettings, took: Callable[[Delivered], None],
        told: Callable[[str, str], None], now_ms: int,
    ) -> None:  # fmt: skip
        self._member = member
        self._place = settings.place
        self._period_ms = settings.period_ms
        self._told = told
        self._trouble = ""
        self._pushed = -1  # handle of the newest message when it was last uploaded
        # The first look is at once: our own log may have been lost.
        self._from_ms = now_ms - settings.period_ms
        self._log: HomeLog | None = None
        self.pushed = self.pulled = 0
        if self._place:
            store = FolderStore(Path(self._place.removeprefix(FOLDER_PLACE)))
            self._log = HomeLog(member, member.clients, store, took)
        self._watch: FeedWatch | None = None
        if settings.watch:
            self._watch = FeedWatch(member, member.clients, open_folder)

    def turn(self, now_ms: int) -> None:
        """Upload and look, where it is time."""
        if self._watch is not None:
            self.pulled += self._watch.turn(now_ms)
        if self._log is None or elapsed_ms(now_ms, self._from_ms) < self._period_ms:
            return
        newest = self._member.node.core.window.newest
        if newest == self._pushed:
            return
        self._from_ms = now_ms
        try:
            self.pushed += int(self._log.push(self._place)["pushed"])
        except DrupeletError as error:
            self._say(str(error))
            return
        self._pushed = self._member.node.core.window.newest
        self._say("")

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._told(self._place, trouble)

    def status(self) -> dict[str, object]:
        """For `drupelet status --json`."""
        return {
            "place": self._place,
            "reason": self._trouble,
            "pushed": self.pushed,
            "pulled": self.pulled,
            "failures": self._watch.failures if self._watch is not None else 0,
        }
