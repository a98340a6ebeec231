"""A plan of this project in a process of its own, for the demo's fair clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm_rammer.options import Form
    from tvm_rammer.testing.contenders import Prepared


def planned(
    model: str, inputs: str, threads: int, policy: str, form: Form, description: str
) -> Prepared:
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
    from tvm_rammer.testing.contenders import of_module

    library = build(model, policy=policy, form=form, num_veus=threads)
    Path(description).write_text(json.dumps(library.description.content))
    return of_module(library.create(), inputs)
