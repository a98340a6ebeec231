"""What is edited: small models, and what is compiled from some of them."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from onnx.backend.test.loader import load_model_tests

import tvm_rammer
from tvm_rammer.testing.models import get_model

#: Their results are random, or they need types that nobody feeds.
_LEFT_OUT = ("dropout", "bernoulli", "random", "sequence", "optional", "string", "training")
_LEFT_OUT += ("strnorm", "tfidf", "regex", "image_decoder", "momentum", "adagrad", "adam")
_NETWORKS = (("lstm_8x8x256", "wavefront"), ("inception_v1", "sequential"), ("mlp", "ios"))


@cache
def small_models() -> list[tuple[str, onnx.ModelProto]]:
    """Names and models of the tests of single operators that the onnx package brings."""
    with warnings.catch_warnings():
        # ONNX computes what it expects with infinities and NaN among it.
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return [
        (case.name, case.model)
        for case in sorted(cases, key=lambda case: case.name)
        if case.model is not None and not any(word in case.name for word in _LEFT_OUT)
    ]


@cache
def documents() -> list[dict[str, Any]]:
    """What ``tvm-rammer show --json`` prints of three networks, less what nobody reads."""
    found = []
    for name, policy in _NETWORKS:
        library = tvm_rammer.build(
            get_model(name).tiny(), policy=policy, num_veus=2, oversubscribe=True
        )
        found.append(json.loads(json.dumps(library.description.content)))
    return found


@cache
def library_bytes() -> bytes:
    """A small library, as a file holds it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        library = tvm_rammer.build(get_model("lstm_8x8x256").tiny(), num_veus=2, oversubscribe=True)
        return library.export_library(Path(folder) / "base.so").read_bytes()
