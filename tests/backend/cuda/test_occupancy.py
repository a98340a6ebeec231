"""How many blocks an SM runs, beside NVIDIA's own calculator and published figures."""

from __future__ import annotations

import random
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cuda.devices import ARCHITECTURES, GPUS, architecture_of, usual_gpu
from tvm_rammer.backend.cuda.occupancy import blocks_per_sm
from tvm_rammer.errors import DeviceError

KIB = 1024


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks"),
    [
        # Limited by warps, registers, shared memory and blocks, each on the guide's own numbers.
        ("sm_70", 1024, 32, 0, 2),
        ("sm_75", 1024, 32, 0, 1),
        ("sm_86", 1024, 32, 0, 1),
        ("sm_86", 768, 40, 0, 2),
        ("sm_80", 256, 32, 0, 8),
        ("sm_80", 256, 33, 0, 6),
        ("sm_90", 256, 64, 0, 4),
        ("sm_90", 256, 128, 0, 2),
        ("sm_90", 256, 255, 0, 1),
        ("sm_70", 128, 32, 48 * KIB, 2),
        ("sm_70", 128, 32, 96 * KIB, 1),
        ("sm_80", 128, 32, 163 * KIB, 1),
        ("sm_80", 128, 32, 81 * KIB, 2),
        ("sm_90", 128, 32, 227 * KIB, 1),
        ("sm_90", 128, 32, 48 * KIB, 4),
        ("sm_75", 32, 16, 0, 16),
        ("sm_86", 32, 16, 0, 16),
        ("sm_89", 32, 16, 0, 24),
        ("sm_100", 32, 16, 0, 32),
    ],
)
def test_published_limits(arch, threads, registers, shared, blocks):
    assert blocks_per_sm(arch, threads, registers, shared) == blocks


REFUSED = [
    (
        ("sm_42", 256, 32, 0),
        "the architecture 'sm_42' is not known: choose one of sm_70, sm_75, sm_80, sm_86, sm_87, "
        "sm_89, sm_90, sm_100",
    ),
    (("sm_90", 1025, 32, 0), "1025 threads in a block are too many for sm_90: at most 1024"),
    (("sm_90", 32, 256, 0), "256 registers in a thread are too many for sm_90: at most 255"),
    (
        ("sm_80", 32, 32, 164 * KIB),
        "167936 bytes of shared memory in a block are too many for sm_80: at most 166912",
    ),
    (
        ("sm_90", 1024, 65, 0),
        "32 warps of 65 registers in a thread are too many for sm_90: at most 28",
    ),
    (
        ("sm_90", 0, 32, 0),
        "0 threads, 32 registers and 0 bytes of shared memory are no block: give at least one "
        "thread, and nothing below 0",
    ),
]


@pytest.mark.parametrize(("asked", "text"), REFUSED)
def test_what_does_not_fit_is_an_error(asked, text):
    with pytest.raises(DeviceError) as error:
        blocks_per_sm(*asked)
    assert str(error.value) == text


def test_variants_of_an_architecture_are_it():
    assert architecture_of("sm_90a") is architecture_of("sm_90") is ARCHITECTURES["sm_90"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_gpu_stands_for_every_architecture(arch):
    gpu = usual_gpu(arch)
    assert gpu.arch == arch
    device = vdevice_for({"kind": "cuda", "arch": arch})
    # Turing's SMs have shared memory for one resident block.
    assert device.num_veus == gpu.sms * (1 if arch == "sm_75" else 2)
    assert device.features == (arch,)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        *(("V100", 15.7), ("A100", 19.5), ("H100", 66.9), ("RTX 3090", 35.6)),
        # Of the data sheets, of Orin's brief, and 128 lanes for each of B200's SMs.
        *(("T4", 8.1), ("AGX Orin", 5.3), ("B200", 75.0)),
    ],
)
def test_the_peak_is_the_published_one(name, teraflops):
    gpu = GPUS[name]
    peak = 2 * gpu.sms * architecture_of(gpu.arch).float32_results * gpu.clock
    assert peak / 1e12 == pytest.approx(teraflops, rel=0.01)


#: Asks NVIDIA's calculator; a line in is major, minor, limits, threads, registers, shared bytes.
CALCULATOR = """
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  int major, minor, warps, threads, registers;
  size_t per_sm, per_block, reserved, shared;
  while (scanf("%d %d %d %zu %zu %zu %d %d %zu", &major, &minor, &warps, &per_sm, &per_block,
               &reserved, &threads, &registers, &shared) == 9) {
    cudaOccDeviceProp device;
    device.computeMajor = major; device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024; device.maxThreadsPerMultiprocessor = 32 * warps;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32; device.numSms = 1;
    device.sharedMemPerBlock = 49152; device.sharedMemPerMultiprocessor = per_sm;
    device.sharedMemPerBlockOptin = per_block; device.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024; kernel.numRegs = registers; kernel.sharedSizeBytes = 0;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = shared; kernel.numBlockBarriers = 1;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result;
    int error =
        cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, shared);
    printf("%d\\n", error ? -1 : result.activeBlocksPerMultiprocessor);
  }
}
"""


@cache
def header() -> Path | None:
    """The folder of ``cuda_occupancy.h``, which needs neither a GPU nor a library."""
    nvcc = shutil.which("nvcc")
    if not nvcc or not shutil.which("g++"):
        return None
    told = subprocess.run([nvcc, "--dryrun", "-x", "cu", "-"], capture_output=True, text=True)
    for word in told.stderr.replace('"', " ").split():
        if word.startswith("-I") and (folder := Path(word[2:])).is_dir():
            return folder if (folder / "cuda_occupancy.h").exists() else None
    return None


@pytest.mark.skipif(header() is None, reason="needs g++ and CUDA's header cuda_occupancy.h")
def test_nvidias_calculator_says_the_same(tmp_path):
    source, program = tmp_path / "calculator.cpp", tmp_path / "calculator"
    source.write_text(CALCULATOR)
    subprocess.run(["g++", f"-I{header()}", str(source), "-o", str(program)], check=True)
    choose = random.Random(0)
    asked, ours = [], []
    for _ in range(20_000):
        arch = choose.choice([*ARCHITECTURES.values()])
        number = int(arch.name[3:])
        threads, registers = choose.randint(1, 1024), choose.randint(1, 255)
        shared = choose.choice([0, choose.randint(0, arch.block_shared_bytes)])
        limits = (arch.warps, arch.shared_bytes, arch.block_shared_bytes, arch.system_shared_bytes)
        asked.append((number // 10, number % 10, *limits, threads, registers, shared))
        try:
            ours.append(blocks_per_sm(arch.name, threads, registers, shared))
        except DeviceError:
            ours.append(0)
    lines = "\n".join(" ".join(map(str, each)) for each in asked)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    theirs = [int(line) for line in done.stdout.split()]
    assert -1 not in theirs and len(theirs) == len(ours)
    different = [(a, t, o) for a, t, o in zip(asked, theirs, ours, strict=True) if t != o]
    assert not different
