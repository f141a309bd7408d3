"""The simulator: what it replays, what it prints, and its gates in the suite."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet.link.link import BATCH, CARRIER_SERIAL
from drupelet_tools.sim import EACH, SOAK_KINDS
from drupelet_tools.sim import soak as soaking
from drupelet_tools.sim.carriers import Rates, Wire
from drupelet_tools.sim.command import app
from drupelet_tools.sim.cuts import cut_plan, draw_script, run_script
from drupelet_tools.sim.device import Duty, Spec
from drupelet_tools.sim.faults import LinkPlan, Plan, Step, draw_plan
from drupelet_tools.sim.flash import AFTER, BEFORE, TORN, PowerCutError, SimFiles
from drupelet_tools.sim.minimise import command_for, minimise, parse_spans, spans
from drupelet_tools.sim.oracle import Oracle, Violation
from drupelet_tools.sim.run import Run, attempt, run_plan
from drupelet_tools.sim.seeds import run_seed
from drupelet_tools.sim.soak import FIRST_SEED, Turns, soak
from drupelet_tools.sim.world import World
from drupelet_tools.sim.yearly import run_yearly
from drupelet_tools.telemetry.blackbox.decode import read_header
from repeats import few

DAY_MS = 86_400_000
QUARTER_MS = 900_000


def test_five_weeks_at_a_quarter_of_an_hour() -> None:
    """Two boards and a host, long enough for a board's log to be full and make room."""
    result = run_yearly(1, boards=2)
    assert not result.violation, result.violation
    assert result.device_years > 0.3 and result.wakes >= 2 * 37 * 96
    assert result.deliveries > 1_700 and result.invariant_checks > 10_000
    assert result.lost == result.duplicated == 0 and result.power_cuts


@pytest.mark.long
@pytest.mark.parametrize("seeds", [1, 2], ids=["half", "whole"])
def test_a_device_year_at_a_quarter_of_an_hour(seeds: int) -> None:
    """17,520 wakes and 10,000 deliveries in half a year: none is lost, none comes twice."""
    totals = soak(30.0, 1, "yearly", seeds, seeds)
    assert not totals.violations, totals.failures
    assert totals.device_years >= seeds / 2 and totals.wakes >= seeds * 17_520, totals
    assert totals.deliveries >= seeds * 10_000 and totals.invariant_checks > seeds * 10_000
    assert totals.lost == totals.duplicated == 0 and totals.power_cuts


def test_a_seed_replays_to_the_bit() -> None:
    for kind in ("small", "plans"):
        one, again = run_seed(3, kind), run_seed(3, kind)
        assert one == again and one.digest
        assert run_seed(4, kind).digest != one.digest


@pytest.mark.parametrize("kind", ["", "plans"])
def test_the_command_that_is_printed_shows_the_same_world(kind: str) -> None:
    """A kind that the seed chose is another world than the same kind asked for by name."""
    first = run_seed(9, kind)
    words = command_for(first).split()
    named = words[words.index("--kind") + 1] if "--kind" in words else ""
    assert run_seed(int(words[words.index("--seed") + 1]), named).digest == first.digest
    assert bool(named) == bool(kind)


@pytest.mark.parametrize("kind", ["storm", "sticks", "plans", "resets", "channel"])
@pytest.mark.parametrize("seed", few(1, (31, 34, 36)))
def test_worlds_of_every_kind_hold(kind: str, seed: int) -> None:
    result = run_seed(seed, kind)
    assert not result.violation, (seed, result.violation)
    assert result.deliveries and not result.lost


@pytest.mark.parametrize(
    ("kind", "seed"), [("storm", 20261127), ("storm", 1200089), ("small", 7020), ("small", 7790)]
)
def test_what_was_passed_over_comes_and_is_owed_until_it_came(kind: str, seed: int) -> None:
    """In the first it never came; in the others the world was told to be settled before."""
    result = run_seed(seed, kind)
    assert not result.violation and result.deliveries and not result.lost


@pytest.mark.parametrize(
    ("kind", "seed", "only"),
    [
        ("storm", 3004473, None),
        ("views", 3000155, None),
        ("views", 40002312, "0-1,3-5,7-8,11-17,39,51,55-56,86,90-92,95-99"),
        (
            "resets",
            56008484,
            "0-1,3-14,17-22,25-29,32,34,36-37,39-40,42-47,50-57,64-67",
        ),
    ],
)
def test_worlds_in_which_the_judge_was_wrong_hold(kind: str, seed: int, only: str | None) -> None:
    """In the first what is acknowledged has made room, and a new body names it whole; in the
    second nobody is left who could tell that what a message depends on was invalid; in the third a
    peer offers what was deleted, and does not see its group any more; in the fourth a frame has a
    node save between its boot and the first look of its client."""
    result = run_seed(seed, kind, parse_spans(only) if only else None)
    assert not result.violation, result.violation
    assert result.deliveries and not result.lost


