"""One node of a small world as a state machine: every step is the real engine's, taken once.

A step (state, action) -> (state, frame) does not depend on the other nodes, so it is remembered:
millions of states of a world are made of a few thousand states of its nodes.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

from drupelet import host_api
from drupelet.base.limits import ID_SIZE, INBOX_OFFERS_MIN, WAIT_MS_MAX
from drupelet.engine.body import INVALID, SHARE, BodyReader, DefaultClient
from drupelet.engine.inbox import ENTRY_SIZE, REQUESTED
from drupelet.engine.members import (
    FAMILY_BSP,
    FAMILY_MVDS,
    INVISIBLE,
    SHARED,
)
from drupelet.engine.state_layout import probed_epochs
from drupelet.link.link import CARRIER_SERIAL, Link
from drupelet.node import Node
from drupelet.store.ports import StorePort
from drupelet.store.states import STATE_DELETED, STATE_DELIVERED, STATE_GONE, STATE_INVALID
from drupelet.wire.registry import family_of
from drupelet_tools.sim.exhaust_probe import EPOCH_MS, NOW_MS, Fields, Probe
from drupelet_tools.sim.exhaust_store import IN_LOG, Content, LedgerStore
from drupelet_tools.sim.exhaust_world import World
from drupelet_tools.sim.rows import broken_rows

FRAME_SIZE = 512
# Kinds of a step.
POLL, HEAR, TICK, PASS, PUBLISH, DELETE, SWITCH, CRASH, HIDE = range(9)
KINDS = ("poll", "hear", "wake", "pass", "publish", "delete", "switch", "crash", "hide")


class Violation(AssertionError):
    """An invariant of anchors S1 to S12 does not hold; `rule` names it."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Local(NamedTuple):
    """All that one node is, its client included."""

    fields: Fields
    content: Content
    before: tuple[Content, ...]
    seen: int  # letters that the client was given since it last lost its memory
    committed: int  # letters that it will never forget to have been given
    gone: int  # letters that are durably deleted or invalid


@dataclass(frozen=True)
class View:
    """What the invariants look at; letters are bits."""

    log: tuple[int, ...]  # in order
    delivered: int  # in the log and not deleted
    known: int  # in the store, in whatever state
    durable: int  # likewise, whatever power cut comes
    buried: int  # deleted or invalid
    held: tuple[int, ...]  # by peer: what it is believed to hold, and is not sent any more
    hidden: int  # by peer, a bit: it shares nothing with us now
    wake_ms: int


class Judge(DefaultClient):
    """A client that finds some letters invalid, by their timestamps."""

    def __init__(self, stamps: set[bytes], mask: int) -> None:
        super().__init__(mask)
        self._stamps = stamps

    def validate(self, reader: BodyReader) -> int:
        """INVALID or SHARE."""
        return INVALID if bytes(reader.timestamp) in self._stamps else SHARE


class Frames:
    """Every frame that was ever sent, by number; 0 is none."""

    def __init__(self) -> None:
        self.content: list[bytes] = [b""]
        self._numbers: dict[bytes, int] = {}

    def number(self, frame: bytes) -> int:
        """The number of a frame."""
        number = self._numbers.get(frame)
        if number is None:
            number = self._numbers[frame] = len(self.content)
            self.content.append(frame)
        return number


