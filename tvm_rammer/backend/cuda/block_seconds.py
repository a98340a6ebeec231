"""What a tile takes a resident block, by counting: nobody has measured it.

A block has its share of the SM's lanes and of what all SMs draw from the L2 cache. Beside that a
tile takes what one load and one result are under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_rammer.backend.cuda.devices import LATENCY_CYCLES, Gpu, architecture_of
from tvm_rammer.kernel.split import Stage
from tvm_rammer.kernel.work import count_work

#: So many bytes that no count of what is touched is cut off at the size of a buffer.
_ALL = 1 << 62


@dataclass(frozen=True)
class BlockShare:
    """What one of the blocks that an SM runs together has of a GPU.

    Attributes
    ----------
    gpu : Gpu
    blocks : int
        On an SM.
    """

    gpu: Gpu
    blocks: int

    def flops(self, threads: int) -> float:
        """Operations per second of so many threads, each of which waits for its last result."""
        lanes = architecture_of(self.gpu.arch).float32_results / self.blocks
        return 2 * min(lanes, threads / LATENCY_CYCLES) * self.gpu.clock

    @property
    def bandwidth(self) -> float:
        """Bytes per second from the L2 cache."""
        blocks = self.gpu.sms * self.blocks
        return self.gpu.l2_bytes_per_cycle * self.gpu.clock / blocks

    @property
    def latency(self) -> float:
        """Seconds from a load to its data, and from a store to who waits for it."""
        return 2 * self.gpu.l2_cycles / self.gpu.clock


def tile_seconds(stage: Stage, threads: int, share: BlockShare) -> float:
    """Seconds that a tile of a stage takes, as its loops on plain threads count.

    Parameters
    ----------
    stage : Stage
        With the body on plain loops.
    threads : int
        That have something to do.
    share : BlockShare
    """
    flops, touched = count_work(stage.body, stage.num_tiles, [_ALL] * len(stage.arguments))
    tiles = max(1, stage.num_tiles)
    computing = flops / tiles / share.flops(threads)
    loading = sum(touched) / tiles / share.bandwidth
    return share.latency + max(computing, loading)
