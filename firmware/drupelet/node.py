"""A node: groups, peers, links, and the client's cursor; an owner's program uses this class.

    store.open(); node = Node(store, random_byte)
    group = node.join(client_id, descriptor); peer = node.add_peer(id4); node.share(group, peer, 2)
    node.boot(now_ms)
    link = node.link(peer, PROFILE_BSP_1, CARRIER_SERIAL, epoch_ms, INTERACTIVE)
    link.receive(frame, size, now_ms); size = link.poll_into(frame, now_ms)
    sleep for node.wake_ms(now_ms)

Time comes in as `now_ms` (modulo 2^30), bytes in buffers, randomness from `random_byte()`.
"""

# Bottom-up: nested imports take C stack, of which boards have little.
# ruff: isort: off
import drupelet.wire.registry
import drupelet.engine.exchange  # noqa: F401
# ruff: isort: on

from drupelet.base.compat import const
from drupelet.base.errors import E_STORAGE, OK, CapacityError, check
from drupelet.base.hashes import group_id_into
from drupelet.base.limits import (
    DESCRIPTOR_SIZE_MAX,
    GROUPS_MAX,
    ID_SIZE,
    MESSAGES_MAX,
    OFFERS_MAX,
    PARTS_MAX,
    PEERS_MAX,
    WAIT_MS_MAX,
)
from drupelet.engine import wake_state
from drupelet.engine.core import NO_BOX, Core
from drupelet.engine.long_bodies import LongBodies
from drupelet.engine.members import (
    FAMILY_BSP,
    FAMILY_MVDS,
    GROUP_TELEMETRY,
    INVISIBLE,
    SHARED,
    VISIBLE,
)
from drupelet.engine.publisher import COMPOSED_KEY, Publisher
from drupelet.link.link import (
    BATCH,
    CARRIER_MQTT,
    CARRIER_SERIAL,
    CARRIER_STICK,
    CARRIER_UDP,
    INTERACTIVE,
    Link,
)
from drupelet.store.states import STATE_DELETED
from drupelet.telemetry.recorder import Recorder
from drupelet.wire.profiles import (
    PROFILE_BSP_1,
    PROFILE_COMPACT_1,
    PROFILE_MVDS_1,
    PROFILE_MVDS_5001,
    PROFILE_MVDS_NESTED,
)
from drupelet.wire.registry import bring_family

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drupelet.channel.channel import Channel
    from drupelet.channel.ports import KeeperPort
    from drupelet.channel.settings import Settings
    from drupelet.engine.body import BodyReader
    from drupelet.engine.ports import ClientPort, ControlPort
    from drupelet.store.ports import StorePort
    from drupelet.telemetry.black_box import BlackBox

EVENT_NONE = const(0)
EVENT_MESSAGE = const(1)  # `event_handle` entered the log, or was not confirmed before a reboot
_MEMBER_GROUP = const(1)  # kinds of `store.member`
_MEMBER_PEER = const(2)

__all__ = [
    "BATCH", "CARRIER_MQTT", "CARRIER_SERIAL", "CARRIER_STICK", "CARRIER_UDP",
    "EVENT_MESSAGE", "EVENT_NONE", "FAMILY_BSP", "FAMILY_MVDS", "GROUP_TELEMETRY", "INTERACTIVE",
    "INVISIBLE", "PROFILE_BSP_1", "PROFILE_COMPACT_1", "PROFILE_MVDS_1", "PROFILE_MVDS_5001",
    "PROFILE_MVDS_NESTED", "SHARED", "VISIBLE", "Link", "Node",
]  # fmt: skip


