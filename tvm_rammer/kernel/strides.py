"""Declare that rows of a PrimFunc's tensors lie apart in memory, before it is scheduled."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx

from tvm_rammer.kernel.nodes import substitute


def with_strides(func: tirx.PrimFunc, strides: Mapping[int, tuple[int, ...]]) -> tirx.PrimFunc:
    """The same function on tensors that are not compact.

    Parameters
    ----------
    func : tirx.PrimFunc
        Not scheduled yet.
    strides : mapping of int to tuple of int
        By the parameter's position, the elements from one index of each axis to the next.
    """
    if not strides:
        return func
    params = list(func.params)
    for position, elements in strides.items():
        old = params[position]
        index = old.shape[0].ty if old.shape else "int64"
        params[position] = tirx.decl_buffer(
            old.shape,
            old.dtype,
            name=old.name,
            strides=[tirx.const(number, index) for number in elements],
        )
    renamed = dict(zip(func.params, params, strict=True))
    body = substitute(func.body, renamed)
    return tirx.PrimFunc(params, body, func.ret_type, attrs=func.attrs)
