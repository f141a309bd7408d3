"""Many participants, seldom online, over a lossy broadcast: all logs come out equal."""

import json

import pytest
import typer
from typer.testing import CliRunner

from drupelet_tools.sim.channel_command import register
from drupelet_tools.sim.channels import Plan, Result, run

DAY_MS = 86_400_000


def check(plan: Plan) -> Result:
    result = run(plan)
    assert result.done_ms >= 0, "not everybody got everything"
    assert result.content == plan.messages
    assert result.twice == 0, "a message was delivered again"
    assert result.equal and len(result.logs[0]) == len(set(result.logs[0])) == plan.messages
    return result


def test_a_hundred_participants_online_a_tenth_of_the_time() -> None:
    plan = Plan(participants=100, messages=12, online=0.1, loss=0.2, seed=1)
    result = check(plan)
    deliveries = plan.participants * plan.messages
    print(
        f"\n{plan.participants} participants, {plan.messages} messages of {plan.size} B:"
        f" {result.frames:,} frames, {result.bytes_sent / deliveries:.0f} B per delivery,"
        f" median {result.percentile_ms(0.5) / 60_000:.0f} min,"
        f" P90 {result.percentile_ms(0.9) / 60_000:.0f} min"
    )
    assert result.done_ms < 2 * DAY_MS
    assert result.bytes_sent / deliveries < 1500


@pytest.mark.parametrize("seed", range(3))
def test_all_of_a_few_for_several_seeds(seed: int) -> None:
    check(Plan(participants=8, messages=24, online=0.4, loss=0.4, seed=seed, publish_ms=900_000))


def test_a_waiting_room_that_is_smaller_than_the_gap() -> None:
    check(
        Plan(
            participants=4, messages=40, online=0.3, loss=0.2, seed=2, waiting=8, ids=100,
            publish_ms=1_800_000,
        )
    )  # fmt: skip


def test_everybody_online_and_nothing_lost_costs_little() -> None:
    plan = Plan(participants=10, messages=50, online=1.0, loss=0.0, seed=3, publish_ms=3_600_000)
    result = check(plan)
    assert result.repairs == 0
    assert result.percentile_ms(1.0) <= 10
    assert result.bytes_sent < plan.messages * 2500, "sync messages included"


@pytest.mark.parametrize("seed", [3, 5])
def test_who_only_sends_again_says_what_came_again(seed: int) -> None:
    """All have sixteen messages out, so nothing new names what came: sync messages must."""
    plan = Plan(participants=3, messages=200, online=1.0, seed=seed, publish_ms=300_000)
    assert check(plan).syncs


def test_a_seed_replays() -> None:
    plan = Plan(participants=6, messages=10, online=0.5, loss=0.3, seed=5, publish_ms=600_000)
    first, again = run(plan), run(plan)
    assert (first.frames, first.logs, first.latencies_ms) == (
        again.frames, again.logs, again.latencies_ms,
    )  # fmt: skip


def test_the_command() -> None:
    app = typer.Typer()
    register(app)
    words = ["--participants", "4", "--messages", "5", "--online", "0.8", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["complete"] and told["equal"] and not told["twice"]
    assert told["bytes_per_delivery"] > 100
