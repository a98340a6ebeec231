"""What rTasks draw from caches and memory, and how long that makes them take."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from tvm_rammer.rprogram.program import RKernel, RProgram, RTask
from tvm_rammer.schedule.contention import Contention
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.demands import Demands, Weight
from tvm_rammer.schedule.recent_weights import LastLevel, RecentWeights
from tvm_rammer.schedule.transfers import Transfers

#: Share of a vEU's own cache that weights occupy beside intermediate results.
_FOR_WEIGHTS = 0.75


class Traffic:
    """Durations of a program's rTasks, given what ran before on their vEU and what runs beside.

    The costs of kernels are those of a vEU alone whose operands come from the last-level cache.
    Five things change them. What a vEU has read lately of a weight is in its own cache, and is not
    drawn again. Weights that the last-level cache does not keep until the next run come from
    memory, and so do those that it loses during the run (:class:`~.recent_weights.LastLevel`). What
    another vEU has just written has to be fetched from its cache
    (:class:`~.transfers.Transfers`). And vEUs of a complex that together ask for more than its
    last-level cache delivers, or those of a socket for more than its memory, stretch each other.

    Parameters
    ----------
    program : RProgram
    costs : CostModel
    demands : Demands, optional
        Of the program's graph, where several of its programs are asked about.
    """

    def __init__(self, program: RProgram, costs: CostModel, demands: Demands | None = None) -> None:
        self.program = program
        self.costs = costs
        self.demands = demands or Demands.of_program(program, costs)
        room = _FOR_WEIGHTS * costs.l2_bytes
        self._own = [RecentWeights(room, program.buffers) for _ in program.veus]
        self._kernels = [program.kernels[op.kernel] for op in program.operators]
        self._contention = Contention(program.num_veus, costs.topology)
        self._transfers = Transfers(program, costs, self.demands)
        self._last_level = LastLevel(program, costs)

    def run(self, veu: int, task: RTask, start: float) -> float:
        """Seconds of an rTask that starts on ``veu`` at ``start``; to be asked in order of time."""
        operator = task.operator
        kernel, weight = self._kernels[operator], self.demands.weights[operator]
        share = (task.stop - task.start) / (kernel.num_tiles or 1)
        near, lost = (
            self._reread(veu, task, kernel, weight) if weight and weight.nbytes else (0.0, 0.0)
        )
        seconds = (self.alone[operator] - near * self.saving[operator]) * share
        memory = self.demands.memory_bytes[operator] * share
        if lost:
            memory += lost
            seconds = max(seconds, seconds_of_memory(memory, self.costs))
        nbytes = self.demands.nbytes[operator] * share
        seconds += self._transfers.seconds(veu, task, nbytes)
        cache = nbytes - near * weight.nbytes * share if weight else nbytes
        if not seconds:
            return 0.0
        seconds *= self._stretch(veu, start, cache, memory, seconds)
        self._contention.add(veu, start + seconds, cache / seconds, memory / seconds)
        return seconds

    @cached_property
    def alone(self) -> list[float]:
        """Seconds of each operator on one vEU that has the device for itself."""
        return [
            seconds_alone(kernel.num_tiles * kernel.tile_time, nbytes, self.costs)
            for kernel, nbytes in zip(self._kernels, self.demands.memory_bytes, strict=True)
        ]

    @cached_property
    def saving(self) -> list[float]:
        """Seconds that each operator saves whose weight is in the vEU's own cache; at most half."""
        return [
            seconds_saved(alone, weight, self.costs)
            for alone, weight in zip(self.alone, self.demands.weights, strict=True)
        ]

    @cached_property
    def least(self) -> list[float]:
        """Seconds that each operator takes at least, wherever its data is."""
        readers = Counter(weight.buffer for weight in self.demands.weights if weight)
        return [
            alone - (saving if weight and readers[weight.buffer] > 1 else 0.0)
            for alone, saving, weight in zip(
                self.alone, self.saving, self.demands.weights, strict=True
            )
        ]

    def _reread(
        self, veu: int, task: RTask, kernel: RKernel, weight: Weight
    ) -> tuple[float, float]:
        """The part of what an rTask reads of a weight that its vEU has in its own cache, and how
        many bytes of the rest come from memory once more."""
        cells = kernel.touched(weight.pointer, task.start, task.stop)
        near = self._own[veu].read(weight, cells)
        if not self._own[veu].holds_all_of(weight):
            near = 0
        part = near.bit_count() / max(1, cells.bit_count())
        if not self._last_level.overflows:
            return part, 0.0
        return part, self._last_level.lost_bytes(veu, weight, cells & ~near)

    def _stretch(
        self, veu: int, start: float, cache: float, memory: float, seconds: float
    ) -> float:
        """How many times longer a task takes because of those that run when it starts."""
        costs = self.costs
        drawn, fetched = self._contention.beside(veu, start)
        cache_rate = min(cache / seconds, costs.bandwidth) + drawn
        memory_rate = min(memory / seconds, costs.memory_bandwidth) + fetched
        return max(1.0, cache_rate / costs.bandwidth, memory_rate / costs.memory_bandwidth)


def seconds_alone(computing: float, memory_bytes: float, costs: CostModel) -> float:
    """Seconds of an operator on one vEU that has the device for itself."""
    return max(computing, seconds_of_memory(memory_bytes, costs))


def seconds_of_memory(nbytes: float, costs: CostModel) -> float:
    """Seconds until one vEU has bytes from memory."""
    return nbytes / min(costs.core_memory_bandwidth, costs.memory_bandwidth)


def seconds_saved(alone: float, weight: Weight | None, costs: CostModel) -> float:
    """Seconds that an operator saves whose weight is in the vEU's own cache; at most half."""
    return min(0.5 * alone, weight.nbytes * costs.far_byte) if weight else 0.0
