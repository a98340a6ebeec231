"""Who is timed on a GPU: this project's forms, stock TVM and PyTorch, each in its own process.

A run ends when the GPU has. Inputs lie on the device before, outputs stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from tvm_rammer.testing.contenders import Prepared, arrays, of_module
from tvm_rammer.testing.fair_timing import TimedContender


@dataclass(frozen=True)
class GpuContender:
    """A contender before it knows its model.

    Attributes
    ----------
    description : str
    function : str
        Of this module.
    options : dict of str to anything
        More arguments of it.
    """

    description: str
    function: str
    options: dict[str, Any] = field(default_factory=dict)


#: The most trusted first.
GPU_CONTENDERS = {
    "tvm": GpuContender("stock TVM, dlight's schedules", "stock_tvm"),
    "tvm-graphs": GpuContender("stock TVM with CUDA graphs", "stock_tvm", {"graphs": True}),
    "per-op": GpuContender(
        "the same kernels launched one by one",
        "rammer",
        {"form": "per-op", "policy": "sequential"},
    ),
    "wavefront": GpuContender(
        "one launch for each wavefront", "rammer", {"form": "wavefront", "policy": "wavefront"}
    ),
    "persistent": GpuContender("one cooperative launch", "rammer", {"form": "program"}),
    "torch": GpuContender("PyTorch through onnx2torch, eager", "pytorch"),
    "torch-captured": GpuContender(
        "the same, captured in a CUDA graph", "pytorch", {"captured": True}
    ),
    "torch-graphs": GpuContender(
        "PyTorch, torch.compile with CUDA graphs", "pytorch", {"graphs": True}
    ),
}


def gpu_here() -> dict[str, str]:
    """The name and the architecture of the GPU; an error of the command line if there is none."""
    import tvm

    device = tvm.cuda(0)
    if not device.exist:
        raise click.ClickException("no GPU of NVIDIA is here, so nothing can be timed")
    return {
        "name": str(device.device_name),
        "arch": "sm_" + str(device.compute_version).replace(".", ""),
    }


def gpu_contender(name: str, model: Path, inputs: Path, arch: str) -> TimedContender:
    """A contender of :data:`GPU_CONTENDERS` on a model.

    Parameters
    ----------
    name : str
    model, inputs : Path
        An ONNX file, and an ``.npz`` file of its inputs.
    arch : str
        Of the GPU, such as ``"sm_90"``.
    """
    found = GPU_CONTENDERS[name]
    arguments = {"model": str(model), "inputs": str(inputs), "arch": arch, **found.options}
    return TimedContender(name, f"{__name__}:{found.function}", arguments)


def stock_tvm(model: str, inputs: str, arch: str, graphs: bool = False) -> Prepared:
    """Stock TVM with its default pipeline for CUDA."""
    import tvm
    from tvm import relax

    from tvm_rammer.frontend import load_model

    loaded = load_model(model)
    target = tvm.target.Target({"kind": "cuda", "arch": arch}, host="llvm")
    with target, tvm.transform.PassContext(config={"relax.backend.use_cuda_graph": graphs}):
        pipeline = relax.get_default_pipeline(target)
        built = relax.build(loaded.module, target, relax_pipeline=pipeline)
    device = tvm.cuda(0)
    machine = relax.VirtualMachine(built, device)
    values = arrays(inputs)
    given = [tvm.runtime.tensor(values[name], device) for name in loaded.input_names]
    main = machine["main"]
    last: list[Any] = []

    def run() -> None:
        result = main(*given)
        device.sync()
        last[:] = [result] if hasattr(result, "numpy") else list(result)

    return run, lambda: [each.numpy() for each in last]


def rammer(model: str, inputs: str, arch: str, form: Any, policy: str = "auto") -> Prepared:
    """This project's library in one of its forms."""
    import tvm

    import tvm_rammer

    library = tvm_rammer.build(model, {"kind": "cuda", "arch": arch}, policy=policy, form=form)
    device = tvm.cuda(0)
    launch, outputs = of_module(library.create(device), inputs)

    def run() -> None:
        launch()
        device.sync()

    return run, outputs


def pytorch(
    model: str, inputs: str, arch: str, graphs: bool = False, captured: bool = False
) -> Prepared:
    """PyTorch eager, captured, or compiled with CUDA graphs; in float32 as all others."""
    torch, onnx2torch = import_module("torch"), import_module("onnx2torch")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module = onnx2torch.convert(model).eval().cuda()
    call = torch.compile(module, mode="reduce-overhead") if graphs else module
    values = [torch.from_numpy(value).cuda() for value in arrays(inputs).values()]
    return of_torch(call, values, captured)


def of_torch(call: Callable[..., Any], values: Sequence[Any], captured: bool) -> Prepared:
    """A module of PyTorch on a GPU, called on tensors there, or captured in a CUDA graph."""
    torch, pytree = import_module("torch"), import_module("torch.utils._pytree")
    last: list[Any] = []

    def compute() -> None:
        with torch.inference_mode():
            found = pytree.tree_leaves(call(*values))
        last[:] = [value for value in found if torch.is_tensor(value)]

    # It compiles, chooses kernels, and captures its graphs in the first runs: that is set-up.
    for _ in range(4):
        compute()
    torch.cuda.synchronize()
    launch: Callable[[], object] = compute
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            compute()
        launch = graph.replay

    def run() -> None:
        launch()
        torch.cuda.synchronize()

    return run, lambda: [value.cpu().numpy() for value in last]
