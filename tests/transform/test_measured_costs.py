"""Costs of kernels are measured on this machine, once, and modelled for any other."""

import json
from pathlib import Path

import pytest

import tvm_rammer
from tvm_rammer.testing.models import get_model
from tvm_rammer.transform import co_schedule
from tvm_rammer.vdevice.cache import cache_directory


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_RAMMER_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def measured(monkeypatch):
    """The kernels that each call of the measurement was asked for."""
    calls: list[list[str]] = []
    measure = co_schedule.measure_kernels

    def counted(module, signature, ids, kernels, cache_bytes):
        kernels = list(kernels)
        calls.append([kernel.name for kernel, _ in kernels])
        return measure(module, signature, ids, kernels, cache_bytes)

    monkeypatch.setattr(co_schedule, "measure_kernels", counted)
    return calls


def tile_times(library):
    (program,) = library.programs.values()
    return [kernel.tile_time for kernel in program.kernels]


def test_every_distinct_kernel_is_measured_once(empty_cache, measured):
    model = get_model("recommender").tiny()
    first = tvm_rammer.build(model)
    second = tvm_rammer.build(model, policy="sequential")
    assert len(measured) == 1
    assert len(measured[0]) == len(set(measured[0])) == len(tile_times(first))
    assert set(tile_times(second)) == set(tile_times(first))
    assert all(0 < seconds < 1e-3 for seconds in tile_times(first))


def test_a_broken_cache_is_measured_anew(empty_cache, measured):
    model = get_model("mlp").tiny()
    tvm_rammer.build(model)
    stored = Path(cache_directory() / "kernel_costs.json")
    costs = json.loads(stored.read_text())
    stored.write_text(json.dumps(dict.fromkeys(costs, "fast")))
    tvm_rammer.build(model)
    stored.write_text("{")
    tvm_rammer.build(model)
    assert len(measured) == 3


def test_another_cpu_is_modelled(empty_cache, measured):
    tvm_rammer.build(get_model("mlp").tiny(), target={"kind": "llvm", "mcpu": "haswell"})
    assert not measured