def test_what_was_asked_for_while_its_group_was_hidden_is_not_asked_for_when_it_is_held() -> None:
    result = run_seed(4607385, "views")
    assert not result.violation, result.violation
    assert result.deliveries and not result.lost


@pytest.mark.parametrize("seed", [3003010, 4613711])
def test_the_oldest_of_many_long_messages_goes_although_others_are_asked_for(seed: int) -> None:
    """In the second one turn in a dozen is too few for it."""
    result = run_seed(seed, "storm")
    assert not result.violation, result.violation
    assert result.deliveries and not result.lost


def test_a_message_that_was_sent_whole_keeps_no_long_message_back() -> None:
    """It had gone in pieces before, and its peer refuses it until a long one comes."""
    steps = parse_spans("0,2-3,5,7-10,12-14,16-20,22-26,28-30")
    result = run_seed(40002393, "small", steps)
    assert not result.violation, result.violation
    assert result.deliveries and not result.lost


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (50000004, ""),
        (50001506, ""),
        (50000004, "10-20,25-26,37-40,45,52-54"),
        (50000004, "0-4,6,8,11,13-14,18,20-21,27-29,33-34,43,45-47,49,53-57,59-60,62,64,68,71"),
    ],
)
def test_a_long_message_that_was_asked_about_keeps_its_turn(seed: int, steps: str) -> None:
    """The peer is full and takes in the oldest message only, which is long, too."""
    result = run_seed(seed, "storm", parse_spans(steps) if steps else None)
    assert not result.violation, result.violation
    assert result.deliveries and not result.lost


def test_what_only_a_wiped_node_had_is_gone_and_all_else_comes_again() -> None:
    plan = Plan(1, "two", 60_000, 100)
    plan.nodes = {name: Spec() for name in "abc"}
    plan.groups = [["a", "b", "c"]]
    for peer in "ac":
        plan.links.append(LinkPlan(peer, "b", CARRIER_SERIAL, 0, BATCH, 1000, sealed=True))
    for number in range(6):
        plan.steps.append(Step(1_000 + number, "publish", ("abc"[number % 3], 0, 20, 0)))
    plan.steps += [
        Step(19_000, "down", (0, 40_000)),
        Step(20_000, "publish", ("a", 0, 20, 0)),
        Step(30_000, "wipe", ("a",)),
        Step(31_000, "rotate", (1,)),
        Step(45_000, "clone", (1, 0)),
    ]
    run = Run(plan)
    result = attempt(run)
    assert not result.violation, result.violation
    assert run.world.oracle.missing == 3 and not result.lost, "one message, of which nobody knows"
    assert len(run.world.nodes["a"].log()) == 6 and run.world.rotations == run.world.clones == 1


def test_a_book_adds_up_what_soaks_came_to(tmp_path: Path) -> None:
    book = tmp_path / "book"
    arguments = ["soak", "--kind", "small", "--seeds-max", "3", "--book", str(book), "--json"]
    seen = []
    for _ in range(2):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        seen.append(json.loads(done.stdout))
    assert [figures["seeds"] for figures in seen] == [3, 6]
    assert seen[1]["next_seed"] == FIRST_SEED + 6
    assert seen[1]["deliveries"] > seen[0]["deliveries"] > 0
    for wrong, why in ((tmp_path / "none" / "book", "No such file"), (tmp_path, "Is a directory")):
        done = CliRunner().invoke(app, [*arguments[:5], "--book", str(wrong)])
        assert done.exit_code == 2 and why in done.stderr.replace("\n", " "), done.stderr
    book.write_text(book.read_text() + "{}\n")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2 and "line 3 is not of a soak" in done.stderr.replace("\n", " ")


def test_a_soak_of_each_kind_gives_all_of_them_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(EACH)
    seconds = {kind: 1.0 + number for number, kind in enumerate(SOAK_KINDS)}
    for _ in range(2_000):
        kind = turns.take()
        turns.add_time(kind, seconds[kind])
    spent = [each[0] for each in turns.spent.values()]
    assert len(spent) == len(SOAK_KINDS) and max(spent) - min(spent) <= max(seconds.values())
    first = Turns(EACH)
    assert [first.take() for _ in SOAK_KINDS] == list(SOAK_KINDS), "none is done when all began"
    monkeypatch.setattr(soaking, "SOAK_KINDS", ("small", "plans"))
    totals = soak(5.0, 1, EACH, 2, 2)
    assert totals.seeds == 2 and totals.device_years > 0 and not totals.violations


@pytest.mark.parametrize("words", [["run"], ["replay", "1"], ["soak"]])
def test_an_unknown_kind_is_refused(words: list[str]) -> None:
    done = CliRunner().invoke(app, [*words, "--kind", "nonsense"])
    assert done.exit_code == 2 and "no kind nonsense: one of field, " in done.stderr


