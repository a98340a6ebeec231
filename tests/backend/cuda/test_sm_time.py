"""Estimates stay below what devices can do, and follow what they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_rammer.backend.cuda.devices import GPUS, architecture_of
from tvm_rammer.backend.cuda.operation_counts import Operations
from tvm_rammer.backend.cuda.sm_time import block_time, gpu_costs, speeds_of

#: A block of 256 threads whose arithmetic is all that takes time.
COMPUTING = Operations(float32=1e6)
STREAMING = Operations(accesses=1e4, passes=320, l2_bytes=4e4, global_loads=4)


@pytest.mark.parametrize("name", GPUS)
def test_arithmetic_is_as_fast_as_the_peak_and_no_faster(name):
    gpu = GPUS[name]
    seconds = block_time(gpu, 2, COMPUTING, 8).seconds
    rate = 2 * COMPUTING.float32 * 2 * gpu.sms / seconds
    peak = 2 * gpu.sms * architecture_of(gpu.arch).float32_results * gpu.clock
    assert 0.9 * peak < rate <= peak * (1 + 1e-9)


#: TFLOPS of dense products of float16 that are added up in float32, as NVIDIA says.
TENSOR_PEAKS = {"V100": 125, "T4": 65, "A100": 312, "H100": 989, "H200": 989, "RTX 3090": 71}
TENSOR_PEAKS |= {"RTX 4090": 165.2, "AGX Orin": 42.5, "B200": 2250}


@pytest.mark.parametrize("name", GPUS)
def test_tensor_cores_are_as_fast_as_published_and_as_others_have_measured(name):
    gpu = GPUS[name]
    peak = 2 * gpu.sms * architecture_of(gpu.arch).tensor_results * gpu.clock
    assert peak == pytest.approx(TENSOR_PEAKS[name] * 1e12, rel=0.09)
    work = Operations(tensor=1e8)
    rate = 2 * work.tensor * 2 * gpu.sms / block_time(gpu, 2, work, 8).seconds
    share = speeds_of(gpu).tensor_share
    assert 0.9 * share * peak < rate <= share * peak * (1 + 1e-9)


@pytest.mark.parametrize(("name", "bandwidth"), [("V100", 2155e9), ("A100", 4.98e12)])
def test_traffic_is_as_fast_as_the_l2_cache(name, bandwidth):
    gpu = GPUS[name]
    found = block_time(gpu, 2, replace(STREAMING, l2_bytes=4e6), 8)
    assert found.seconds == pytest.approx(found.traffic)
    assert 4e6 * 2 * gpu.sms / found.seconds == pytest.approx(bandwidth, rel=0.01)


def test_phases_between_barriers_wait_for_their_loads():
    gpu = GPUS["A100"]
    one = block_time(gpu, 1, replace(STREAMING, barriers=0, global_loads=1), 8)
    ten = block_time(gpu, 1, replace(STREAMING, barriers=20, global_loads=10), 8)
    waits = 9 * gpu.l2_cycles / gpu.clock
    assert ten.latency - one.latency == pytest.approx(waits, rel=0.2)
    # Without barriers, loads are under way together.
    together = block_time(gpu, 1, replace(STREAMING, barriers=0, global_loads=10), 8)
    assert one.latency < together.latency < ten.latency


def test_blocks_of_an_sm_share_it():
    gpu = GPUS["H100"]
    alone, shared = block_time(gpu, 1, COMPUTING, 8), block_time(gpu, 2, COMPUTING, 8)
    assert shared.issue == pytest.approx(2 * alone.issue)
    assert shared.latency == alone.latency


@pytest.mark.parametrize("name", ["V100", "A100", "H100"])
def test_handing_over_is_cheaper_than_a_barrier_and_that_than_a_launch_with_one(name):
    costs = gpu_costs(GPUS[name], 2)
    assert 0.1e-6 < costs.point_to_point < costs.barrier < costs.launch + costs.barrier
    assert costs.bandwidth > costs.memory_bandwidth > costs.core_memory_bandwidth
    assert costs.l3_bytes == GPUS[name].l2_bytes


def test_costs_are_the_published_ones():
    v100, h100 = gpu_costs(GPUS["V100"], 2), gpu_costs(GPUS["H100"], 2)
    assert (v100.launch, v100.barrier) == (0.9e-6, 1.4e-6)
    assert h100.launch == 3.8e-6
    assert v100.memory_bandwidth == pytest.approx(750e9, rel=0.01)
    assert v100.point_to_point == pytest.approx(0.49e-6, rel=0.02)
