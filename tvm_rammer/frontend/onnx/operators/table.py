"""Which operators are rewritten, by which rules; and which are inlined from ONNX's definitions."""

from __future__ import annotations

from collections.abc import Mapping

from tvm_rammer.frontend.onnx.operators import (
    attention,
    caches,
    elementwise_forms,
    experts,
    fused,
    grouped_attention,
    integers,
    mel_weights,
    norms,
    packed_weights,
    quantized,
    quantized_lstm,
    reductions,
    resizing,
    rotary,
    selections,
    windows,
)
from tvm_rammer.frontend.onnx.operators.operator_node import Rule

_MICROSOFT = "com.microsoft"
REDUCTIONS = tuple(
    f"Reduce{name}"
    for name in (
        "L1",
        "L2",
        "LogSum",
        "LogSumExp",
        "Max",
        "Mean",
        "Min",
        "Prod",
        "Sum",
        "SumSquare",
    )
)
_OLD_BROADCAST = (
    "Add",
    "And",
    "Div",
    "Equal",
    "Greater",
    "Less",
    "Mul",
    "Or",
    "Sub",
    "Xor",
)

_ONNX: dict[str, Rule] = {
    **dict.fromkeys(REDUCTIONS, reductions.reduction),
    **dict.fromkeys(_OLD_BROADCAST, elementwise_forms.old_broadcast),
    "BatchNormalization": norms.batch_normalization,
    "BitShift": elementwise_forms.bit_shift,
    "Compress": selections.compress,
    "ConvInteger": integers.conv_integer,
    "ConvTranspose": windows.conv_transpose,
    "DequantizeLinear": quantized.blocked,
    "Dropout": elementwise_forms.dropout,
    "DynamicQuantizeLinear": integers.dynamic_quantize_linear,
    "Einsum": reductions.einsum,
    "IsInf": elementwise_forms.is_inf,
    "LayerNormalization": norms.layer_normalization,
    "LpNormalization": norms.lp_normalization,
    "MatMulInteger": integers.matmul_integer,
    "MaxPool": windows.max_pool,
    "MelWeightMatrix": mel_weights.mel_weight_matrix,
    "NonMaxSuppression": selections.non_max_suppression,
    "OneHot": selections.one_hot,
    "QLinearConv": integers.qlinear_conv,
    "QLinearMatMul": integers.qlinear_matmul,
    "Pow": elementwise_forms.power,
    "QuantizeLinear": quantized.blocked,
    "Resize": resizing.resize,
    "RMSNormalization": norms.rms_normalization,
    "ReverseSequence": selections.reverse_sequence,
    # ONNX Runtime's exporters write it into ONNX's own domain.
    "SimplifiedLayerNormalization": norms.simplified,
    "Reshape": selections.reshape,
    "RoiAlign": windows.roi_align,
    "Slice": selections.slice_elements,
    "Swish": fused.swish,
    "TensorScatter": caches.tensor_scatter,
    "TopK": selections.top_k,
    "Upsample": resizing.resize,
}

_CONTRIBUTED: dict[str, Rule] = {
    **dict.fromkeys(("GatherND", "GridSample", "Trilu"), selections.onnx_own),
    **dict.fromkeys(("GroupNorm", "SkipGroupNorm"), norms.group_normalization),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), quantized.contributed),
    "Attention": attention.attention,
    "BiasAdd": fused.bias_add,
    "BiasSplitGelu": fused.bias_split_gelu,
    "DynamicQuantizeLSTM": quantized_lstm.quantized_lstm,
    "DynamicQuantizeMatMul": integers.dynamic_quantize_matmul,
    "EmbedLayerNormalization": norms.embed_layer_normalization,
    "ExpandDims": selections.expand_dims,
    "FusedConv": fused.fused_conv,
    "FusedGemm": fused.fused_gemm,
    "FusedMatMul": fused.fused_matmul,
    "GatherBlockQuantized": packed_weights.gather_block_quantized,
    "GroupQueryAttention": grouped_attention.group_query_attention,
    "MatMulNBits": packed_weights.matmul_nbits,
    "MatMulIntegerToFloat": integers.matmul_integer_to_float,
    "MoE": experts.mixture,
    "MultiHeadAttention": attention.multi_head_attention,
    "NhwcConv": windows.nhwc_conv,
    "QAttention": attention.quantized_attention,
    "QGemm": integers.qgemm,
    "QLinearAdd": quantized.binary("Add"),
    "QLinearAveragePool": quantized.average_pool,
    "QLinearConcat": quantized.concat,
    "QLinearConv": integers.qlinear_conv,
    "QLinearGlobalAveragePool": quantized.global_average_pool,
    "QLinearLeakyRelu": quantized.unary("LeakyRelu", "alpha"),
    "QLinearMul": quantized.binary("Mul"),
    "QLinearSigmoid": quantized.unary("Sigmoid"),
    "QLinearSoftmax": quantized.softmax,
    "QuickGelu": fused.quick_gelu,
    "RotaryEmbedding": rotary.rotary_embedding,
    "SimplifiedLayerNormalization": norms.simplified,
    "SkipLayerNormalization": norms.skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": norms.skip_simplified,
    "TransposeMatMul": fused.fused_matmul,
}

#: Rules by the operator's domain and name.
RULES: Mapping[tuple[str, str], Rule] = {
    **{("", name): rule for name, rule in _ONNX.items()},
    **{(_MICROSOFT, name): rule for name, rule in _CONTRIBUTED.items()},
    ("ai.onnx.ml", "Scaler"): elementwise_forms.scaler,
}

#: Operators that ONNX defines by others, which TVM's importer lacks.
FUNCTIONS = frozenset(
    ("", name)
    for name in (
        "Attention",
        "BlackmanWindow",
        "CausalConvWithState",
        "Celu",
        "CenterCropPad",
        "HammingWindow",
        "HannWindow",
        "NegativeLogLikelihoodLoss",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "RotaryEmbedding",
    )
)
