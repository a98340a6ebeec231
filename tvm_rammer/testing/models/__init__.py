"""Models that the field measures, built as ONNX with seeded random weights."""

from tvm_rammer.testing.models.builder import GraphBuilder
from tvm_rammer.testing.models.light import light
from tvm_rammer.testing.models.recurrent import lstm
from tvm_rammer.testing.models.softmax import before_softmax
from tvm_rammer.testing.models.statistics import ModelStatistics, known_statistics, statistics
from tvm_rammer.testing.models.zoo import MODELS, ModelInfo, get_model

__all__ = [
    "MODELS",
    "GraphBuilder",
    "ModelInfo",
    "ModelStatistics",
    "before_softmax",
    "get_model",
    "known_statistics",
    "light",
    "lstm",
    "statistics",
]
