"""Small worlds to their end: they close, they converge, and planted bugs are found in them."""

import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from drupelet.base.limits import WAIT_MS_MAX
from drupelet.engine import recovery, wake_state
from drupelet.engine.core import Core
from drupelet.engine.exchange import Exchange
from drupelet.engine.graph import Graph
from drupelet.engine.members import SHARED, Members
from drupelet.engine.outbox import _STATE, ROW_SIZE, Outbox
from drupelet.engine.pace import Pace
from drupelet.engine.states import HOLD
from drupelet.link.link import Link
from drupelet.store.states import STATE_DELIVERED, STATE_INVALID
from drupelet_tools.sim.command import app
from drupelet_tools.sim.exhaust import Explorer
from drupelet_tools.sim.exhaust_node import HEAR, POLL, PUBLISH, TICK, Machine, Post
from drupelet_tools.sim.exhaust_probe import NOW_MS, Probe
from drupelet_tools.sim.exhaust_store import LedgerStore
from drupelet_tools.sim.exhaust_world import World, standard

WORLDS = {world.name: world for world in standard()}
SMALL: dict[str, dict[str, int]] = {
    "bsp-batch-one": {"faults": 1, "ticks": 2},
    "bsp-batch-chain": {"ticks": 2},
    "bsp-batch-long": {"ticks": 2},
    "bsp-batch-long-to-few": {"ticks": 1},
    "bsp-batch-deleted": {"ticks": 1},
    "bsp-batch-star": {"ticks": 2},
    "bsp-interactive-chain": {"ticks": 1},
    "bsp-interactive-invalid": {"ticks": 1},
    "bsp-interactive-switch": {"ticks": 1, "faults": 0},
    "bsp-interactive-hidden": {"ticks": 1, "faults": 0},
    "bsp-interactive-ring": {"ticks": 1, "faults": 0},
    "bsp-batch-secret": {"ticks": 1, "faults": 0},
    "mvds-batch-both": {"ticks": 1, "faults": 0},
    "mvds-interactive-long": {"ticks": 1},
    "mvds-interactive-line": {"ticks": 1},
    "compact-batch-one": {"ticks": 0},
    "compact-interactive-chain": {"ticks": 1, "faults": 0},
    "compact-interactive-line": {"ticks": 0},
}


def small(name: str) -> World:
    return replace(WORLDS[name], **SMALL.get(name, {}))


@pytest.mark.parametrize("name", SMALL)
def test_a_small_world_closes(name: str) -> None:
    result = Explorer(small(name)).run()
    assert not result.violation, "\n".join([result.violation, *result.trace])
    assert result.closed and result.ends and result.settled
    assert result.states >= 100 and result.depth > 8
    assert result.transitions > result.states


def test_the_standard_list_has_what_was_asked_for() -> None:
    worlds = standard()
    assert len({world.name for world in worlds}) == len(worlds)
    assert {world.profile for world in worlds} == {0, 1, 4}
    assert {world.nodes for world in worlds} == {2, 3}
    assert {len(world.letters) for world in worlds} == {1, 2, 3}
    assert {world.pool for world in worlds} == {1, 2, 4}
    assert any(world.deletes for world in worlds) and any(world.switches for world in worlds)
    assert all(world.faults for world in worlds if world.nodes == 2)


def test_the_command_prints_what_it_found() -> None:
    done = CliRunner().invoke(app, ["exhaust", "--world", "bsp-batch-star", "--json"])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)
    assert row["closed"] and not row["violation"]
    assert row["states"] > 1000 and row["depth"] > 10 and row["seconds"] > 0
    assert "faults" in row["bounds"]
    assert CliRunner().invoke(app, ["exhaust", "--world", "no such"]).exit_code == 2


def test_a_world_that_is_too_large_is_not_called_closed() -> None:
    result = Explorer(WORLDS["bsp-batch-one"], states_max=500).run()
    assert not result.closed and not result.violation and result.states > 500


# --- planted bugs ---


def leave_early(_link: Link, size: int) -> int:
    return size


def forget(store: LedgerStore, handle: int, *_: object) -> int:
    store._writes()
    del store.rows[handle]
    return 0


