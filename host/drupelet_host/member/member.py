"""One member on this host: store, node, groups, author and black box, without any carrier.

The agent adds carriers to it; `drupelet stick` without an agent visits a stick with it.
"""

import os
from typing import Any, NamedTuple

from drupelet import host_api
from drupelet.base.errors import OK, CapacityError, DrupeletError, StorageError
from drupelet.base.events import VERSION_HIGH, VERSION_LOW
from drupelet.base.limits import BODY_SIZE_MAX, GONE_HANDLE
from drupelet.clients.default import TELEMETRY_CLIENT_ID, Author
from drupelet.link.host_link import HostLink
from drupelet.link.stick_visit import BundleLink
from drupelet.node import (
    BATCH,
    CARRIER_STICK,
    EVENT_MESSAGE,
    GROUP_TELEMETRY,
    PROFILE_BSP_1,
    SHARED,
    VISIBLE,
    Node,
)
from drupelet.store.states import STATE_DELIVERED, STATE_PRIVATE
from drupelet.telemetry.black_box import BlackBox
from drupelet.wire.packed import Packed
from drupelet_host.base import clock
from drupelet_host.clients.home_groups import HomeGroups
from drupelet_host.home.config import FAMILY_BSP_NAME, PEERS_CONFIGURED_MAX, Config, Peer
from drupelet_host.home.lifetime import AFTER_READING
from drupelet_host.keys.key_folder import look
from drupelet_host.keys.sealing import Sealing
from drupelet_host.member import family, identity, readings_group
from drupelet_host.member.chats import Chats
from drupelet_host.member.live_link import PROFILES, LiveLink
from drupelet_host.member.undeliverable import Undeliverable
from drupelet_host.member.vanishing import Vanishing
from drupelet_host.store import database, outbox, restored
from drupelet_host.store.long_bodies import PARTS_HOST_MAX
from drupelet_host.store.sqlite_store import SqliteStore
from drupelet_transports.common.url import parse_url

# Host-sized tables: 1,024 messages on their way to 32 peers take about 200 KB.
GROUPS_HOST_MAX = 16
MESSAGES_HOST_MAX = 1024
OFFERS_HOST_MAX = 1024
# Events and letters handled in one turn, so that carriers are served in between.
EVENTS_PER_TURN_MAX = 256
LETTERS_PER_TURN_MAX = 64
# More sticks than this are not carried between a backup and its use.
BUNDLES_SKIPPED = 1 << 16
# Messages of one text and time that are told apart.
SAME_MAX = 16
# Black-box codes and values of the host (docs/SPEC.md: black box).
_CODE_BOOT = 32
_CODE_DESCRIPTOR = 34
_FIELD_EPOCH_MS = 2
_FIELD_BOARD = 3
_FIELD_VERSION = 4
_BOARD_HOST = 9
_STATE_IDLE = 2
# Key of the table `meta` with a peer's id in hex behind it: how often a clone of it was seen.
CLONES = "clones."
# What NTP keeps a host's clock to; units of 10 ms.
_WALL_UNCERTAINTY = 5


class Delivered(NamedTuple):
    """A message that entered the log."""

    handle: int
    group: int
    source: int
    id: bytes
    timestamp: bytes
    body: bytes
    again: bool


def _random_byte() -> int:
    return os.urandom(1)[0]


