"""Who can be timed on a model: this project's plans, and the peers at their best.

Each function runs in a process of its own, reads the model and the inputs from files, and returns
two callables: one that runs once, and one that gives the outputs of the last run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_rammer.errors import InputError
from tvm_rammer.testing.fair_timing import Contender

if TYPE_CHECKING:
    from tvm_rammer.transform.options import Form

Prepared = tuple[Callable[[], object], Callable[[], list[np.ndarray]]]


@dataclass(frozen=True)
class Candidate:
    """A contender before it knows its model; ``peer`` tells others' work from this project's."""

    function: Callable[..., Prepared]
    description: str
    peer: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


def get_candidate(name: str) -> Candidate:
    """The candidate of that name; an unknown name raises InputError with the nearest one."""
    if name in CANDIDATES:
        return CANDIDATES[name]
    nearest = get_close_matches(name, CANDIDATES, n=1, cutoff=0.0)[0]
    raise InputError(f"there is no contender {name!r}; did you mean {nearest!r}?")


def contender(name: str, model: Path, inputs: Path, threads: int) -> Contender:
    """The contender of that name on a model file and an ``.npz`` file of inputs."""
    candidate = get_candidate(name)
    files = {"model": str(model), "inputs": str(inputs)}
    return Contender(
        name=name,
        function=f"{__name__}:{candidate.function.__name__}",
        arguments={**files, "threads": threads, **candidate.options},
        # TVM's pool takes half of the hardware threads unless told before it is first used.
        environment={"TVM_NUM_THREADS": str(threads)},
    )


def onnxruntime(model: str, inputs: str, threads: int, parallel: bool = False) -> Prepared:
    """ONNX Runtime, tensors bound; ``parallel`` takes its inter-operator executor."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if parallel:  # threads for the operators' insides as well only get in each other's way
        options.execution_mode = runtime.ExecutionMode.ORT_PARALLEL
        options.inter_op_num_threads = threads
        options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in _arrays(inputs).items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return partial(session.run_with_iobinding, binding), binding.copy_outputs_to_cpu


def openvino(model: str, inputs: str, threads: int) -> Prepared:
    """OpenVINO for latency, in float32, on all threads."""
    runtime = import_module("openvino")
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = runtime.Core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    for name, value in _arrays(inputs).items():
        request.set_tensor(name, runtime.Tensor(value))

    def run() -> None:
        request.start_async()
        request.wait()

    return run, lambda: [request.get_tensor(port).data.copy() for port in compiled.outputs]


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
    values = _arrays(inputs)
    machine.set_input("main", *(tvm.runtime.tensor(values[name]) for name in loaded.input_names))
    return partial(machine.invoke_stateful, "main"), lambda: _flat(machine.get_outputs("main"))


def rammer(model: str, inputs: str, threads: int, policy: str, form: Form = "program") -> Prepared:
    """This project's library under a policy; ``form="per-op"`` launches operator by operator."""
    from tvm_rammer import build

    module = build(model, policy=policy, form=form, num_veus=threads).create()
    for name, value in _arrays(inputs).items():
        module.set_input(name, value)
    count = range(module.get_num_outputs())
    return module.run, lambda: [module.get_output(i).numpy() for i in count]


def _arrays(path: str) -> dict[str, np.ndarray]:
    with np.load(path) as saved:
        return {name: saved[name] for name in saved.files}


def _flat(value: Any) -> list[np.ndarray]:
    return [value.numpy()] if hasattr(value, "numpy") else [item.numpy() for item in value]


def available_threads() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


_rammer = partial(Candidate, rammer, peer=False)

#: Every contender by its name; the most trusted first, the slow stock TVM last.
CANDIDATES: dict[str, Candidate] = {
    "onnxruntime": Candidate(onnxruntime, "ONNX Runtime, all threads"),
    "onnxruntime-1": Candidate(onnxruntime, "ONNX Runtime, 1 thread", options={"threads": 1}),
    "onnxruntime-parallel": Candidate(
        onnxruntime, "ONNX Runtime, parallel executor", options={"parallel": True}
    ),
    "openvino": Candidate(openvino, "OpenVINO, latency hint, float32, all threads"),
    "per-op": _rammer("operator by operator", options={"policy": "sequential", "form": "per-op"}),
    "sequential": _rammer("one program, no co-scheduling", options={"policy": "sequential"}),
    "wavefront": _rammer("one program, wavefront policy", options={"policy": "wavefront"}),
    "tvm": Candidate(stock_tvm, "stock TVM, default pipeline"),
}
