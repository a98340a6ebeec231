"""The ONNX file that peers are given: what a user knows about its inputs is in it, as for us."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from tvm_rammer.testing.corpus.entries import Constant


def write_fixed(
    model: Path, inputs: Mapping[str, np.ndarray], constants: Mapping[str, Constant], path: Path
) -> None:
    """Write a copy whose inputs have the given shapes; constants are weights, no inputs any more.

    Shapes of outputs and between operators are left to whoever loads it.
    """
    proto = onnx.load(str(model))
    graph = proto.graph
    kept = []
    for info in graph.input:
        if info.name in constants:
            value = inputs[info.name]
            graph.initializer.append(numpy_helper.from_array(value, info.name))
            continue
        if info.name in inputs:
            shape = info.type.tensor_type.shape
            del shape.dim[:]
            for size in inputs[info.name].shape:
                shape.dim.add().dim_value = size
        kept.append(info)
    del graph.input[:]
    graph.input.extend(kept)
    del graph.value_info[:]
    for info in graph.output:
        for dim in info.type.tensor_type.shape.dim:
            dim.Clear()
    onnx.save(proto, str(path))
