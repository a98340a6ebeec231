"""One model for each operator of com.microsoft that is rewritten, and for forms of ONNX's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Case:
    """A model of one node, and inputs.

    Attributes
    ----------
    model : onnx.ModelProto
    inputs : mapping of str to numpy.ndarray
    steps : int
        By how many steps integers may differ: ties fall as the last bit of a float32 has it.
    """

    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    steps: int = 0


def case(
    kind: str,
    *operands: Any,
    domain: str = MICROSOFT,
    outputs: int | str = 1,
    constants: tuple[int, ...] = (),
    version: int = 17,
    steps: int = 0,
    **attributes: Any,
) -> Case:
    """A node of these operands (``None`` is left out); those with these numbers are constants."""
    names = ["" if value is None else f"x{number}" for number, value in enumerate(operands)]
    results = [f"y{n}" for n in range(outputs)] if isinstance(outputs, int) else outputs.split(",")
    node = helper.make_node(kind, names, results, "node", domain=domain, **attributes)
    arrays = {name: np.asarray(v) for name, v in zip(names, operands, strict=True) if name}
    fixed = {f"x{number}" for number in constants}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in arrays.items()
            if name not in fixed
        ],
        [helper.make_empty_tensor_value_info(name) for name in results if name],
        [numpy_helper.from_array(arrays[name], name) for name in arrays if name in fixed],
    )
    opsets = [helper.make_opsetid("", version), helper.make_opsetid(MICROSOFT, 1)]
    opsets.append(helper.make_opsetid("ai.onnx.ml", 3))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return Case(model, {n: a for n, a in arrays.items() if n not in fixed}, steps)


def _floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + len(shape)).normal(size=shape).astype(np.float32)


def _bytes(*shape: int, dtype: Any = np.uint8, seed: int = 0) -> np.ndarray:
    """All bytes; half of the signed ones, whose products with others ONNX Runtime adds up in pairs
    in 16 bits on CPUs without VNNI."""
    limits = np.iinfo(dtype)
    low, high = (limits.min // 2, limits.max // 2) if limits.min else (0, limits.max)
    generator = np.random.default_rng(seed + sum(shape))
    return generator.integers(low, high + 1, shape).astype(dtype)


def _f(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _u(value: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.array(value, dtype)


def _qlinear_conv(dtype: Any, w_dtype: Any, *, per_channel: bool, **attributes: Any) -> Case:
    scales = np.abs(_floats(6)) * 0.01 + 0.001 if per_channel else _f(0.02)
    zeros = np.zeros(6, w_dtype) if per_channel else _u(3, w_dtype)
    return case(
        "QLinearConv",
        _bytes(2, 4, 9, 8, dtype=dtype),
        _f(0.05),
        _u(7, dtype),
        _bytes(6, 4 // attributes.get("group", 1), 3, 3, dtype=w_dtype),
        scales,
        zeros,
        _f(0.5),
        _u(11, dtype),
        np.arange(-300, 300, 100).astype(np.int32),
        domain="",
        constants=(1, 2, 3, 4, 5, 6, 7, 8),
        **attributes,
    )


def _nbits(
    bits: int, block: int, summed: int, *, columns: int = 10, points: Any = None, bias: bool = False
) -> Case:
    blocks = -(-summed // block)
    zeros = None
    if points is np.uint8:
        zeros = _bytes(columns, -(-blocks * bits // 8), seed=1)
    elif points is not None:
        zeros = _floats(columns, blocks) + 8
    return case(
        "MatMulNBits",
        _floats(2, 3, summed),
        _bytes(columns, blocks, block * bits // 8),
        np.abs(_floats(columns, blocks)),
        zeros,
        None,
        *([_floats(columns)] if bias else []),
        constants=(1, 2, 3, 5),
        K=summed,
        N=columns,
        bits=bits,
        block_size=block,
    )


def _gathered(bits: int, *, points: bool = False) -> Case:
    return case(
        "GatherBlockQuantized",
        _bytes(20, 64 * bits // 8),
        np.array([[0, 19, -1], [7, 7, 3]], np.int64),
        np.abs(_floats(20, 4)),
        *([_bytes(20, 2 * bits // 4, seed=1)] if points else []),
        constants=(0, 2, 3),
        bits=bits,
        block_size=16,
    )


def _pooled(kind: str, x: np.ndarray, **attributes: Any) -> Case:
    return case(kind, x, _f(0.03), _u(100), _f(0.02), _u(90), steps=1, **attributes)


def _two(kind: str) -> Case:
    a, b = _bytes(3, 4, 5), _bytes(4, 5, seed=1)
    return case(kind, a, _f(0.03), _u(100), b, _f(0.05), _u(140), _f(0.07), _u(60), steps=1)


def _attention(mask: np.ndarray | None = None, **attributes: Any) -> Case:
    return case(
        "Attention",
        _floats(2, 5, 8),
        _floats(8, 24),
        _floats(24),
        mask,
        num_heads=2,
        constants=(1, 2),
        **attributes,
    )


def _grouped(past: int, total: int, lengths: list[int], **attributes: Any) -> Case:
    batch, length, heads, groups, size = len(lengths), 3, 4, 2, 16
    if past and total > 0:
        length = 1
    rotary = attributes.get("do_rotary", 0)
    angles = _floats(32, size // 2)
    return case(
        "GroupQueryAttention",
        _floats(batch, length, heads * size),
        _floats(batch, length, groups * size, seed=1),
        _floats(batch, length, groups * size, seed=2),
        _floats(batch, groups, past, size) if past else None,
        _floats(batch, groups, past, size, seed=3) if past else None,
        np.array(lengths, np.int32),
        np.array(total, np.int32),
        np.cos(angles) if rotary else None,
        np.sin(angles) if rotary else None,
        num_heads=heads,
        kv_num_heads=groups,
        constants=(6,),
        outputs=3,
        **attributes,
    )


def _quantized_lstm(batch: int, *, bidirectional: bool, per_channel: bool) -> Case:
    directions, features, hidden, steps = 1 + bidirectional, 5, 6, 4
    scales = (directions, 4 * hidden) if per_channel else (directions,)
    return case(
        "DynamicQuantizeLSTM",
        _floats(steps, batch, features),
        _bytes(directions, features, 4 * hidden, dtype=np.int8),
        _bytes(directions, hidden, 4 * hidden, dtype=np.int8, seed=1),
        _floats(directions, 8 * hidden) * np.float32(0.1),
        None,
        _floats(directions, batch, hidden, seed=1),
        _floats(directions, batch, hidden, seed=2),
        None,
        np.full(scales, 0.004, np.float32) + np.abs(_floats(*scales)) * np.float32(0.001),
        np.zeros(scales, np.int8),
        np.full(scales, 0.004, np.float32),
        np.zeros(scales, np.int8),
        hidden_size=hidden,
        direction="bidirectional" if bidirectional else "forward",
        constants=(1, 2, 3, 8, 9, 10, 11),
        outputs=3,
    )


_X = _floats(2, 3, 8)
_LENGTHS = np.array([3, 5], np.int32)
_RAW = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32)


#: By what they show.
def experts(rows: int, count: int, *, fused: int = 1, **attributes: Any) -> Case:
    """A mixture of eight experts, whose weights are constants."""
    operands = [
        _floats(rows, 16),
        _floats(rows, 8),
        _floats(8, 24 * fused, 16),
        _floats(8, 24 * fused),
        _floats(8, 16, 24),
        _floats(8, 16),
    ]
    return case("MoE", *operands, constants=(2, 3, 4, 5), k=count, **attributes)


CASES: dict[str, Callable[[], Case]] = {
    # Integers.
    "ConvInteger": lambda: case(
        "ConvInteger",
        _bytes(1, 3, 7, 7),
        _bytes(4, 3, 3, 3),
        _u(9),
        _u(200),
        domain="",
        pads=[1, 0, 1, 2],
        strides=[2, 1],
    ),
    "ConvInteger in groups": lambda: case(
        "ConvInteger", _bytes(1, 4, 9), _bytes(4, 1, 3), _u(9), domain="", group=4
    ),
    "MatMulInteger": lambda: case(
        "MatMulInteger", _bytes(2, 5, 300), _bytes(300, 7, dtype=np.int8), _u(128), domain=""
    ),
    "MatMulInteger, zero points of columns": lambda: case(
        "MatMulInteger",
        _bytes(5, 20),
        _bytes(20, 7, dtype=np.int8),
        _u(128),
        np.arange(7).astype(np.int8),
        domain="",
    ),
    "QLinearConv": lambda: _qlinear_conv(np.uint8, np.uint8, per_channel=False),
    "QLinearConv of channels": lambda: _qlinear_conv(
        np.uint8, np.int8, per_channel=True, pads=[1, 1, 1, 1], group=2
    ),
    "QLinearConv, signed": lambda: _qlinear_conv(
        np.int8, np.int8, per_channel=True, strides=[2, 2]
    ),
    "QLinearMatMul": lambda: case(
        "QLinearMatMul",
        _bytes(2, 5, 30),
        _f(0.1),
        _u(130),
        _bytes(30, 4),
        _f(0.03),
        _u(120),
        _f(1.5),
        _u(99),
        domain="",
    ),
    "DynamicQuantizeLinear": lambda: case(
        "DynamicQuantizeLinear", _floats(4, 33), domain="", outputs=3
    ),
    "DynamicQuantizeLinear of zeros": lambda: case(
        "DynamicQuantizeLinear", np.zeros((3, 4), np.float32), domain="", outputs=3
    ),
    "DynamicQuantizeMatMul": lambda: case(
        "DynamicQuantizeMatMul",
        _floats(3, 20),
        _bytes(20, 6, dtype=np.int8),
        np.abs(_floats(6)) * 0.01,
        np.zeros(6, np.int8),
        _floats(6, seed=2),
        constants=(1, 2, 3, 4),
    ),
    "DynamicQuantizeLSTM": lambda: _quantized_lstm(1, bidirectional=False, per_channel=False),
    "DynamicQuantizeLSTM, both ways": lambda: _quantized_lstm(
        1, bidirectional=True, per_channel=True
    ),
    "MatMulIntegerToFloat": lambda: case(
        "MatMulIntegerToFloat",
        _bytes(3, 20),
        _bytes(20, 6),
        _f(0.02),
        _f(0.03),
        _u(100),
        _u(130),
        _floats(6),
    ),
    "QGemm": lambda: case(
        "QGemm",
        _bytes(3, 20),
        _f(0.02),
        _u(100),
        _bytes(6, 20, dtype=np.int8),
        np.abs(_floats(6)) * 0.01 + 0.001,
        np.zeros(6, np.int8),
        np.arange(6).astype(np.int32) * 50,
        _f(0.1),
        _u(50),
        transB=1,
        constants=(1, 2, 3, 4, 5, 6, 7, 8),
    ),
    "QGemm, float": lambda: case(
        "QGemm",
        _bytes(3, 20),
        _f(0.02),
        _u(100),
        _bytes(20, 6),
        _f(0.03),
        _u(7),
        None,
        None,
        None,
    ),
    "QLinearAdd": lambda: _two("QLinearAdd"),
    "QLinearMul": lambda: _two("QLinearMul"),
    "QLinearSigmoid": lambda: _pooled("QLinearSigmoid", _bytes(3, 40)),
    "QLinearLeakyRelu": lambda: _pooled("QLinearLeakyRelu", _bytes(3, 40), alpha=0.2),
    "QLinearGlobalAveragePool": lambda: _pooled("QLinearGlobalAveragePool", _bytes(2, 3, 5, 6)),
    "QLinearAveragePool": lambda: _pooled(
        "QLinearAveragePool", _bytes(1, 3, 6, 6), kernel_shape=[3, 3], strides=[1, 1]
    ),
    "QLinearSoftmax": lambda: case(
        "QLinearSoftmax",
        _bytes(3, 10),
        _f(0.05),
        _u(100),
        _f(1 / 256),
        _u(0),
        opset=13,
        axis=-1,
        constants=(1, 2, 3, 4),
        steps=1,
    ),
    "QLinearConcat": lambda: case(
        "QLinearConcat",
        _f(0.05),
        _u(100),
        _bytes(2, 3),
        _f(0.04),
        _u(90),
        _bytes(2, 4),
        _f(0.06),
        _u(110),
        axis=1,
        constants=(0, 1, 3, 4, 6, 7),
        steps=1,
    ),
    "QuantizeLinear of channels": lambda: case(
        "QuantizeLinear",
        _floats(2, 3, 50) * 20,
        np.array([0.1, 0.5, 1.0], np.float32),
        np.array([0, 5, -7], np.int8),
        domain="",
        axis=1,
    ),
    "QuantizeLinear of halves": lambda: case(
        "QuantizeLinear",
        np.arange(-40, 40).astype(np.float32) / 2,
        _f(1.0),
        _u(3),
        domain="",
    ),
    "DequantizeLinear of channels": lambda: case(
        "DequantizeLinear",
        _bytes(2, 3, 5, dtype=np.int8),
        np.array([0.1, 0.5, 1.0], np.float32),
        np.array([0, 5, -7], np.int8),
        domain="",
        axis=-2,
    ),
    "DequantizeLinear of sums": lambda: case(
        "DequantizeLinear", _bytes(6, dtype=np.int32), _f(1e-6), domain=""
    ),
    # Several operators in one.
    "FusedConv": lambda: case(
        "FusedConv",
        _floats(1, 3, 6, 6),
        _floats(4, 3, 3, 3),
        _floats(4),
        _floats(1, 4, 4, 4),
        activation="Relu",
    ),
    "FusedConv, clipped": lambda: case(
        "FusedConv",
        _floats(1, 3, 6, 6),
        _floats(4, 3, 3, 3),
        activation="Clip",
        activation_params=[0.0, 2.0],
    ),
    "FusedGemm": lambda: case(
        "FusedGemm",
        _floats(3, 4),
        _floats(5, 4),
        _floats(5),
        transB=1,
        activation="LeakyRelu",
        activation_alpha=0.3,
    ),
    "FusedMatMul": lambda: case(
        "FusedMatMul", _floats(2, 4, 3), _floats(2, 5, 4), transA=1, transB=1, alpha=0.5
    ),
    "FusedMatMul of batches": lambda: case(
        "FusedMatMul", _floats(4, 2, 3), _floats(2, 3, 5), transBatchA=1, transB=0
    ),
    "TransposeMatMul": lambda: case(
        "TransposeMatMul", _floats(2, 4, 3), _floats(2, 4, 5), transA=1, alpha=2.0
    ),
    "QuickGelu": lambda: case("QuickGelu", _X, alpha=1.702),
    "Gelu": lambda: case("Gelu", _X),
    "BiasGelu": lambda: case("BiasGelu", _X, _floats(8)),
    "FastGelu": lambda: case("FastGelu", _X, _floats(8)),
    # Normalizations.
    "LayerNormalization, three results": lambda: case(
        "LayerNormalization", _X, _floats(8), _floats(8), domain="", outputs=3
    ),
    "LayerNormalization of two axes": lambda: case(
        "LayerNormalization", _X, _floats(3, 8), domain="", outputs=2, axis=1, epsilon=0.1
    ),
    "SimplifiedLayerNormalization": lambda: case(
        "SimplifiedLayerNormalization", _X, _floats(8), domain="", epsilon=1e-3
    ),
    "SkipLayerNormalization": lambda: case(
        "SkipLayerNormalization", _X, _floats(2, 3, 8, seed=1), _floats(8), _floats(8, seed=2)
    ),
    "SkipLayerNormalization, the sum": lambda: case(
        "SkipLayerNormalization",
        _X,
        _floats(2, 3, 8, seed=1),
        _floats(8),
        _floats(8, seed=2),
        _floats(8, seed=3),
        outputs="y0,,,y3",
    ),
    "SkipSimplifiedLayerNormalization": lambda: case(
        "SkipSimplifiedLayerNormalization",
        _X,
        _floats(2, 3, 8, seed=1),
        _floats(8),
        outputs="y0,,,y3",
    ),
    "EmbedLayerNormalization": lambda: case(
        "EmbedLayerNormalization",
        np.array([[1, 2, 3], [4, 5, 6]], np.int32),
        np.array([[0, 0, 1], [0, 1, 1]], np.int32),
        _floats(10, 8),
        _floats(5, 8),
        _floats(2, 8),
        _floats(8),
        _floats(8, seed=2),
        np.array([[1, 1, 0], [1, 1, 1]], np.int32),
        outputs=2,
    ),
    # Attention.
    "Attention": lambda: _attention(),
    "Attention, lengths": lambda: _attention(_LENGTHS),
    "Attention, mask": lambda: _attention(_RAW),
    "Attention, mask of pairs": lambda: _attention(np.stack([_RAW] * 5, 1)),
    "Attention, unidirectional": lambda: _attention(unidirectional=1),
    "Attention with a past": lambda: case(
        "Attention",
        _floats(2, 3, 8),
        _floats(8, 24),
        _floats(24),
        None,
        _floats(2, 2, 2, 4, 4),
        num_heads=2,
        unidirectional=1,
        outputs=2,
    ),
    "MultiHeadAttention": lambda: case(
        "MultiHeadAttention",
        _floats(2, 3, 8),
        _floats(2, 5, 8),
        _floats(2, 5, 12),
        _floats(28),
        num_heads=2,
    ),
    "MultiHeadAttention, mask and bias": lambda: case(
        "MultiHeadAttention",
        _floats(2, 3, 8),
        _floats(2, 5, 8),
        _floats(2, 5, 8, seed=1),
        None,
        _RAW,
        _floats(2, 2, 3, 5),
        num_heads=2,
        scale=0.3,
    ),
    "MultiHeadAttention with a past": lambda: case(
        "MultiHeadAttention",
        _floats(2, 1, 8),
        _floats(2, 1, 8, seed=1),
        _floats(2, 1, 8, seed=2),
        None,
        None,
        None,
        _floats(2, 2, 4, 4),
        _floats(2, 2, 4, 4, seed=1),
        num_heads=2,
        outputs=3,
    ),
    "QAttention": lambda: case(
        "QAttention",
        _bytes(2, 5, 8),
        _bytes(8, 24, dtype=np.int8),
        _floats(24),
        _f(0.02),
        _f(0.01),
        None,
        _u(120),
        _u(0, np.int8),
        num_heads=2,
        constants=(1, 2),
    ),
    "GroupQueryAttention of a prompt": lambda: _grouped(0, 3, [2, 2], do_rotary=1),
    "GroupQueryAttention with a past": lambda: _grouped(6, 7, [6, 6], do_rotary=1),
    "GroupQueryAttention without angles": lambda: _grouped(6, 7, [6, 6]),
    "GroupQueryAttention, other lengths": lambda: _grouped(8, 7, [6, 4], do_rotary=1),
    "GroupQueryAttention, a window": lambda: _grouped(6, 7, [6, 6], local_window_size=3),
    "MatMulNBits": lambda: _nbits(4, 32, 64),
    "MatMulNBits, zero points": lambda: _nbits(4, 16, 64, points=np.uint8),
    "MatMulNBits, real zero points": lambda: _nbits(4, 32, 64, points=np.float32),
    "MatMulNBits, a block that is cut, bias": lambda: _nbits(4, 32, 72, bias=True),
    "MatMulNBits, eight bits": lambda: _nbits(8, 32, 64, points=np.uint8),
    "MatMulNBits, two bits": lambda: _nbits(2, 32, 64, points=np.uint8),
    "MatMulNBits, more than a million bytes": lambda: _nbits(4, 32, 1088, columns=2048),
    "GatherBlockQuantized": lambda: _gathered(4),
    "GatherBlockQuantized, zero points": lambda: _gathered(4, points=True),
    "GatherBlockQuantized, eight bits": lambda: _gathered(8),
    "RotaryEmbedding": lambda: case(
        "RotaryEmbedding",
        _floats(2, 3, 8),
        np.array([[0, 1, 2], [3, 4, 5]], np.int64),
        np.cos(_floats(9, 2)),
        np.sin(_floats(9, 2)),
    ),
    "RotaryEmbedding, interleaved": lambda: case(
        "RotaryEmbedding",
        _floats(2, 2, 3, 4),
        np.array([2], np.int64),
        np.cos(_floats(9, 2)),
        np.sin(_floats(9, 2)),
        interleaved=1,
    ),
    "Scaler": lambda: case(
        "Scaler",
        _floats(3, 4),
        domain="ai.onnx.ml",
        offset=[0.5, 1, -2, 0],
        scale=[2.0, 1, 0.25, -1],
    ),
    "Scaler of integers": lambda: case(
        "Scaler", np.arange(6).reshape(2, 3), domain="ai.onnx.ml", offset=[1.0], scale=[0.5]
    ),
    "NonMaxSuppression of all boxes": lambda: case(
        "NonMaxSuppression",
        np.array([[[0, 0, 1, 1], [0, 1.1, 1, 0.1], [0, 2, 1, 3]]], np.float32),
        np.array([[[0.9, 0.8, 0.7]]], np.float32),
        np.array([2**63 - 1]),
        _f(0.5),
        _f(0.0),
        domain="",
        constants=(2, 3, 4),
    ),
    # Experts.
    "MoE": lambda: experts(20, 2),
    "MoE of many tokens": lambda: experts(70, 2, activation_type="silu"),
    "MoE of one token": lambda: experts(1, 2, normalize_routing_weights=1, activation_type="silu"),
    "MoE of one expert": lambda: experts(3, 1, activation_type="gelu"),
    "MoE, identity": lambda: experts(4, 3, activation_type="identity"),
    "MoE, gated": lambda: experts(
        *(2, 3),
        fused=2,
        activation_type="swiglu",
        swiglu_fusion=1,
        swiglu_limit=1.0,
        activation_alpha=1.702,
        activation_beta=1.0,
    ),
    "MoE of sequences": lambda: case(
        "MoE", _floats(2, 3, 8), _floats(6, 4), _floats(4, 12, 8), None, _floats(4, 8, 12), k=2
    ),
    # Of ONNX's own.
    "DequantizeLinear": lambda: case(
        "DequantizeLinear", _bytes(3, 4), _f(0.02), _u(120), version=17
    ),
    "DequantizeLinear of 16 bits": lambda: case(
        "DequantizeLinear", _bytes(3, 4, dtype=np.int16), _f(0.02), _u(7, np.int16)
    ),
    "DequantizeLinear of channels of 16 bits": lambda: case(
        "DequantizeLinear",
        _bytes(3, 4, dtype=np.uint16),
        np.float32([0.1, 0.2, 0.3, 0.4]),
        np.arange(4, dtype=np.uint16),
        axis=1,
    ),
    "QuantizeLinear": lambda: case("QuantizeLinear", _X, _f(0.02), _u(120), steps=1),
    "QuantizeLinear to 16 bits": lambda: case(
        "QuantizeLinear", _X, _f(1e-4), _u(-7, np.int16), steps=1
    ),
    "QuantizeLinear of channels to 16 bits": lambda: case(
        "QuantizeLinear",
        _X,
        np.float32([1e-4, 2e-4, 1e-3]),
        np.uint16([1000, 0, 40000]),
        axis=1,
        steps=1,
    ),
    "ExpandDims": lambda: case("ExpandDims", _X, np.int32(-1), constants=(1,)),
    "GatherND": lambda: case("GatherND", _X, np.array([[0, 2], [1, 0]])),
    "GridSample": lambda: case(
        "GridSample", _floats(1, 2, 5, 4), np.tanh(_floats(1, 3, 3, 2)), align_corners=1
    ),
    "Trilu": lambda: case("Trilu", _floats(5, 6), np.int64(1), upper=0, constants=(1,)),
}

#: Operators that ONNX Runtime has kernels of for GPUs only.
OF_GPUS: dict[str, Callable[[], Case]] = {
    "BiasAdd": lambda: case("BiasAdd", _X, _floats(8), _floats(2, 3, 8, seed=1)),
    "BiasSplitGelu": lambda: case("BiasSplitGelu", _X, _floats(8)),
    "GroupNorm": lambda: case("GroupNorm", _floats(1, 2, 3, 4), _floats(4), _floats(4), groups=2),
    "NhwcConv": lambda: case("NhwcConv", _floats(1, 5, 6, 4), _floats(3, 4, 3, 3)),
    "SkipGroupNorm": lambda: case(
        "SkipGroupNorm", _floats(1, 2, 3, 4), _floats(4), _floats(4), _floats(1, 4), groups=2
    ),
}
