"""The operator graphs of a model's regions, as the policies get them."""

from __future__ import annotations

from typing import Any

from tvm_rammer.backend import resolve_target
from tvm_rammer.frontend import load_model
from tvm_rammer.options import Options
from tvm_rammer.region.marks import is_region
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.transform.pipeline import Records, partition_module


def operator_graphs(
    model: Any,
    options: Options | None = None,
    measured: bool = False,
    target: Any = None,
    records: Records | None = None,
) -> list[OperatorGraph]:
    """The operator graphs of a model.

    Parameters
    ----------
    model : path, onnx.ModelProto, tvm.IRModule or LoadedModel
        See :func:`tvm_rammer.load_model`.
    options : Options, optional
    measured : bool
        With measured costs of the kernels, which compiles those that were never measured here; with
        modelled ones otherwise.
    target : str, dict or Target, optional
        This machine if not given.
    records : Records, optional
        What tuning found.
    """
    target = resolve_target(target)
    partitioned = partition_module(load_model(model).module, target, options or Options(), records)
    module, compiler = partitioned.module, partitioned.compiler
    symbols = [symbol for symbol, func in module.functions_items() if is_region(func)]
    with target:
        for symbol in symbols:
            compiler.graph(symbol, module)
        if measured and symbols:
            compiler.measure(symbols)
        return [compiler.graph(symbol, module).graph for symbol in symbols]
