"""The remote log of a running agent: what is new goes there by itself, and comes from the others.

A place that is not there, or full, is tried again; it is told of once. While the answer of another
agent is waited for, everything else goes on.
"""

from collections.abc import Callable
from dataclasses import replace

from drupelet import host_api
from drupelet.base.errors import DrupeletError, StorageError
from drupelet.base.time_ms import elapsed_ms
from drupelet_host.base import clock
from drupelet_host.clients.feed_notices import Feed
from drupelet_host.feeds.home_log import FeedWatch, HomeLog, LogSource, Source
from drupelet_host.feeds.mail import MailSource, leave
from drupelet_host.feeds.places import Places
from drupelet_host.home.config import FOLDER_PLACE, FeedSettings
from drupelet_host.keys.key_folder import is_revoked
from drupelet_host.member.member import Delivered, Member
from drupelet_host.member.report_shapes import FeedReport
from drupelet_host.remote.helpers import RemoteHistory

# Each try at a store that does not answer takes a while: the pauses double up to this.
PAUSE_MS_MAX = 600_000


class AgentFeed:
    """Call `turn` often, and `places.serve` oftener: while a turn waits for another agent, too.

    on_delivered: takes what enters the log; on_trouble: gets a line about it.
    """

    def __init__(
        self, member: Member, settings: FeedSettings, places: Places,
        on_delivered: Callable[[Delivered], None], on_trouble: Callable[[str, str], None],
        now_ms: int,
    ) -> None:  # fmt: skip
        self._member = member
        self.places = places
        self._place = settings.place
        self._by_mail = settings.mail
        self._on_delivered = on_delivered
        self._period_ms = self._pause_ms = settings.period_ms
        self._on_trouble = on_trouble
        self._refused = ""  # why the last upload failed
        self._trouble = ""  # what was told last
        self._announced: Feed | None = None
        self._pushed = -1  # handle of the newest message when it was last uploaded
        # The first look is at once: our own log may have been lost.
        self._from_ms = now_ms - settings.period_ms
        self._log: HomeLog | None = None
        self.pushed = self.pulled = 0
        self._watch: FeedWatch | None = None
        if settings.watch:
            self._watch = FeedWatch(member, member.clients, self._source)

    def _source(self, place: str, feed: Feed) -> Source | None:
        if feed.mail:
            mailbox = self.places.mailbox(place, feed.access)
            return MailSource(self._member, feed, mailbox) if mailbox is not None else None
        store = self.places.open(place, feed.access)
        return LogSource(self._member, feed.keys, store) if store is not None else None

    def turn(self, now_ms: int) -> None:
        """Upload and look, where it is time."""
        if self._watch is not None:
            self.pulled += self._watch.turn(now_ms)
        self._upload(now_ms)
        self._say(self._refused or self.places.trouble())

    def _upload(self, now_ms: int) -> None:
        if not self._place or elapsed_ms(now_ms, self._from_ms) < self._pause_ms:
            return
        if host_api.newest(self._member.node) == self._pushed:
            return
        self._from_ms = now_ms
        try:
            self._push()
        except DrupeletError as error:
            self._refused = str(error)
            if self._log is not None and not self._place.startswith(FOLDER_PLACE):
                self._pause()
            return
        self._pause_ms = self._period_ms
        self._refused = ""

    def distrust(self) -> None:
        """Somebody is no peer any more, or not trusted: look at once who may read what."""
        self._pushed = -1
        self._from_ms = clock.now_ms() - self._pause_ms

    def _push(self) -> None:
        log = self._home_log()
        own = log.own_feed(self._place)  # a new one if somebody is not to know it any more
        if self.places.renew():
            self._log = None
            log = self._home_log()
            own = log.own_feed(self._place)
        feed = replace(own, mail=self._by_mail)
        if self._announced != feed:
            # The place may come later: who is told before it does can follow us there.
            log.announce(feed)
            self._announced = feed
        if self._by_mail:
            self._leave(feed)
        else:
            self.pushed += int(log.push(self._place)["pushed"])
            self._pushed = log.through
        self.places.works()

    def _home_log(self) -> HomeLog:
        if self._log is None:
            store = self.places.own(self._trusted())
            if store is None:
                raise StorageError("no member has told of a store there yet")
            member, access = self._member, self.places.access
            self._log = HomeLog(member, member.clients, store, self._on_delivered, access)
        return self._log

    def _leave(self, feed: Feed) -> None:
        mailbox = self.places.mailbox(self._place, self.places.access)
        if mailbox is None:
            raise StorageError("there is no mailbox that we reach")
        newest = host_api.newest(self._member.node)
        self.pushed += leave(self._member, feed, mailbox)
        self._pushed = newest

    def _pause(self) -> None:
        """Ask less often, and another store that is said to be there."""
        self._from_ms = clock.now_ms()
        self._pause_ms = min(2 * self._pause_ms, max(PAUSE_MS_MAX, self._period_ms))
        self._log = None
        self.places.failed()

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._on_trouble(self._place, trouble)

    def histories(self) -> list[RemoteHistory]:
        """Who may have the history of a channel."""
        return self.places.histories(self._trusted())

    def _trusted(self) -> dict[bytes, Feed]:
        """The feeds whose stores are of use; raises PrivateError or StorageError."""
        known = self._member.clients.feeds.known().items()
        folder = self._member.config.keys_path
        return {device: feed for device, feed in known if not is_revoked(folder, device)}

    def status(self) -> FeedReport:
        """What is said of it."""
        return FeedReport(
            place=self._place,
            reason=self._trouble,
            pushed=self.pushed,
            pulled=self.pulled,
            watched=self._watch.watched if self._watch is not None else 0,
            failures=self._watch.failures if self._watch is not None else 0,
        )
