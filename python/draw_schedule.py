"""Draw a model's sequential and co-scheduled plans, one above the other, as an SVG.

The picture in the README: python python/draw_schedule.py recommender docs/schedule.svg --num-veus 4
"""

from __future__ import annotations

import warnings
from pathlib import Path

import click

import tvm_rammer
from tvm_rammer.backend import vdevice_for
from tvm_rammer.machine.vdevice import OversubscriptionWarning
from tvm_rammer.schedule import CostModel, simulate
from tvm_rammer.testing.models import get_model
from tvm_rammer.view import timeline_svg


@click.command()
@click.argument("model")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--num-veus", default=4, show_default=True, help="vEUs to plan for.")
@click.option("--policy", default="wavefront", show_default=True)
def main(model: str, path: Path, num_veus: int, policy: str) -> None:
    """Draw MODEL of the model zoo into PATH."""
    info = get_model(model)
    # Plans are drawn for more vEUs than this machine may have; nothing runs.
    warnings.simplefilter("ignore", OversubscriptionWarning)
    library = tvm_rammer.build(info.build(), policy=policy, num_veus=num_veus, oversubscribe=True)
    costs = CostModel.of(vdevice_for())
    programs = [
        program
        for planned in (library.replan(policy="sequential"), library)
        for program in planned.programs.values()
    ]
    timelines = [simulate(program, costs) for program in programs]
    path.write_text(timeline_svg(programs, timelines, f"{info.name} on {num_veus} vEUs"))


if __name__ == "__main__":
    main()
