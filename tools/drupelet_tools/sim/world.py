"""A world of simulated devices: one thread, one heap of events, everything drawn from one seed.

    world = World(seed)
    host = world.add_node("host", Spec(store="sqlite", pool=64))
    board = world.add_node("b1", Spec(duty=Duty()))
    group = world.add_group(b"readings", ["host", "b1"])
    link = world.add_link("host", "b1", CARRIER_SERIAL, epoch_ms=1000)
    world.start()                        # every node boots
    world.at(5_000, lambda: board.publish(group, 40))
    link.rates(Rates(loss=200)); link.up(False)
    world.run_until(3_600_000)
    world.settle(200)                    # faults off; everything must come, L1 and L2
    world.check_end()                    # what is true of the whole run

Time is in ms from 0 and has nothing to do with the devices' clocks. An idle node costs nothing:
its next turn is where `wake_ms` says. Every frame, boot, delivery and fault goes into `digest`:
two runs of one seed on one commit have the same.
"""

import hashlib
import heapq
import random
import struct
from collections import Counter
from collections.abc import Callable

from drupelet import host_api
from drupelet.base.limits import FRAME_SIZE_MAX, PART_FLUSH_SIZE
from drupelet.engine.members import FAMILY_BSP
from drupelet.link.link import BATCH, CARRIER_MQTT, CARRIER_SERIAL, CARRIER_STICK
from drupelet.node import Node
from drupelet.wire.profiles import PROFILE_BSP_1
from drupelet_tools.sim.carriers import BROKER_QUEUE_MAX, CLEAN, Rates, SimStick, Wire, mix
from drupelet_tools.sim.device import SimNode, Spec
from drupelet_tools.sim.ends import End, Group, Link, NodePort
from drupelet_tools.sim.flash import PowerCutError
from drupelet_tools.sim.keys import provision
from drupelet_tools.sim.oracle import Oracle, Violation
from drupelet_tools.sim.rows import broken_rows, held_ids
from drupelet_tools.sim.sealing import SimCarrier, WatchedAead, show_again

__all__ = ["End", "Group", "Link", "Rates", "SimStick", "Spec", "Violation", "World"]

_WAKE, _FRAME, _CALL = range(3)
# With one of so many frames of 1024 on a sealed link an older one comes again.
_REPLAY = 64
# A frame with nothing but a HELLO (docs/SPEC.md 3.5).
_COMPACT_1 = 0x44
_HELLO_SIZE = 16
# What a carrier's framing adds, as the black boxes count it: two of COBS, two of its CRC.
_FRAMING_SIZE = 4
# A world in which one moment has more events than this goes in circles.
MOMENT_EVENTS_MAX = 100_000
# Nothing is held back for longer (`faults.draw_rates`); a few epochs for the answers.
IN_FLIGHT_EPOCHS = 26
# An exchange with who is asleep for most of an epoch: OFFER, REQUEST, message, ACK.
EPOCHS_PER_MESSAGE = 2
# S13: a message is put into the log, and may wait there; what is written again to make room for
# others counts the same. A boot writes its wake state, and what a power cut tore a second time.
PROGRAMS_PER_EVENT = 2
# L3: who has the same as its peer learns it in so many bytes, both ways: a HELLO that asks, once
# more when the other one's epochs are longer, and its answer; sealed 15 more each, and a status.
IN_SYNC_SIZE_MAX = 3 * 8
IN_SYNC_SEALED_SIZE_MAX = 3 * (8 + 15 + 9)


