"""The operator graphs of a model's regions, as the policies get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm_rammer.frontend import load_model
from tvm_rammer.options import Options
from tvm_rammer.region.marks import regions_of
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.transform.pipeline import PartitionedModule, Records, partition_module


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
    goal = (options or Options()).resolve(target)
    partitioned = partition_module(load_model(model).module, goal, records)
    return _graphs(partitioned, measured)


def graphs_by_veus(model: Any, counts: Sequence[int]) -> dict[int, list[OperatorGraph]]:
    """The operator graphs of a model for so many vEUs each, with measured costs of the kernels.

    The kernels are this machine's; products that share a weight are merged as is best for the
    number of vEUs.
    """
    partitioned = partition_module(load_model(model).module, Options().resolve())
    known = partitioned.compiler.kernels.vdevice
    merged = {n: partitioned.merged_for(replace(known, num_veus=n)) for n in counts}
    return {count: _graphs(each, measured=True) for count, each in merged.items()}


def _graphs(partitioned: PartitionedModule, measured: bool) -> list[OperatorGraph]:
    module, compiler = partitioned.module, partitioned.compiler
    symbols = regions_of(module)
    with compiler.target:
        for symbol in symbols:
            compiler.graph(symbol, module)
        if measured and symbols:
            compiler.measure(symbols)
        return [compiler.graph(symbol, module).graph for symbol in symbols]
