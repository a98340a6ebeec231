"""Sequences of tensors keep one name: TVM's importer takes an Identity of one for a tensor."""

from __future__ import annotations

import onnx

from tvm_rammer.frontend.onnx.names import all_nodes, renamed


def without_aliases(graph: onnx.GraphProto) -> None:
    """Let the readers of an Identity read its operand, in place, where there are sequences.

    A result of the graph keeps its Identity.
    """
    if not any("Sequence" in node.op_type for node in all_nodes(graph)):
        return
    results = {value.name for value in graph.output}
    names: dict[str, str] = {}
    kept = []
    for node in graph.node:
        copy = renamed(node, names)
        if copy.op_type == "Identity" and copy.output[0] not in results:
            names[copy.output[0]] = copy.input[0]
        else:
            kept.append(copy)
    del graph.node[:]
    graph.node.extend(kept)