def test_a_deep_sleeper_is_cut_and_nothing_is_lost() -> None:
    world = World(5, save_ms=QUARTER_MS)
    world.add_node("host", Spec(store="sqlite", pool=16))
    world.add_node("b", Spec(segments=8, duty=Duty(deep=True)))
    group = world.add_group(b"readings", ["host", "b"])
    world.add_link("host", "b", epoch_ms=300_000, back_epoch_ms=QUARTER_MS).rates(Rates(loss=200))
    world.start()
    for number in range(40):
        # What a board has to say it says when it wakes.
        at_ms = number * QUARTER_MS + world.nodes["b"].anchor_ms + QUARTER_MS + 5
        world.node_at(at_ms, "b", lambda node: node.publish(group, 30))
    world.at(10 * QUARTER_MS, lambda: world.pull_plug("b"))
    world.run_until(45 * QUARTER_MS)
    world.settle(100)
    world.check_end()
    assert world.nodes["b"].boots > 30 and world.oracle.deliveries >= 35


@pytest.mark.parametrize(("step", "moment"), [(38, 1), (38, 2), (39, 0)])
def test_a_long_message_that_is_taken_up_again_costs_no_flash_program(
    step: int, moment: int
) -> None:
    result = run_plan(cut_plan(draw_script(4613677), step, moment, 0))
    assert not result.violation, result.violation
    assert result.power_cuts == 1 and result.deliveries and not result.lost


def test_power_cut_plans_of_a_script() -> None:
    result = run_script(2, 5)
    assert result.plans > 20 and not result.failures, result.failures
    assert draw_script(2) == draw_script(2)


def test_what_a_script_violates_uncut_is_told_and_ends_no_soak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def breaks(_world: World, _epoch_ms: int) -> None:
        raise Violation("L3", "world", "too many bytes")

    monkeypatch.setattr(World, "meet_again", breaks)
    result = run_script(2, 10_000)
    told = "drupelet sim cuts --seed 2  # uncut: L3 at world: too many bytes"
    assert result.failures == [told] and result.steps


def test_clients_delete_only_what_no_power_cut_can_take_from_another() -> None:
    """Else it is lost by the will of who deleted it, and not by the node."""
    oracle = Oracle()
    group, id = b"g" * 32, b"i" * 32
    for name in "ab":
        oracle.add_member(name)
    oracle.add_group(group, "ab")
    oracle.published("a", group, id, (), False)
    oracle.given("a", id, False)
    assert not oracle.deletable("a", False), "b lacks it"
    oracle.given("b", id, False)
    assert not oracle.deletable("a", False), "b may lose it"
    oracle.confirmed("b")
    assert oracle.deletable("a", False) == [id]


@pytest.mark.parametrize("questions", [5, 6])
def test_a_parent_may_be_gone_after_six_questions_in_vain(questions: int) -> None:
    """It was too long for a peer that never showed that it reads segments."""
    oracle = Oracle()
    group, parent, child = b"g" * 32, b"p" * 32, b"c" * 32
    for name in "ab":
        oracle.add_member(name)
    oracle.add_group(group, "ab")
    oracle.published("a", group, parent, (), False)
    oracle.published("a", group, child, (parent,), False)

    def leaves(frame: bytes) -> None:
        oracle.left("a", "b", frame, {group}, set(), lambda _: False, lambda _: True, 1_000)

    for _ in range(questions):
        leaves(bytes([0x50]) + parent[:8] + b"\x04\x00\x03\xff" + b"x")
    leaves(b"\x40" + b"\x01\x00\x00\x40" + parent + parent)
    if questions < 6:
        with pytest.raises(Violation, match="S1"):
            oracle.given("b", child, False)
    else:
        oracle.given("b", child, False)