class Node(Publisher):
    """A member of some groups. The store must be open; table sizes are set here for good."""

    _recorder: "Recorder | None" = None
    _channels: "Sequence[Channel]" = ()

    def __init__(
        self, store: "StorePort", random_byte: "Callable[[], int]", peers_max: int = PEERS_MAX,
        groups_max: int = GROUPS_MAX, messages_max: int = MESSAGES_MAX,
        offers_max: int = OFFERS_MAX, blackbox: "BlackBox | None" = None,
        parts_max: int = PARTS_MAX,
    ) -> None:  # fmt: skip
        self.core = Core(
            store, peers_max, groups_max, messages_max, offers_max, blackbox or NO_BOX
        )
        self.core.long = LongBodies(self.core, parts_max)
        self.store = store
        self._random_byte = random_byte
        if blackbox is not None:
            self._recorder = Recorder(store, self, blackbox, COMPOSED_KEY)
        self.links: "list[Link]" = []
        self.event_again = False
        self.event_handle = self._issued = self._before_boot = 0

    # --- membership ---

    def join(
        self, client_id: bytes, descriptor: bytes, flags: int = 0,
        client: "ClientPort | None" = None,
    ) -> int:  # fmt: skip
        """Join a group; return its number. Raises CapacityError or StorageError.

        `client_id`: 32 bytes. `descriptor`: up to 32 KiB, defined by the client (BSP v1 2.2), kept
        in the store. `client`: finds dependencies and validates; None for the default one.
        """
        if len(client_id) != ID_SIZE or len(descriptor) > DESCRIPTOR_SIZE_MAX:
            raise CapacityError("a client id has 32 bytes, a descriptor at most 32768")
        id = bytearray(ID_SIZE)
        group_id_into(id, client_id, descriptor, len(descriptor))
        number = self.join_id(id, FAMILY_BSP, flags, client)
        if self.store.spool.descriptor_size(number) < 0:
            from drupelet.engine.descriptor import keep_descriptor

            code = keep_descriptor(self.store, number, client_id, descriptor)
            check(code, "no room for a descriptor")
        return number

    def join_id(
        self, id: "bytes | bytearray", family: int, flags: int = 0,
        client: "ClientPort | None" = None,
    ) -> int:  # fmt: skip
        """Join a group by its 32-byte id; return its number. Raises CapacityError.

        `family`: FAMILY_BSP or FAMILY_MVDS, for life; links of another family do not carry the
        group. MVDS does not define how group ids are made.
        """
        members = self.core.members
        number = self.store.member(_MEMBER_GROUP, id, 0, ID_SIZE)
        check(number, "no room for another group")
        if family != FAMILY_BSP:
            from drupelet.engine.group_family import keep_family

            keep_family(self.core, number, family)
        bring_family(self.core, family)
        check(members.add_group(number, id, family, flags), "groups_max reached")
        self.core.regroup(members.group_row(number), client)
        if client is not None or family == FAMILY_MVDS:
            self._control()  # a client may keep messages private, or delete them
        return number

    def leave(self, group: int) -> None:
        """Leave a group: its messages are dropped, and refused until it is joined again."""
        from drupelet.engine.control import leave

        row = self.core.members.group_row(group)
        assert row >= 0, "not a member"
        check(leave(self.core, row), "the store did not take it")

    def remove_peer(self, peer: int) -> None:
        """Forget a peer (number) and close its links; its row is free for another one."""
        from drupelet.engine.control import remove_peer

        row = self.core.members.peer_row(peer)
        assert row >= 0, "removed a peer that is not known"
        check(remove_peer(self.core, row), "the store did not take it")
        for at in range(len(self.links) - 1, -1, -1):
            if self.links[at].peer == row:
                self.links.pop(at).close()

    def add_peer(self, id: bytes) -> int:
        """Add a peer by its 4-byte id; return its number. Raises CapacityError."""
        number = self.store.member(_MEMBER_PEER, id, 0, len(id))
        check(number, "no room for another peer")
        check(self.core.members.add_peer(number), "peers_max reached")
        self.core.add_peer(self.core.members.peer_row(number))
        return number

    def share(self, group: int, peer: int, visibility: int) -> None:
        """Set what a peer sees of a group: INVISIBLE, VISIBLE (accept only) or SHARED."""
        members = self.core.members
        group_row = members.group_row(group)
        peer_row = members.peer_row(peer)
        assert group_row >= 0 and peer_row >= 0
        before = members.visibility(group_row, peer_row)
        members.set_visibility(group_row, peer_row, visibility)
        if visibility > before:
            self.core.pending.ask_again()
            # An entry may be of a message that we hold by now; the others are offered again.
            self.core.inboxes[peer_row].drop_offers()
        if visibility == SHARED and before != SHARED:
            self.core.restart(peer_row, False)
            if self.core.boot:
                from drupelet.engine.control import on_shown

                on_shown(self.core, group_row, peer_row)
        elif visibility < before:
            from drupelet.engine.control import on_hidden

            on_hidden(self.core, group_row, peer_row, visibility)

    def boot(self, now_ms: int, generation: int = -1) -> int:
        """Restore the state from the store; return the number of this boot (1 to 65535).

        Call it after all groups, peers and shares are configured: the saved state of any others is
        lost. `generation`: that of a deep sleep's snapshot (docs/SPEC.md 10.3), which continues
        the boot before it and writes no flash.
        """
        from drupelet.engine.recovery import wake

        core = self.core
        wake(core, now_ms, generation)
        # The client may have got what recovery delivers: a power cut took only the record of that.
        self._before_boot = core.graph.newest
        self._issued = core.consumed
        return core.boot

    def link(
        self, peer: int, profile: int, carrier: int, epoch_ms: int, mode: int, now_ms: int = 0,
        make_link: "type[Link] | None" = None,
    ) -> Link:  # fmt: skip
        """Make a link to a peer (number); `make_link`: the class of a live one, None for Link.

        `epoch_ms`: 1 to 2^28, ignored for a stick. The first epoch has a random phase, so that
        devices that boot together do not keep sending at the same time. Live links to one peer use
        one clock, that of the shortest epoch; other epochs are rounded up to its multiples.
        """
        slot = self.core.members.peer_row(peer)
        assert slot >= 0
        epoch_ms = epoch_ms or WAIT_MS_MAX
        others = [link for link in self.links if link.peer == slot and not link.visits]
        core = self.core
        clocks = core.clocks
        live = carrier != CARRIER_STICK
        if live and not (others and clocks.epoch_ms(slot) <= epoch_ms):
            for other in others:
                other.own_epoch_ms = other.epoch_ms
            clocks.begin(slot, epoch_ms, now_ms, epoch_ms * self._random_byte() >> 8)
        if carrier == CARRIER_STICK and profile == PROFILE_COMPACT_1:
            profile = PROFILE_BSP_1  # bytes cost little there, and nobody answers
        if live:
            link = (make_link or Link)(self.core, slot, profile, carrier, epoch_ms, mode)
        else:
            from drupelet.link.stick_visit import BundleLink

            link = BundleLink(self.core, slot, profile)
        if live and others:
            from drupelet.link.arbiter import Arbiter

            clocks.arbiter = clocks.arbiter or Arbiter(clocks)
            clocks.arbiter.begin(slot)
            for other in others:
                other.count_anew()
        self.links.append(link)
        return link

    def channel(
        self, id: bytes, participant: bytes, keeper: "KeeperPort",
        settings: "Settings | None" = None, now_ms: int = 0,
    ) -> "Channel":  # fmt: skip
        """Open an SDS channel (docs/SPEC.md 12), which has no peers but the methods of a link.

        `keeper`: where its messages are kept. `settings`: sizes and periods, None for the
        defaults.
        """
        from drupelet.channel.channel import open_channel

        made = open_channel(id, participant, keeper, self._random_byte, settings, now_ms)
        self._channels = list(self._channels) + [made]
        return made

    # --- messages ---

    def next_event(self) -> int:
        """Return EVENT_MESSAGE, with the handle in `event_handle`, or EVENT_NONE."""
        store = self.store
        while self._issued != self.core.graph.newest:
            handle = store.next(self._issued)
            if handle <= 0 or store.load(handle) != OK:
                break  # the end, or the flash refused a read: tried again at the next call
            self._issued = handle  # not before: reading may run out of memory
            if store.state != STATE_DELETED and self.core.members.group_row(store.group) >= 0:
                self.event_handle = handle
                self.event_again = handle <= self._before_boot
                return EVENT_MESSAGE
        return EVENT_NONE

    def done(self, handle: int) -> None:
        """Confirm an event: after the next `save`, it is not given again after a reboot."""
        core = self.core
        if handle > core.consumed:
            core.consumed = handle
            core.is_dirty = True

    def share_message(self, handle: int) -> int:
        """Share a message that its client kept private, with its dependencies; OK or a code.

        After OK this is durable: the message reaches the peers in any case.
        """
        group = self._group_of(handle)
        code = E_STORAGE if group < 0 else self._control().share(group, handle)
        return self.store.barrier() if code == OK else code

    def delete(self, handle: int) -> int:
        """Delete a message but keep its place in the graph; return OK or a code.

        Its id is still acknowledged; messages that depend on it are not affected (BSP v1 5).
        """
        group = self._group_of(handle)
        return E_STORAGE if group < 0 else self._control().delete(group, handle)

    def _control(self) -> "ControlPort":
        """Return what shares and deletes single messages, loaded at first use."""
        graph = self.core.graph
        if graph.control is None:
            from drupelet.engine.control import Control

            graph.control = Control(self.core)
        return graph.control

    def open_body(self, group: int, handle: int) -> "BodyReader | None":
        """Open a message of this group for reading; None: it is deleted, or of another group."""
        reader = self.core.graph.reader
        row = self._group_of(handle)
        known = row >= 0 and self.store.group == group
        return reader if known and reader.open_stored(row, handle) and not reader.bare else None

    def _group_of(self, handle: int) -> int:
        """Return the group (row) of a message, or -1 if there is none."""
        known = self.store.load(handle) == OK
        return self.core.members.group_row(self.store.group) if known else -1

    # --- black box ---

    def telemetry(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Move finished blocks of the black box to the telemetry group; call it often."""
        recorder = self._recorder
        return recorder.step(group, now_ms, timestamp) if recorder is not None else OK

    def telemetry_flush(self, group: int, now_ms: int, timestamp: "bytes | bytearray") -> int:
        """Publish the black box as far as it is written."""
        recorder = self._recorder
        return OK if recorder is None else recorder.flush(group, now_ms, timestamp)

    # --- time ---

    def wake_ms(self, now_ms: int) -> int:
        """Return the ms until a link or channel may have something to send."""
        soonest = WAIT_MS_MAX
        for link in self.links:
            soonest = min(soonest, link.wake_ms(now_ms))
        for channel in self._channels:
            soonest = min(soonest, channel.wake_ms(now_ms))
        return soonest

    def save(self, now_ms: int) -> int:  # noqa: ARG002 - no clock is saved yet
        """Write what a reboot must not forget, as before a sleep; return OK once it is durable."""
        return wake_state.save(self.core) or self.store.barrier()

    # --- for status ---

    @property
    def delivered(self) -> int:
        """Messages that entered the log since boot, without black boxes."""
        return self.core.delivered

    @property
    def duplicates(self) -> int:
        """Copies of known messages that came in since boot; none was delivered again."""
        return self.core.duplicates

    @property
    def refused(self) -> int:
        """Messages that were refused since boot: a table or the flash was full, or failed."""
        return self.core.refused

    @property
    def malformed(self) -> int:
        """Frames and records since boot that no correct peer sends."""
        return self.core.malformed

    def pending_count(self, peer: int = 0) -> int:
        """Return how many messages are pending, of all or from one peer (number)."""
        pending = self.core.pending
        return pending.count_of(peer) if peer else pending.count

    def outstanding(self, peer: int) -> int:
        """Return how many messages in rows a peer (number) may lack."""
        return self.core.outboxes[self.core.members.peer_row(peer)].open_count
