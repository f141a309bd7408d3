"""Runs one seed: builds its world, lets its plan happen, heals everything, demands the rest."""

from collections.abc import Callable
from dataclasses import dataclass

from drupelet.base.errors import DrupeletError
from drupelet_host.member.mode_policy import set_mode
from drupelet_tools.sim import resets, views, visits
from drupelet_tools.sim.carriers import SimStick
from drupelet_tools.sim.device import SimNode
from drupelet_tools.sim.faults import Plan, Step
from drupelet_tools.sim.oracle import Violation
from drupelet_tools.sim.world import Link, World

# What our own code raises when it is wrong: in a run each of these is a finding.
CRASHES = (
    AssertionError,
    ArithmeticError,
    AttributeError,
    DrupeletError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
MS_PER_YEAR = 365 * 86_400_000
# A stick goes round so often once faults are over: each way needs two visits, and answers too.
ROUNDS_MAX = 60


@dataclass(slots=True)
class Result:
    """What one seed came to. `violation` is empty when everything held."""

    seed: int
    kind: str = ""
    device_years: float = 0.0
    wakes: int = 0
    published: int = 0
    refused: int = 0
    deliveries: int = 0
    lost: int = 0
    duplicated: int = 0
    power_cuts: int = 0
    invariant_checks: int = 0
    frames: int = 0
    settle_epochs: int = 0
    digest: str = ""
    violation: str = ""
    name: str = ""
    drawn: bool = False  # the seed chose its kind


class Run:
    """One plan in one world; `world` stays for whoever wants to look."""

    def __init__(self, plan: Plan, trace: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.world = world = World(plan.seed, trace, plan.save_ms)
        world.reorder = plan.reorder
        world.look_every = plan.look_every
        for name, spec in plan.nodes.items():
            world.add_node(name, spec)
        self.groups = [
            world.add_group(b"group %d" % number, members, plan.family)
            for number, members in enumerate(plan.groups)
        ]
        self.links = [
            world.add_link(
                link.a,
                link.b,
                link.carrier,
                link.profile,
                link.mode,
                link.epoch_ms,
                link.size_max,
                link.back_epoch_ms,
                link.queue,
                link.sealed,
            )
            for link in plan.links
        ]
        self.sticks = [SimStick() for _ in range(plan.sticks)]
        self.kept: dict[int, SimStick] = {}
        self._recut: dict[str, int] = {}
        self._draw = world.drawer("run")
        world.cut_off = self._after_cut

    def go(self) -> None:
        """Everything; raises Violation."""
        world = self.world
        for step in self.plan.steps:
            if step.at_ms < 0:  # before the first boot
                self._do(step)
                continue
            world.at(step.at_ms, lambda step=step: self._do(step))  # type: ignore[misc]
        world.start()
        world.run_until(self.plan.end_ms)
        if self.sticks:
            self._rounds()
        if self.plan.tight:
            world.calm()
            world.run_until(world.now_ms + self.plan.settle_epochs * 1_000)
        else:
            world.settle(self.plan.settle_epochs)
        world.check_end()

    def _rounds(self) -> None:
        """Carry a sound stick round until everything is everywhere.

        It has room: on a full one, which the others may be, a bundle that does not fit waits until
        another is read and removed, and it may be that none is.
        """
        world = self.world
        world.calm()
        stick = SimStick(1 << 24)
        for number in range(ROUNDS_MAX):
            for name in world.nodes:
                at_ms = world.now_ms + 5_000
                world.node_at(at_ms, name, lambda node: visits.visit(node, stick))
                world.run_until(at_ms)
            if not world.oracle.missing and number > 2:
                return

    # --- steps ---

    def _do(self, step: Step) -> None:
        call: Callable[..., None] = getattr(self, "_do_" + step.kind)
        call(*step.args)

    def _in(self, name: str, call: Callable[[SimNode], object]) -> None:
        node = self.world.nodes[name]
        if node.node is not None:
            self.world.run_in(node, lambda: call(node))

    def _do_publish(self, name: str, group: int, size: int, how: int) -> None:
        node = self.world.nodes[name]
        target = self.groups[group]
        if node.node is None and node.spec.duty is not None and not node.awake:
            # What a board has to say it says when it wakes.
            at_ms = max(node.at_ms, self.world.now_ms) + 1
            self.world.node_at(at_ms, name, lambda node: node.publish(target, size))
            return
        if how == 1:
            self._in(name, lambda node: self._poison(node, size))
        elif how == 2:
            self._in(name, lambda node: node.publish(target, size, self._any_parents(node, group)))
        else:
            self._in(name, lambda node: node.publish(target, size))
        if self._draw(4) == 0:
            self._in(name, lambda node: node.barrier())

    def _poison(self, node: SimNode, size: int) -> None:
        """A message that no judge finds valid, and one that depends on it."""
        if node.spec.judges:
            return
        bad = node.publish(self.groups[0], size, (), True, True)
        if bad is not None:
            node.publish(self.groups[0], size, (bad,), False, True)

    def _any_parents(self, node: SimNode, group: int) -> tuple[bytes, ...]:
        """Up to eight of the newest messages that this client knows and finds valid."""
        oracle = self.world.oracle
        known = oracle.views[node.name].given
        recent = list(oracle.messages)[-24:]
        target = self.groups[group].id
        fitting = [
            id
            for id in recent
            if id in known and oracle.messages[id].group == target
            and not oracle.messages[id].invalid
        ]  # fmt: skip
        count = min(len(fitting), 1 + self._draw(8))
        return tuple(fitting[-count:]) if count else ()

    def _do_delete(self, name: str, bits: int) -> None:
        node = self.world.nodes[name]
        if node.node is None:
            return
        alone = len({end.peer.name for end in node.ends}) == 1
        deletable = self.world.oracle.deletable(name, alone)
        if deletable:
            self._in(name, lambda node: node.delete(deletable[bits % len(deletable)]))

    def _do_rates(self, number: int, there: object, back: object) -> None:
        self.links[number].rates(there, back)  # type: ignore[arg-type]

    def _do_down(self, number: int, until_ms: int) -> None:
        link: Link = self.links[number]
        link.up(False)
        self.world.at(until_ms, lambda: link.up(True))

    def _do_mode(self, number: int, mode: int) -> None:
        for end in self.links[number].ends:
            end.mode = mode
            if end.node.node is not None:
                set_mode(end.link, mode)
                self.world.oracle.heard(end.node.name, end.peer.name)
                end.node.wake_by(self.world.now_ms)

    def _do_view(
        self, number: int, side: int, group: int, visibility: int, until_ms: int
    ) -> None:  # fmt: skip
        end = self.links[number].ends[side]
        views.hide(self.world, end, self.groups[group], visibility)
        self.world.at(until_ms, lambda: views.show(self.world, end, self.groups[group]))

    def _do_wall(self, name: str, jump_ms: int) -> None:
        self.world.nodes[name].wall_ms += jump_ms

    def _do_cut(self, name: str, steps: int, moment: int, again: int) -> None:
        node = self.world.nodes[name]
        if self.world.faults:
            self._recut[name] = again
            node.files.arm(steps, moment, node.draw)

    def _do_plug(self, name: str, *_: int) -> None:
        self.world.pull_plug(name)

    def _after_cut(self, node: SimNode) -> None:
        """Some cuts are followed by another one while the node recovers."""
        again = self._recut.pop(node.name, 0)
        if again and self.world.faults:
            node.files.arm(again, self._draw(3), node.draw)

    def _do_stick(self, stick: int, name: str, pulled: int) -> None:
        self.sticks[stick].pulled_after = pulled
        self._in(name, lambda node: visits.visit(node, self.sticks[stick]))
        self.sticks[stick].pulled_after = -1

    def _do_spoil(self, stick: int, bits: int) -> None:
        self.sticks[stick].spoil(bits)

    def _do_keep(self, stick: int, _: int) -> None:
        self.kept[stick] = self.sticks[stick].copy()

    def _do_old(self, stick: int, _: int) -> None:
        if stick in self.kept:
            self.sticks[stick] = self.kept[stick].copy()

    def _do_wipe(self, name: str) -> None:
        if self.world.faults:
            resets.wipe(self.world, self.world.nodes[name])

    def _do_backup(self, name: str) -> None:
        self._in(name, resets.keep)

    def _do_restore(self, name: str) -> None:
        if self.world.faults:
            resets.restore(self.world, self.world.nodes[name])

    def _do_rotate(self, number: int) -> None:
        resets.rotate(self.world, self.links[number])

    def _do_clone(self, number: int, side: int) -> None:
        resets.clone(self.world, self.links[number].ends[side])

    def result(self) -> Result:
        """The figures as they are now."""
        world = self.world
        boards = len(self.plan.nodes)
        nodes = world.nodes.values()
        return Result(
            self.plan.seed,
            self.plan.kind,
            boards * world.now_ms / MS_PER_YEAR,
            sum(node.wakes for node in nodes),
            sum(node.published for node in nodes),
            sum(node.refused for node in nodes),
            world.oracle.deliveries,
            0 if self.plan.tight else world.oracle.owed(),
            world.oracle.duplicated,
            sum(node.cuts for node in nodes),
            world.oracle.checks,
            world.frames,
            world.epochs_to_settle,
            world.digest,
            drawn=self.plan.drawn,
        )


def run_plan(plan: Plan, trace: Callable[[str], None] | None = None) -> Result:
    """Run a plan to its end, or to the first invariant that does not hold."""
    return attempt(Run(plan, trace))


def attempt(run: Run) -> Result:
    """The same for a run that is already made."""
    violation = name = ""
    try:
        run.go()
    except Violation as found:
        violation, name = str(found), found.name
    except CRASHES as crash:
        name = "crash"
        violation = f"crash: {type(crash).__name__} {crash} at {_place(crash)}"
    result = run.result()
    result.violation, result.name = violation, name
    return result


def _place(crash: BaseException) -> str:
    """File and line where an exception was raised."""
    where = crash.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    if where is None:
        return "?"
    return f"{where.tb_frame.f_code.co_filename.rpartition('/')[2]}:{where.tb_lineno}"


__all__ = ["Result", "Run", "attempt", "run_plan"]
