"""Black boxes of simulated devices: the same segments that boards write, put into a folder."""

from dataclasses import replace
from pathlib import Path

from drupelet_tools.sim.faults import draw_plan
from drupelet_tools.sim.run import Result, Run, attempt


def run_with_boxes(seed: int, kind: str, folder: Path) -> Result:
    """Run a seed whose devices keep black boxes; `drupelet telemetry` reads the folder."""
    plan = draw_plan(seed, kind)
    plan.nodes = {name: replace(spec, box=True) for name, spec in plan.nodes.items()}
    run = Run(plan)
    result = attempt(run)
    folder.mkdir(parents=True, exist_ok=True)
    for name, node in run.world.nodes.items():
        node.close_box()
        for number, segment in enumerate(node.segments):
            (folder / f"{name}-{number:05}.dbx").write_bytes(segment)
    return result
