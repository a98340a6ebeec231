"""Convolutions and transposed convolutions of one, two and three dimensions."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tvm_rammer.frontend.torch.operator_call import Converter, OperatorCall, shape_of

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _convolution(
    call: OperatorCall,
    x: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Any:
    dimensions = len(shape_of(weight)) - 2
    without_batch = len(shape_of(x)) == dimensions + 1
    if without_batch:
        x = call.emit(relax.op.expand_dims(x, 0))
    spatial = {"strides": each(stride, dimensions), "padding": each(padding, dimensions)}
    data_layout = _LAYOUTS[dimensions]
    kernel_layout = data_layout.replace("N", "I" if transposed else "O")
    kernel_layout = kernel_layout.replace("C", "O" if transposed else "I")
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    if transposed:
        convolve = getattr(relax.op.nn, f"conv{dimensions}d_transpose")
        extra = each(output_padding, dimensions)
        # TVM takes less than a stride behind the result; more is what zeros of the kernel give.
        beyond = [n if n >= s else 0 for n, s in zip(extra, spatial["strides"], strict=True)]
        weight = _dilated(call, weight, each(dilation, dimensions), beyond)
        spatial["output_padding"] = [n - z for n, z in zip(extra, beyond, strict=True)]
    else:
        convolve = getattr(relax.op.nn, f"conv{dimensions}d")
        spatial["dilation"] = each(dilation, dimensions)
    operands = call.wide(x), call.wide(weight)
    result = call.cast(call.emit(convolve(*operands, groups=groups, **spatial, **layouts)))
    if bias is not None:
        shaped = call.reshape(bias, (1, *shape_of(bias), *[1] * dimensions))
        result = call.emit(relax.op.add(result, shaped))
    return call.emit(relax.op.squeeze(result, [0])) if without_batch else result


def _of_steps_first(call: OperatorCall, x: Any, weight: Any, bias: Any, padding: int) -> Any:
    """A convolution of [steps, batch, channels] by [taps, channels, channels of the result]."""
    data, taps = call.permute(x, [1, 2, 0]), call.permute(weight, [2, 1, 0])
    found = _convolution(call, data, taps, bias, [1], [padding], [1], False, [0], 1)
    return call.permute(found, [2, 0, 1])


def each(values: Any, dimensions: int) -> list[int]:
    """A value for each dimension; PyTorch lets one stand for all."""
    values = list(values) if isinstance(values, list | tuple) else [values]
    return values * dimensions if len(values) == 1 else values


def _dilated(call: OperatorCall, weight: Any, dilation: list[int], behind: list[int]) -> Any:
    """A kernel with zeros between its elements: TVM ignores the dilation of a transposed one.

    Behind its last element there may be fewer zeros than between two.
    """
    for axis, (factor, zeros) in enumerate(zip(dilation, behind, strict=True), start=2):
        if factor == 1:
            continue
        shape = list(shape_of(weight))
        apart = call.reshape(weight, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        widths = [0] * (2 * len(shape) + 2)
        widths[2 * axis + 3] = factor - 1
        padded = call.emit(relax.op.nn.pad(apart, widths))
        merged = call.reshape(padded, (*shape[:axis], shape[axis] * factor, *shape[axis + 1 :]))
        end = shape[axis] * factor - factor + 1 + zeros
        weight = call.emit(relax.op.strided_slice(merged, [axis], [0], [end]))
    return weight


CONVERTERS: dict[str, Converter] = {
    "convolution.default": _convolution,
    "conv_tbc.default": _of_steps_first,
}
