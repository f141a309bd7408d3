"""A node of the simulated world: the real core and store, and around them what a board does.

It wakes, publishes, exchanges frames, gives messages to its client, saves and sleeps; its power
goes, it boots, and the oracle hears of all of it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drupelet import host_api
from drupelet.base.errors import OK
from drupelet.base.events import CODE_BOOT, CODE_DESCRIPTOR, VERSION_HIGH, VERSION_LOW
from drupelet.base.limits import WAKE_STATE_SIZE_MAX
from drupelet.clients.default import READINGS_CLIENT_ID
from drupelet.duty.snapshot import Snapshot
from drupelet.duty.wake_plan import WakePlan
from drupelet.engine.body import INVALID, SHARE, BodyReader, DefaultClient
from drupelet.engine.members import FAMILY_BSP, FAMILY_MVDS, SHARED, VISIBLE
from drupelet.link.host_link import HostLink
from drupelet.link.link import BATCH, CARRIER_STICK
from drupelet.node import Node
from drupelet.store.flash_store import FlashStore
from drupelet.store.states import STATE_DELIVERED, STATE_PENDING
from drupelet.telemetry.black_box import BlackBox
from drupelet_host.member.mode_policy import set_mode
from drupelet_tools.sim.ends import End, Group, WorldPort
from drupelet_tools.sim.flash import PowerCutError, SimFiles
from drupelet_tools.sim.hoststore import MemoryStore
from drupelet_tools.sim.sealing import unlock

if TYPE_CHECKING:
    import sqlite3

    from drupelet.link.link import Link

# First byte of a payload that every judging client calls invalid.
BAD = 0xEE
_WALL_MS = 1_700_000_000_000
_BOX_BLOCKS = 4
_STATE_LIGHT_SLEEP, _STATE_IDLE = 1, 2
_BOARD_ESP32 = 1
_VISIT_EVENTS = 4096
# No log that is simulated drops a message so soon.
_FRESH_MS = 3_600_000
FOREVER_MS = 1 << 60


@dataclass(frozen=True, slots=True)
class Duty:
    """When a board sleeps. `plan`: windows move until they meet (docs/SPEC.md 10.2); else they
    open every `period_ms`. `deep`: RAM is lost in between, a snapshot is not."""

    period_ms: int = 900_000
    window_ms: int = 10_000
    deep: bool = False
    plan: bool = False
    contact_ms: int = 2_000


@dataclass(frozen=True, slots=True)
class Spec:
    """What a node is made of. `store`: `flash` (a board's log) or `sqlite` (a host's)."""

    store: str = "flash"
    pool: int = 16
    offers: int = 16
    peers_max: int = 8
    groups_max: int = 4
    segment_size: int = 2048
    segments: int = 24
    pending: int = 16
    body_files: int = 8
    filter_size: int = 2048
    flash_size: int = 1 << 22
    duty: Duty | None = None
    drift_ppm: int = 0
    judges: bool = True
    box: bool = False


class Judge(DefaultClient):
    """The default client, which finds messages with a BAD payload invalid."""

    def __init__(self, mask: int, judges: bool) -> None:
        super().__init__(mask)
        self._judges = judges
        self._first = bytearray(1)

    def validate(self, reader: BodyReader) -> int:
        """INVALID or SHARE."""
        if not self._judges:
            return SHARE
        at = 1 + 32 * max(self.dependencies(reader), 0)
        read_size = reader.read_into(at, self._first, 0, 1)
        return INVALID if read_size == 1 and self._first[0] == BAD else SHARE


class SimNode:
    """One device. Made by `World.add_node`; `node` is the core while it runs, None while off."""

    def __init__(self, world: WorldPort, number: int, name: str, spec: Spec) -> None:
        self.world = world
        self.number = number
        self.name = name
        self.spec = spec
        self.id = number.to_bytes(4, "big")
        self.store: FlashStore | MemoryStore
        self.draw = world.drawer(f"node {name}")
        self.origin_ms = self.draw(1 << 30)
        self.wall_ms = _WALL_MS
        self.files = SimFiles(spec.flash_size)
        self.database = MemoryStore() if spec.store == "sqlite" else None
        self.ends: list[End] = []
        self.groups: list[Group] = []
        self.last: dict[bytes, list[bytes]] = {}  # group -> our last message, their newest
        self.node: Node | None = None
        self.box: BlackBox | None = None
        self.plan: WakePlan | None = None
        self.awake = True
        self.token = 0  # of the wake-up that counts
        self.at_ms = -1  # when that is
        self.window_end_ms = 0
        self.anchor_ms = 0
        self.boots = self.wakes = self.saves = self.published = self.refused = self.turns = 0
        self.cuts = 0
        self.entered = 0
        self.frame = bytearray(1024)
        self.rtc = bytearray(WAKE_STATE_SIZE_MAX)
        self.seen: dict[int, bytes] = {}  # ids that its rows had, by handle: for checks
        self.rtc_size = 0
        self.slept_at_ms = 0
        self._saved_ms = 0
        self.kept: tuple[sqlite3.Connection, list[dict[int, bytes]]] | None = None  # a backup
        self._gen = self.number  # of the store
        self._emptied = False
        self.segments: list[bytes] = []  # of its black box, whole
        self._segment = bytearray()

    # --- time ---

    def clock_ms(self) -> int:
        """This device's milliseconds: another origin than its peers', and drifting."""
        now = self.world.now_ms
        return (self.origin_ms + now + now * self.spec.drift_ppm // 1_000_000) & 0x3FFFFFFF

    def stamp(self, little: bool = False) -> bytes:
        """The wall clock as this device believes it: a label only."""
        value = self.wall_ms + self.world.now_ms
        if little:
            return (value // 1000 & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
        return (value & 0x7FFFFFFFFFFFFFFF).to_bytes(8, "big")

    # --- boot ---

    def volatile(self, id: bytes) -> bool:
        """Whether a power cut now could take this message."""
        return self.files.volatile(id) if self.database is None else self.database.volatile()

    def boot(self, resumed: bool = False) -> None:
        """Make the node from what its store holds."""
        spec = self.spec
        if self.database is not None:
            self.database.reopen()
            self.store = self.database
        else:
            self.store = FlashStore(
                self.files, spec.segment_size, spec.segments, spec.pending, spec.body_files,
                spec.filter_size, self._gen,
            )  # fmt: skip
            self.store.open()
        store = self.store
        self.box = BlackBox(self.id, 0, _BOX_BLOCKS) if spec.box else None
        self.node = node = Node(
            store, lambda: self.draw(256), spec.peers_max, spec.groups_max, spec.pool,
            spec.offers, self.box,
        )  # fmt: skip
        self._join(node)
        snapshot = Snapshot(self.id)
        resumed = resumed and snapshot.read(self.rtc, self.rtc_size, store) == OK
        self.boots += 1
        now_ms = self.clock_ms()
        number = node.boot(now_ms, snapshot.generation)
        self._plan()
        links = [self._link(end) for end in self.ends]
        if resumed:
            slept_ms = self.world.now_ms - self.slept_at_ms
            host_api.resume(self.rtc, node, snapshot, links, self.plan, now_ms, slept_ms)
        self.rtc_size = 0
        if self.box is not None:
            self._segment = bytearray()  # what the last boot had begun is lost
            self._describe(self.box, number)
        self._saved_ms = self.world.now_ms
        if self._emptied:
            self._emptied = False
            self.world.oracle.reset(self.name, self.holds)
        else:
            self.world.oracle.rebooted(self.name, self.finds, self._may_be_gone, self._waits)
        for names in self.last.values():
            names[:] = [id if id and self.finds(id) else b"" for id in names]

    def _join(self, node: Node) -> None:
        for group in self.groups:
            mask = 0x1F if group.family == FAMILY_MVDS else 0xFF
            client = Judge(mask, self.spec.judges)
            if group.family == FAMILY_BSP:
                number = node.join(READINGS_CLIENT_ID, group.descriptor, 0, client)
            else:
                number = node.join_id(group.id, group.family, 0, client)
            group.numbers[self.name] = number
        for end in self.ends:
            end.number = node.add_peer(end.peer.id)
            for group in self.groups:
                if group.id in end.visible or group.id in end.accepts:
                    view = SHARED if group.id in end.visible else VISIBLE
                    node.share(group.numbers[self.name], end.number, view)

    def _plan(self) -> None:
        duty = self.spec.duty
        if duty is None or not duty.plan:
            return
        now_ms = self.clock_ms()
        self.plan = WakePlan(
            duty.period_ms, duty.window_ms, duty.contact_ms, self.spec.peers_max, self.id, now_ms,
            self.draw(256) * duty.period_ms >> 8,
        )  # fmt: skip

    def _link(self, end: End) -> "Link":
        assert self.node is not None
        link = end.link = self.node.link(
            end.number, end.profile, end.carrier, end.epoch_ms, BATCH, self.clock_ms(), HostLink
        )
        set_mode(link, end.mode)
        if end.keys is not None:
            unlock(self.world, end)
        if self.plan is not None and end.carrier != CARRIER_STICK:
            link.plan = self.plan
            self.plan.seek(link.peer, end.peer.id, 0)
        return link

    def _may_be_gone(self, id: bytes) -> bool:
        """Whether all whom this node shares with hold it: then its log may drop it."""
        group = self.world.oracle.messages[id].group
        return self.database is None and all(
            end.peer.node is None or end.peer.finds(id)
            for end in self.ends
            if group in end.visible
        )

    def _waits(self, id: bytes) -> bool:
        """Whether the message is here and its parents are not."""
        message = host_api.find(self.store, id)
        return message is not None and message.state == STATE_PENDING

    def finds(self, id: bytes) -> bool:
        """Whether the store knows this id."""
        return self.store.find(id, 0) > 0

    def holds(self, id: bytes) -> bool:
        """Whether the message is in the log."""
        message = host_api.find(self.store, id)
        return message is not None and message.state == STATE_DELIVERED

    @property
    def store_gen(self) -> int:
        """The number of its store, of 32 bits."""
        return getattr(self.store, "store_gen", 0)

    def emptied(self, store_gen: int) -> None:
        """Its store is not what it was when the power went."""
        self._gen = store_gen
        self._emptied = True
        self.world.oracle.resets.add(self.name)
        if self.database is not None:
            self.database.renumber(store_gen)

    # --- what a device does when it is awake ---

    def turn(self) -> None:
        """Send what is due on every carrier, give the client what came, save, and sleep."""
        node = self.node
        assert node is not None
        self.turns += 1
        now_ms = self.clock_ms()
        frame = self.frame
        world = self.world
        for end in self.ends:
            if end.wire is None:
                continue
            if end.tells:
                assert end.transport is not None
                end.transport.receive_into(frame)
            link = end.link
            room = end.frame(frame)
            size = link.poll_into(room, now_ms)
            while size:
                world.transmit(end, bytes(room[:size]))
                size = link.poll_into(room, now_ms)
        self.consume()
        if self.box is not None:
            self._empty(self.box)
        if world.now_ms - self._saved_ms >= self.world.save_ms:
            self.save()
        self.schedule()

    def consume(self) -> None:
        """Give the client every event, and confirm it."""
        node = self.node
        assert node is not None
        given = self.world.oracle.given
        for _ in range(_VISIT_EVENTS):
            if not node.next_event():
                return
            message = host_api.message(self.store, node.event_handle)
            assert message is not None
            group = self._group_of(message.group)
            if group is not None:
                self.entered += 1
                self._whole(group, message)
                given(self.name, message.id, node.event_again)
                if message.source:
                    self.last[group.id][1] = message.id
            node.done(message.handle)

    def _group_of(self, number: int) -> Group | None:
        """The group that this node knows by a number."""
        for group in self.groups:
            if group.numbers.get(self.name) == number:
                return group
        return None

    def _whole(self, group: Group, message: host_api.Message) -> None:
        """S3: what the store gives back is what its id stands for."""
        body = host_api.body(self.store, message) or b""
        head = 0
        if group.family == FAMILY_MVDS and body:
            head = 1 + 32 * (body[0] & 0x1F)
        self.world.oracle.content(
            self.name, message.id, group.message_id(message.timestamp, body[head:])
        )

    def save(self) -> bool:
        """Write what a reboot must not forget; then what the client took stays taken."""
        assert self.node is not None
        self._saved_ms = self.world.now_ms
        if self.box is not None and self.box.flush_counters(self.clock_ms()):
            self._empty(self.box)
        self.saves += host_api.would_save(self.node)
        if self.node.save(self.clock_ms()) != OK:
            return False
        self.world.oracle.flushed(self.name, self.volatile)
        self.world.oracle.confirmed(self.name)
        return True

    def barrier(self) -> None:
        """The client wants to be sure."""
        if self.store.barrier() == OK:
            self.world.oracle.flushed(self.name, self.volatile)

    def publish(
        self, group: Group, size: int, parents: tuple[bytes, ...] | None = None,
        bad: bool = False, aside: bool = False,
    ) -> bytes | None:  # fmt: skip
        """Publish a message of `size` payload bytes; its id, None when it was refused.

        `bad`: judges find it invalid. `aside`: no later message is to depend on it.
        """
        node = self.node
        assert node is not None
        last = self.last[group.id]
        if parents is None:
            parents = tuple(id for id in last if id)
        # A log may have dropped an old one; looking each up would cost more than publishing.
        oracle = self.world.oracle
        old_ms = self.world.now_ms - _FRESH_MS
        parents = tuple(
            id
            for id in parents
            if (id in oracle.messages and oracle.messages[id].at_ms > old_ms) or self.finds(id)
        )
        self.published += 1
        text = bytes((BAD,)) if bad else b""
        text += b"%s/%d/%d " % (self.name.encode(), self.published, self.boots)
        payload = text + bytes(max(0, size - len(text)))
        mvds = group.family == FAMILY_MVDS
        stamp = self.stamp(mvds)
        head = len(parents) | (0x40 if mvds else 0)
        body = bytes((head,)) + b"".join(parents) + payload
        number = group.numbers[self.name]
        now_ms = self.clock_ms()
        id = group.message_id(stamp, payload if mvds else body)
        # Once it is in the log a cut may leave it there: the oracle knows it before.
        self.world.oracle.published(self.name, group.id, id, parents, bad)
        handle = node.publish(number, body, len(body), stamp, now_ms)
        if handle < 0:
            self.refused += 1
            self.world.oracle.refused(self.name, id)
            return None
        self.world.note("publish", self.name, id)
        if not aside:
            last[0] = id
            last[1] = b""
        self.wake_by(self.world.now_ms)
        return id

    def delete(self, id: bytes) -> None:
        """The client deletes a message of its log."""
        assert self.node is not None
        handle = self.store.find(id, 0)
        if handle > 0 and self.node.delete(handle) == OK:
            self.world.note("delete", self.name, id)
            self.barrier()
            self.world.oracle.deleted(self.name, id)

    # --- sleep ---

    def hears(self) -> bool:
        """Whether its receiver is on."""
        if self.node is None or not self.awake:
            return False
        return self.plan is None or self.plan.awake_ms(self.clock_ms()) > 0

    def wake_by(self, at_ms: int) -> None:
        """Have a turn at that time at the latest, if it is awake then."""
        on = self.awake and self.node is not None
        if on and (self.at_ms < 0 or at_ms < self.at_ms):
            self.at_ms = at_ms
            self.token += 1
            self.world.push_wake(at_ms, self)

    def schedule(self) -> None:
        """Ask the node when it has something to do, and sleep until then."""
        assert self.node is not None
        now = self.world.now_ms
        wait_ms = self.node.wake_ms(self.clock_ms())
        if self.spec.drift_ppm:
            wait_ms += wait_ms * abs(self.spec.drift_ppm) // 1_000_000 + 1
        at_ms = now + max(wait_ms, 1)
        if host_api.would_save(self.node):
            at_ms = min(at_ms, max(self._saved_ms + self.world.save_ms, now + 1))
        for end in self.ends:
            if end.tells:
                at_ms = min(at_ms, now + end.epoch_ms)
        duty = self.spec.duty
        if duty is not None and not duty.plan and at_ms >= self.window_end_ms:
            at_ms = max(self.window_end_ms, now + 1)
        self.at_ms = -1
        self.wake_by(at_ms)

    def due(self) -> None:
        """The scheduled time has come: a turn, or the end or begin of a window."""
        self.at_ms = -1
        duty = self.spec.duty
        now = self.world.now_ms
        if duty is None or duty.plan:
            self.turn()
        elif self.awake and now >= self.window_end_ms:
            self.sleep(duty)
        elif not self.awake:
            self.open_window(duty)
            self.turn()
        else:
            self.turn()

    def open_window(self, duty: Duty) -> None:
        """Wake up at the begin of a window."""
        self.wakes += 1
        self.awake = True
        if self.window_end_ms < FOREVER_MS:
            self.window_end_ms = self.world.now_ms + duty.window_ms
        if duty.deep and self.node is None:
            self.boot(True)
        if self.box is not None:
            self.box.state(self.clock_ms(), _STATE_IDLE)
        for end in self.ends:
            self.world.drain(end.other)

    def stay_awake(self) -> None:
        """Its windows do not end any more: who has nothing to say cannot be found asleep."""
        if self.spec.duty is not None and not self.spec.duty.plan:
            self.window_end_ms = FOREVER_MS
            if self.awake and self.node is not None:
                self.wake_by(self.world.now_ms)

    def sleep(self, duty: Duty) -> None:
        """Save, and be off until the next window."""
        node = self.node
        assert node is not None
        now = self.world.now_ms
        self.consume()
        if self.box is not None:
            self.box.state(self.clock_ms(), _STATE_LIGHT_SLEEP)
        if duty.deep:
            self.barrier()
            links = [end.link for end in self.ends]
            size = host_api.snapshot_into(
                self.rtc, node, Snapshot(self.id), links, self.plan, self.clock_ms()
            )
            self.rtc_size = max(size, 0)
            self.slept_at_ms = now
            if size < 0:
                self.save()
            self.node = None
            self.files.close_all()
        else:
            self.save()
        self.awake = False
        passed = (now - self.anchor_ms) // duty.period_ms + 1
        self.at_ms = self.anchor_ms + passed * duty.period_ms
        self.token += 1
        self.world.push_wake(self.at_ms, self)

    def _empty(self, box: BlackBox) -> None:
        """Take the finished blocks out of the black box, and put its segments together."""
        while box.ready:
            if box.starts:
                self._segment = bytearray(box.header)
            self._segment += box.block
            ends = box.ends
            box.take()
            if ends:
                self.segments.append(bytes(self._segment))
                self._segment = bytearray()

    def close_box(self) -> None:
        """End the black box's segment with all its counters."""
        box = self.box
        if box is not None and self.node is not None:
            now_ms = self.clock_ms()
            while not box.flush_counters(now_ms):
                self._empty(box)
            while not box.finish():
                self._empty(box)
            self._empty(box)

    def _describe(self, box: BlackBox, boot: int) -> None:
        box.boot = boot
        now_ms = self.clock_ms()
        wall_ms = self.wall_ms + self.world.now_ms
        box.wall(now_ms, (wall_ms & 0xFFFFFFFFFFFF).to_bytes(6, "little"), 1)
        box.log(now_ms, CODE_BOOT, 0, boot, 0, 0)
        box.log(now_ms, CODE_DESCRIPTOR, 2, 0, 0, self.world.save_ms & 0xFFFF)
        box.log(now_ms, CODE_DESCRIPTOR, 4, 0, VERSION_HIGH, VERSION_LOW)
        box.log(now_ms, CODE_DESCRIPTOR, 3, _BOARD_ESP32, 0, 0)

    # --- power ---

    def power_off(self, reorder: bool) -> None:
        """RAM is gone; the store keeps what it promised, and some of the rest."""
        self.cuts += 1
        self.node = None
        self.plan = None
        self.at_ms = -1
        self.token += 1
        self.awake = True
        self.rtc_size = 0
        self.files.power_off(self.draw, reorder)
        if self.database is not None:
            self.database.crash()

    def start(self) -> None:
        """Power is back: boot, and the first window opens."""
        self.boot()
        self.awake = True
        duty = self.spec.duty
        if duty is not None and not duty.plan:
            self.open_window(duty)
        self.wake_by(self.world.now_ms)

    def log(self) -> list[bytes]:
        """The ids of the simulated groups in the log, in order."""
        return [
            message.id
            for message in host_api.messages(self.store)
            if self._group_of(message.group)
        ]


__all__ = ["BAD", "Duty", "Judge", "PowerCutError", "SimNode", "Spec"]
