"""The plans of a library with the timelines that the cost model predicts for them."""

from __future__ import annotations

from tvm_rammer.backend import vdevice_for
from tvm_rammer.rprogram import RProgram
from tvm_rammer.runtime.description import LibraryDescription
from tvm_rammer.schedule import Timeline, simulate


def simulated(description: LibraryDescription) -> list[tuple[RProgram, Timeline]]:
    """Simulate every plan with the costs of the device that it was made for."""
    backend = description.backend
    costs = backend.costs(vdevice_for(description.target, backend=backend.name))
    return [(program, simulate(program, costs)) for program in description.programs.values()]
