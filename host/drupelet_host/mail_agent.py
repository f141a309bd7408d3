"""The mailbox of a running agent: what is new is left there, what members left is fetched.

How far either has come is in the store's table `meta`, so that it goes back with the log when an
older copy of the store is put in its place; what is fetched twice is known by its id.
"""

from collections.abc import Callable

from drupelet.errors import StorageError
from drupelet_host import clock, database
from drupelet_host.clients.home import HomeGroups
from drupelet_host.feeds import Feed
from drupelet_host.mailserver import Mailbox, MailReader, MailWriter
from drupelet_host.member import Member
from drupelet_host.remote_log import Poll, group_id_of

# Keys of `meta` (docs/SPEC.md 8), with a feed's name in hex behind them.
LEFT = "mail_left."
FETCHED = "mail_fetched."
# Questions of one look at a feed: what else there is comes with the next.
_PAGES_MAX = 16


def _place(member: Member, key: str, feed: Feed) -> int:
    return database.meta_int(member.store.connection, key + feed.keys.name.hex(), 0)


def _keep(member: Member, key: str, feed: Feed, place: int) -> None:
    member.store.write(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", key + feed.keys.name.hex(), place
    )


def leave(member: Member, feed: Feed, mailbox: Mailbox) -> int:
    """Leave our new messages; how many. Raises StorageError or CapacityError."""
    before = _place(member, LEFT, feed)
    writer = MailWriter(member.node, member.readings, feed.keys, before)
    count = 0
    try:
        while new := writer.turn(mailbox, clock.wall_ms() // 1000):
            count += new
    finally:
        if writer.through != before:
            _keep(member, LEFT, feed, writer.through)
    return count


class MailWatch:
    """Fetches what the members left, as often as something comes; for an agent's turn.

    open_mailbox: the one at a place, by its access; None: not reached from here.
    """

    def __init__(
        self, member: Member, groups: HomeGroups,
        open_mailbox: Callable[[str, bytes], Mailbox | None],
    ) -> None:  # fmt: skip
        self._member = member
        self._groups = groups
        self._open = open_mailbox
        self._group = group_id_of(member.node, member.readings)
        self._watched: dict[Feed, tuple[Poll, Mailbox]] = {}
        self.failures = 0

    @property
    def watched(self) -> int:
        """Members whose mail is fetched."""
        return len(self._watched)

    def turn(self, now_ms: int) -> int:
        """Ask where it is time; how many messages entered the log."""
        total = 0
        for device, feed in self._groups.feeds.known().items():
            if not feed.mail or device not in self._member.numbers or feed.group != self._group:
                continue
            watched = self._watched.get(feed) or self._watch(feed, now_ms)
            if watched is None or watched[0].wait_ms(now_ms):
                continue
            came = False
            try:
                count, came = self._fetch(device, feed, watched[1], now_ms)
                total += count
            except StorageError:
                self.failures += 1
            watched[0].looked(came, 0, now_ms)
        return total

    def _fetch(self, device: bytes, feed: Feed, mailbox: Mailbox, now_ms: int) -> tuple[int, bool]:
        """How many messages entered the log, and whether there was anything."""
        member = self._member
        before = _place(member, FETCHED, feed)
        link = member.stick_link(device)
        reader = MailReader(member.node, member.readings, {feed.keys.name: (feed.keys, link)})
        reader.after = before
        count = 0
        for _ in range(_PAGES_MAX):
            at = reader.after
            count += reader.turn(mailbox, now_ms)
            if reader.after == at:
                break
        if reader.after != before:
            _keep(member, FETCHED, feed, reader.after)
        return count, reader.after != before

    def _watch(self, feed: Feed, now_ms: int) -> tuple[Poll, Mailbox] | None:
        for place in feed.places:
            mailbox = self._open(place, feed.access)
            if mailbox is not None:
                self._watched[feed] = Poll(now_ms), mailbox
                return self._watched[feed]
        return None
