"""GPUs of NVIDIA as numbers: what one SM of each architecture has, and what each device has.

Sources, by the names that comments use:

- *guide*: CUDA C++ Programming Guide 13.0, tables "Technical Specifications per Compute Capability"
  and "Throughput of Native Arithmetic Instructions"; the guides of CUDA 12 have sm_70.
- *V100*: NVIDIA Tesla V100 GPU Architecture, WP-08608-001, 2017.
- *A100*: NVIDIA A100 Tensor Core GPU Architecture, 2020; also says what V100's L2 gives.
- *H100*: NVIDIA H100 Tensor Core GPU Architecture, 2022, and the data sheets of H100 and H200 SXM.
- *GA102*, *AD102*: NVIDIA Ampere GA102 GPU Architecture, 2021; NVIDIA Ada GPU Architecture, 2022.
- *T4*: NVIDIA T4 Tensor Core GPU data sheet, 2019; NVIDIA Turing GPU Architecture, WP-09183-001.
- *Orin*: NVIDIA Jetson AGX Orin Series Technical Brief, 2022.
- *B200*: NVIDIA HGX B200 data sheet, 2024; Chips and Cheese, Nvidia's B200: Keeping the CUDA
  Juggernaut Rolling, 2025: 148 SMs, 126 MB of L2 cache, 150 ns to the part of it that is near.
- *Jia*: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018,
  arXiv 1804.06826: 193 cycles and 2155 GB/s of V100's L2 cache, 750 of 900 GB/s of its memory, as
  others quote it too.
- *Luo*: Luo et al., Benchmarking and Dissecting the Nvidia Hopper GPU Architecture, 2024,
  arXiv 2402.13499.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tvm_rammer.errors import DeviceError
from tvm_rammer.units import listed

KIB = 1 << 10
MIB = 1 << 20
#: The same of all architectures here. Source: guide.
WARP_THREADS = 32
#: What the L2 cache gives at once.
SECTOR_BYTES = 32
BLOCK_THREADS = 1024
REGISTERS = 65_536
THREAD_REGISTERS = 255


#: Results of an SM per clock, of single lanes: integer additions, products, comparisons and logic.
INTEGER_RESULTS = 64
#: Reciprocals, roots, exponentials and logarithms to base 2, sine, cosine, and conversions.
SPECIAL_RESULTS = 16
#: Lanes of loads, stores and shuffles. Source: V100, A100 and H100 (LD/ST units).
LOAD_STORE_LANES = 32
#: Multiply-adds of an instruction for tensor cores, 16 x 8 x 16. Source: PTX ISA; assumed: the same
#: of older ones.
TENSOR_PRODUCTS = 2048
#: Each issues one instruction of a warp per clock. Source: V100, A100, H100.
SCHEDULERS = 4


@dataclass(frozen=True)
class CudaArchitecture:
    """What an SM has, and what a block on it may have.

    Attributes
    ----------
    name : str
        As TVM and nvcc call it, such as ``"sm_90"``.
    blocks, warps : int
        Resident on an SM at most.
    shared_bytes, block_shared_bytes : int
        Shared memory of an SM, and of a block that asks for all that it may have.
    system_shared_bytes : int
        Of each block's share, what the system keeps.
    shared_unit : int
        Bytes: what a block has is rounded up to them.
    float32_results, float16_results : int
        Of an SM per clock: additions, products or multiply-adds.
    tensor_results : int
        Multiply-adds of tensor cores per clock: products of float16, of matrices without holes,
        that are added up in float32.
    """

    name: str
    blocks: int
    warps: int
    shared_bytes: int
    block_shared_bytes: int
    float32_results: int
    float16_results: int
    tensor_results: int
    system_shared_bytes: int = KIB
    shared_unit: int = 128


# Source: guide; the units in which shared memory is given out: cuda_occupancy.h of CUDA 13; tensor
# cores: V100, T4, A100, GA102, AD102 and H100, which have 8 x 64, 8 x 64, 4 x 256, 4 x 64, 4 x 64
# and 4 x 512 multiply-adds; Orin, half of its 85 dense TOPS of int8; B200, 2.25 dense PFLOPS.
ARCHITECTURES = {
    arch.name: arch
    for arch in (
        CudaArchitecture("sm_70", 32, 64, 96 * KIB, 96 * KIB, 64, 128, 512, 0, 256),
        CudaArchitecture("sm_75", 16, 32, 64 * KIB, 64 * KIB, 64, 128, 512, 0, 256),
        CudaArchitecture("sm_80", 32, 64, 164 * KIB, 163 * KIB, 64, 256, 1024),
        CudaArchitecture("sm_86", 16, 48, 100 * KIB, 99 * KIB, 128, 128, 256),
        CudaArchitecture("sm_87", 16, 48, 164 * KIB, 163 * KIB, 128, 128, 1024),
        CudaArchitecture("sm_89", 24, 48, 100 * KIB, 99 * KIB, 128, 128, 256),
        CudaArchitecture("sm_90", 32, 64, 228 * KIB, 227 * KIB, 128, 256, 2048),
        CudaArchitecture("sm_100", 32, 64, 228 * KIB, 227 * KIB, 128, 256, 4096),
    )
}


@dataclass(frozen=True)
class Gpu:
    """A device.

    Attributes
    ----------
    name : str
    arch : str
        Of :data:`ARCHITECTURES`.
    sms : int
    clock : float
        Cycles of an SM per second, boosted.
    l2_bytes : int
    l2_bytes_per_cycle : int
        What all SMs together draw from the L2 cache at most.
    bandwidth : float
        Bytes per second from memory at most.
    l2_cycles : float
        From a load to its data out of the L2 cache.
    """

    name: str
    arch: str
    sms: int
    clock: float
    l2_bytes: int
    l2_bytes_per_cycle: int
    bandwidth: float
    l2_cycles: float


GPUS = {
    gpu.name: gpu
    for gpu in (
        # V100 (SXM2, 16 GB); A100 (bytes per cycle); Jia (latencies).
        Gpu("V100", "sm_70", 80, 1.53e9, 6 * MIB, 2048, 900e9, 193),
        # A100 (SXM4, 40 GB); Luo (latencies).
        Gpu("A100", "sm_80", 108, 1.41e9, 40 * MIB, 5120, 1555e9, 261.5),
        # H100 (SXM5); Luo (latencies); assumed: bytes per cycle as A100's.
        Gpu("H100", "sm_90", 132, 1.98e9, 50 * MIB, 5120, 3350e9, 263.0),
        # H100 (H200 SXM); assumed: all but the memory's bandwidth as H100's.
        Gpu("H200", "sm_90", 132, 1.98e9, 50 * MIB, 5120, 4800e9, 263.0),
        # GA102; assumed: latencies as A100's, bytes per cycle as V100's.
        Gpu("RTX 3090", "sm_86", 82, 1.695e9, 6 * MIB, 2048, 936e9, 261.5),
        # AD102; Luo (latencies); assumed: bytes per cycle as V100's.
        Gpu("RTX 4090", "sm_89", 128, 2.52e9, 72 * MIB, 2048, 1008e9, 273.0),
        # T4; assumed: latencies as V100's, bytes per cycle for each SM as well.
        Gpu("T4", "sm_75", 40, 1.59e9, 4 * MIB, 1024, 320e9, 193),
        # Orin (64 GB); assumed: latencies as A100's, bytes per cycle for each SM as V100's.
        Gpu("AGX Orin", "sm_87", 16, 1.3e9, 4 * MIB, 410, 204.8e9, 261.5),
        # B200; assumed: clock, bytes per cycle and the memory's latency as H100's.
        Gpu("B200", "sm_100", 148, 1.98e9, 126 * MIB, 5120, 8000e9, 297.0),
    )
}
#: The device that stands for an architecture where none is named.
_USUAL = {
    **{"sm_70": "V100", "sm_75": "T4", "sm_80": "A100", "sm_86": "RTX 3090", "sm_87": "AGX Orin"},
    **{"sm_89": "RTX 4090", "sm_90": "H100", "sm_100": "B200"},
}


def architecture_of(name: str) -> CudaArchitecture:
    """The architecture of a name such as ``"sm_90"`` or ``"sm_90a"``.

    Raises
    ------
    DeviceError
        When it is not known.
    """
    plain = re.sub(r"(?<=\d)[af]$", "", name)
    if plain not in ARCHITECTURES:
        raise DeviceError(
            f"the architecture {name!r} is not known: choose one of {listed(ARCHITECTURES)}"
        )
    return ARCHITECTURES[plain]


def usual_gpu(arch: str) -> Gpu:
    """The data centre's, or fastest, device of an architecture.

    Raises
    ------
    DeviceError
        When the architecture is not known.
    """
    return GPUS[_USUAL[architecture_of(arch).name]]