@pytest.mark.parametrize("moment", [BEFORE, TORN, AFTER])
def test_the_flash_is_cut_where_it_is_told(moment: int) -> None:
    files = SimFiles()
    fd = files.open("A", True)
    files.append(fd, b"durable", 0, 7)
    files.flush(fd)
    files.arm(1, moment, lambda n: n // 2)
    with pytest.raises(PowerCutError):
        files.append(fd, b"volatile", 0, 8)
    with pytest.raises(PowerCutError):
        files.read_into(fd, 0, bytearray(1), 0, 1)
    files.power_off(lambda _: 0, False)
    assert files.size("A") == 7 and files.programs == 1
    assert not files.volatile(b"durable")


def test_what_made_room_is_durable_by_the_beginning_of_its_id() -> None:
    """A body that is not flushed may have the whole id, for it depends on the message."""
    id = bytes(range(32))
    files = SimFiles()
    fd = files.open("P0.PRT", True)
    files.append(fd, id, 0, len(id))
    assert files.volatile(id)
    departed = files.open("S0000001.IDS", True)
    files.append(departed, id, 0, 8)
    assert files.volatile(id)
    files.flush(departed)
    assert not files.volatile(id)


def test_frames_keep_their_order_unless_they_are_held_back() -> None:
    wire = Wire(1, False)
    times = [wire.fates(b"x", now)[0][0] for now in range(200)]
    assert times == sorted(times)
    wire.rates = Rates(loss=512, dup=100, reorder=200)
    fates = [wire.fates(b"x", 1000) for _ in range(2000)]
    assert 850 < sum(not fate for fate in fates) < 1150 and wire.lost
    assert any(len(fate) == 2 for fate in fates)


def test_a_failing_plan_is_made_smaller() -> None:
    plan = draw_plan(7, "small")
    needed = {2, 5}

    def fails(some):
        kept = {plan.steps.index(step) for step in some.steps}
        result = run_plan.__globals__["Result"](some.seed)
        result.name = "S1" if needed <= kept else ""
        return result

    assert minimise(plan, "S1", 400, fails) == sorted(needed)
    assert parse_spans(spans([1, 2, 3, 7])) == {1, 2, 3, 7} and parse_spans("none") == set()


def test_an_idle_world_costs_nothing() -> None:
    world = World(1)
    for name in "ab":
        world.add_node(name)
    group = world.add_group(b"g", ["a", "b"])
    world.add_link("a", "b")
    world.start()
    world.node_at(1_000, "a", lambda node: node.publish(group, 10))
    world.run_until(60_000)
    before = world.events
    world.run_until(100 * DAY_MS)
    assert world.events - before < 200 and not world.oracle.missing


def test_the_oracle_sees_what_is_wrong() -> None:
    world = World(1)
    for name in "ab":
        world.add_node(name)
    group = world.add_group(b"g", ["a", "b"])
    world.add_link("a", "b")
    world.start()
    id = world.nodes["a"].publish(group, 10)
    assert id is not None
    world.run_until(10_000)
    with pytest.raises(Violation, match="S2"):
        world.oracle.given("b", id, False)
    world.oracle.messages[id].needs.add("b")
    world.oracle.missing += 1
    with pytest.raises(Violation, match="L1"):
        world.settle(3)


def test_the_commands(tmp_path: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(app, ["run", "--seed", "4", "--kind", "small", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["violation"] == "" and figures["deliveries"] > 5
    done = runner.invoke(app, ["replay", "4", "--kind", "small"])
    assert done.exit_code == 0 and figures["digest"] in done.stdout
    done = runner.invoke(app, ["replay", "4", "--kind", "small", "--json"])
    assert json.loads(done.stdout) == {
        "seed": 4, "kind": "small", "digests": [figures["digest"]] * 2, "same": True,
        "violation": "",
    }  # fmt: skip
    done = runner.invoke(
        app, ["run", "--seed", "4", "--kind", "small", "--trace", "--only", "0-3"]
    )
    assert "frame" in done.stdout
    done = runner.invoke(
        app,
        ["soak", "--minutes", "1", "--seed", "9", "--kind", "small", "--seeds-max", "6", "--json"],
    )
    figures = json.loads(done.stdout)
    assert done.exit_code == 0 and figures["seeds"] == 6
    wanted = {"device_years", "deliveries", "lost", "duplicated", "power_cuts", "invariant_checks"}
    assert wanted <= set(figures) and figures["violations"] == 0
    boxes = tmp_path / "boxes"
    done = runner.invoke(
        app, ["run", "--seed", "4", "--kind", "small", "--black-boxes", str(boxes)]
    )
    assert done.exit_code == 0
    segments = sorted(boxes.glob("*.dbx"))
    assert segments and all(read_header(path.read_bytes()[:32]) for path in segments)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--step", "100000"], "--step: the script has 79 steps"),
        (["--step", "-3"], "-3 is not in the range"),
        (["--step", "1", "--moment", "7"], "7 is not in the range"),
        (["--step", "1", "--moment", "-1"], "-1 is not in the range"),
        (["--step", "1", "--again", "100000"], "--again: the recovery has fewer steps"),
        (["--moment", "1"], "name it with --step"),
    ],
)
def test_a_cut_that_never_happens_is_refused(words: list[str], told: str) -> None:
    done = CliRunner().invoke(app, ["cuts", "--seed", "1", *words])
    assert done.exit_code == 2 and told in done.output
    assert "power_cuts" not in done.output


def test_steps_are_only_data() -> None:
    plan = draw_plan(11, "storm")
    assert plan.without(set(range(len(plan.steps)))).steps == []
    assert all(isinstance(step, Step) for step in plan.steps)
