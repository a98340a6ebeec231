"""Models of recurrent ONNX operators, and ONNX Runtime to run them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, FEATURES, HIDDEN = 4, 2, 5, 6


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.4).astype(np.float32)


def recurrent(
    kind: str,
    *,
    direction: str = "forward",
    bias: bool = True,
    lengths: list[int] | None = None,
    start: bool = True,
    peepholes: bool = False,
    version: int = 17,
    sizes: tuple[int | str, int | str] = (STEPS, BATCH),
    **attributes: Any,
) -> onnx.ModelProto:
    """One operator: input ``x``, of as many steps and sequences, all its results as outputs."""
    gates, directions = GATES[kind], 1 + (direction == "bidirectional")
    state = numbers(directions, BATCH, HIDDEN, seed=4)
    memory = numbers(directions, BATCH, HIDDEN, seed=5)
    batch_first = bool(attributes.get("layout", 0))
    if batch_first:
        state, memory = state.swapaxes(0, 1).copy(), memory.swapaxes(0, 1).copy()
    constants = {
        "W": numbers(directions, gates * HIDDEN, FEATURES, seed=1),
        "R": numbers(directions, gates * HIDDEN, HIDDEN, seed=2),
        "B": numbers(directions, 2 * gates * HIDDEN, seed=3) if bias else None,
        "lengths": np.array(lengths, np.int32) if lengths else None,
        "state": state if start else None,
    }
    outputs = ["all", "last"]
    if kind == "LSTM":
        constants["memory"] = memory if start else None
        constants["P"] = numbers(directions, 3 * HIDDEN, seed=6) if peepholes else None
        outputs.append("last_memory")
    inputs = [name if value is not None else "" for name, value in constants.items()]
    node = helper.make_node(
        kind, ["x", *inputs], outputs, "cell", hidden_size=HIDDEN, direction=direction, **attributes
    )
    given = {name: value for name, value in constants.items() if value is not None}
    shape = (*(sizes[::-1] if batch_first else sizes), FEATURES)
    return model([node], given, shape, outputs, version)


def model(
    nodes: list[onnx.NodeProto],
    constants: dict[str, np.ndarray],
    shape: tuple[int | str, ...],
    outputs: list[str],
    version: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def layers(count: int, direction: str, steps: int | str = STEPS) -> onnx.ModelProto:
    """A stack of LSTMs as PyTorch exports it: input ``x`` [steps, batch, hidden], output ``y``."""
    directions = 1 + (direction == "bidirectional")
    nodes, constants = [], {"axis": np.array([1]), "shape": np.array([0, 0, -1])}
    value, features = "x", HIDDEN
    for layer in range(count):
        constants |= {
            f"W{layer}": numbers(directions, 4 * HIDDEN, features, seed=layer),
            f"R{layer}": numbers(directions, 4 * HIDDEN, HIDDEN, seed=layer + 10),
        }
        made, value = f"all{layer}", "y" if layer == count - 1 else f"joined{layer}"
        inputs = ["x" if layer == 0 else f"joined{layer - 1}", f"W{layer}", f"R{layer}"]
        nodes.append(
            helper.make_node("LSTM", inputs, [made], hidden_size=HIDDEN, direction=direction)
        )
        if directions == 1:
            nodes.append(helper.make_node("Squeeze", [made, "axis"], [value]))
        else:
            turned = f"turned{layer}"
            nodes.append(helper.make_node("Transpose", [made], [turned], perm=[0, 2, 1, 3]))
            nodes.append(helper.make_node("Reshape", [turned, "shape"], [value]))
        features = directions * HIDDEN
    return model(nodes, constants, (steps, BATCH, HIDDEN), ["y"])


def run(proto: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(None, {"x": x})