class Post:
    """The letters of a world as the engine knows them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.family = family_of(world.profile)
        self.groups = [bytes([0xA0 + at]) * 32 for at in range(len(world.groups))]
        self.ids: list[bytes] = []
        self.numbers: dict[bytes, int] = {}
        node = Node(
            cast("StorePort", LedgerStore()), lambda: 0, 1, len(self.groups), len(world.letters), 1
        )
        numbers = [node.join_id(group, self.family) for group in self.groups]
        for at, letter in enumerate(world.letters):
            handle = self.publish(node, numbers[letter.group], at)
            published = host_api.message(node.store, handle)
            assert published is not None
            self.ids.append(published.id)
            self.numbers[published.id] = at

    def stamp(self, letter: int) -> bytes:
        """Its timestamp."""
        order = "big" if self.family == FAMILY_BSP else "little"
        return (1_000 + letter).to_bytes(8, order)  # type: ignore[arg-type]

    def publish(self, node: Node, group: int, letter: int) -> int:
        """Have its author publish a letter; the code."""
        parents = [self.ids[at] for at in self.world.letters[letter].parents]
        body = bytes([len(parents)]) + b"".join(parents) + b"%d" % letter
        return node.publish(group, body, len(body), self.stamp(letter), NOW_MS)

    def mask(self, content: Content, states: tuple[int, ...] = ()) -> int:
        """The letters of a store that are in one of these states; of none: all that it knows."""
        bits = 0
        for _, row in content[0]:
            if not states or row[3] in states:
                bits |= 1 << self.numbers[row[0]]
        return bits


class Machine:
    """One node of a world; states and frames are numbers."""

    def __init__(self, world: World, index: int, post: Post, frames: Frames) -> None:
        self.world = world
        self.index = index
        self.post = post
        self.frames = frames
        self.peers = world.peers(index)
        self.groups = [at for at, members in enumerate(world.groups) if index in members]
        # Invalid here, with all that depends on it; parents have lower numbers.
        self.condemned = {letter for who, letter in world.invalid if who == index}
        for at, letter in enumerate(world.letters):
            if self.condemned & set(letter.parents):
                self.condemned.add(at)
        self.locals: list[Local] = []
        self.views: list[View] = []
        self._numbers: dict[Local, int] = {}
        self._steps: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._moves: dict[int, list[tuple[int, int, int, int]]] = {}
        self._booted: dict[Content, tuple[Fields, Content, tuple[Content, ...]]] = {}
        self.store = LedgerStore()
        self.node, self.links = self._make(self.store)
        self.probe = Probe(self.node, self.links)
        self.buffer = bytearray(FRAME_SIZE)
        self.now_ms = NOW_MS
        self.at = -1  # the state that the live node is in
        self.steps = 0
        content = self.store.content
        self.first = self._intern(Local(self.probe.take(NOW_MS), content, (), 0, 0, 0))

    def _make(self, store: LedgerStore) -> tuple[Node, list[Link]]:
        """A node that has just booted, and its links."""
        world = self.world
        store.open()
        pool = (world.pool_of_1 if self.index == 1 else 0) or world.pool
        node = Node(
            cast("StorePort", store), lambda: 0, len(self.peers), len(self.groups),
            pool, INBOX_OFFERS_MIN,
        )  # fmt: skip
        stamps = {self.post.stamp(letter) for who, letter in world.invalid if who == self.index}
        mask = 0x1F if self.post.family == FAMILY_MVDS else 0xFF
        self.numbers = {
            at: node.join_id(self.post.groups[at], self.post.family, 0, Judge(stamps, mask))
            for at in self.groups
        }
        names = [node.add_peer(b"peer%d" % peer) for peer in self.peers]
        for name, peer in zip(names, self.peers, strict=True):
            for at in world.shared(self.index, peer):
                node.share(self.numbers[at], name, SHARED)
        node.boot(NOW_MS)
        links = [
            node.link(name, world.profile, CARRIER_SERIAL, EPOCH_MS, world.mode, NOW_MS)
            for name in names
        ]
        return node, links

    # --- states ---

    def _intern(self, local: Local) -> int:
        """The number of a state; a new one is looked at."""
        number = self._numbers.get(local)
        if number is None:
            number = self._numbers[local] = len(self.locals)
            self.locals.append(local)
            self.views.append(self._view(local))
        return number

    def _restore(self, number: int) -> Local:
        local = self.locals[number]
        if self.at != number:
            self.probe.put(local.fields)
            self.store.set_content(local.content, local.before)
            self.at = number
        self.now_ms = NOW_MS
        return local

    def _view(self, local: Local) -> View:
        post = self.post
        content = local.content
        log = tuple(post.numbers[row[0]] for _, row in content[0] if row[3] in IN_LOG)
        durable = local.before[0] if local.before else content
        hidden = 0
        for at, link in enumerate(self.links):
            if not host_api.is_shown(link):
                hidden |= 1 << at
        return View(
            log,
            post.mask(content, (STATE_DELIVERED,)),
            post.mask(content),
            post.mask(durable),
            post.mask(content, (STATE_DELETED, STATE_INVALID)),
            tuple(self._held(link, content) for link in self.links),
            hidden,
            self.node.wake_ms(self.now_ms),
        )

    def _held(self, link: Link, content: Content) -> int:
        """The letters that a peer is taken to hold: they will not be sent to it again."""
        core = self.node.core
        outbox = link.exchange.outbox
        held = 0
        for handle, row in content[0]:
            group = core.members.group_row(row[1])
            is_sent = row[3] == STATE_DELIVERED and link.exchange.sees(group) == SHARED
            is_known = is_sent or outbox.row_of(handle) >= 0
            if outbox.is_source(row[2], handle) or (is_known and core.holds(link.peer, handle)):
                held |= 1 << self.post.numbers[row[0]]
        return held

    # --- steps ---

    def moves(self, number: int) -> list[tuple[int, int, int, int]]:
        """(kind, argument, next state, frame) of all that a node in this state may do."""
        moves = self._moves.get(number)
        if moves is None:
            moves = self._moves[number] = self._find_moves(number)
        return moves

    def _find_moves(self, number: int) -> list[tuple[int, int, int, int]]:
        world = self.world
        local = self.locals[number]
        view = self.views[number]
        wanted = [(POLL, at) for at in range(len(self.links))]
        if 0 < view.wake_ms < WAIT_MS_MAX:
            wanted.append((TICK, 0))
        for at, letter in enumerate(world.letters):
            parents = all(view.delivered >> parent & 1 for parent in letter.parents)
            if letter.author == self.index and not view.known >> at & 1 and parents:
                wanted.append((PUBLISH, at))
        wanted += [
            (DELETE, at) for who, at in world.deletes
            if who == self.index and view.delivered >> at & 1
        ]  # fmt: skip
        if world.switches:
            wanted += [(SWITCH, at) for at in range(len(self.links))]
        if world.hides:
            wanted += [
                (HIDE, self.peers.index(peer)) for who, peer in world.hides if who == self.index
            ]
        if world.faults:
            wanted += [(CRASH, at) for at in range(len(local.before) + 1)]
        moves = []
        for kind, argument in wanted:
            after, frame = self.step(number, kind, argument)
            if frame or after != number:
                moves.append((kind, argument, after, frame))
        return moves

    def step(self, number: int, kind: int, argument: int) -> tuple[int, int]:
        """Take a step; the next state, and the frame that was sent (0: none)."""
        key = (number, kind, argument)
        outcome = self._steps.get(key)
        if outcome is None:
            outcome = self._steps[key] = self._take_step(number, kind, argument)
            self.steps += 1
        return outcome

    def _take_step(self, number: int, kind: int, argument: int) -> tuple[int, int]:
        if kind == CRASH:
            return self._crash(self.locals[number], argument), 0
        local = self._restore(number)
        self.at = -1
        core = self.node.core
        core.malformed = core.refused = 0
        frame = 0
        if kind == POLL:
            frame = self._poll(argument)
        else:
            self._act(kind, argument)
        if core.malformed:
            raise Violation("S7", "a correct peer's frame was found malformed")
        seen, committed = self._consume(local)
        if kind in (TICK, PASS):
            committed = seen
        elif kind == HIDE:
            committed = local.seen  # the engine saves its wake state with it
        repeats = kind == HEAR and not core.refused  # what was refused may come again
        self._look_for_nothing()
        after = self._settle(local, seen, committed)
        if repeats:
            self._check_repeat(after, argument)
        return after, frame

    def _act(self, kind: int, argument: int) -> None:
        node = self.node
        if kind == HEAR:
            at, frame = argument & 3, self.frames.content[argument >> 2]
            self.buffer[: len(frame)] = frame
            code = self.links[at].receive(self.buffer, len(frame), self.now_ms)
            if code != 0:
                raise Violation("S7", f"a correct peer's frame was refused with {code}")
        elif kind in (TICK, PASS):
            if kind == TICK:
                argument = node.wake_ms(self.now_ms)
            if node.save(self.now_ms) != 0:
                raise Violation("S3", "the wake state was not written")
            self.now_ms += argument
        elif kind == PUBLISH:
            group = self.world.letters[argument].group
            self.post.publish(node, self.numbers[group], argument)
        elif kind == DELETE:
            node.delete(self.store.find(self.post.ids[argument], 0))
        elif kind == SWITCH:
            link = self.links[argument]
            link.set_mode(0 if host_api.is_interactive(link) else 1)
        else:
            assert kind == HIDE
            link = self.links[argument]
            hidden = not host_api.is_shown(link)
            peer = host_api.peer_number(link)
            for at in self.world.shared(self.index, self.peers[argument]):
                node.share(self.numbers[at], peer, SHARED if hidden else INVISIBLE)

    def _crash(self, local: Local, reached: int) -> int:
        """A power cut: `reached` of the writes since the last barrier are on flash; and a boot."""
        content = (*local.before, local.content)[reached]
        booted = self._booted.get(content)
        if booted is None:
            store = LedgerStore()
            store.set_content(content)
            store.members = dict(self.store.members)
            node, links = self._make(store)
            booted = Probe(node, links).take(NOW_MS), store.content, store.before
            self._booted[content] = booted
        self.probe.put(booted[0])
        self.store.set_content(booted[1], booted[2])
        self.now_ms = NOW_MS
        self.at = -1
        seen, committed = self._consume(local._replace(seen=local.committed))
        self._look_for_nothing()
        return self._settle(local, seen, committed)

    def _poll(self, at: int) -> int:
        link = self.links[at]
        ages = self._ages(link)
        silence = self._silence(link)
        size = link.poll_into(self.buffer, self.now_ms)
        if not size:
            return 0
        frame = bytes(self.buffer[:size])
        self._check_pace(link, ages, silence)
        self._check_isolation(link, self.peers[at], frame)
        return self.frames.number(frame)

    def _look_for_nothing(self) -> None:
        """A link that has nothing to say finds that out at once: one state less each time."""
        for link in self.links:
            fields = self.probe.take(self.now_ms)
            content, before = self.store.content, self.store.before
            if link.poll_into(self.buffer, self.now_ms):
                self.probe.put(fields)
                self.store.set_content(content, before)
                self.now_ms = NOW_MS

    def _consume(self, local: Local) -> tuple[int, int]:
        """The client takes in every event; what it has seen and what it will never forget."""
        seen = local.seen
        node = self.node
        absent = self.post.mask(self.store.content, (STATE_DELETED, STATE_GONE))
        while node.next_event():
            entered = host_api.message(node.store, node.event_handle)
            assert entered is not None
            letter = self.post.numbers[entered.id]
            if seen >> letter & 1:
                raise Violation("S2", f"letter {letter} was given to its client twice")
            if letter in self.condemned:
                raise Violation("S12", f"invalid letter {letter} was given to its client")
            for parent in self.world.letters[letter].parents:
                if not (seen | absent) >> parent & 1:
                    raise Violation("S1", f"letter {letter} came before its parent {parent}")
            seen |= 1 << letter
            node.done(entered.handle)
        return seen, local.committed

    def _settle(self, before: Local, seen: int, committed: int) -> int:
        """Number the state that the live node is in now, after looking at its tables."""
        store = self.store
        fields = self.probe.take(self.now_ms)
        gone = before.gone | self.post.mask(store.durable(), (STATE_DELETED, STATE_INVALID))
        local = Local(fields, store.content, store.before, seen, committed, gone)
        buried = self.post.mask(local.content, (STATE_DELETED, STATE_INVALID))
        if gone & ~buried:
            raise Violation("S5", "a letter that was deleted came back, or was forgotten")
        self._check_tables()
        number = self._intern(local)
        view = self.views[number]
        if len(set(view.log)) != len(view.log):
            raise Violation("S2", f"the log has a letter twice: {view.log}")
        place = {letter: at for at, letter in enumerate(view.log)}
        for letter in view.log:
            for parent in self.world.letters[letter].parents:
                if place.get(parent, len(place)) > place[letter]:
                    raise Violation("S1", f"the log has letter {letter} before {parent}")
        return number

    # --- invariants of one node ---

    def _check_tables(self) -> None:
        core = self.node.core
        for inbox in core.inboxes:
            for entry in range(inbox.offers_max + 1):
                kind = inbox.kind(entry)
                at = entry * ENTRY_SIZE
                id = bytes(inbox.entries[at : at + ID_SIZE])
                if 0 < kind <= REQUESTED and self.store.find(id, 0):
                    raise Violation("S5", f"asks for letter {self.post.numbers[id]} that it has")
        broken = broken_rows(self.node)
        if broken:
            raise Violation("S10", broken)

    def _ages(self, link: Link) -> dict[int, tuple[int, int]]:
        """Of each open row, by handle: how often its message was sent, how long to wait yet."""
        outbox = link.exchange.outbox
        ages = {}
        for row in range(outbox.count):
            if outbox.is_open(row):
                count = outbox.sends(row)
                wait = 2 - ((link.exchange.epoch - outbox.epoch(row)) & 0xFFFF) if count else 0
                ages[outbox.handles[row]] = count, wait
        return ages

    def _silence(self, link: Link) -> int:
        """How long a peer that was not heard for long is to be left alone yet."""
        pace = link.exchange.pace
        count = pace.probes
        if not count or not pace.is_silent():
            return 0
        interval = min(1 << count, 64)
        if count > 6 and self.post.family == FAMILY_MVDS:
            interval = 8 << (count - 7) % 4  # it falls back from its bound
        return interval - probed_epochs(pace)

    def _check_pace(self, link: Link, before: dict[int, tuple[int, int]], silence: int) -> None:
        """S8: nothing goes out before its time, and what went out has a later one."""
        for handle, (count_after, wait_after) in self._ages(link).items():
            count, wait = before.get(handle, (0, 0))
            if count_after == count:
                continue
            if count_after > count and count and (wait > 0 or silence > 0):
                early = max(wait, silence)
                raise Violation("S8", f"sent {early} epochs too early after {count} sends")
            if count_after and wait_after <= 0:
                raise Violation("S8", "what was sent is due at once")

    def _check_isolation(self, link: Link, peer: int, frame: bytes) -> None:
        """S6: nothing of a group that a peer does not share is in a frame to it."""
        shown = self.world.shared(self.index, peer)
        if not host_api.is_shown(link):
            shown = []
        for at, group in enumerate(self.post.groups):
            if at not in shown and group[:8] in frame:
                raise Violation("S6", f"a frame to {peer} names group {at}")
        for letter, id in enumerate(self.post.ids):
            if self.world.letters[letter].group not in shown and id[:8] in frame:
                raise Violation("S6", f"a frame to {peer} names letter {letter}")

    def _check_repeat(self, after: int, argument: int) -> None:
        """S9: the same frame again changes nothing that counts."""
        first = self.views[after]
        self._restore(after)
        self.at = -1
        frame = self.frames.content[argument >> 2]
        self.buffer[: len(frame)] = frame
        self.links[argument & 3].receive(self.buffer, len(frame), self.now_ms)
        if self.node.next_event():
            raise Violation("S9", "a repeated frame gave its client something")
        local = self.locals[after]
        self.probe.take(self.now_ms)
        content = self.store.content
        again = self._view(local._replace(content=content, before=self.store.before))
        same = (first.log, first.known, first.buried) == (again.log, again.known, again.buried)
        if not same:
            raise Violation("S9", "a repeated frame changed the log")
        for held, held_again in zip(first.held, again.held, strict=True):
            if held & ~held_again:
                raise Violation("S9", "a repeated frame made a holder forgotten")
