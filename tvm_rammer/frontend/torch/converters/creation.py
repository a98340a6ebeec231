"""Tensors made of numbers."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_rammer.frontend.ratios import SizeRatio
from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall


def _filled(call: OperatorCall, _: Any, value: Any, *__: Any) -> Any:
    """``full``, ``full_like``, ``fill``: the number may be a tensor."""
    return call.filled(call.shape, value)


def _empty(call: OperatorCall, *_: Any) -> Any:
    """Any values will do."""
    return call.filled(call.shape, 0)


def _in_steps(call: OperatorCall, start: Any, end: Any, step: Any = 1, *_: Any) -> Any:
    """``arange``; its length is the result's."""
    if all(isinstance(each, int | float) for each in (start, end, step)):
        return _evaluated(call)
    if not isinstance(start, float | SizeRatio) and not isinstance(step, float | SizeRatio):
        return call.cast(call.counted(call.shape[0], start, step))
    number = call.cast(call.counted(call.shape[0]), "float64")
    passed = call.emit(relax.op.multiply(number, call.cast(step, "float64")))
    return call.cast(call.emit(relax.op.add(passed, call.cast(start, "float64"))))


def _identity(call: OperatorCall, *sizes: Any) -> Any:
    height, width = call.shape
    if isinstance(height, int) and isinstance(width, int):
        return _evaluated(call)
    rows = call.reshape(call.counted(height), (height, 1))
    return call.cast(call.emit(relax.op.equal(rows, call.counted(width))))


def _evaluated(call: OperatorCall, *_: Any) -> Any:
    """What depends on no tensor is what PyTorch computes now."""
    value = call.node.target(*call.node.args, **call.node.kwargs)
    # NumPy has no bfloat16.
    known = value.float() if call.dtype == "bfloat16" else value
    return relax.const(known.numpy(), call.dtype)


CONVERTERS: dict[str, Converter] = {
    "full.default": _filled,
    "full_like.default": _filled,
    "fill.Scalar": _filled,
    "fill.Tensor": _filled,
    "empty.memory_format": _empty,
    "empty_like.default": _empty,
    "empty_permuted.default": _empty,
    "empty_strided.default": _empty,
    "arange.start_step": _in_steps,
    "linspace.default": _evaluated,
    "scalar_tensor.default": _evaluated,
    "eye.default": _identity,
    "eye.m": _identity,
    **{
        f"{window}_window.{overload}": _evaluated
        for window in ("bartlett", "blackman", "hamming", "hann", "kaiser")
        for overload in ("default", "periodic")
    },
    "kaiser_window.beta": _evaluated,
    "fft_fftfreq.default": _evaluated,
    "fft_rfftfreq.default": _evaluated,
    "tril_indices.default": _evaluated,
    "triu_indices.default": _evaluated,
}
