"""What rTasks draw from caches and memory, and how long that makes them take."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Sequence
from functools import cached_property
from heapq import heappop, heappush

from tvm_rammer.machine.topology import Topology
from tvm_rammer.rprogram.program import CELLS, Buffer, RKernel, RProgram, RTask
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.demands import Demands, Weight
from tvm_rammer.schedule.transfers import Transfers

#: Share of a vEU's own cache that weights occupy beside intermediate results.
_FOR_WEIGHTS = 0.75


class Traffic:
    """Durations of a program's rTasks, given what ran before on their vEU and what runs beside.

    The costs of kernels are those of a vEU alone whose operands come from the last-level cache.
    Five things change them. What a vEU has read lately of a weight is in its own cache, and is not
    drawn again. Weights that the last-level cache does not keep until the next run come from
    memory, and so do those that it loses during the run (:class:`LastLevel`). What
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


#: Parts of a byte per second that are counted: far less than any rate is known to.
_PARTS = 1 << 20
#: Of a plan that somebody wrote by hand a rate may be beyond all numbers.
_MOST_PARTS = sys.float_info.max


class Contention:
    """Bytes per second of the rTasks that run at a time, which never goes back.

    Sums are kept as rTasks start and end, so that nobody looks at all vEUs to know them. They are
    of whole numbers, which add up to the same in any order.

    Parameters
    ----------
    num_veus : int
    topology : Topology, optional
        Says whose last-level cache and whose memory a vEU shares; all share one without it.
    """

    def __init__(self, num_veus: int, topology: Topology | None) -> None:
        complexes, sockets = (topology.complexes, topology.sockets) if topology else ((0,), (0,))
        self._complexes = [complexes[veu % len(complexes)] for veu in range(num_veus)]
        self._sockets = [sockets[veu % len(sockets)] for veu in range(num_veus)]
        #: By when they end: the vEU, and parts of bytes from its cache and its memory.
        self._running: list[tuple[float, int, int, int]] = []
        self._from_caches: dict[int, int] = defaultdict(int)
        self._from_memories: dict[int, int] = defaultdict(int)

    def beside(self, veu: int, start: float) -> tuple[float, float]:
        """What others draw from the last-level cache and the memory of a vEU that is free."""
        while self._running and self._running[0][0] <= start:
            _, other, cache, memory = heappop(self._running)
            self._count(other, -cache, -memory)
        cache = self._from_caches[self._complexes[veu]]
        return cache / _PARTS, self._from_memories[self._sockets[veu]] / _PARTS

    def add(self, veu: int, stop: float, cache: float, memory: float) -> None:
        """An rTask that draws so much until it ends."""
        parts = (_in_parts(cache), _in_parts(memory))
        heappush(self._running, (stop, veu, *parts))
        self._count(veu, *parts)

    def _count(self, veu: int, cache: int, memory: int) -> None:
        if cache:
            self._from_caches[self._complexes[veu]] += cache
        if memory:
            self._from_memories[self._sockets[veu]] += memory


def _in_parts(rate: float) -> int:
    return int(min(rate * _PARTS, _MOST_PARTS)) if rate else 0


class RecentWeights:
    """What a cache, empty at first, holds of weights; the one not read for longest goes first.

    Parameters
    ----------
    room : float
        Bytes; a single weight may take more.
    buffers : sequence of Buffer
        Of the program.
    """

    def __init__(self, room: float, buffers: Sequence[Buffer]) -> None:
        self.room = room
        self._buffers = buffers
        #: Cells that are there, by weight; the latest last.
        self._cells: OrderedDict[int, int] = OrderedDict()
        self._nbytes = 0.0

    def read(self, weight: Weight, cells: int) -> int:
        """Those of the cells that were there; all are from now on."""
        held, cell = self._cells, weight.nbytes / CELLS
        known = held.get(weight.buffer, 0)
        held[weight.buffer] = known | cells
        held.move_to_end(weight.buffer)
        self._nbytes += (cells & ~known).bit_count() * cell
        while len(held) > 1 and self._nbytes > self.room:
            other, gone = held.popitem(last=False)
            self._nbytes -= gone.bit_count() * self._buffers[other].nbytes / CELLS
        return cells & known

    def holds_all_of(self, weight: Weight) -> bool:
        """Whether what was read of the latest weight fits."""
        return self._cells[weight.buffer].bit_count() * weight.nbytes / CELLS <= self.room


class LastLevel:
    """The weights in each complex's last-level cache.

    Only constants take room: what operators hand over is small beside them where they do not fit.
    """

    def __init__(self, program: RProgram, costs: CostModel) -> None:
        places = costs.topology.complexes if costs.topology is not None else (0,)
        self._places = [places[veu % len(places)] for veu in range(program.num_veus)]
        self._caches = {
            place: RecentWeights(costs.l3_bytes, program.buffers) for place in self._places
        }
        #: Whether any weight can be lost.
        self.overflows = program.constant_bytes > costs.l3_bytes
        #: Cells that any vEU of a complex has read.
        self._seen: dict[tuple[int, int], int] = {}

    def lost_bytes(self, veu: int, weight: Weight, cells: int) -> float:
        """Bytes of ``cells`` that the cache had and has lost; it has them from now on."""
        place = self._places[veu]
        there = self._caches[place].read(weight, cells)
        seen = self._seen.get((place, weight.buffer), 0)
        self._seen[place, weight.buffer] = seen | cells
        return (cells & seen & ~there).bit_count() * weight.nbytes / CELLS
