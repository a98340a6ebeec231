"""What stands beside this project's plans on the fair clock: others' work, and how it is called.

A contender's function runs in a process of its own, reads the model and the inputs from files, and
returns two callables: one that runs once, and one that gives the outputs of the last run. A peer
that needs no TVM has a file in ``outside``.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_rammer.testing.fair_timing import TimedContender

if TYPE_CHECKING:
    from tvm_rammer.runtime.graph_module import GraphModule

Prepared = tuple[Callable[[], object], Callable[[], list[np.ndarray]]]


def outside_contender(
    name: str,
    function: Callable[..., object],
    arguments: Mapping[str, Any],
    python: str = sys.executable,
) -> TimedContender:
    """A contender whose function stands in a file that imports nothing of this project."""
    file = Path(inspect.getfile(function))
    path = [str(file.parent), *(sys.path if python == sys.executable else ())]
    environment = {"PYTHONPATH": os.pathsep.join(path)}
    called = f"{file.stem}:{function.__name__}"
    return TimedContender(name, called, arguments, environment, python)


def tvm_contender(
    name: str,
    function: Callable[..., object],
    arguments: Mapping[str, Any],
    threads: int,
    cache: Path | None = None,
) -> TimedContender:
    """A contender that runs on TVM's pool; ``cache`` is the folder of its measurements."""
    # TVM's pool takes half of the hardware threads unless told before it is first used.
    environment = {"TVM_NUM_THREADS": str(threads)}
    if cache:
        environment["TVM_RAMMER_CACHE_DIR"] = str(cache)
    called = f"{function.__module__}:{function.__name__}"
    return TimedContender(name, called, arguments, environment)


def stock_tvm(model: str, inputs: str, threads: int) -> Prepared:
    """Stock TVM with its default pipeline (``TVM_NUM_THREADS`` gives it the threads)."""
    import tvm
    from tvm import relax

    from tvm_rammer.frontend import load_model

    loaded = load_model(model)
    host = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    with host:
        scheduled = relax.get_default_pipeline(host)(loaded.module)
    machine = relax.VirtualMachine(tvm.compile(scheduled, host), tvm.cpu())
    values = arrays(inputs)
    machine.set_input("main", *(tvm.runtime.tensor(values[name]) for name in loaded.input_names))
    return partial(machine.invoke_stateful, "main"), lambda: _flat(machine.get_outputs("main"))


def of_module(module: GraphModule, inputs: str) -> Prepared:
    """An instance of a library on the inputs of a file."""
    for name, value in arrays(inputs).items():
        module.set_input(name, value)
    count = range(module.get_num_outputs())
    return module.run, lambda: [module.get_output(number).numpy() for number in count]


def arrays(path: str | Path) -> dict[str, np.ndarray]:
    """What a ``.npz`` file holds."""
    with np.load(path) as saved:
        return {name: saved[name] for name in saved.files}


def _flat(value: Any) -> list[np.ndarray]:
    return [value.numpy()] if hasattr(value, "numpy") else [item.numpy() for item in value]
