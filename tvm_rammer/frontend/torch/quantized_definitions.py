"""Operators of quantised programs by others that PyTorch has, which the converters know.

PyTorch defines these itself, in Python, but asks the data on the way, which no compiled program
can: whether a range is valid, or what a tensor of one number holds.
"""

from __future__ import annotations

from typing import Any


def quantized_definitions() -> dict[Any, Any]:
    """Definitions by operators, of those that this PyTorch knows."""
    import torch

    operators = torch.ops.quantized_decomposed
    found = {}
    for name, definition in _DEFINITIONS.items():
        packet, _, overload = name.partition(".")
        if hasattr(operators, packet):
            found[getattr(getattr(operators, packet), overload or "default")] = definition
    return found


def _choose(x: Any, least: int, most: int, eps: float, dtype: Any) -> tuple[Any, Any]:
    """Scale and zero point of the range from the smallest to the largest number, and zero."""
    low, high = _range(x.flatten())
    scale = ((high - low) / float(most - least)).float().clamp(min=eps)
    point = least - (low / scale).round().int()
    return scale.double(), point.clamp(least, most).long()


def _choose_symmetric(x: Any, least: int, most: int, eps: float, dtype: Any) -> tuple[Any, Any]:
    """The same of a range with zero in its middle."""
    import torch

    low, high = _range(x.flatten())
    scale = (torch.maximum(-low, high) / (float(most - least) / 2)).float().clamp(min=eps)
    return scale.double(), torch.full_like(scale, 128 * (dtype == torch.uint8), dtype=torch.int64)


def _range(x: Any) -> tuple[Any, Any]:
    """The least and the largest number of each row, or zero."""
    return x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)


def _choose_of_rows(x: Any, dtype: Any) -> tuple[Any, Any]:
    import torch

    scales = x.abs().amax(-1, keepdim=True)
    scales = scales.float() if scales.dtype == torch.float16 else scales
    scales = scales.clamp(min=1e-5) / 127
    return scales, torch.zeros_like(scales)


def _choose_of_rows_asymmetric(x: Any, dtype: Any) -> tuple[Any, Any]:
    import torch

    least, most = -128, 127
    low, high = _range(x)
    scale = ((high - low) / float(most - least)).clamp(min=torch.finfo(torch.float32).eps)
    below, above = low / scale, high / scale
    # The end of the range whose place is the more exact.
    point = torch.where(least + below + (most + above) > 0, least - below, most - above)
    return scale.double(), point.clamp(least, most).round().long()


def _quantize_rows(x: Any, scales: Any, points: Any, least: int, most: int, dtype: Any) -> Any:
    return ((x * (1.0 / scales)) + points).round().clamp(least, most).to(dtype)


def _dequantize_rows(
    x: Any, scales: Any, points: Any, least: int, most: int, dtype: Any, output_dtype: Any
) -> Any:
    return ((x - points) * scales).to(output_dtype)


def _quantize_blocks(
    x: Any, scales: Any, points: Any, least: int, most: int, dtype: Any, group_size: int
) -> Any:
    blocks, scale, point = _in_blocks(x, scales, points, group_size)
    return _quantize_rows(blocks, scale, point, least, most, dtype).reshape(x.shape)


def _dequantize_blocks(
    x: Any,
    scales: Any,
    points: Any,
    least: int,
    most: int,
    dtype: Any,
    group_size: int,
    output_dtype: Any,
) -> Any:
    blocks, scale, point = _in_blocks(x, scales, points, group_size)
    return ((blocks - point) * scale).reshape(x.shape).to(output_dtype)


def _in_blocks(x: Any, scales: Any, points: Any, size: int) -> tuple[Any, Any, Any]:
    """Rows of a block each, and what all of a block have in common."""
    point = 0 if points is None else points.reshape(-1, 1)
    return x.reshape(scales.numel(), -1), scales.reshape(-1, 1), point


def _convert(x: Any, dtype: Any) -> Any:
    return x.to(dtype)


_DEFINITIONS = {
    "choose_qparams.tensor": _choose,
    "choose_qparams_symmetric.tensor": _choose_symmetric,
    "choose_qparams_per_token": _choose_of_rows,
    "choose_qparams_per_token_asymmetric": _choose_of_rows_asymmetric,
    "_choose_qparams_per_token_asymmetric_impl": _choose_of_rows_asymmetric,
    "quantize_per_token": _quantize_rows,
    "dequantize_per_token": _dequantize_rows,
    "quantize_per_channel_group": _quantize_blocks,
    "dequantize_per_channel_group": _dequantize_blocks,
    "convert_element_type.no_fuse": _convert,
}
