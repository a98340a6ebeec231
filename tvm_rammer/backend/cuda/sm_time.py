"""How long a GPU takes for tiles and for synchronising: an estimate.

The model of an SM: four schedulers issue an instruction of a warp each per cycle; arithmetic, the
special units and the paths to memory each take so many lanes per cycle; what one block loads it
waits for, once for every phase between two barriers; and the blocks of an SM share all of it.

Sources, by the names that comments use, besides those of ``devices``:

- *graphs*: Gray, Getting Started with CUDA Graphs, NVIDIA Technical Blog, 2019: 20 kernels of
  2.9 us on a V100 take 3.8 us each in a stream, 3.4 us each in a graph.
- *Zhang*: Zhang et al., A Study of Single and Multi-device Synchronization Methods in Nvidia GPUs,
  IPDPS 2020, arXiv 2004.05371: a grid barrier of a V100 from 1.4 us on, of one block on each SM.
- *Measured*: on an H100 and an H200, both SXM, driver 580, by ``python/measure_gpu.py``.
- *Luo*, as in ``devices``: on H100, mma reaches 62.9 % of the peak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_rammer.backend.cuda.devices import (
    INTEGER_RESULTS,
    LOAD_STORE_LANES,
    SCHEDULERS,
    SECTOR_BYTES,
    SPECIAL_RESULTS,
    TENSOR_PRODUCTS,
    WARP_THREADS,
    Gpu,
    architecture_of,
)
from tvm_rammer.backend.cuda.operation_counts import Operations
from tvm_rammer.schedule.costs import CostModel

#: How well what a block waits for, issues and moves hides the rest; infinite: all but the longest.
_HIDING = 3
#: Of a wait in the table.
_ENTRY_BYTES = 8


@dataclass(frozen=True)
class SmSpeeds:
    """Numbers of the model that no data sheet has.

    Attributes
    ----------
    l2_share, memory_share : float
        Of the most bytes per second, what kernels get.
    tensor_share : float
        Of what tensor cores do at most, what the instructions do that are used here.
    loads_in_flight : float
        Loads that a thread has under way when nothing makes it wait.
    thread_instructions, barrier_instructions : float
        Of indices, loops and predicates: of a thread, and for every barrier that it meets.
    launch : float
        Seconds from a kernel to the next one in a stream.
    barrier : float
        Seconds of a barrier of the grid.
    hand_over : float
        Latencies of the L2 cache from a release until the block that waits has acquired it.
    looks : float
        Of a wait at the counter, until it finds it set.
    row : float
        Latencies of the L2 cache that every rTask takes longer than its tiles.
    """

    # Jia: 2155 of 3133 GB/s of V100's L2 cache, and 750 of 900 GB/s of its memory.
    l2_share: float = 0.69
    memory_share: float = 0.83
    tensor_share: float = 1.0
    # Measured, as the tilings of ``BlockTime.beside``: more are as good.
    loads_in_flight: float = 8.0
    # Fitted to the machine code of dlight's kernels for sm_90: within a fifth of what they issue.
    thread_instructions: float = 10.0
    barrier_instructions: float = 7.0
    # Graphs.
    launch: float = 0.9e-6
    # Zhang, for V100; assumed: the same of others.
    barrier: float = 1.4e-6
    # Measured: 0.58 us on the H100, 0.45 us on the H200; assumed: as many of others.
    hand_over: float = 3.9
    # Assumed: blocks that wait for many wait for the last of them, and look as often as they can.
    looks: float = 4.0
    # Measured, as profiles of an LSTM, a GRU and a recommender on the H100, without what their
    # stamps take: 0.6 us from an rTask to the next one that waits for nobody, as what was written
    # has to be seen by all before that is said, and 0.35 us until the first loads are there.
    row: float = 5.5


#: Of most devices; A100 is assumed to launch as V100 does.
SM_SPEEDS = SmSpeeds()
# Measured, 3.2 us on the H100 and 4.4 us on the H200, whose host is slower (1.1 us and 1.0 us in a
# graph), and, for mma beside wgmma, Luo, for H100; assumed: of B200 as many multiply-adds of an SM
# per clock.
_H100 = SmSpeeds(launch=3.8e-6, tensor_share=0.63)
_OF_GPU = {"H100": _H100, "H200": _H100, "B200": replace(_H100, tensor_share=0.63 / 2)}


def speeds_of(gpu: Gpu) -> SmSpeeds:
    """The numbers for a device."""
    return _OF_GPU.get(gpu.name, SM_SPEEDS)


@dataclass(frozen=True)
class BlockTime:
    """Seconds of one tile on one of the resident blocks of an SM, and what they consist of.

    Attributes
    ----------
    issue : float
        Instructions issued, all blocks of the SM doing the same.
    traffic : float
        Bytes drawn from the L2 cache, all blocks of the device doing the same.
    latency : float
        Waiting for loads, then computing, by itself.
    resident, sms : int
        Blocks on an SM, and SMs of the device.
    """

    issue: float
    traffic: float
    latency: float
    resident: int
    sms: int

    @property
    def seconds(self) -> float:
        """With all blocks of the device doing the same."""
        return self.beside(self.sms * self.resident)

    def beside(self, blocks: int) -> float:
        """With so many blocks of the device doing the same, spread over its SMs.

        Each hides a part of the others. Measured on an H100, in 1,163 tilings of products and
        other sums: a quarter is the standard deviation of what they take over this, and the longest
        alone is off by more.
        """
        of_sm = min(1.0, -(-blocks // self.sms) / self.resident)
        of_device = min(1.0, blocks / (self.sms * self.resident))
        parts = (self.issue * of_sm, self.traffic * of_device, self.latency)
        return sum(part**_HIDING for part in parts) ** (1 / _HIDING)


def block_time(gpu: Gpu, resident: int, work: Operations, warps: int) -> BlockTime:
    """Estimate what a tile takes.

    Parameters
    ----------
    gpu : Gpu
    resident : int
        Blocks on an SM.
    work : Operations
        Of the tile.
    warps : int
        Of a block.
    """
    speeds = speeds_of(gpu)
    arch = architecture_of(gpu.arch)
    lanes = work.float32 + work.float16 + work.special + work.accesses
    lanes += work.tensor / TENSOR_PRODUCTS * WARP_THREADS
    each = speeds.thread_instructions + speeds.barrier_instructions * work.barriers
    other = each * warps * WARP_THREADS
    cycles = max(
        (lanes + other) / (SCHEDULERS * WARP_THREADS),
        work.float32 / arch.float32_results,
        work.float16 / arch.float16_results,
        work.tensor / (arch.tensor_results * speeds.tensor_share),
        other / INTEGER_RESULTS,
        work.special / SPECIAL_RESULTS,
        work.accesses / LOAD_STORE_LANES,
        work.passes,
    )
    l2 = gpu.l2_bytes_per_cycle * speeds.l2_share / (gpu.sms * resident)
    phases = min(work.barriers + 1, work.global_loads)
    waits = max(phases, work.global_loads / speeds.loads_in_flight)
    return BlockTime(
        issue=cycles * resident / gpu.clock,
        traffic=work.l2_bytes / l2 / gpu.clock,
        latency=(waits * gpu.l2_cycles + cycles) / gpu.clock,
        resident=resident,
        sms=gpu.sms,
    )


def gpu_costs(gpu: Gpu, resident: int) -> CostModel:
    """What a plan costs besides its tiles, where vEUs are the resident blocks of a device.

    A block hands over by a store that reaches the L2 cache and a load that finds it there. A wait
    draws its entry of the table from there, and a sector every time that it looks. The L2 cache is
    the one that all share; a block has none of its own but its part of its SM's.
    """
    speeds = speeds_of(gpu)
    l2 = gpu.l2_bytes_per_cycle * gpu.clock * speeds.l2_share
    wait = _ENTRY_BYTES + speeds.looks * SECTOR_BYTES
    memory = gpu.bandwidth * speeds.memory_share
    arch = architecture_of(gpu.arch)
    return CostModel(
        point_to_point=speeds.hand_over * gpu.l2_cycles / gpu.clock,
        barrier=speeds.barrier,
        launch=speeds.launch,
        bandwidth=l2,
        memory_bandwidth=memory,
        far_byte=0.0,
        l2_bytes=arch.shared_bytes // resident,
        l3_bytes=gpu.l2_bytes,
        transfer=0.0,
        transfer_byte=0.0,
        core_memory_bandwidth=min(memory, l2 / gpu.sms),
        wait=wait / l2,
        row=speeds.row * gpu.l2_cycles / gpu.clock,
    )
