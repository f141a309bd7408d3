"""The mailbox of a running agent: what is new is left there, what members left is fetched.

How far either has come is in the store's table `meta`, so that it goes back with the log when an
older copy of the store is put in its place.
"""

from drupelet.link.link import Link
from drupelet_host.base import clock
from drupelet_host.clients.feed_notices import Feed
from drupelet_host.member.member import Member
from drupelet_host.remote.mailbox import Mailbox, MailReader, MailWriter
from drupelet_host.store import database, restored

# Keys of `meta` (docs/SPEC.md 8), with a feed's name in hex behind them.
LEFT = "mail_left."
FETCHED = "mail_fetched."
# Questions of one look at a feed: what else there is comes with the next.
_PAGES_MAX = 16


def _place(member: Member, key: str, feed: Feed) -> int:
    return database.meta_int(member.store.connection, key + feed.keys.name.hex(), 0)


def _keep(member: Member, key: str, feed: Feed, place: int) -> None:
    restored.put(member.store, key + feed.keys.name.hex(), place)


def leave(member: Member, feed: Feed, mailbox: Mailbox) -> int:
    """Leave our new messages; how many. Raises StorageError or CapacityError."""
    before = _place(member, LEFT, feed)
    writer = MailWriter(member.node, member.readings, feed.keys, before, member.stays)
    count = 0
    try:
        while new := writer.turn(mailbox, clock.wall_ms() // 1000):
            count += new
    finally:
        if writer.through != before:
            _keep(member, LEFT, feed, writer.through)
    return count


class MailSource:
    """What a member left in a mailbox, as a Source."""

    period_s = 0

    def __init__(self, member: Member, feed: Feed, mailbox: Mailbox) -> None:
        self._member = member
        self._feed = feed
        self._mailbox = mailbox

    def fetch(self, link: Link, now_ms: int) -> tuple[int, bool]:
        """See `remote_log_home.Source`."""
        member, keys = self._member, self._feed.keys
        before = _place(member, FETCHED, self._feed)
        reader = MailReader(member.node, member.readings, {keys.name: (keys, link)})
        reader.after = before
        count = 0
        for _ in range(_PAGES_MAX):
            at = reader.after
            count += reader.turn(self._mailbox, now_ms)
            if reader.after == at:
                break
        if reader.after != before:
            _keep(member, FETCHED, self._feed, reader.after)
        return count, reader.after != before
