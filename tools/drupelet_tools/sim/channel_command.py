"""`drupelet sim channel`: a channel of many participants, seldom online, as a line or as JSON."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from drupelet_tools.sim.channels import Plan, Result

_MINUTE_MS = 60_000


def register(app: typer.Typer) -> None:
    """Add the command to the `sim` group."""
    app.command()(channel)


def channel(
    participants: Annotated[int, typer.Option(min=2, help="Participants.")] = 100,
    messages: Annotated[int, typer.Option(min=1, help="Messages, each by somebody online.")] = 100,
    online: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Share of the time slots that one is online.")
    ] = 0.1,
    loss: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of frames that one does not get.")
    ] = 0.2,
    size: Annotated[int, typer.Option(min=8, max=600, help="Bytes of content.")] = 100,
    hours: Annotated[
        float, typer.Option(min=0.1, max=10_000, help="Within which messages are published.")
    ] = 4.0,
    kept: Annotated[
        int, typer.Option(min=0, help="Messages that each keeps for repair; 0: all of them.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="The seed.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run one channel of SDS with repair until all logs are complete.

    Latency is from publishing to delivery; bytes are those of frames, each counted once, however
    many hear it; `peak_mb` is the most memory after each tenth of the deliveries, and is told of
    as that is reached. Exit code 1 when logs differ, a message comes twice, or 30 days after the
    last was published do not do.
    """
    from drupelet_tools.sim.channels import Plan, run

    room = max(256, kept // 2 if kept else messages)
    publish_ms = int(hours * 60 * _MINUTE_MS)
    plan = Plan(
        participants, messages, online, loss, seed, size, kept=2 * room, ids=room,
        publish_ms=publish_ms, until_ms=publish_ms + 30 * 24 * 60 * _MINUTE_MS,
    )  # fmt: skip
    result = run(plan, None if as_json else _told)
    row = _row(plan, result)
    if as_json:
        typer.echo(json.dumps(row, indent=2))
    else:
        typer.echo("  ".join(f"{name} {value}" for name, value in row.items()))
    if not row["complete"] or not row["equal"] or row["twice"]:
        raise typer.Exit(1)


def _told(tenth: int, peak_mb: float) -> None:
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
