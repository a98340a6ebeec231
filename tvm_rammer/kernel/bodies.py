"""rTask bodies as functions on numpy arrays, for interpreting a plan and for testing kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, GlobalVar, PrimType

from tvm_rammer.errors import InputError

Body = Callable[[int, int, "list[npt.NDArray[Any]]"], None]


def compile_bodies(
    bodies: Mapping[str, tirx.PrimFunc], target: tvm.target.Target, pipeline: str
) -> dict[str, Body]:
    """Compile rTask bodies by themselves, without a plan.

    Parameters
    ----------
    bodies : mapping of str to PrimFunc
        rTask bodies by rKernel name.
    target : Target
        Of kind ``llvm``; this machine must be able to run its code.
    pipeline : str
        Name of a :func:`~tvm_rammer.kernel.lowering.lowering_passes.lowering`.

    Returns
    -------
    dict of str to Callable
        Called as ``body(start, stop, arrays)`` with one array per pointer: writable, row-major, of
        the dtype, size and strides that the body expects. Such are the arrays of
        :func:`~tvm_rammer.rprogram.interpret_numeric`. They are used in place.
    """
    if not bodies:
        return {}
    module = bodies_module(bodies, target, pipeline)
    return {name: _on_arrays(module[symbol_of(k)]) for k, name in enumerate(bodies)}


def bodies_module(
    bodies: Mapping[str, tirx.PrimFunc], target: tvm.target.Target, pipeline: str
) -> tvm.runtime.Module:
    """A module with a packed function for each body, ``symbol_of`` its number: of the first tile,
    of the one behind the last, and of tensors of bytes."""
    functions: dict[GlobalVar, tirx.PrimFunc] = {}
    for number, (name, body) in enumerate(bodies.items()):
        private = GlobalVar(f"rtask_{number}")
        functions[private] = body
        symbol = GlobalVar(symbol_of(number))
        functions[symbol] = _wrapper(symbol, private, body, f"{name}: an rTask failed")
    return tvm.tirx.build(tvm.IRModule(functions), target, pipeline=pipeline)


def symbol_of(number: int) -> str:
    """The name of a body's packed function."""
    return f"body_{number}"


def exported(symbol: str, params: list[Any], body: Any) -> tirx.PrimFunc:
    """A function that the module exports under its name."""
    func = tirx.PrimFunc(params, body)
    return func.with_attrs({"global_symbol": symbol, "tirx.is_scheduled": True, "s_tir": True})


def _wrapper(
    symbol: GlobalVar, private: GlobalVar, body: tirx.PrimFunc, failure: str
) -> tirx.PrimFunc:
    """A packed function that calls a body on tensors of bytes.

    Bytes, since a pointer is all that a body wants, and numpy hands no bfloat16 over to TVM.
    """
    start, stop = tirx.Var("start", "int32"), tirx.Var("stop", "int32")
    tensors = [
        tirx.decl_buffer(
            (tirx.Var(f"bytes{k}", "int64"),), "uint8", name=f"tensor{k}", data_alignment=1
        )
        for k in range(len(body.params) - 2)
    ]
    arguments = [start, stop, *(tensor.data for tensor in tensors)]
    status = Call(private, arguments, ret_ty=PrimType("int32"))
    # TVM 0.27 names this constructor's first two parameters the wrong way round.
    check = tirx.AssertStmt(status == 0, "RuntimeError", [failure])
    return exported(symbol.name_hint, [start, stop, *tensors], check)


def _on_arrays(function: Any) -> Body:
    def body(start: int, stop: int, arrays: Sequence[npt.NDArray[Any]]) -> None:
        function(start, stop, *(tvm_ffi.from_dlpack(bytes_of(array)) for array in arrays))

    return body


def bytes_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The memory of an array as bytes, without a copy.

    Rows may lie apart: what is between them comes with them.
    """
    if array.size and not _row_major(array):
        raise InputError(
            f"an rTask body cannot run on an array with strides {array.strides}; "
            "pass a row-major one"
        )
    last = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
    count = last // array.itemsize + 1 if array.size else 0
    run = np.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,))
    return run.view(np.uint8)


def _row_major(array: npt.NDArray[Any]) -> bool:
    """Whether a step along an axis is at least as long as all that the axes behind it span."""
    span = array.itemsize
    for extent, stride in reversed(list(zip(array.shape, array.strides, strict=True))):
        if extent > 1 and stride < span:
            return False
        span = extent * max(stride, span)
    return True
