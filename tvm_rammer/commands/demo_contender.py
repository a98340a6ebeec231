"""A plan of this project in a process of its own, for the demo's fair clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tvm_rammer.options import Form


def planned(
    model: str, inputs: str, threads: int, policy: str, form: Form, description: str
) -> tuple[Callable[[], object], Callable[[], list[np.ndarray]]]:
    """Compile a model, write what the library says about itself, and make it ready to run.

    Parameters
    ----------
    model, inputs : str
        Files: ONNX, and an ``.npz`` of the inputs.
    threads : int
        vEUs.
    policy, form : str
        See :func:`tvm_rammer.build`.
    description : str
        The file to write.

    Returns
    -------
    run, outputs : callable
        One runs once, the other gives the outputs of the last run.
    """
    from tvm_rammer.runtime.build import build

    library = build(model, policy=policy, form=form, num_veus=threads)
    Path(description).write_text(json.dumps(library.description.content))
    module = library.create()
    with np.load(inputs) as saved:
        for name in saved.files:
            module.set_input(name, saved[name])
    count = range(module.get_num_outputs())
    return module.run, lambda: [module.get_output(number).numpy() for number in count]