class World:
    """See the module. `trace`: called with one line per event, for people."""

    def __init__(
        self, seed: int, trace: Callable[[str], None] | None = None, save_ms: int = 60_000
    ) -> None:
        self.seed = seed
        self.now_ms = 0
        self.save_ms = save_ms
        self.oracle = Oracle()
        self.nodes: dict[str, SimNode] = {}
        self.groups: dict[bytes, Group] = {}
        self.links: list[Link] = []
        self.events = self.frames = self.bytes_sent = 0
        self.heartbeats = 0  # greetings, which may come while there is nothing to do
        self.down_ms = 2_000  # how long a device is off after a cut
        self.reorder = False  # unflushed writes survive in any order
        self.faults = True
        self.cut_off: Callable[[SimNode], None] | None = None
        self.epochs_to_settle = 0
        self._heap: list[tuple[int, int, int, object, object]] = []
        self._order = 0
        self._hash = hashlib.blake2s()
        self._trace = trace
        self.aead = WatchedAead()
        self.rotations = self.clones = 0
        self.look_every = 16  # one in so many frames is looked at for S4, S9 and S10

    # --- building ---

    def drawer(self, purpose: str) -> Callable[[int], int]:
        """Random numbers of their own for one purpose: `draw(n)` is 0 .. n - 1."""
        return random.Random(f"{self.seed} {purpose}").randrange

    def add_node(self, name: str, spec: Spec | None = None) -> SimNode:
        """Add a device; it boots with `start`."""
        node = SimNode(self, len(self.nodes) + 1, name, spec or Spec())
        self.nodes[name] = node
        self.oracle.add_member(name, node.spec.judges)
        return node

    def add_group(
        self, descriptor: bytes, members: list[str], family: int = FAMILY_BSP
    ) -> Group:  # fmt: skip
        """Add a group; call it before links, which share the groups that both ends have."""
        group = Group(descriptor, family, members)
        self.groups[group.id] = group
        self.oracle.add_group(group.id, members)
        for name in members:
            self.nodes[name].groups.append(group)
            self.nodes[name].last[group.id] = [b"", b""]
        return group

    def add_link(
        self, a: str, b: str, carrier: int = CARRIER_SERIAL, profile: int = PROFILE_BSP_1,
        mode: int = BATCH, epoch_ms: int = 1000, size_max: int = FRAME_SIZE_MAX,
        back_epoch_ms: int = 0, queue: bool = False, sealed: bool = False,
    ) -> Link:  # fmt: skip
        """Join two nodes by a carrier. `back_epoch_ms`: the epoch of b, if it is another.

        `queue`: a broker keeps frames for whoever is away, and gives them all at once.
        """
        number = len(self.links)
        ends = []
        for side, (here, there) in enumerate(((a, b), (b, a))):
            wire = None
            if carrier != CARRIER_STICK:
                wire = Wire(mix(mix(self.seed) + 2 * number + side), carrier == CARRIER_SERIAL)
            own_ms = (back_epoch_ms or epoch_ms) if side else epoch_ms
            end = End(
                self.nodes[here], self.nodes[there], carrier, profile, mode, own_ms, size_max, wire
            )
            end.queue = [] if queue and carrier == CARRIER_MQTT else None
            end.visible = {g.id for g in end.node.groups if there in g.members}
            self.nodes[here].ends.append(end)
            ends.append(end)
        ends[0].other, ends[1].other = ends[1], ends[0]
        if sealed:
            draw = self.drawer(f"root {number}")
            root = bytes(draw(256) for _ in range(32))
            both = [(node.id, node.files) for node in (self.nodes[a], self.nodes[b])]
            keys = provision(both[0], both[1], number, root)
            for end, own in zip(ends, keys, strict=True):
                end.keys = own
                if end.wire is not None:
                    end.wire.sealed = True
                    end.wire.replay = _REPLAY
        link = Link(self, (ends[0], ends[1]), number)
        self.links.append(link)
        return link

    def start(self) -> None:
        """Boot every node; those that sleep begin at a phase of their own."""
        for node in self.nodes.values():
            duty = node.spec.duty
            if duty is not None and not duty.plan:
                node.anchor_ms = node.draw(duty.period_ms) - duty.period_ms
            self.run_in(node, node.start)
            if duty is not None and not duty.plan and node.node is not None:
                node.window_end_ms = self.now_ms + duty.window_ms

    # --- time ---

    def at(self, at_ms: int, call: Callable[[], object]) -> None:
        """Call something at a time; what a node does in it belongs into `node_at`."""
        self._push(at_ms, _CALL, call, None)

    def node_at(self, at_ms: int, name: str, call: Callable[[SimNode], object]) -> None:
        """Call something on a node at a time, if it is on then; its power may go in it."""
        node = self.nodes[name]

        def act() -> None:
            if node.node is not None:
                self.run_in(node, lambda: call(node))

        self._push(at_ms, _CALL, act, None)

    def push_wake(self, at_ms: int, node: NodePort) -> None:
        """A node wants a turn; `node.token` says whether it still does then."""
        self._push(at_ms, _WAKE, node, node.token)

    def _push(self, at_ms: int, kind: int, what: object, more: object) -> None:
        self._order += 1
        heapq.heappush(self._heap, (at_ms, self._order, kind, what, more))

    def run_until(self, end_ms: int) -> None:
        """Let the world go on until that time."""
        heap = self._heap
        moment = count = 0
        while heap and heap[0][0] <= end_ms:
            at_ms, _, kind, what, more = heapq.heappop(heap)
            if at_ms > self.now_ms:
                self.now_ms = self.oracle.now_ms = at_ms
            if moment != at_ms:
                moment, count = at_ms, 0
            count += 1
            if count > MOMENT_EVENTS_MAX:
                raise Violation("L2", "world", f"it goes in circles at {at_ms} ms")
            self.events += 1
            if kind == _WAKE:
                node: SimNode = what  # type: ignore[assignment]
                if more == node.token:
                    self.run_in(node, node.due)
            elif kind == _FRAME:
                self._arrive(what, more)  # type: ignore[arg-type]
            else:
                what()  # type: ignore[operator]
        self.now_ms = self.oracle.now_ms = max(self.now_ms, end_ms)

    # --- nodes ---

    def run_in(self, node: NodePort, call: Callable[[], object]) -> None:
        """Run code of a node; when its power goes, it is off for a while and boots."""
        try:
            call()
        except PowerCutError:
            self.turn_off(self.nodes[node.name])

    def pull_plug(self, name: str) -> None:
        """Take a node's power away, now."""
        node = self.nodes[name]
        if node.node is not None or (node.spec.duty is not None and not node.awake):
            self.turn_off(node)

    def turn_off(self, node: SimNode) -> None:
        """A node is off for a while, then it boots."""
        self.note("cut", node.name)
        node.power_off(self.reorder)
        if self.cut_off is not None:
            self.cut_off(node)
        self._push(self.now_ms + self.down_ms, _CALL, lambda: self._on(node), None)

    def _on(self, node: SimNode) -> None:
        if node.node is None:
            self.note("boot", node.name)
            self.run_in(node, node.start)

    # --- frames ---

    def transmit(self, end: End, frame: bytes) -> None:
        """A frame of a link leaves over a live carrier, sealed if the carrier is."""
        node = end.node
        self.frames += 1
        self.heartbeats += frame[0] == _COMPACT_1 and len(frame) <= _HELLO_SIZE
        if self._trace is not None:
            self._say("frame", node.name, end.peer.name, frame)
        self.oracle.left(
            node.name, end.peer.name, frame, end.visible, end.accepts, node.volatile,
            node.finds, end.epoch_ms,
        )  # fmt: skip
        if node.box is not None:
            end.link.sent(len(frame) + _FRAMING_SIZE)
        if end.transport is None:
            self.fly(end, frame)
        else:
            end.recent_frames = [*end.recent_frames[-3:], frame]
            end.transport.send(bytearray(frame), len(frame))

    def fly(self, end: End, frame: bytes) -> None:
        """A frame is on its wire."""
        self.bytes_sent += len(frame)
        self._hash.update(struct.pack("<QHH", self.now_ms, end.node.number, len(frame)))
        self._hash.update(frame)
        assert end.wire is not None
        for at_ms, arriving in end.wire.fates(frame, self.now_ms):
            self._push(at_ms, _FRAME, end, arriving)

    def stick_frame(self, end: End, frame: bytes) -> None:
        """A frame is written to a stick."""
        node = end.node
        self.frames += 1
        self._hash.update(struct.pack("<QHH", self.now_ms, node.number, len(frame)))
        self._hash.update(frame)
        self.oracle.left(
            node.name, end.peer.name, frame, end.visible, end.accepts, node.volatile,
            node.finds, 0,
        )  # fmt: skip

    def drain(self, end: End) -> None:
        """Deliver what a broker kept of this end's frames."""
        if end.queue and end.peer.hears() and end.up:
            for frame in end.queue:
                self._push(self.now_ms + 1, _FRAME, end, frame)
            end.queue.clear()

    def _arrive(self, end: End, frame: bytes) -> None:
        peer = end.peer
        if not end.up or not peer.hears():
            if end.queue is not None and len(end.queue) < BROKER_QUEUE_MAX:
                end.queue.append(frame)
            return
        self.run_in(peer, lambda: self._receive(end.other, frame))

    def _receive(self, end: End, frame: bytes) -> None:
        node = end.node
        transport = end.transport
        if transport is None:
            self._hear(end, frame)
        else:
            carrier = transport.carrier
            assert isinstance(carrier, SimCarrier)
            carrier.inbox.append(frame)
            size = transport.receive_into(node.frame)
            if size > 0:
                self._once(end, frame)
            while size > 0:
                self._hear(end, bytes(node.frame[:size]))
                size = transport.receive_into(node.frame)
            show_again(self, end)
        node.consume()
        node.wake_by(self.now_ms)

    def _once(self, end: End, frame: bytes) -> None:
        """S9 of the seal: a sealed frame is taken once, whoever sends it again."""
        mark = hash(frame)
        self.oracle.checks += 1
        if mark in end.accepted:
            raise Violation("S9", end.node.name, "a sealed frame was taken twice")
        end.accepted.add(mark)

    def _hear(self, end: End, frame: bytes) -> None:
        """What a carrier gave comes to the link."""
        node = end.node
        size = len(frame)
        node.frame[:size] = frame
        if not self.oracle.reads_frames:
            end.link.receive(node.frame, size, node.clock_ms())
            return
        self.oracle.heard(node.name, end.peer.name)
        before = held_ids(end.link, end.node.seen)
        end.link.receive(node.frame, size, node.clock_ms())
        fresh = held_ids(end.link, end.node.seen) - before
        if fresh:
            self.oracle.learned(node.name, end.peer.name, frame, fresh)
        if self.frames % self.look_every == 0:
            self._again(end, frame)
            self.check_holds(end)
            self.check_tables(end.node)

    def _again(self, end: End, frame: bytes) -> None:
        """S9: the same frame once more changes nothing in the log."""
        node = end.node
        assert node.node is not None
        frame_ids = self.oracle.arrives(node.name, end.peer.name, frame)
        if frame_ids is None or not all(node.finds(id) for id in frame_ids.messages):
            return
        before = self._progress(node.node)
        node.frame[: len(frame)] = frame
        end.link.receive(node.frame, len(frame), node.clock_ms())
        after = self._progress(node.node)
        self.oracle.checks += 1
        if before != after:
            raise Violation("S9", node.name, f"a repeated frame changed {before} to {after}")

    @staticmethod
    def _progress(node: Node) -> tuple[int, int, int]:
        return host_api.newest(node), node.delivered, node.pending_count()

    def check_tables(self, node: NodePort) -> None:
        """S10 of a node that is on."""
        broken = broken_rows(node.node) if node.node is not None else ""
        self.oracle.checks += 1
        if broken:
            raise Violation("S10", node.name, broken)

    def check_holds(self, end: End) -> None:
        """S4: what a node counts as held by a peer, the peer has or has had."""
        peer = end.peer
        if peer.node is None:
            return
        view = self.oracle.views[peer.name]
        given = view.given | view.had if view.had else view.given
        for id in held_ids(end.link, end.node.seen):
            self.oracle.checks += 1
            if id not in given and id in self.oracle.messages and not peer.finds(id):
                text = f"{id.hex()[:12]} counts as held by {peer.name}, which has it not"
                raise Violation("S4", end.node.name, text)

    # --- the end ---

    def calm(self) -> None:
        """No fault any more: lines are clean and up, power stays."""
        self.faults = False
        self.cut_off = None
        for link in self.links:
            link.rates(CLEAN)
            for end in link.ends:
                end.up = True
                if end.wire is not None:
                    end.wire.replay = 0
        for node in self.nodes.values():
            self.check_saves(node)
            node.files.disarm()
            node.stay_awake()
        for link in self.links:
            for end in link.ends:
                if end.node.node is not None:
                    end.link.greet()
                    end.node.wake_by(self.now_ms)
                self.drain(end)

    def settled(self) -> bool:
        """Whether everything came, and everybody who shares live knows."""
        if self.oracle.owed():
            return False
        for node in self.nodes.values():
            if node.node is None:
                if node.spec.duty is None:
                    return False
                continue
            if any(end.carrier != CARRIER_STICK and end.owes for end in node.ends):
                return False
        return True

    def settle(self, epochs_max: int, quiet_epochs: int = 20) -> None:
        """L1: everything comes within so many epochs of the slowest link; L2: then silence.

        Each message that one member still lacks adds the epochs of one exchange.
        """
        self.calm()
        epoch_ms = self.slowest_ms()
        lacking = Counter(name for _, name in self.oracle.lost())
        epochs_max += EPOCHS_PER_MESSAGE * max(lacking.values(), default=0)
        step = 0
        while not self.settled():
            if step >= epochs_max:
                self._not_settled(epochs_max)
            step += 1
            self.run_until(self.now_ms + epoch_ms)
        self.epochs_to_settle = step
        if quiet_epochs:
            # The last acknowledgements, and frames that were held back, are still on their way.
            self.run_until(self.now_ms + IN_FLIGHT_EPOCHS * epoch_ms)
            frames = self.frames - self.heartbeats
            self.run_until(self.now_ms + quiet_epochs * epoch_ms)
            self._quiet(self.frames - self.heartbeats - frames, quiet_epochs)
            self.meet_again(epoch_ms)

    def slowest_ms(self) -> int:
        """The time in which everybody has had a chance: an epoch, or a wake plan's period."""
        epochs = [end.epoch_ms for link in self.links for end in link.ends]
        duties = [node.spec.duty for node in self.nodes.values()]
        return max([1000, *epochs, *(duty.period_ms for duty in duties if duty and duty.plan)])

    def _quiet(self, frames: int, epochs: int) -> None:
        plans = any(node.spec.duty and node.spec.duty.plan for node in self.nodes.values())
        if not plans:
            self.oracle.checks += 1
            if frames and not self.oracle.missing:  # whose parent nobody has asks for it for ever
                raise Violation("L2", "world", f"{frames} frames in {epochs} quiet epochs")

    def meet_again(self, epoch_ms: int) -> None:
        """L3: one end of each line greets; who has the same needs few bytes to know it."""
        plans = any(node.spec.duty and node.spec.duty.plan for node in self.nodes.values())
        rekeyed = not any(end.rekeying for link in self.links for end in link.ends)
        # A wake plan tells of itself in every window, and new roots are told on the way.
        if self.oracle.missing or plans or not rekeyed:
            return
        before, most = self.bytes_sent, 0
        for link in self.links:
            end = link.ends[0]
            if end.node.node is not None and end.wire is not None:
                end.link.greet()
                end.node.wake_by(self.now_ms)
            sealed = link.ends[0].transport is not None
            most += IN_SYNC_SEALED_SIZE_MAX if sealed else IN_SYNC_SIZE_MAX
        self.run_until(self.now_ms + IN_FLIGHT_EPOCHS * epoch_ms)
        self.oracle.checks += 1
        if self.bytes_sent - before > most:
            raise Violation("L3", "world", f"{self.bytes_sent - before} bytes, and all have all")

    def _not_settled(self, epochs: int) -> None:
        lost = self.oracle.lost()
        text = ", ".join(f"{id.hex()[:12]} for {name}" for id, name in lost[:3])
        waiting = [
            f"{node.name}->{end.peer.name}:{node.node.outstanding(end.number)}"
            for node in self.nodes.values()
            if node.node is not None
            for end in node.ends
            if end.carrier != CARRIER_STICK and end.owes
        ]
        raise Violation(
            "L1", "world",
            f"after {epochs} clean epochs {len(lost)} deliveries are missing ({text});"
            f" outstanding {waiting}",
        )  # fmt: skip

    def check_end(self) -> None:
        """What is true of whole logs and of the bounds."""
        for node in self.nodes.values():
            if node.node is None:
                self.run_in(node, node.boot)
            self.oracle.log_is_causal(node.name, node.log())
            self.check_bounds(node)
            for end in node.ends:
                self.check_holds(end)

    def check_bounds(self, node: SimNode) -> None:
        """S7 and S13 of a board."""
        spec = node.spec
        if node.database is not None:
            return
        limit = spec.segments * spec.segment_size
        limit += (spec.body_files + 8) * 33_500
        self.oracle.bounded(node.name, "flash bytes", node.files.used, limit)
        names = node.files.names()
        files_max = spec.segments + spec.body_files + 16
        self.oracle.bounded(node.name, "files", len(names), files_max)
        self._check_programs(node)
        self.check_tables(node)

    def check_saves(self, node: SimNode) -> None:
        """S13: who sleeps writes its state once per wake, at most; until faults are over."""
        duty = node.spec.duty
        if self.faults and duty is not None and not duty.plan:
            self.oracle.bounded(node.name, "programs", node.saves, node.wakes + node.boots)

    def _check_programs(self, node: SimNode) -> None:
        """S13: a log has two flash programs per message, and what its node saves.

        A body that comes in pieces, maybe on two ways at once, is flushed every so many bytes.
        """
        view = self.oracle.views[node.name]
        if view.had:
            return
        events = len(view.given) + len(view.deleted) + node.files.erases + node.boots
        events += len(node.groups) + self.oracle.invalid(group.id for group in node.groups)
        limit = PROGRAMS_PER_EVENT * events + node.saves
        limit += node.files.bytes_written // PART_FLUSH_SIZE
        self.oracle.bounded(node.name, "programs", node.files.programs, limit)

    @property
    def digest(self) -> str:
        """A hash over everything that happened."""
        return self._hash.hexdigest()[:32]

    def note(self, what: str, node: str, id: bytes = b"") -> None:
        """Something happened: into the digest, and the trace."""
        self._hash.update(struct.pack("<Q", self.now_ms) + what.encode() + node.encode() + id)
        if self._trace is not None:
            self._trace(f"{self.now_ms / 1000:12.3f} {node:>6} {what} {id.hex()[:12]}")

    def _say(self, what: str, node: str, peer: str, frame: bytes) -> None:
        frame_ids = self.oracle.arrives(peer, node, frame)
        text = ""
        if frame_ids is not None:
            for name in ("acks", "offers", "requests", "messages", "segments"):
                ids = getattr(frame_ids, name)
                if ids:
                    text += f" {name}[{' '.join(id.hex()[:6] for id in ids)}]"
        assert self._trace is not None
        self._trace(
            f"{self.now_ms / 1000:12.3f} {node:>6} {what} {len(frame)} B to {peer}:"
            f" {frame[0]:02x}{text}"
        )
