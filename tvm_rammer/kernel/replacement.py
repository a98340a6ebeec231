"""Operators that replace a part of a tensor and leave the rest as it was.

A decoder does that to the keys and values it remembers. Where the result may lie in the tensor's
own memory, only what is replaced has to be written.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from tvm_rammer.kernel.blocks import loads, sole_block
from tvm_rammer.kernel.split import root_nests

#: Attribute of a PrimFunc whose result may lie in the memory of a parameter: its position.
REPLACED = "tvm_rammer.replaced"
#: Mark of a loop that copies, and need not where both ends are the same memory.
UNLESS_SAME = "tvm_rammer.unless_same"


def replaced_parameter(func: tirx.PrimFunc) -> int | None:
    """The parameter that the one result of a PrimFunc is, wherever a condition does not hold.

    Nothing else of it is read: it is kept element by element.

    Returns
    -------
    int or None
        Its position; ``None`` for PrimFuncs of another form.
    """
    block = sole_block(root_nests(func.body)[-1])
    store = block.body if block is not None else None
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Select):
        return None
    kept, params = store.value.false_value, list(func.params)
    if not isinstance(kept, TensorLoad) or kept.source not in params:
        return None
    read = [load.source for load in loads(func.body)]
    once = read.count(kept.source) == 1 and store.buffer not in read
    if not once or not _alike(kept.source, store.buffer) or not _alike_places(kept, store):
        return None
    return params.index(kept.source)


def _alike(one: Any, other: Any) -> bool:
    return list(map(int, one.shape)) == list(map(int, other.shape)) and one.dtype == other.dtype


def _alike_places(load: TensorLoad, store: Any) -> bool:
    return all(a.same_as(b) for a, b in zip(load.indices, store.indices, strict=True))
