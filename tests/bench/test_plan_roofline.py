"""Operands lie as far away as much was touched since they were; computing and reading overlap."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.plan_roofline import Demand, demands, least_seconds, typical

from tvm_rammer.machine import VDevice
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.runtime.build import build
from tvm_rammer.testing.models import get_model

MIB = 1 << 20
#: 4 GFLOP/s; 8, 4 and 2 GB/s.
CEILINGS = Ceilings(4e9, 16e9, 8e9, 4e9, 2e9)


def test_the_larger_of_computing_and_reading_is_what_counts() -> None:
    assert Demand(4e9, {"l2": 1e9}).seconds(CEILINGS) == 1.0
    assert Demand(1e9, {"l2": 4e9, "dram": 1e9}).seconds(CEILINGS) == 1.0
    assert least_seconds([Demand(4e9, {}), Demand(0.0, {"l3": 8e9})], CEILINGS) == 3.0


def test_the_median_of_every_ceiling_is_typical() -> None:
    other = Ceilings(8e9, 8e9, 8e9, 8e9, 1e9)
    assert typical([CEILINGS, other, CEILINGS]) == CEILINGS


def device(l2_bytes: int, l3_bytes: int) -> VDevice:
    return VDevice("caches", num_veus=2, l2_bytes=l2_bytes, l3_bytes=l3_bytes)


@pytest.fixture(scope="module")
def mlp():
    """The programs and the bodies of a perceptron, and the bytes of its weights."""
    library = build(get_model("mlp").tiny(), policy="sequential", num_veus=2)
    assert library.source is not None
    programs = list(library.programs.values())
    weights = sum(program.constant_bytes for program in programs)
    return programs, library.source.compiler.kernels.bodies, weights


def nbytes(found: list[Demand]) -> dict[str, float]:
    levels: dict[str, float] = {}
    for demand in found:
        for level, count in demand.nbytes.items():
            levels[level] = levels.get(level, 0.0) + count
    return levels


def test_every_operator_has_its_demand(mlp) -> None:
    programs, bodies, _ = mlp
    found = demands(programs, bodies, device(MIB, 32 * MIB))
    assert len(found) == sum(len(program.operators) for program in programs)
    assert any(demand.flops for demand in found)


def test_a_network_that_a_cache_holds_is_read_from_it(mlp) -> None:
    programs, bodies, _ = mlp
    assert set(nbytes(demands(programs, bodies, device(64 * MIB, 256 * MIB)))) == {"l2"}


def test_weights_larger_than_a_cache_are_read_again_from_the_next_one(mlp) -> None:
    """Activations were touched just before, and stay near."""
    programs, bodies, weights = mlp
    small = weights // 8
    near = nbytes(demands(programs, bodies, device(small, 64 * MIB)))
    assert near["l3"] >= 0.9 * weights and "dram" not in near and near["l2"] > 0
    far = nbytes(demands(programs, bodies, device(small // 2, small)))
    assert far["dram"] >= 0.5 * weights
    assert sum(far.values()) == pytest.approx(sum(near.values()))


def test_a_slower_memory_takes_longer(mlp) -> None:
    programs, bodies, weights = mlp
    reading = replace(CEILINGS, flops=1e18)
    times = [
        least_seconds(demands(programs, bodies, device(l2, l3)), reading)
        for l2, l3 in ((MIB, 64 * MIB), (weights // 8, MIB), (weights // 16, weights // 8))
    ]
    assert times[0] < times[1] < times[2]


def test_places_that_are_used_again_push_nothing_out(mlp) -> None:
    """A run touches more bytes than there are; a cache that holds all of them keeps the weights."""
    programs, bodies, weights = mlp
    there_are = weights + sum(program.arena_bytes for program in programs)
    assert "dram" not in nbytes(demands(programs, bodies, device(weights // 8, there_are)))
    assert "dram" in nbytes(demands(programs, bodies, device(weights // 8, weights // 2)))
