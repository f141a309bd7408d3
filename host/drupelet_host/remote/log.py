"""The remote log: a group's log kept in a store that others reach (mobile paper, enhancement 2).

    writer = LogWriter(node, group, keys, store)     writer.turn(now_ms): upload and forget
    reader = LogReader(keys, store); take_news(reader, node, group, link, now_ms)

What is uploaded is kept by the store, which is no member: that is an acknowledgement of its own
kind (`LogWriter.is_stored`). It never counts as a peer's ACK, and peers are sent to as before.
The writer keeps no state of its own: its pointer tells where it was.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from drupelet import host_api
from drupelet.base.errors import PeerError, StorageError
from drupelet.base.limits import GONE_HANDLE, TIMESTAMP_SIZE
from drupelet.base.time_ms import elapsed_ms
from drupelet.engine.members import FAMILY_MVDS, HEAD_EPHEMERAL
from drupelet.node import Link, Node
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING
from drupelet_host.remote.content_store import RemoteStore
from drupelet_host.remote.log_bytes import (
    DATA_INLINE_MAX,
    PAGE_PAIRS_MAX,
    SEAL_MESSAGE,
    SEAL_PAGE,
    FeedKeys,
    Message,
    Page,
    Pair,
    Pointer,
    decode_message,
    decode_page,
)

# Messages uploaded or taken in at once: bounded work for an agent's turn.
MESSAGES_PER_TURN_MAX = 64
# Pages that a reader walks back: 16 messages each, a million in all.
PAGES_MAX = 1 << 16
# A feed that its other side moves meanwhile is looked at again so often in one turn.
_LOOKS_MAX = 3
# How often a feed is looked at: an update that is expected now is there within seconds ...
POLL_MS_MIN = 5_000
# ... and one that never came is looked for every hour or so.
POLL_MS_MAX = 1 << 22
# An expected period beyond this says nothing: a day.
PERIOD_S_MAX = 86_400


def stamp_number(node: Node, group: int, stamp: bytes | bytearray) -> int:
    """The 8 bytes of a timestamp as the unsigned number that a protobuf's int64 has."""
    return int.from_bytes(stamp, _byte_order(node, group))


def _byte_order(node: Node, group: int) -> Literal["little", "big"]:
    return "little" if host_api.group_family(node, group) == FAMILY_MVDS else "big"


