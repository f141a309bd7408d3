"""The remote log of a home: `drupelet group push` and `pull`, with a folder or a stick."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drupelet.errors import StorageError
from drupelet_host import clock, private
from drupelet_host.cas import FolderStore, RemoteStore
from drupelet_host.clients.home import HomeGroups
from drupelet_host.config import Config
from drupelet_host.feeds import Feed
from drupelet_host.member import Delivered, Member
from drupelet_host.remote_log import (
    POLL_MS_MAX,
    LogReader,
    LogWriter,
    Poll,
    group_id_of,
    take_news,
)
from drupelet_host.remote_log_wire import ROOT_SIZE

# The root of our own feed; it comes back from any member's log, too.
FEED_KEY_NAME = "feed.key"
# Turns of one push or pull: 64 messages each.
_TURNS_MAX = 1 << 16


def feed_root(settings: Config) -> bytes:
    """The root of our feed; made on first use. Raises PrivateError or StorageError."""
    path = settings.home / "keys" / FEED_KEY_NAME
    if not path.is_symlink() and not path.exists():
        private.make_folder(path.parent)
        private.create(path, os.urandom(ROOT_SIZE))
    return private.read(path, ROOT_SIZE)


class HomeLog:
    """The readings of a member, and a store.

    took: who takes what enters the log meanwhile, for an agent tells of it; None: nobody else.
    """

    def __init__(
        self, member: Member, groups: HomeGroups, store: RemoteStore,
        took: Callable[[Delivered], None] | None = None,
    ) -> None:  # fmt: skip
        self._member = member
        self._took = took or member.took
        self._groups = groups
        self._store = store
        self._group = group_id_of(member.node, member.readings)

    def own_feed(self, place: str) -> Feed:
        """Our feed: as announced before a loss, else of our own root."""
        held = self._groups.feeds.known().get(self._member.config.id)
        if held is not None and held.group == self._group:
            return Feed(held.root, self._group, (place,), held.access)
        return Feed(feed_root(self._member.config), self._group, (place,))

    def push(self, place: str) -> dict[str, Any]:
        """Upload what is new and tell the members where; how much. Raises StorageError."""
        member = self._member
        feed = self.own_feed(place)
        writer = LogWriter(member.node, member.readings, feed.keys, self._store)
        pushed = 0
        for _ in range(_TURNS_MAX):
            count = writer.turn(clock.now_ms())
            if not count and not writer.must_recover:
                break
            if writer.must_recover and not self._take(feed, None):
                break  # a part of it is lost, or our log is full
            pushed += count
        stamp = clock.timestamp8(clock.wall_ms())
        self._groups.feeds.announce(member.config.id, feed, stamp, clock.now_ms())
        self._taken()
        return {"pushed": pushed, "stored": writer.count, "place": place}

    def pull(self, place: str) -> dict[str, Any]:
        """Take in what the known feeds have there; how much. Raises StorageError."""
        member = self._member
        feeds = {**self._groups.feeds.known(), member.config.id: self.own_feed(place)}
        pulled: dict[str, int] = {}
        for device, feed in sorted(feeds.items()):
            if feed.group == self._group:
                name = member.config.names().get(device.hex(), device.hex())
                pulled[name] = self._take(feed, device if device in member.numbers else None)
        return {"pulled": sum(pulled.values()), "feeds": pulled, "place": place}

    def _take(self, feed: Feed, peer_id: bytes | None) -> int:
        member = self._member
        link = member.stick_link(peer_id) if peer_id is not None else None
        reader = LogReader(feed.keys, self._store)
        total = 0
        for _ in range(_TURNS_MAX):
            count = take_news(reader, member.node, member.readings, link, clock.now_ms())
            total += count
            self._taken()
            if not count:
                break
        return total

    def _taken(self) -> None:
        while events := self._member.events():
            for event in events:
                self._took(event)


class FeedWatch:
    """Looks at the other members' feeds as often as each of them grows; for an agent's turn.

    open_place: a place's store, or None for one that this host cannot reach. A store that fails
    is asked again later, as a feed that does not grow.
    """

    def __init__(
        self, member: Member, groups: HomeGroups, open_place: Callable[[str], RemoteStore | None]
    ) -> None:
        self._member = member
        self._groups = groups
        self._open_place = open_place
        self._group = group_id_of(member.node, member.readings)
        self._watched: dict[Feed, tuple[Poll, LogReader]] = {}
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
            poll, reader = watched
            count = 0
            try:
                link = member.stick_link(device)
                count = take_news(reader, member.node, member.readings, link, now_ms)
            except StorageError:
                self.failures += 1
            poll.looked(count > 0, reader.period_s, now_ms)
            total += count
        return total

    def wait_ms(self, now_ms: int) -> int:
        """How long `turn` may wait."""
        waits = [poll.wait_ms(now_ms) for poll, _ in self._watched.values()]
        return min(waits, default=POLL_MS_MAX)

    def _watch(self, feed: Feed, now_ms: int) -> tuple[Poll, LogReader] | None:
        for place in feed.places:
            store = self._open_place(place)
            if store is not None:
                made = Poll(now_ms), LogReader(feed.keys, store)
                self._watched[feed] = made
                return made
        return None


def open_folder(place: str) -> RemoteStore | None:
    """The store of a place `folder:<path>` that is there; None for any other."""
    scheme, _, path = place.partition(":")
    if scheme != "folder" or not Path(path).is_dir():
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
