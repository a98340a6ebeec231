"""The seconds that a choice costs by data which move between vEUs: one core shows none of them.

Its neighbours are cut as they are without tuning. A choice whose tiles are cut along another axis
reads what other vEUs have, and writes between what they write: on a product whose columns are
shared out instead of its rows, that takes as long as the product.
"""

from __future__ import annotations

from collections import defaultdict

from tvm_rammer.kernel.nodes import buffer_bytes
from tvm_rammer.kernel.split import split_into_stages
from tvm_rammer.rprogram import RKernel
from tvm_rammer.rprogram.program import CELLS
from tvm_rammer.tuning.task import Cells, Task


def moved_seconds(task: Task, number: int) -> float:
    """What all vEUs together wait for data, beyond what the untuned choice lets them wait.

    Who reads what another one wrote waits for it once; of what is written elsewhere than without
    tuning a cache has to give up lines first, and then a reader waits.

    Parameters
    ----------
    task : Task
        The vEUs of its device share the tiles equally, and a byte takes as long as that says.
    number : int
        Of a choice; 0 and those below cost nothing.
    """
    vdevice = task.vdevice
    if number <= 0 or vdevice.num_veus == 1:
        return 0.0
    usual, mine = (_known_cells(task, each) for each in (0, number))
    moved, nothing = 0.0, (0,) * vdevice.num_veus
    for key, cells in mine.items():
        parameter, mode = key
        strange = sum(
            (here & ~there).bit_count()
            for here, there in zip(cells, usual.get(key, nothing), strict=True)
        )
        nbytes = buffer_bytes(task.func.params[parameter])
        moved += strange / CELLS * nbytes * (2 if mode == "write" else 1)
    return moved * vdevice.memory.transfer_byte


def _known_cells(task: Task, number: int) -> Cells:
    cells = task.known.cells
    if number not in cells:
        cells[number] = _cells(task, number)
    return cells[number]


def _cells(task: Task, number: int) -> Cells:
    """What each vEU touches of the parameters that are no constants."""
    num_veus = task.vdevice.num_veus
    found: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * num_veus)
    for stage in split_into_stages(task.choice(number).emit().func).stages:
        kernel = RKernel("", stage.num_tiles, stage.modes, footprints=stage.footprints)
        ends = [stage.num_tiles * veu // num_veus for veu in range(num_veus + 1)]
        for pointer, (parameter, mode) in enumerate(zip(stage.arguments, stage.modes, strict=True)):
            if parameter < len(task.func.params) and parameter not in task.constants:
                for veu, held in enumerate(found[parameter, mode]):
                    touched = kernel.touched(pointer, ends[veu], ends[veu + 1])
                    found[parameter, mode][veu] = held | touched
    return dict(found)