def ack_is_for_all(exchange: Exchange, _buf: object, _at: int) -> None:
    outbox = exchange.outbox
    for row in range(outbox.count):
        outbox.set_state(row, outbox.state(row) | HOLD)


def poison_is_harmless(graph: Graph, group: int) -> int:
    state = old_state(graph, group)
    return STATE_DELIVERED if state == STATE_INVALID else state


def sends_once(exchange: Exchange, row: int) -> bool:
    return old_message_due(exchange, row) and not exchange.outbox.sends(row)


def all_was_given(core: Core) -> None:
    old_walk(core)
    for outbox in core.outboxes:
        outbox.cursor = core.graph.newest


def nothing_was_consumed(core: Core, limit: int) -> int:
    consumed = core.consumed
    core.consumed = 0
    size = old_pack(core, limit)
    core.consumed = consumed
    return size


def hears_nothing_twice(exchange: Exchange, id: bytearray) -> bool:
    """A duplicate is dropped without an acknowledgement."""
    return exchange.core.store.find(id, 0) > 0


def state_is_not_counted(outbox: Outbox, row: int, state: int) -> None:
    outbox.rows[row * ROW_SIZE + _STATE] = state


old_state = Graph._state
old_message_due = Exchange.message_due
old_walk = recovery._walk
old_pack = wake_state.pack

