"""The operator graphs of a model's regions, as the policies get them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm_rammer.frontend import load_model
from tvm_rammer.machine import VDevice
from tvm_rammer.options import Options
from tvm_rammer.rprogram import OperatorGraph
from tvm_rammer.transform.pipeline import Partitions, Records, partition_module


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
    partitions = partition_module(load_model(model).module, goal, records)
    return _graphs(partitions, goal.vdevice, measured)


def graphs_by_veus(model: Any, counts: Sequence[int]) -> dict[int, list[OperatorGraph]]:
    """The operator graphs of a model for so many vEUs each, with measured costs of the kernels.

    The kernels are those that a build makes on a machine with cores like this one's, but so many
    of them; products that share a weight are merged as is best there.
    """
    goal, module = Options().resolve(), load_model(model).module
    devices = [replace(goal.vdevice, num_veus=count) for count in counts]
    return {
        vdevice.num_veus: _graphs(
            partition_module(module, replace(goal, vdevice=vdevice)), vdevice, measured=True
        )
        for vdevice in devices
    }


def _graphs(partitions: Partitions, vdevice: VDevice, measured: bool) -> list[OperatorGraph]:
    compiler = partitions.compiler
    graphs = compiler.graphs(partitions.merged_for(vdevice))
    found = compiler.measured(graphs) if measured else graphs
    return [region.graph for region in found.values()]
