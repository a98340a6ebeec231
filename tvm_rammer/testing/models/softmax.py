"""Looks before a final softmax."""

from __future__ import annotations

import onnx


def before_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model which also outputs what its final softmaxes read.

    With random weights a softmax saturates: one class takes everything, and errors before it
    disappear from the comparison. A model without a final softmax comes back as it is.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    outputs = {info.name: info for info in copy.graph.output}
    for node in copy.graph.node:
        if node.op_type in ("Softmax", "LogSoftmax") and node.output[0] in outputs:
            logits = onnx.ValueInfoProto()
            logits.CopyFrom(outputs[node.output[0]])  # a softmax keeps type and shape
            logits.name = node.input[0]
            copy.graph.output.append(logits)
    return copy
