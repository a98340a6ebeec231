"""Costs of kernels are measured on this machine, once, and modelled for any other."""

import json
from math import ceil, prod
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import tvm_rammer
from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu import stopwatch
from tvm_rammer.backend.cpu.timing import measure_kernels as measure
from tvm_rammer.machine.cache import cache_directory
from tvm_rammer.tensors import constant, empty
from tvm_rammer.testing.models import get_model


@pytest.fixture
def measured(monkeypatch):
    """The kernels that each call of the measurement was asked for."""
    calls: list[list[str]] = []
    unchanged = stopwatch.kernels

    def counted(module, signature, ids, kernels, *arguments):
        kernels = list(kernels)
        calls.append([kernel.name for kernel, _ in kernels])
        return unchanged(module, signature, ids, kernels, *arguments)

    monkeypatch.setattr(stopwatch, "kernels", counted)
    return calls


def test_every_distinct_kernel_is_measured_once(empty_cache, measured):
    model = get_model("recommender").tiny()
    first = tvm_rammer.build(model)
    second = tvm_rammer.build(model, policy="sequential")
    assert len(measured) == 1
    assert len(measured[0]) == len(set(measured[0]))
    one, other = (
        {kernel.name: kernel.tile_time for kernel in program.kernels}
        for library in (first, second)
        for program in library.programs.values()
    )
    assert one.keys() | other.keys() <= set(measured[0])
    both = one.keys() & other.keys()
    assert both and all(one[name] == other[name] for name in both)
    assert all(0 < seconds < 1e-3 for seconds in [*one.values(), *other.values()])


def test_weights_that_no_cache_holds_are_measured_where_they_are(empty_cache, monkeypatch):
    sizes: list[int] = []

    def counted(shape, dtype):
        sizes.append(prod(shape) * np.dtype(dtype).itemsize)
        return empty(shape, dtype)

    monkeypatch.setattr(measure, "empty", counted)
    side = ceil((vdevice_for().l2_bytes / 2) ** 0.5)
    weight = np.full((side, side), np.nan, "float32")
    x = relax.Var("x", relax.TensorType((1, side), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.softmax(relax.op.matmul(x, constant(weight))))
            z = builder.emit_output(relax.op.nn.softmax(relax.op.abs(y), 0))
        builder.emit_func_output(z)
    (program,) = tvm_rammer.build(builder.get()).programs.values()
    # Where an operator has several tilings, the plan has one of them.
    measured_kernels = json.loads((cache_directory() / "kernel_costs.json").read_text())
    assert len(sizes) == len(measured_kernels) >= len(program.kernels) > 1
    assert program.constant_bytes >= weight.nbytes >= 2 * vdevice_for().l2_bytes
    assert max(sizes) < weight.nbytes


def test_a_broken_cache_is_measured_anew(empty_cache, measured):
    model = get_model("mlp").tiny()
    tvm_rammer.build(model)
    stored = Path(cache_directory() / "kernel_costs.json")
    costs = json.loads(stored.read_text())
    for damaged in (json.dumps(dict.fromkeys(costs, "fast")), "{"):
        stored.write_text(damaged)
        with pytest.warns(UserWarning, match=f"{stored}.* ignored"):
            tvm_rammer.build(model)
    assert len(measured) == 3


def test_another_cpu_is_modelled(empty_cache, measured):
    tvm_rammer.build(get_model("mlp").tiny(), target={"kind": "llvm", "mcpu": "haswell"})
    assert not measured