class Member:
    """Opens the home's store and boots a node on it. The caller holds the home's lock.

    was_restored: the owner says that the store was put back to an older state; what `restored`
    notices need not be said. Raises StorageError when the store cannot be used.
    """

    def __init__(self, config: Config, was_restored: bool = False) -> None:
        self.config = config
        self.store = SqliteStore(config.store_path)
        self.store.open()
        try:
            identity.settle(self.store, config)
        except DrupeletError:
            self.store.close()
            raise
        peers = [peer.id for peer in config.peers]
        self.restored = restored.notice(self.store, config.status_path, peers, was_restored)
        self.sealing = Sealing(config, self.store.store_gen)
        self.sealing.anew = not self.store.next(0)
        now_ms = clock.now_ms()
        self.boot = self.store.next_boot()
        self.mark = restored.mark(self.store)
        self.box = BlackBox(config.id, self.boot)
        self.node = Node(
            self.store, _random_byte, PEERS_CONFIGURED_MAX, GROUPS_HOST_MAX, MESSAGES_HOST_MAX,
            OFFERS_HOST_MAX, self.box, PARTS_HOST_MAX,
        )  # fmt: skip
        self.undeliverable = Undeliverable(self.node)
        descriptor = config.group.encode()
        # Whether somebody sees what enters the log: else no message counts as read by that.
        self.gives_out = False
        self.vanishing = Vanishing(config)
        self.readings = readings_group.join(self.node, config, self.vanishing.client)
        self.telemetry = self.node.join(TELEMETRY_CLIENT_ID, descriptor, GROUP_TELEMETRY)
        self.clients = HomeGroups(self.node, config)
        self.chats = Chats(self.node, self.store, config)
        self.group_names = {
            self.readings: "readings",
            self.telemetry: "telemetry",
            **self.clients.names,
            **self.chats.group_names,
        }
        self.numbers: dict[bytes, int] = {}
        self.names = {0: config.name}
        for peer in config.peers:
            self.add_peer(peer)
        self.node.boot(now_ms)
        self.clients.began()
        self.chats.began()
        self.vanishing.begin(self.node, self.store, self.readings)
        if self.restored:
            host_api.skip_bundles(self.node, BUNDLES_SKIPPED)
        self._stick_links: dict[bytes, BundleLink] = {}
        self._live_links: dict[bytes, LiveLink] = {}
        self._clones: dict[tuple[bytes, int], int] = {}
        self._damaged_reported: set[int] = set()
        self._taken_through = 0
        self._held_from = GONE_HANDLE
        self._foreign: dict[bytes, int] = {}  # of sticks; live links count their own
        # What the store knows of the live links: whether a store was lost, the peer's generation.
        self._kept_contacts: dict[bytes, tuple[bool, int]] = {}
        self.author = Author(self.node, self.readings)
        self.author.body = bytearray(BODY_SIZE_MAX)
        self._recover_author()
        self._begin_box(now_ms)

    def add_peer(self, peer: Peer) -> None:
        """Know a peer and share the groups with it; at any time. Raises CapacityError."""
        number = self.node.add_peer(peer.id)
        self.numbers[peer.id] = number
        self.names[number] = peer.name
        self.node.share(self.readings, number, SHARED)
        # Black boxes end here: they are taken in from every peer and handed to none.
        self.node.share(self.telemetry, number, VISIBLE)
        self.clients.add_peer(peer, number)
        self.chats.add_peer(peer, number)

    def remove_peer(self, id: bytes) -> None:
        """Forget a peer; its links are dead. What it sent stays in the log."""
        number = self.numbers.pop(id)
        self._stick_links.pop(id, None)
        self._live_links.pop(id, None)
        self._kept_contacts.pop(id, None)
        self._foreign.pop(id, None)
        self.sealing.forget(id)
        self.clients.remove_peer(id)
        self.chats.remove_peer(number)
        restored.drop(self.store, restored.LOST + id.hex())
        restored.drop(self.store, restored.PEER_GEN + id.hex())
        self.node.remove_peer(number)

    def _recover_author(self) -> None:
        """As `Author.recover`, by two index look-ups instead of a walk over the whole log."""
        own, foreign = self._newest_reading("= 0"), self._newest_reading("!= 0")
        if own:
            self.author.published(own)
        if foreign > own:
            self.author.saw(foreign)

    def _newest_reading(self, source: str) -> int:
        """The newest reading from such a source that is not damaged; 0: there is none."""
        handles = self.store.connection.execute(
            f"SELECT handle FROM log WHERE member_group = ? AND state = {STATE_DELIVERED}"  # noqa: S608 - no input
            f" AND source {source} ORDER BY handle DESC",
            (self.readings,),
        )
        for (handle,) in handles:
            logged = host_api.message(self.store, handle)
            if logged is None or logged.state != STATE_DELIVERED:
                continue
            body = host_api.body(self.store, logged)
            if body is not None and self.stays(body):
                return int(handle)
        return 0

    def stays(self, body: bytes) -> bool:
        """Whether a reading may be named as a dependency, and be given to a remote log."""
        return not family.lifetime_in(self.config, body).kind

    def _begin_box(self, now_ms: int) -> None:
        box = self.box
        self._tell_time(now_ms)
        box.log(now_ms, _CODE_BOOT, 0, self.boot, 0, 0)
        box.log(now_ms, _CODE_DESCRIPTOR, _FIELD_BOARD, _BOARD_HOST, 0, 0)
        epoch_ms = self.config.epoch_ms
        box.log(now_ms, _CODE_DESCRIPTOR, _FIELD_EPOCH_MS, 0, epoch_ms >> 16, epoch_ms & 0xFFFF)
        box.log(now_ms, _CODE_DESCRIPTOR, _FIELD_VERSION, 0, VERSION_HIGH, VERSION_LOW)
        box.state(now_ms, _STATE_IDLE)

    def _tell_time(self, now_ms: int) -> None:
        """Each segment says what the wall clock says as it begins, which may be set meanwhile."""
        wall_ms = clock.wall_ms()
        self.box.wall(now_ms, wall_ms.to_bytes(6, "little"), _WALL_UNCERTAINTY)

    # --- links ---

    def live_link(self, peer: Peer, carrier: int, now_ms: int) -> LiveLink:
        """A link with epochs to a configured peer."""
        number = self.numbers[peer.id]
        profile = PROFILES[peer.asked_profile]
        link = self.node.link(number, profile, carrier, peer.epoch_ms, BATCH, now_ms, HostLink)
        assert isinstance(link, HostLink)
        store = self.store.connection
        lost = database.meta_int(store, restored.LOST + peer.id.hex(), 0) != 0
        gen = database.meta_int(store, restored.PEER_GEN + peer.id.hex(), -1)
        live = LiveLink(self.node, link, peer, parse_url(peer.url), lost, gen)
        self._live_links[peer.id] = live
        self._kept_contacts[peer.id] = (lost, gen)
        return live

    def _keep_contacts(self) -> None:
        """Keep what a live link learned of a lost store, the peer's or ours."""
        for id, live in self._live_links.items():
            now = (live.lost, live.peer_gen)
            # Not before it is over: after a crash it begins again.
            if now == self._kept_contacts[id] or not live.settled:
                continue
            self._kept_contacts[id] = now
            if live.peer_gen >= 0:
                restored.put(self.store, restored.PEER_GEN + id.hex(), live.peer_gen)
            if not live.lost:
                restored.drop(self.store, restored.LOST + id.hex())
            # What the peer holds was made up anew: kept in the same transaction.
            host_api.require_save(self.node)

    def stick_link(self, peer_id: bytes) -> BundleLink:
        """The link over which sticks go to and from a configured peer."""
        link = self._stick_links.get(peer_id)
        if link is None:
            number = self.numbers[peer_id]
            stick = self.node.link(number, PROFILE_BSP_1, CARRIER_STICK, 0, BATCH, clock.now_ms())
            assert isinstance(stick, BundleLink)
            states = look(self.config.keys_path, peer_id)
            stick.use_packing(Packed(any(state.packs for state in states)))
            self._stick_links[peer_id] = link = stick
        return link

    def count_foreign(self, peer_id: bytes, count: int) -> None:
        """A stick brought so many frames' messages of a peer that belong to no group of ours."""
        self._foreign[peer_id] = self._foreign.get(peer_id, 0) + count

    def foreign(self, peer_id: bytes) -> int:
        """Messages under a peer's keys since the start that belong to no group of ours."""
        live = self._live_links.get(peer_id)
        return self._foreign.get(peer_id, 0) + (live.foreign if live is not None else 0)

    # --- the client ---

    def events(self) -> list[Delivered]:
        """What entered the log since the last call, made durable first; then call `took`."""
        delivered: list[Delivered] = []
        while len(delivered) < EVENTS_PER_TURN_MAX and self.node.next_event() == EVENT_MESSAGE:
            event = self._delivered(self.node.event_handle, self.node.event_again)
            if event is None:
                self._done(self.node.event_handle)
            else:
                delivered.append(event)
        if delivered:
            self.commit()
        return delivered

    def _delivered(self, handle: int, again: bool) -> Delivered | None:
        logged = host_api.message(self.store, handle)
        if logged is None or logged.state not in (STATE_DELIVERED, STATE_PRIVATE):
            return None
        body = host_api.body(self.store, logged)
        if body is None:
            return None
        if logged.is_private and not family.lifetime_in(self.config, body).is_ephemeral:
            return None
        return Delivered(
            handle, logged.group, logged.source, logged.id, logged.timestamp, body, again
        )

    def take_delivered(self, event: Delivered) -> dict[str, Any] | None:
        """The client has taken an event in; the cursor moves with the next `save`.

        Returns the event that is to be reported, if it is of a chat.
        """
        if event.group != self.readings or self.stays(event.body):
            self.author.saw(event.handle)
        self.clients.saw(event.group, event.handle)
        if not self.gives_out and self._waits_for_a_reader(event):
            self.hold_from(min(event.handle, self._held_from))
        chat_event = self.chats.saw(event.group, event.handle)
        self._done(event.handle)
        return chat_event

    def _waits_for_a_reader(self, event: Delivered) -> bool:
        is_received = event.source != 0 and event.group == self.readings
        return is_received and bool(
            family.lifetime_in(self.config, event.body).kind & AFTER_READING
        )

    def _done(self, handle: int) -> None:
        self._taken_through = max(self._taken_through, handle)
        self.node.done(min(self._taken_through, self._held_from - 1))

    def hold_from(self, handle: int) -> None:
        """From this message on the log stays as it is, however full: somebody waits for it."""
        self._held_from = handle
        self._done(0)

    def publish_letters(self, now_ms: int) -> int:
        """Publish what the outbox holds; each leaves it in the transaction that logs it."""
        letters = outbox.letters(self.store.connection, LETTERS_PER_TURN_MAX)
        if not letters:
            return 0
        published = 0
        # What was received so far is committed apart, so the letters' transaction is small.
        self.commit()
        with self.store.together():
            for letter in letters:
                body = family.body_of(self.config, self.author, letter.payload)
                handle = self._publish(body, letter.timestamp, now_ms)
                if handle < 0:
                    break  # full for now: the next epoch tries again
                if self.stays(body):
                    self.author.published(handle)
                published += 1
            if published:
                last = letters[published - 1].entry
                self.store.write("DELETE FROM outbox WHERE entry <= ?", last)
        return published

    def _publish(self, body: bytes, timestamp: bytes, now_ms: int) -> int:
        """Put a reading into the log; its handle, or a negative code.

        One that is byte for byte as another is told to be a little later: where an id does not
        stand for its parents, too, it would have the same one.
        """
        handle = -1
        for late in range(1 if self.config.family == FAMILY_BSP_NAME else SAME_MAX):
            stamp = family.stamp_of(self.config, timestamp, late)
            handle = self.node.publish(self.readings, body, len(body), stamp, now_ms)
            if handle > 0:
                break
        return handle

    def publish_ephemeral(self, content: bytes, now_ms: int) -> bytes:
        """Send a message to those who are there now; its id. Raises CapacityError."""
        body = family.ephemeral_body(self.config, content)
        if len(content) > family.content_max(self.config):
            raise CapacityError(
                f"message of {len(content)} bytes; at most {family.content_max(self.config)} fit"
            )
        handle = self._publish(body, clock.timestamp8(clock.wall_ms()), now_ms)
        logged = host_api.message(self.store, handle) if handle > 0 else None
        if logged is None:
            raise CapacityError("not sent: the log is full, or this was said just now already")
        self.vanishing.turn(self.store)  # the node deletes it once it was sent
        return logged.id

    def data_version(self) -> int:
        """A number that changes when another process has written to the store's file."""
        return int(self.store.connection.execute("PRAGMA data_version").fetchone()[0])

    # --- durability ---

    def epoch(self, now_ms: int) -> None:
        """Once per epoch: close counters, move black-box segments into their group, save.

        Time passes for links whose carrier is down, too: nobody polls them.
        """
        for link in self.node.links:
            if link.peer >= 0 and not link.visits:  # a topic has links of its own
                link.turn(now_ms)
        self.count_owed()
        self._tell_time(now_ms)
        self.box.state(now_ms, _STATE_IDLE)
        self.drain_box()
        self._keep_contacts()
        self.save(now_ms)
        self.mark = restored.mark(self.store)

    def count_owed(self) -> None:
        """Queue what is owed to who comes by stick alone, so that the status tells it."""
        host_api.fill_outboxes(self.node)

    def has_more_outstanding(self, number: int) -> bool:
        """True when the log holds more for a peer (number) than what has a row."""
        state = host_api.peer_state(self.node, number)
        return state.outstanding > 0 and state.has_waiting

    def clones(self) -> dict[bytes, int]:
        """Peers of which more than one device was seen since the last call, with how often ever.

        What is kept is for `drupelet doctor`; it is durable with the next `save`.
        """
        counts: dict[bytes, int] = {}
        for (peer_id, carrier_class), seal in self.sealing.seals().items():
            key = (peer_id, carrier_class)
            new = seal.clones - self._clones.get(key, 0)
            if new > 0:
                self._clones[key] = seal.clones
                meta = CLONES + peer_id.hex()
                count = database.meta_int(self.store.connection, meta, 0) + new
                restored.put(self.store, meta, count)
                counts[peer_id] = count
        return counts

    def damaged(self) -> list[int]:
        """Messages (handles) whose rows were found damaged since the last call.

        They are neither sent nor given out; from now on they are owed to nobody.
        """
        handles = sorted(self.store.damaged_handles - self._damaged_reported)
        for handle in handles:
            host_api.drop_from_outboxes(self.node, handle)
        self._damaged_reported.update(handles)
        return handles

    def drain_box(self) -> None:
        """Move finished black-box blocks into their group; often, so that none overflows.

        They are durable with the next commit of messages, or of the turn.
        """
        now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
        with self.store.without_commits():
            self.node.telemetry(self.telemetry, now_ms, clock.timestamp8(wall_ms))

    def save(self, now_ms: int) -> None:
        """Write the node's cursors and commit; raises StorageError."""
        self.node.save(now_ms)
        self.commit()

    def commit(self) -> None:
        """Make everything so far durable; raises StorageError with the store's reason."""
        if self.store.barrier() != OK:
            raise StorageError(self.store.failure or f"{self.store.path}: cannot be written")
        self.vanishing.committed(self.store)

    def close(self, now_ms: int) -> None:
        """A clean stop: the black box's last block, cursors, commit; `sealing` is closed apart."""
        self.node.telemetry_flush(self.telemetry, now_ms, clock.timestamp8(clock.wall_ms()))
        self._keep_contacts()
        self.vanishing.turn(self.store)
        self.save(now_ms)
        self.mark = restored.mark(self.store)
        self.store.close()
