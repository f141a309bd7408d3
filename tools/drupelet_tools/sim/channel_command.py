"""`drupelet sim channel`: a channel of many participants, seldom online, as a line or as JSON."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from drupelet_host.cli.common import finite

if TYPE_CHECKING:
    from drupelet_tools.sim.channels import Plan, Result

_MINUTE_MS = 60_000
# Up to 64 messages wait for others and 16 are under way, all in the table: less has no room for
# a log beside them.
KEPT_MIN = 128


def _kept(count: int) -> int:
    if 0 < count < KEPT_MIN:
        raise typer.BadParameter(f"at least {KEPT_MIN}, or 0 for all of them")
    return count


Online = Annotated[
    float,
    typer.Option(
        min=0.01, max=1.0, callback=finite, help="Share of the time slots that one is online."
    ),
]
Loss = Annotated[
    float,
    typer.Option(min=0.0, max=0.9, callback=finite, help="Share of frames that one does not get."),
]
Hours = Annotated[
    float,
    typer.Option(
        min=0.1, max=10_000, callback=finite, help="Within which messages are published."
    ),
]
Kept = Annotated[
    int,
    typer.Option(
        min=0, callback=_kept, help="Messages that each keeps for repair; 0: all of them."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the `sim` group."""
    app.command()(channel)


def channel(
    participants: Annotated[int, typer.Option(min=2, help="Participants.")] = 100,
    messages: Annotated[int, typer.Option(min=1, help="Messages, each by somebody online.")] = 100,
    online: Online = 0.1,
    loss: Loss = 0.2,
    size: Annotated[int, typer.Option(min=8, max=600, help="Bytes of content.")] = 100,
    hours: Hours = 4.0,
    kept: Kept = 0,
    seed: Annotated[int, typer.Option(help="The seed.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run one channel of SDS with repair until all logs are complete.

    Latency is from publishing to delivery; bytes are those of frames, each counted once, however
    many hear it; `peak_mb` is the most memory after each tenth of the deliveries, printed when
    that tenth is reached. Exit code 1 when logs differ, a message comes twice, or the logs are not
    complete 30 days after the last message was published.
    """
    from drupelet_tools.sim.channels import Plan, run

    kept = kept or 2 * max(256, messages)
    publish_ms = int(hours * 60 * _MINUTE_MS)
    plan = Plan(
        participants, messages, online, loss, seed, size, kept=kept, ids=kept // 2,
        publish_ms=publish_ms, until_ms=publish_ms + 30 * 24 * 60 * _MINUTE_MS,
    )  # fmt: skip
    result = run(plan, None if as_json else _print_peak)
    row = _row(plan, result)
    if as_json:
        typer.echo(json.dumps(row, indent=2))
    else:
        typer.echo("  ".join(f"{name} {value}" for name, value in row.items()))
    if not row["complete"] or not row["equal"] or row["twice"]:
        raise typer.Exit(1)


def _print_peak(tenth: int, peak_mb: float) -> None:
    typer.echo(f"{tenth * 10:3} % of deliveries: {peak_mb} MB at most")


def _row(plan: "Plan", result: "Result") -> dict[str, object]:
    deliveries = plan.participants * plan.messages
    return {
        "seed": plan.seed,
        "complete": result.done_ms >= 0,
        "equal": result.equal,
        "twice": result.twice,
        "hours": round(result.done_ms / (60 * _MINUTE_MS), 1),
        "frames": result.frames,
        "syncs": result.syncs,
        "repairs": result.repairs,
        "bytes": result.bytes_sent,
        "bytes_per_delivery": round(result.bytes_sent / deliveries),
        "latency_median_min": round(result.percentile_ms(0.5) / _MINUTE_MS, 1),
        "latency_p90_min": round(result.percentile_ms(0.9) / _MINUTE_MS, 1),
        "peak_mb": result.peak_mb,
    }
