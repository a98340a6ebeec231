"""What cannot be compiled for a GPU, or run on one, is one clear error; what does not fit a block
is computed otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import tvm
from cuda_models import TARGET
from tvm import te, topi

import tvm_rammer
from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cuda.arch_target import LIMITS, check_gpu, target_of, vdevice_of
from tvm_rammer.backend.cuda.made_stages import Limits, made_stages
from tvm_rammer.backend.cuda.schedules import schedule
from tvm_rammer.errors import DeviceError, ModelError
from tvm_rammer.testing.models import get_model

EXAMPLE = '{"kind": "cuda", "arch": "sm_90"}'


def refusal(target: object, **options: object) -> str:
    with pytest.raises(DeviceError) as refused:
        vdevice_for(target, **options)
    return str(refused.value)


def test_a_target_without_an_architecture_is_refused():
    assert refusal("cuda") == (
        "the target names no architecture of a GPU, or sm_50, which is too old: give one such as "
        f"{EXAMPLE}; known are sm_70, sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_100"
    )


def test_no_target_is_refused():
    assert refusal(None, backend="cuda") == (
        f"which GPU to compile for is not said: give a target such as {EXAMPLE}"
    )


def test_an_architecture_that_nobody_knows_is_refused():
    assert refusal({"kind": "cuda", "arch": "sm_42"}) == (
        "the architecture 'sm_42' is not known: choose one of sm_70, sm_75, sm_80, sm_86, sm_87, "
        "sm_89, sm_90, sm_100"
    )


def test_more_veus_than_blocks_that_stay_resident_are_refused():
    assert refusal(TARGET, num_veus=265).startswith("num_veus is 265, but H100 (sm_90) has 264 ")


def test_a_vdevice_has_a_veu_for_every_block_that_stays_resident():
    device = vdevice_for(TARGET)
    assert (device.num_veus, device.cores) == (264, 132)


@pytest.fixture(scope="module")
def library():
    return tvm_rammer.build(get_model("mlp").tiny(), TARGET)


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")
def test_where_no_driver_is_nothing_runs(library):
    with pytest.raises(DeviceError) as refused:
        library.create()
    assert str(refused.value) == (
        "there is no cuda:0 here: CUDA's driver finds none, or is not installed"
    )


@dataclass(frozen=True)
class Gpu:
    compute_version: str | None

    def __str__(self) -> str:
        return "cuda:0"


@pytest.mark.parametrize(
    ("arch", "version", "runs"),
    [
        *(("sm_80", "8.0", True), ("sm_80", "8.6", True), ("sm_86", "8.0", False)),
        *(("sm_90", "8.9", False), ("sm_90a", "9.0", True), ("sm_100", "10.3", True)),
        *(("sm_100a", "10.3", False), ("sm_90", "10.0", False), ("sm_90", None, True)),
    ],
)
def test_machine_code_runs_on_its_generation_from_its_own_device_on(arch, version, runs):
    if runs:
        check_gpu(Gpu(version), arch)
        return
    with pytest.raises(DeviceError, match=f"^the library was compiled for {arch}, and cuda:0 is "):
        check_gpu(Gpu(version), arch)


def test_a_library_for_gpus_refuses_processors(library):
    with pytest.raises(DeviceError) as refused:
        library.create(tvm.cpu())
    assert str(refused.value) == "a library for CUDA does not run on cpu:0; give it tvm.cuda(0)"


def product() -> tvm.tirx.PrimFunc:
    a, b = te.placeholder((64, 96), "float32"), te.placeholder((96, 128), "float32")
    return te.create_prim_func([a, b, topi.nn.matmul(a, b)])


def test_what_wants_more_shared_memory_than_a_block_has_is_computed_without():
    small = Limits(LIMITS.threads, 1024, LIMITS.blocks_per_sm)
    target, device = target_of("sm_90"), vdevice_of(target_of("sm_90"))
    usual, other = (schedule(product(), device, limits) for limits in (LIMITS, small))
    assert (usual.origin, other.origin) == ("slicedmatmul", "shortsum")
    with pytest.raises(ModelError) as refused:
        made_stages(usual.func, target, small)
    assert str(refused.value) == (
        "a kernel for CUDA wants 36,864 bytes of shared memory, and a resident block has 1,024: "
        "leave the operator out of the plan"
    )


def test_what_wants_more_threads_than_a_block_has_is_refused():
    target = target_of("sm_90")
    usual = schedule(product(), vdevice_of(target), LIMITS)
    with pytest.raises(ModelError) as refused:
        made_stages(usual.func, target, Limits(64, LIMITS.shared_bytes, LIMITS.blocks_per_sm))
    assert str(refused.value) == (
        "a kernel for CUDA wants blocks of 256 threads, and a plan has 64: leave the operator out "
        "of the plan"
    )