BUGS: dict[str, tuple[str, object, str, object, set[str]]] = {
    "ACK before the barrier": ("bsp-batch-one", Link, "_leave", leave_early, {"S4"}),
    "OFFER before the barrier": ("bsp-interactive-ring", Link, "_leave", leave_early, {"S4"}),
    "delete without a tombstone": (
        "bsp-batch-deleted", LedgerStore, "entomb", forget, {"S2", "S4", "S5"},
    ),
    "open rows are not counted": (
        "bsp-batch-chain", Outbox, "set_state", state_is_not_counted, {"S10"},
    ),
    "an ACK counts for every message": (
        "bsp-batch-chain", Exchange, "on_ack", ack_is_for_all, {"S4"},
    ),
    "dependencies are not looked at": (
        "bsp-interactive-chain", Graph, "missing", lambda *_: 0, {"S1"},
    ),
    "an invalid parent counts as delivered": (
        "bsp-interactive-invalid", Graph, "_state", poison_is_harmless, {"S1", "S12"},
    ),
    "no back-off": ("mvds-batch-both", Pace, "row_wait", lambda *_: 0, {"S8"}),
    "never sent again": ("bsp-batch-one", Exchange, "message_due", sends_once, {"L1", "L2"}),
    "everything is shown to everybody": (
        "bsp-batch-secret", Members, "visibility", lambda *_: SHARED, {"S6"},
    ),
    "a boot believes that all was given": (
        "bsp-batch-one", "drupelet.engine.recovery", "_walk", all_was_given, {"S4", "L1"},
    ),
    "the client's cursor is not kept": (
        "bsp-batch-one", wake_state, "pack", nothing_was_consumed, {"S2"},
    ),
    "a duplicate is not acknowledged again": (
        "bsp-batch-chain", Exchange, "reack_if_known", hears_nothing_twice, {"L1", "L2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, place, attribute, value, rules = BUGS[bug]
    if isinstance(place, str):
        monkeypatch.setattr(f"{place}.{attribute}", value)
    else:
        monkeypatch.setattr(place, attribute, value)
    result = Explorer(small(name)).run()
    assert result.violation and not result.closed, f"not found in {result.states} states"
    assert result.violation.split(":")[0] in rules, result.violation
    assert result.trace


# --- the explorer itself ---

# What only long messages and sticks use; no world here has them.
UNUSED = {"long_handle", "long_slot", "logged", "hash", "contact", "numbering"}
# Set anew with every state; a number that has to be a slot, whichever.
OTHERS = {"malformed", "handle", "event_handle", "epoch", "_hint"}


@pytest.mark.parametrize("name", ["bsp-interactive-chain", "mvds-batch-both", "compact-batch-one"])
def test_what_counts_as_scratch_is_scratch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise in every field that is not part of the state changes nothing that is found."""
    world = replace(small(name), ticks=0, faults=0)
    clean = Explorer(world).run()
    put: Callable[[Probe, object], None] = Probe.put
    filled = set()

    def put_and_fill(probe: Probe, fields: object) -> None:
        put(probe, fields)
        for owner, field in probe.scratch:
            value = getattr(owner, field)
            if field in UNUSED | OTHERS:
                continue
            if isinstance(value, bytearray):
                value[:] = b"\x5a" * len(value)
                filled.add(field)
            elif isinstance(value, int):
                setattr(owner, field, type(value)(0x5A))
                filled.add(field)

    monkeypatch.setattr(Probe, "put", put_and_fill)
    noisy = Explorer(world, 3 * clean.states).run()
    assert not noisy.violation, noisy.violation
    assert (noisy.states, noisy.transitions, noisy.frames) == (
        clean.states,
        clean.transitions,
        clean.frames,
    )
    assert len(filled) >= 10


@pytest.mark.parametrize("name", ["bsp-interactive-chain", "mvds-batch-both", "compact-batch-one"])
def test_a_state_that_was_put_back_goes_on_as_if_nothing_had_happened(name: str) -> None:
    """Plain nodes, never taken apart, send the same frames as the remembered steps."""
    rng = random.Random(name)
    explorer = Explorer(small(name))
    for _ in range(4):
        walk(explorer, rng, 60)


class Twin:
    """A node that lives on and on, beside the machine that remembers its steps."""

    def __init__(self, machine: Machine) -> None:
        store = LedgerStore()
        store.members = dict(machine.store.members)
        self.machine = machine
        self.node, self.links = machine._make(store)
        self.now_ms = NOW_MS
        self.state = machine.first
        self.buffer = bytearray(512)

    def hear(self, place: int, number: int, content: bytes) -> None:
        """Take in a frame; both of us."""
        self.buffer[: len(content)] = content
        self.state, _ = self.machine.step(self.state, HEAR, number << 2 | place)
        self.links[place].receive(self.buffer, len(content), self.now_ms)
        self.rest()

    def move(self, kind: int, argument: int, post: Post) -> int:
        """Take another step; both of us. The number of the frame that was sent."""
        self.state, number = self.machine.step(self.state, kind, argument)
        if kind == POLL:
            size = self.links[argument].poll_into(self.buffer, self.now_ms)
            assert bytes(self.buffer[:size]) == self.machine.frames.content[number]
        elif kind == TICK:
            wait_ms = self.node.wake_ms(self.now_ms)
            assert 0 < wait_ms < WAIT_MS_MAX
            self.node.save(self.now_ms)
            self.now_ms += wait_ms
        else:
            group = post.world.letters[argument].group
            post.publish(self.node, self.machine.numbers[group], argument)
        self.rest()
        return number

    def rest(self) -> None:
        """Take events in; a link that has nothing to say finds that out at once."""
        while self.node.next_event():
            self.node.done(self.node.event_handle)
        moves = self.machine.moves(self.state)
        speaks = {move[1] for move in moves if move[0] == POLL and move[3]}
        for place, link in enumerate(self.links):
            assert place in speaks or not link.poll_into(self.buffer, self.now_ms)


def walk(explorer: Explorer, rng: random.Random, count: int) -> None:
    twins = [Twin(machine) for machine in explorer.machines]
    flights: list[tuple[int, int]] = []
    for _ in range(count):
        at = rng.randrange(len(twins))
        twin = twins[at]
        moves = [
            move for move in twin.machine.moves(twin.state) if move[0] in (POLL, TICK, PUBLISH)
        ]
        here = [flight for flight in flights if explorer.ways[flight[0]][2] == at]
        if here and rng.randrange(2):
            way, number = rng.choice(here)
            flights.remove((way, number))
            twin.hear(explorer.places[way], number, explorer.frames.content[number])
        elif moves:
            kind, argument, *_ = rng.choice(moves)
            number = twin.move(kind, argument, explorer.post)
            if number:
                flights += [(explorer.way_of[at, argument], number)] * (1 + (rng.random() < 0.25))
    assert sum(twin.machine.steps for twin in twins) > 20
