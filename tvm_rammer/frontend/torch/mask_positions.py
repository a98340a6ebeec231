"""Masks as indices, as the positions where they hold: as many as PyTorch has named."""

from __future__ import annotations

from typing import Any


def index_by_positions(graph: Any) -> None:
    """Give the indices of a graph's ``index`` nodes that are masks by their positions."""
    import torch

    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.index.Tensor):
        positions: list[Any] = []
        with graph.inserting_before(node):
            for index in node.args[1]:
                if index is None or index.meta["val"].dtype is not torch.bool:
                    positions.append(index)
                else:
                    positions.extend(_positions(graph, node, index))
        node.args = (node.args[0], positions)


def _positions(graph: Any, node: Any, mask: Any) -> list[Any]:
    """The positions of a mask along each axis: their number, which was the node's, is theirs."""
    import torch
    from torch._guards import detect_fake_mode
    from torch.utils._pytree import SequenceKey

    aten = torch.ops.aten
    value, rank = node.meta["val"], mask.meta["val"].ndim
    size = value.shape[_axis_of_positions(node)]
    places = graph.call_function(aten.nonzero.default, (mask,))
    named = node.meta.pop("unbacked_bindings", None)
    places.meta = dict(node.meta)
    if named is not None:
        places.meta["unbacked_bindings"] = {
            name: (path[0], SequenceKey(0)) for name, path in named.items()
        }
    columns = [graph.call_function(aten.select.int, (places, 1, axis)) for axis in range(rank)]
    with detect_fake_mode([value]):
        places.meta["val"] = torch.empty((size, rank), dtype=torch.int64)
        for column in columns:
            column.meta = {**node.meta, "val": torch.empty((size,), dtype=torch.int64)}
    return columns


def _axis_of_positions(node: Any) -> int:
    """The result's axis along which a mask chooses."""
    import torch

    indices = node.args[1]
    given = [place for place, index in enumerate(indices) if index is not None]
    together = given == list(range(given[0], given[0] + len(given)))
    values = [indices[place].meta["val"] for place in given]
    ranks = [1 if value.dtype is torch.bool else value.ndim for value in values]
    return (given[0] if together else 0) + max(ranks) - 1
