"""Every interleaving of a small world: breadth first, each state once, each invariant in each.

A state is what every node is, which frames are under way in each direction, and how much of the
bounds is used. Frames overtake each other. A state from which nothing more may happen within the
bounds of itself, is run on without faults: it has to converge, and then to be quiet.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack

from drupelet.base.limits import WAIT_MS_MAX
from drupelet_tools.sim.exhaust_node import (
    CRASH,
    HEAR,
    HIDE,
    KINDS,
    PASS,
    POLL,
    PUBLISH,
    SWITCH,
    TICK,
    Frames,
    Machine,
    Post,
    Violation,
)
from drupelet_tools.sim.exhaust_world import World

# More states than this are given up; each is 8 bytes and what a set needs around them.
STATES_MAX = 4_000_000
# Rounds without faults after which everything must be everywhere, and after which all is quiet.
ROUNDS_MAX = 400

# What is used of the bounds, and which of them a step counts for.
_TICKS, _FAULTS, _CHANGES = range(3)
_AGAIN, _LOST = 100, 101  # kinds of steps beside those of a node
_FAIR = {POLL, HEAR, TICK, PUBLISH}  # what a node or a line does of itself
_COUNTS = {TICK: _TICKS, CRASH: _FAULTS, SWITCH: _CHANGES, HIDE: _CHANGES}

# Nodes, then per direction a sorted tuple of frames, then what is used of the bounds.
Locals = tuple[int, ...]
Flights = tuple[tuple[int, ...], ...]
State = tuple[Locals, Flights, tuple[int, ...]]
# Kind of step, node, its argument or the node that a frame is from, frame.
Move = tuple[int, int, int, int]
Step = tuple[Move, State]


@dataclass
class Result:
    """What the exploration of one world found."""

    world: World
    states: int = 0
    depth: int = 0
    transitions: int = 0
    node_states: int = 0
    node_steps: int = 0
    frames: int = 0
    ends: int = 0  # states after which nothing happens of itself within the bounds
    settled: int = 0  # of them, those that differ in more than what is used of the bounds
    closed: bool = False
    seconds: float = 0.0  # of one processor
    violation: str = ""
    trace: list[str] = field(default_factory=list)


class Explorer:
    """The states of one world."""

    def __init__(self, world: World, states_max: int = STATES_MAX) -> None:
        self.world = world
        self.states_max = states_max
        self.frames = Frames()
        self.post = Post(world)
        self.machines = [Machine(world, at, self.post, self.frames) for at in range(world.nodes)]
        self.ways = [
            (node, at, peer)
            for node in range(world.nodes)
            for at, peer in enumerate(world.peers(node))
        ]
        # Of each way: the place of its sender among the receiver's links.
        self.places = [world.peers(peer).index(node) for node, _, peer in self.ways]
        self.way_of = {(node, at): way for way, (node, at, _) in enumerate(self.ways)}
        self.limits = (world.ticks, world.faults, world.changes)
        self._settled: set[tuple[Locals, Flights]] = set()
        self._checked: set[Locals] = set()
        self.result = Result(world)

    def first(self) -> State:
        """Nobody has done anything yet."""
        return (
            tuple(machine.first for machine in self.machines),
            ((),) * len(self.ways),
            (0,) * len(self.limits),
        )

    def run(self) -> Result:
        """Visit every state; stop at the first violation, with the steps that lead to it."""
        began = time.process_time()
        result = self.result
        try:
            self._visit()
            result.closed = True
        except Violation as found:
            result.violation = str(found)
        except OverflowError:
            pass
        result.node_states = sum(len(machine.locals) for machine in self.machines)
        result.node_steps = sum(machine.steps for machine in self.machines)
        result.frames = len(self.frames.content) - 1
        result.settled = len(self._settled)
        result.seconds = time.process_time() - began
        return result

    def _visit(self) -> None:
        result = self.result
        seen = {hashed(self.first())}
        level = [self.first()]
        result.states = 1
        while level:
            following = []
            for state in level:
                ended = True
                try:
                    for move, after in self.successors(state):
                        ended = ended and move[0] not in _FAIR
                        result.transitions += 1
                        key = hashed(after)
                        if key not in seen:
                            seen.add(key)
                            following.append(after)
                            self.check(after[0])
                    if ended:
                        result.ends += 1
                        self.settle(state)
                except Violation:
                    result.trace = self._way_to(state)
                    raise
            result.states = len(seen)
            if following:
                result.depth += 1
            if len(seen) > self.states_max:
                raise OverflowError
            level = following

    def _way_to(self, wanted: State) -> list[str]:
        """The steps from the first state to one that was reached."""
        if wanted == self.first():
            return []
        reached_by: dict[State, tuple[State, str]] = {}
        level = [self.first()]
        while level and wanted not in reached_by:
            following = []
            for state in level:
                try:
                    for move, after in self.successors(state):
                        if after not in reached_by:
                            reached_by[after] = (state, describe(move))
                            following.append(after)
                except Violation:
                    continue
            level = following
        steps = []
        while wanted in reached_by:
            wanted, text = reached_by[wanted]
            steps.append(text)
            if wanted == self.first():
                break
        return steps[::-1]

    # --- what may happen ---

    def successors(self, state: State) -> Iterator[Step]:
        """Every next step within the bounds, and the state after it."""
        yield from self._of_nodes(state)
        yield from self._of_frames(state)

    def _of_nodes(self, state: State) -> Iterator[Step]:
        nodes, flights, used = state
        for node, machine in enumerate(self.machines):
            for kind, argument, after, frame in machine.moves(nodes[node]):
                spent = used
                place = _COUNTS.get(kind, -1)
                if place >= 0:
                    if used[place] >= self.limits[place]:
                        continue
                    spent = spend(used, place)
                way = flights
                if frame:
                    at = self.way_of[node, argument]
                    there = flights[at]
                    if len(there) >= self.world.in_flight:
                        continue
                    way = (*flights[:at], tuple(sorted((*there, frame))), *flights[at + 1 :])
                moved = (*nodes[:node], after, *nodes[node + 1 :])
                yield (kind, node, argument, frame), (moved, way, spent)

    def _of_frames(self, state: State) -> Iterator[Step]:
        nodes, flights, used = state
        faulty = used[_FAULTS] < self.limits[_FAULTS]
        spent = spend(used, _FAULTS)
        for way, (node, _, peer) in enumerate(self.ways):
            last = 0
            for place, frame in enumerate(flights[way]):
                if frame == last:
                    continue
                last = frame
                rest = flights[way][:place] + flights[way][place + 1 :]
                fewer = (*flights[:way], rest, *flights[way + 1 :])
                after = self.hear(nodes, way, frame)
                yield (HEAR, peer, node, frame), (after, fewer, used)
                if faulty:
                    yield (_AGAIN, peer, node, frame), (after, flights, spent)
                    yield (_LOST, peer, node, frame), (nodes, fewer, spent)

    def hear(self, nodes: Locals, way: int, frame: int) -> Locals:
        """The nodes after a frame has arrived."""
        peer = self.ways[way][2]
        after, _ = self.machines[peer].step(nodes[peer], HEAR, frame << 2 | self.places[way])
        return (*nodes[:peer], after, *nodes[peer + 1 :])

    # --- invariants of all nodes together ---

    def check(self, nodes: Locals) -> None:
        """S3 and S4: what a peer is taken to hold, it holds, whatever power cut comes."""
        if nodes in self._checked:
            return
        self._checked.add(nodes)
        machines = self.machines
        for node, at, peer in self.ways:
            held = machines[node].views[nodes[node]].held[at]
            missing = held & ~machines[peer].views[nodes[peer]].durable
            if missing:
                raise Violation(
                    "S4", f"{node} will not send {bits(missing)} to {peer}, which may lose it"
                )

    # --- without faults ---

    def settle(self, state: State) -> None:
        """L1 and L2: run on without faults until everything is everywhere, and all is quiet."""
        nodes, flights, _ = state
        if (nodes, flights) in self._settled:
            return
        self._settled.add((nodes, flights))
        done = False
        for _ in range(ROUNDS_MAX):
            nodes, flights = self._round(nodes, flights)
            done = done or self.complete(nodes)
            wait_ms = min(
                machine.views[at].wake_ms for machine, at in zip(self.machines, nodes, strict=True)
            )
            if wait_ms >= WAIT_MS_MAX:
                break
            if done and not self._must_rest():
                break
            nodes = self._all(nodes, PASS, wait_ms)
        else:
            raise Violation("L2" if done else "L1", f"no end after {ROUNDS_MAX} rounds")
        if not self.complete(nodes):
            raise Violation("L1", "all is quiet, and some letter is not everywhere")

    def _must_rest(self) -> bool:
        """False where somebody may rightly ask for ever for what nobody has any more."""
        return not self.world.deletes and not self.world.hides

    def _round(self, nodes: Locals, flights: Flights) -> tuple[Locals, Flights]:
        """Everything arrives, every node says what is due, until nobody has more to say."""
        waiting = [(way, frame) for way, there in enumerate(flights) for frame in there]
        busy = True
        while busy:
            busy = False
            for way, frame in waiting:
                nodes = self.hear(nodes, way, frame)
            waiting = []
            for way, (node, at, _) in enumerate(self.ways):
                after, frame = self.machines[node].step(nodes[node], POLL, at)
                busy = busy or after != nodes[node]
                nodes = (*nodes[:node], after, *nodes[node + 1 :])
                if frame:
                    waiting.append((way, frame))
            for node, machine in enumerate(self.machines):
                for at, letter in enumerate(self.world.letters):
                    known = machine.views[nodes[node]].known >> at & 1
                    if letter.author == node and not known:
                        parents = machine.views[nodes[node]].delivered
                        if all(parents >> parent & 1 for parent in letter.parents):
                            after, _ = machine.step(nodes[node], PUBLISH, at)
                            nodes = (*nodes[:node], after, *nodes[node + 1 :])
                            busy = True
        return nodes, ((),) * len(self.ways)

    def _all(self, nodes: Locals, kind: int, argument: int) -> Locals:
        return tuple(
            machine.step(at, kind, argument)[0]
            for machine, at in zip(self.machines, nodes, strict=True)
        )

    def complete(self, nodes: Locals) -> bool:
        """True when everybody has what a neighbour has in its log and shares with it.

        Not what its parents are missing for, if nobody has those any more.
        """
        world = self.world
        views = [machine.views[at] for machine, at in zip(self.machines, nodes, strict=True)]
        for node, at, peer in self.ways:
            if views[node].hidden >> at & 1 or self._hides(views, peer, node):
                continue
            shared = world.shared(node, peer)
            for letter, wanted in enumerate(world.letters):
                there = views[node].delivered >> letter & 1 and wanted.group in shared
                if there and not views[peer].known >> letter & 1:
                    return False
                if there and not (views[peer].delivered | views[peer].buried) >> letter & 1:
                    for parent in wanted.parents:
                        if any(view.delivered >> parent & 1 for view in views):
                            return False
        return True

    def _hides(self, views: list, node: int, peer: int) -> bool:  # type: ignore[type-arg]
        return bool(views[node].hidden >> self.world.peers(node).index(peer) & 1)


def describe(move: Move) -> str:
    """Describe a step in words."""
    kind, node, argument, frame = move
    if kind in (HEAR, _AGAIN, _LOST):
        what = {HEAR: "arrives", _AGAIN: "arrives and stays under way", _LOST: "is lost"}[kind]
        return f"frame {frame} from {argument} to {node} {what}"
    sent = f" and sends frame {frame}" if frame else ""
    return f"{node}: {KINDS[kind]} {argument}{sent}"


def spend(used: tuple[int, ...], place: int) -> tuple[int, ...]:
    """The used part of the bounds after one more step that counts against them."""
    return (*used[:place], used[place] + 1, *used[place + 1 :])


def hashed(state: State) -> int:
    """64 bits of a state."""
    nodes, flights, used = state
    flat = [*nodes, *used]
    for there in flights:
        flat.append(len(there))
        flat += there
    return int.from_bytes(blake2b(pack(f"<{len(flat)}I", *flat), digest_size=8).digest(), "big")


def bits(mask: int) -> list[int]:
    """The letters of a mask."""
    return [at for at in range(mask.bit_length()) if mask >> at & 1]
