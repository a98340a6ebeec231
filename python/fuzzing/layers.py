"""Random layers, on this machine and on an emulated GPU, beside ONNX Runtime."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import onnx
import tvm
from onnx import TensorProto, numpy_helper

import tvm_rammer
from fuzzing.finds import Find, check_refusal, compare
from fuzzing.peer import Peer
from fuzzing.random_layers import random_layers
from tvm_rammer.errors import RammerError
from tvm_rammer.schedule import POLICIES

_FORMS = ("program", "program", "wavefront", "per-op")
_HELPERS = Path(__file__).parents[2] / "tests" / "helpers"
#: Of a number of the type, and how far a result may be off whose inputs are not.
_ROUNDING = {"float32": (3e-7, 2e-4), "float16": (5e-4, 2e-2)}
#: Times what rounding of the inputs does.
_AMPLIFIED = 30
_peer = Peer()


def run_layers(rng: Random, folder: Path) -> str:
    """Random layers compute what ONNX Runtime computes, in float32 and float16."""
    options = {"num_veus": rng.randint(1, 3), "oversubscribe": True}
    return _run(rng, "llvm", rng.choice(("float32", "float32", "float16")), options)


def run_emulated(rng: Random, folder: Path) -> str:
    """The same on a GPU that is emulated; its tensor cores and warps too."""
    _emulate()
    options = {"num_veus": rng.randint(1, 8)}
    dtype = rng.choice(("float32", "float32", "float16"))
    return _run(rng, {"kind": "cuda", "arch": "sm_90"}, dtype, options)


@cache
def _emulate() -> None:
    sys.path.append(str(_HELPERS))
    import emulated_cuda

    emulated_cuda.install()


def _run(rng: Random, target: object, dtype: str, options: dict[str, object]) -> str:
    seed, layers = rng.randrange(1 << 30), rng.randint(1, 20)
    wide, model = _of_type(random_layers(seed, layers), dtype)
    options |= {"policy": rng.choice((*sorted(POLICIES), "auto")), "form": rng.choice(_FORMS)}
    draw = np.random.default_rng(rng.randrange(1 << 30))
    sizes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    inputs = {name: draw.standard_normal(size).astype(dtype) for name, size in sizes.items()}
    rounding, least = _ROUNDING[dtype]
    exact = {name: x.astype("float32") for name, x in inputs.items()}
    near = {n: x * (1 + rounding * draw.standard_normal(x.shape)) for n, x in exact.items()}
    content = wide.SerializeToString()
    right = _peer.run(content, exact)
    other = _peer.run(content, {name: x.astype("float32") for name, x in near.items()})
    if right is None or other is None:
        return "no reference"
    try:
        library = tvm_rammer.build(model, target, **options)
        instance = library.create(*([tvm.cuda(0)] if isinstance(target, dict) else []))
        instance.run(**{info.name: inputs[info.name] for info in library.description.inputs})
    except RammerError as error:
        if "please report" in str(error):
            raise Find(f"{layers} layers of {seed}, {options}: {error}") from error
        return check_refusal(error)
    for k, (wanted, changed) in enumerate(zip(right, other, strict=True)):
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        tolerance = _AMPLIFIED * float(np.abs(wanted - changed).max(initial=0)) / scale
        name = f"{layers} layers of {seed}, {options}, output {k}"
        found = instance.get_output(k).numpy()
        compare(name, found.astype("float32"), wanted, max(least, tolerance))
    return "right"


def _of_type(model: onnx.ModelProto, dtype: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model whose numbers are rounded to a type, in float32 and in that type."""
    if dtype == "float32":
        return model, model
    rounded, wide = onnx.ModelProto(), onnx.ModelProto()
    rounded.CopyFrom(model)
    for tensor in rounded.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            value = numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    wide.CopyFrom(rounded)
    for tensor in wide.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            value = numpy_helper.to_array(tensor).astype("float32")
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    graph = rounded.graph
    for declared in (*graph.input, *graph.output, *graph.value_info):
        if declared.type.tensor_type.elem_type == TensorProto.FLOAT:
            declared.type.tensor_type.elem_type = TensorProto.FLOAT16
    return wide, rounded
