"""The weights of frequencies in bands of the mel scale, which are constants."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tvm_rammer.frontend.onnx.new_nodes import Nodes
from tvm_rammer.frontend.onnx.operators.operator_node import OperatorNode

_OPERANDS = (
    "number of bands",
    "length of a transform",
    "sample rate",
    "lower edge",
    "upper edge",
)


def mel_weight_matrix(node: OperatorNode, nodes: Nodes) -> tuple[str, ...]:
    """MelWeightMatrix: triangles that begin, have their peak and end at frequencies of a DFT."""
    given = [node.needed_constant(number, what) for number, what in enumerate(_OPERANDS)]
    bands, length, rate, low, high = (value.reshape(())[()] for value in given)
    if bands < 1 or length < 1 or rate < 1:
        raise node.refusal(f"it has {bands} bands of {length} samples at {rate} Hz")
    if min(low, high) < 0:
        raise node.refusal(f"its bands reach from {low} to {high} Hz")
    edges = _edges(int(bands), int(length), int(rate), low, high)
    frequencies = int(length) // 2 + 1
    if max(edges[:-1]) >= frequencies or edges[-1] > frequencies:
        raise node.refusal(
            f"its bands reach to {high} Hz, beyond the {frequencies} frequencies of its transforms"
        )
    kind = node.attributes.get("output_datatype", TensorProto.FLOAT)
    weights = _triangles(edges, frequencies)
    return (nodes.constant(weights, helper.tensor_dtype_to_np_dtype(kind)),)


def _edges(bands: int, length: int, rate: int, low: Any, high: Any) -> np.ndarray:
    """At which frequency each triangle begins, or has its peak if it is the one before.

    As ONNX's reference computes them, in the type of the edges: the last triangle ends before
    the upper one.
    """
    lowest, highest = (2595 * np.log1p(edge / 700) / np.log(10) for edge in (low, high))
    places = np.arange(bands + 2)
    mels = places * ((highest - lowest) / len(places)) + lowest
    hertz = 700 * np.expm1(mels / 2595 * np.log(10))
    return (((length + 1) * hertz) // rate).astype(int)


def _triangles(edges: np.ndarray, frequencies: int) -> np.ndarray:
    """Weights, ``[frequencies, bands]``: 1 at the peaks, also of what has no width."""
    place = np.arange(frequencies)[:, None]
    begin, peak, end = edges[:-2], edges[1:-1], edges[2:]
    rising = (place - begin) / np.maximum(peak - begin, 1)
    falling = (end - place) / np.maximum(end - peak, 1)
    before = np.where((place >= begin) & (place <= peak), rising, 0.0)
    weights = np.where((place >= peak) & (place < end), falling, before)
    return np.where((place == peak) & (begin == peak), 1.0, weights)
