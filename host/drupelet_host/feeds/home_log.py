"""The remote log of a home: `drupelet group push` and `pull`, with a folder or a stick."""

import os
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from drupelet import host_api
from drupelet.base.errors import CapacityError, DrupeletError
from drupelet.link.link import Link
from drupelet_host.base import clock
from drupelet_host.clients.feed_notices import Feed
from drupelet_host.clients.home_groups import HomeGroups
from drupelet_host.feeds.root import FeedRoot
from drupelet_host.home.config import Config
from drupelet_host.keys.key_folder import is_revoked
from drupelet_host.member.member import Delivered, Member
from drupelet_host.remote.content_store import FolderStore, RemoteStore
from drupelet_host.remote.log import (
    POLL_MS_MAX,
    LogReader,
    LogWriter,
    Poll,
    take_news,
)
from drupelet_host.remote.log_bytes import FeedKeys
from drupelet_host.store.database import TAKEN
from drupelet_host.store.restored import mark, put
from drupelet_host.store.sqlite_store import SqliteStore

# Turns of one push or pull: 64 messages each.
_TURNS_MAX = 1 << 16


class HomeLog:
    """The readings of a member, and a store.

    on_delivered: takes what enters the log meanwhile, as an agent does to report it; None: nobody
    else.
    access: the store's id and key, for the members; b"": a folder.
    """

    def __init__(
        self, member: Member, groups: HomeGroups, store: RemoteStore,
        on_delivered: Callable[[Delivered], None] | None = None, access: bytes = b"",
    ) -> None:  # fmt: skip
        self._member = member
        self._on_delivered = on_delivered or member.take_delivered
        self._groups = groups
        self._store = store
        self._group = host_api.group_id(member.node, member.readings)
        self._access = access
        self._writer: LogWriter | None = None
        self._root = b""  # of the writer's feed
        self.through = -1  # our newest message when the last push began to look

    def own_feed(self, place: str) -> Feed:
        """Our feed: as we announced it, else of our own root; not of one that somebody knows
        who is trusted no more."""
        roots = FeedRoot(self._member.config)
        roots.renew()
        held = self._groups.feeds.own(self._member.config.id)
        announced = held.root if held is not None and held.group == self._group else b""
        return Feed(roots.current(announced), self._group, (place,), self._access)

    def announce(self, feed: Feed) -> None:
        """Tell the members where our feed is, unless they were told. Raises CapacityError.

        Before anything is in it: who hears of it only afterwards may never do, for then we may be
        out of reach.
        """
        stamp = clock.timestamp8(clock.wall_ms())
        self._groups.feeds.announce(self._member.config.id, feed, stamp, clock.now_ms())
        self._taken()
        FeedRoot(self._member.config).mark_announced()

    def push(self, place: str) -> dict[str, Any]:
        """Tell the members where and upload what is new; how much.

        Raises StorageError or CapacityError: what was uploaded stays, try again later.
        """
        member = self._member
        feed = self.own_feed(place)
        if self._groups.feeds.known().get(member.config.id) != feed:
            self._store.fetch(feed.keys.name)  # a place that is there
            self.announce(feed)
        if self._writer is None or feed.root != self._root:
            self._root = feed.root
            self._writer = LogWriter(
                member.node, member.readings, feed.keys, self._store, member.stays
            )
        writer = self._writer
        writer.look_again()
        pushed = 0
        for _ in range(_TURNS_MAX):
            self.through = host_api.newest(member.node)
            count = writer.turn(clock.now_ms())
            pushed += count
            if writer.must_recover:
                self._recover(feed, writer)
            elif not count:
                break
        return {"pushed": pushed, "stored": writer.count, "place": place}

    def _recover(self, feed: Feed, writer: LogWriter) -> None:
        """Take in our own feed; what is lost of it is left behind. CapacityError: no room."""
        reader = LogReader(feed.keys, self._store)
        if self._read(reader, None):
            return
        if not reader.is_through:
            raise CapacityError("the log has no room for what its feed has; free some space")
        writer.go_on()

    def pull(self, place: str) -> dict[str, Any]:
        """Take in what the known feeds have there; how much. Raises StorageError."""
        member = self._member
        # Our own as others know it, too: after a loss nothing else opens what we wrote before.
        feeds = [*self._groups.feeds.known().items(), (member.config.id, self.own_feed(place))]
        pulled: dict[str, int] = {}
        for device, feed in dict.fromkeys(sorted(feeds, key=itemgetter(0))):
            if feed.group == self._group and not is_revoked(member.config.keys_path, device):
                name = member.config.names().get(device.hex(), device.hex())
                count = self._take(feed, device if device in member.numbers else None)
                pulled[name] = pulled.get(name, 0) + count
        return {"pulled": sum(pulled.values()), "feeds": pulled, "place": place}

    def _take(self, feed: Feed, peer_id: bytes | None) -> int:
        return self._read(LogReader(feed.keys, self._store), peer_id)

    def _read(self, reader: LogReader, peer_id: bytes | None) -> int:
        member = self._member
        link = member.stick_link(peer_id) if peer_id is not None else None
        first = mark(member.store)["handle"] + 1
        total = 0
        for _ in range(_TURNS_MAX):
            count = take_news(reader, member.node, member.readings, link, clock.now_ms())
            total += count
            if link is None and count:
                _note_taken(member.store, first)
            self._taken()
            if not count:
                break
        return total

    def _taken(self) -> None:
        while events := self._member.events():
            for event in events:
                self._on_delivered(event)


