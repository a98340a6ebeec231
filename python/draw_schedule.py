"""Draw a model's sequential and co-scheduled plans, one above the other, as an SVG.

The picture in the README: python python/draw_schedule.py recommender docs/schedule.svg --num-veus 4
"""

from __future__ import annotations

import warnings
from pathlib import Path

import click
from bench.graphs import operator_graphs
from bench.machine_option import described_veus, machine_option

from tvm_rammer.machine.described_machine import DescribedMachine
from tvm_rammer.machine.vdevice import OversubscriptionWarning
from tvm_rammer.options import Options
from tvm_rammer.schedule import CostModel, plan, simulate
from tvm_rammer.testing.models import get_model
from tvm_rammer.view import timeline_svg


@click.command()
@click.argument("model")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--num-veus", default=4, show_default=True, help="vEUs to plan for.")
@click.option("--policy", default="wavefront", show_default=True)
@machine_option
def main(
    model: str, path: Path, num_veus: int, policy: str, described: DescribedMachine | None
) -> None:
    """Draw MODEL of the model zoo into PATH."""
    info = get_model(model)
    # Plans are drawn for more vEUs than this machine may have; nothing runs.
    warnings.simplefilter("ignore", OversubscriptionWarning)
    options = Options(policy, None if described is not None else num_veus, oversubscribe=True)
    vdevice = options.resolve().vdevice
    if described is not None:
        vdevice = described_veus(described, vdevice, num_veus)
    graphs = operator_graphs(info.build(), options, measured=True)
    programs = [plan(graph, vdevice, each) for each in ("sequential", policy) for graph in graphs]
    timelines = [simulate(program, CostModel.of(vdevice)) for program in programs]
    path.write_text(timeline_svg(programs, timelines, f"{info.name} on {num_veus} vEUs"))


if __name__ == "__main__":
    main()