class LogWriter:
    """Uploads a group's log in its order; private, deleted and ephemeral messages are left out.

    stays: given a body, False for one that is left out, because the message explodes. `count`
    messages are in the feed; `stored_through` is the handle of the last one.
    """

    def __init__(
        self, node: Node, group: int, keys: FeedKeys, store: RemoteStore,
        stays: Callable[[bytes], bool] = lambda _: True,
    ) -> None:  # fmt: skip
        self._node = node
        self._stays = stays
        self._group = group
        self._keys = keys
        self._store = store
        self._page = Page()
        self._pointer = Pointer(0, b"", 0, 0)
        self._updated_ms = -1
        self._resumed = False
        self._in_feed: set[bytes] = set()
        self._reordered = False  # our log has another order than the feed
        self.stored_through = 0
        self.must_recover = False

    @property
    def count(self) -> int:
        """Messages in the feed."""
        return self._pointer.count

    def is_stored(self, handle: int) -> bool:
        """Whether the store keeps a message of the log: its acknowledgement, not a member's."""
        return 0 < handle <= self.stored_through

    def turn(self, now_ms: int) -> int:
        """Upload what is new, at most MESSAGES_PER_TURN_MAX; how many messages that was.

        Raises StorageError or CapacityError: nothing has changed, try again later. 0 with
        `must_recover`: the feed has messages that our log lacks; take them in first.
        """
        for _ in range(_LOOKS_MAX):
            if not self._resumed:
                self._resume()
            if self.must_recover:
                return 0
            pairs, through = self._new_pairs()
            if not pairs:
                self.stored_through = max(self.stored_through, through)
                self._reordered = False  # what follows stands behind both
                return 0
            if self._upload(pairs, now_ms):
                self.stored_through = through
                return len(pairs)
            self._resumed = False  # somebody else writes: look where it is
        raise StorageError("the feed is written to by another device; try again later")

    def look_again(self) -> None:
        """The store may be another one by now: the next turn finds out where the feed ends."""
        self._resumed = False

    def go_on(self) -> None:
        """What our log lacks of the feed is lost: write behind it, and nothing of it twice."""
        self._tell_apart()
        self.must_recover = False
        self._resumed = True

    def _tell_apart(self) -> None:
        """Our log is walked from its beginning; what the feed has is known by its id."""
        self.stored_through = 0
        reader = LogReader(self._keys, self._store)
        self._in_feed = {pair.id for pair in reader.news()}

    def _upload(self, pairs: list[Pair], now_ms: int) -> bool:
        """Add pages, then move the pointer; False: it has been moved by somebody else."""
        page = self._page
        superseded = self._pointer.head if page.pairs else b""
        done = 0
        while done < len(pairs):
            if len(page.pairs) == PAGE_PAIRS_MAX:
                page = Page(tail=self._add_page(page))
            room = PAGE_PAIRS_MAX - len(page.pairs)
            page = Page([*page.pairs, *pairs[done : done + room]], page.tail)
            done += room
        # A full page that was the head is a tail now, and stays.
        stays = superseded and (len(self._page.pairs) == PAGE_PAIRS_MAX)
        pointer = Pointer(
            self._pointer.sequence + 1, self._add_page(page), self.count + len(pairs),
            self._period_s(now_ms),
        )  # fmt: skip
        if not self._store.update(self._keys.name, self._keys.seal_pointer(pointer)):
            return False
        self._pointer, self._page = pointer, page
        self._updated_ms = now_ms
        if superseded and not stays:
            self._store.drop(superseded)
        return True

    def _add_page(self, page: Page) -> bytes:
        if page == self._page and self._pointer.head:
            return self._pointer.head
        return self._store.add(self._keys.seal(SEAL_PAGE, page.encode()))

    def _period_s(self, now_ms: int) -> int:
        """What readers are told about how often to look: a mean of the last pauses."""
        if self._updated_ms < 0:
            return self._pointer.period_s
        pause_s = min(elapsed_ms(now_ms, self._updated_ms) // 1000, PERIOD_S_MAX)
        before = self._pointer.period_s or pause_s
        return (3 * before + pause_s) // 4

    def _resume(self) -> None:
        """Find out where the feed ends, and where that is in our log."""
        content = self._store.fetch(self._keys.name)
        self._pointer = Pointer(0, b"", 0, 0)
        if content is not None:
            try:
                self._pointer = self._keys.open_pointer(content)
            except PeerError:
                # Damaged: what it pointed to is lost; the next update has a greater number.
                sequence = int.from_bytes(content[:TIMESTAMP_SIZE])
                self._pointer = Pointer(sequence, b"", 0, 0)
        head = self._pointer.head
        page = read_page(self._keys, self._store, head) if head else Page()
        if page is None:
            # The store lost it: everything that we have is appended once more.
            page, self._pointer = Page(), replace(self._pointer, head=b"")
        self._page = page
        newest = page.pairs[-1].id if page.pairs else b""
        self.must_recover = bool(newest) and not self._entered(newest)
        if self.must_recover:
            self._reordered = True
            return
        last = self._node.store.find(bytearray(newest), 0) if newest else 0
        self.stored_through = last
        if not newest:
            self._in_feed.clear()
        elif self._reordered or last >= GONE_HANDLE:
            self._tell_apart()
        self._resumed = True

    def _entered(self, id: bytes) -> bool:
        message = host_api.find(self._node.store, id)
        return message is not None and message.state != STATE_PENDING

    def _new_pairs(self) -> tuple[list[Pair], int]:
        """What the feed lacks, and the handle up to which that is all."""
        pairs: list[Pair] = []
        through = self.stored_through
        for logged in host_api.messages(self._node.store, through):
            pair = self._pair(logged) if logged.group == self._group else None
            pairs += [pair] if pair else []
            through = logged.handle
            if len(pairs) == MESSAGES_PER_TURN_MAX:
                break
        return pairs, through

    def _pair(self, logged: host_api.Message) -> Pair | None:
        node = self._node
        is_shown = logged.state == STATE_DELIVERED and not logged.is_private
        if not is_shown or logged.id in self._in_feed:
            return None
        body = host_api.body(node.store, logged)
        if body is None:
            return None
        if not self._stays(body):
            return None
        if _byte_order(node, self._group) == "little" and body and body[0] & HEAD_EPHEMERAL:
            return None
        stamp = stamp_number(node, self._group, logged.timestamp)
        content = Message(host_api.group_id(node, self._group), stamp, body).encode()
        if len(content) <= DATA_INLINE_MAX:
            return Pair(logged.id, data=content)
        return Pair(logged.id, self._store.add(self._keys.seal(SEAL_MESSAGE, content)))


def read_page(keys: FeedKeys, store: RemoteStore, address: bytes) -> Page | None:
    """A page of a log; None: not there, or not one."""
    content = store.get(address)
    if content is None:
        return None
    try:
        return decode_page(keys.open(SEAL_PAGE, content))
    except PeerError:
        return None


class LogReader:
    """Reads a feed: `news` gives what was not `took` yet, oldest first.

    taken: how many of the feed's messages are in our log; 0 after a loss: all is looked at again.
    `lost`: pages or messages that the store does not have; the members still do.
    """

    def __init__(self, keys: FeedKeys, store: RemoteStore, taken: int = 0) -> None:
        self.keys = keys
        self._store = store
        self._sequence = 0
        self._pages: deque[bytes] = deque()
        self._skipped = 0  # pairs of the first of them that are taken
        self.taken = taken
        self.lost = 0
        self.refused = 0
        self.period_s = 0

    def news(self) -> Iterator[Pair]:
        """What is new; each counts as taken when the next one is asked for. StorageError."""
        replaced = False
        if not self._pages:
            self._look()
        while self._pages:
            page = read_page(self.keys, self._store, self._pages[0])
            if page is None:
                self._pages.clear()
                if replaced:
                    return
                replaced = True  # by its writer, with one that has more
                self._look()
                continue
            for pair in page.pairs[self._skipped :]:
                yield pair
                self._skipped += 1
                self.taken += 1
            self._pages.popleft()
            self._skipped = 0

    @property
    def is_through(self) -> bool:
        """Whether all that the last look found was taken or is lost."""
        return not self._pages

    def _look(self) -> None:
        """Find the pages with what is new, from the newest one back."""
        for _ in range(_LOOKS_MAX):
            pointer = self._newest()
            if pointer is None or self._walk(pointer):
                return
            # Its writer may have moved it between our two reads.
            content = self._store.fetch(self.keys.name)
            if content is None or int.from_bytes(content[:TIMESTAMP_SIZE]) <= pointer.sequence:
                break
        self.lost += 1

    def _walk(self, pointer: Pointer) -> bool:
        """Note the pages from a pointer back to what was taken; False: the newest is not there."""
        self._skipped = 0
        wanted = pointer.count - self.taken
        address = pointer.head
        found = 0
        while address and found < wanted and len(self._pages) < PAGES_MAX:
            page = read_page(self.keys, self._store, address)
            if page is None:
                if not found:
                    return False
                self.lost += 1
                break
            self._pages.appendleft(address)
            found += len(page.pairs)
            address = page.tail
        if found:
            # What lies before a page that is lost has to come from a member.
            self._skipped = max(0, found - wanted)
            self.taken += max(0, wanted - found)
        return True

    def _newest(self) -> Pointer | None:
        content = self._store.fetch(self.keys.name)
        if content is None:
            return None
        try:
            pointer = self.keys.open_pointer(content)
        except PeerError:
            self.refused += 1
            return None
        if pointer.sequence < self._sequence:
            self.refused += 1  # an older one was put back
            return None
        self._sequence = pointer.sequence
        self.period_s = min(pointer.period_s, PERIOD_S_MAX)
        if pointer.count < self.taken:
            self.taken = 0  # the feed began anew
        return pointer

    def message(self, pair: Pair) -> Message | None:
        """The message of a pair; None: deleted, lost or damaged."""
        content: bytes | None = pair.data
        try:
            if pair.address:
                sealed = self._store.get(pair.address)
                content = None if sealed is None else self.keys.open(SEAL_MESSAGE, sealed)
            if not content:
                self.lost += 1
                return None
            return decode_message(content)
        except PeerError:
            self.refused += 1
            return None


def take_news(
    reader: LogReader, node: Node, group: int, link: Link | None, now_ms: int,
    messages_max: int = MESSAGES_PER_TURN_MAX,
) -> int:  # fmt: skip
    """Take what is new in a feed into the log; how many messages entered it.

    link: to the member whose feed it is: what comes counts as sent by it, and is acknowledged to
    it as any message; None: our own feed. A message whose parents are in no feed waits for them
    as always. Raises StorageError when the store cannot be reached.
    """
    entered = 0
    for pair in reader.news():
        if node.store.find(bytearray(pair.id), 0) <= 0:
            if entered >= messages_max:
                break
            message = reader.message(pair)
            if message is not None and message.group == host_api.group_id(node, group):
                before = node.delivered  # others may come over links while the store is asked
                take_message(node, group, link, message, now_ms)
                entered += node.delivered - before
                if node.store.find(bytearray(pair.id), 0) <= 0:
                    break  # full for now: the rest comes with the next turn
    return entered


def take_message(node: Node, group: int, link: Link | None, message: Message, now_ms: int) -> None:
    """Take a message in as if the link's peer had sent it; link None: it is our own."""
    stamp = message.timestamp.to_bytes(TIMESTAMP_SIZE, _byte_order(node, group))
    if link is None:
        node.publish(group, bytearray(message.body), len(message.body), stamp, now_ms)
        return
    host_api.take_message(link, message.group, stamp, message.body, now_ms)


class Poll:
    """When to look at a feed again: about as often as it grows, less and less while it does not.

    All times in ms, modulo as `now_ms` of the core.
    """

    def __init__(self, now_ms: int) -> None:
        self._from_ms = now_ms
        self._wait_ms = 0

    def wait_ms(self, now_ms: int) -> int:
        """How long until the next look, 0: now."""
        return max(0, self._wait_ms - elapsed_ms(now_ms, self._from_ms))

    def looked(self, came: bool, period_s: int, now_ms: int) -> None:
        """A look is over: whether something was new, and the period that the writer tells."""
        if came:
            # Half of its period: on average a quarter of it late.
            self._wait_ms = period_s * 500 or POLL_MS_MIN
        else:
            self._wait_ms += self._wait_ms // 2 or POLL_MS_MIN
        self._wait_ms = min(max(self._wait_ms, POLL_MS_MIN), POLL_MS_MAX)
        self._from_ms = now_ms