def _note_taken(store: SqliteStore, first: int) -> None:
    """Messages from this handle on came from a feed as if they were ours (docs/SPEC.md 8).

    Who wrote which of them, a feed does not tell.
    """
    before = store.connection.execute(
        "SELECT key FROM meta WHERE key GLOB ? AND value = ?", (TAKEN + "*", first - 1)
    ).fetchone()
    put(store, before[0] if before else f"{TAKEN}{first}", mark(store)["handle"])


class Source(Protocol):
    """Where a member's messages are, beside its links."""

    @property
    def period_s(self) -> int:
        """How often it grows, in seconds, as its writer says; 0: unknown."""

    def fetch(self, link: Link, now_ms: int) -> tuple[int, bool]:
        """Take in what is new as if the link had brought it.

        How many messages entered the log, and whether there was anything. Raises StorageError.
        """


class LogSource:
    """A remote log as a Source."""

    def __init__(self, member: Member, keys: FeedKeys, store: RemoteStore) -> None:
        self._member = member
        self._reader = LogReader(keys, store)

    @property
    def period_s(self) -> int:
        """See Source."""
        return self._reader.period_s

    def fetch(self, link: Link, now_ms: int) -> tuple[int, bool]:
        """See Source. A log that grows has something new, though all of it came by links: they
        may go."""
        member, reader = self._member, self._reader
        before = reader.taken
        count = take_news(reader, member.node, member.readings, link, now_ms)
        return count, count > 0 or reader.taken != before


class FeedWatch:
    """Looks at the other members' feeds as often as each of them grows; for an agent's turn.

    open_source: what a feed is at a place, or None for one that this host cannot reach. A source
    that fails is asked again later, as one that does not grow.
    """

    def __init__(
        self, member: Member, groups: HomeGroups, open_source: Callable[[str, Feed], Source | None]
    ) -> None:
        self._member = member
        self._groups = groups
        self._open_source = open_source
        self._group = host_api.group_id(member.node, member.readings)
        self._watched: dict[Feed, tuple[Poll, Source]] = {}
        self.failures = 0

    def turn(self, now_ms: int) -> int:
        """Look where it is time; how many messages entered the log."""
        member = self._member
        total = 0
        for device, feed in self._groups.feeds.known().items():
            if device not in member.numbers or feed.group != self._group:
                continue
            watched = self._watched.get(feed) or self._watch(feed, now_ms)
            if watched is None or watched[0].wait_ms(now_ms):
                continue
            poll, source = watched
            came = False
            try:
                # Of who was revoked nothing is taken in, whatever way it comes.
                if not is_revoked(member.config.keys_path, device):
                    count, came = source.fetch(member.stick_link(device), now_ms)
                    total += count
            except DrupeletError:
                self.failures += 1
            poll.looked(came, source.period_s, now_ms)
        return total

    @property
    def watched(self) -> int:
        """Feeds of members that are looked at."""
        return len(self._watched)

    def wait_ms(self, now_ms: int) -> int:
        """How long `turn` may wait."""
        waits = [poll.wait_ms(now_ms) for poll, _ in self._watched.values()]
        return min(waits, default=POLL_MS_MAX)

    def _watch(self, feed: Feed, now_ms: int) -> tuple[Poll, Source] | None:
        for place in feed.places:
            source = self._open_source(place, feed)
            if source is not None:
                self._watched[feed] = Poll(now_ms), source
                return self._watched[feed]
        return None


def open_folder(place: str, _access: bytes = b"") -> RemoteStore | None:
    """The store of a place `folder:<path>` that is there; None for any other."""
    scheme, _, path = place.partition(":")
    if scheme != "folder" or not os.path.isdir(path):
        return None
    return FolderStore(Path(path))


def run_alone(settings: Config, kind: str, folder: Path) -> dict[str, Any]:
    """`push` or `pull` without an agent; the caller holds the home's lock."""
    member = Member(settings)
    try:
        log = HomeLog(member, member.clients, FolderStore(folder))
        place = f"folder:{folder}"
        done = log.push(place) if kind == "push" else log.pull(place)
        member.close(clock.now_ms())
    finally:
        member.store.close()
        member.sealing.close()
    return done
