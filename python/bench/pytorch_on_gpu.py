"""Networks of PyTorch on a GPU: PyTorch's own ways to run them, and this project's library.

Each is made in the process that runs it, from the same seed. Float32 without TF32; a run ends when
the GPU has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpus.architectures import ARCHITECTURES
from corpus.entries import Architecture
from corpus.export import made

from bench.cuda_contenders import of_torch
from bench.run_packed import Cudart
from tvm_rammer.testing.contenders import Prepared
from tvm_rammer.testing.fair_timing import TimedContender

#: Networks whose operators are small, beside those of the corpus.
_SMALL = (
    Architecture(
        "lstm_8x8x256",
        "torch",
        "sequences",
        "sequence_networks:Lstm",
        {"layers": 8, "width": 256},
        (("randn", 8, 1, 256),),
    ),
    Architecture(
        "experts_16x256",
        "torch",
        "text generation",
        "sequence_networks:SoftExperts",
        {"count": 16, "width": 256},
        (("randn", 8, 256),),
    ),
)
NETWORKS = {each.name: each for each in (*_SMALL, *ARCHITECTURES) if "torch" in each.forms}
#: The most trusted first: function of this module, and its options.
CONTENDERS: dict[str, tuple[str, dict[str, bool]]] = {
    "eager": ("pytorch", {}),
    "eager-graph": ("pytorch", {"captured": True}),
    "compile": ("pytorch", {"compiled": True}),
    "rammer": ("rammer", {}),
    "rammer-graph": ("rammer", {"captured": True}),
}


def network_contender(name: str, network: str, arch: str, folder: Path) -> TimedContender:
    """A contender of :data:`CONTENDERS` on a network of :data:`NETWORKS`.

    The library of ours is looked for in a folder, and made where it is not there.
    """
    function, options = CONTENDERS[name]
    given = {"network": network, "arch": arch, "library": str(library_file(network, folder))}
    return TimedContender(name, f"{__name__}:{function}", given | options)


def library_file(network: str, folder: Path) -> Path:
    """Where a network's library is."""
    return folder / f"{network}.so"


def write_library(network: str, arch: str, path: Path) -> None:
    """Write this project's library of a network."""
    _build(network, arch).export_library(path)


def _build(network: str, arch: str) -> Any:
    """This project's library of what ``torch.export`` says."""
    import torch

    import tvm_rammer

    module, inputs = _network(network)
    with torch.no_grad():
        program = torch.export.export(module, tuple(inputs), strict=False)
    return tvm_rammer.build(program, {"kind": "cuda", "arch": arch})


def pytorch(
    network: str, arch: str, library: str, captured: bool = False, compiled: bool = False
) -> Prepared:
    """PyTorch eager, captured in a CUDA graph, or compiled, which makes graphs of its own."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module, inputs = _network(network)
    call, values = module.cuda(), [value.cuda() for value in inputs]
    if compiled:
        call = torch.compile(call, mode="reduce-overhead")
    return of_torch(call, values, captured)


def rammer(network: str, arch: str, library: str, captured: bool = False) -> Prepared:
    """This project's library, launched or as a CUDA graph."""
    import tvm
    import tvm_ffi

    import tvm_rammer

    made = tvm_rammer.load(library) if Path(library).exists() else _build(network, arch)
    _, inputs = _network(network)
    device = tvm.cuda(0)
    instance = made.create(device)
    for number, value in enumerate(inputs):
        instance.set_input(number, value.numpy())
    for _ in range(4):
        instance.run()
    device.sync()

    def run() -> None:
        instance.run()
        device.sync()

    def replay() -> None:
        graph.launch(stream)
        device.sync(stream)

    if captured:
        stream = device.create_raw_stream()
        with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), stream):
            graph = Cudart().capture(stream, instance.run)
    count = instance.get_num_outputs()
    launch = replay if captured else run
    return launch, lambda: [instance.get_output(k).numpy() for k in range(count)]


def _network(name: str) -> tuple[Any, Sequence[Any]]:
    import torch

    torch.manual_seed(0)
    module, inputs = made(NETWORKS[name])
    return module.eval(), inputs
