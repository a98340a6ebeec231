"""Simulate an rProgram: when each rTask starts and ends, and how soon any schedule could end."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tvm_rammer.rprogram.happens_before import linear_extension
from tvm_rammer.rprogram.program import RProgram, Wait
from tvm_rammer.rprogram.rows import predecessors_of
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.demands import Demands
from tvm_rammer.schedule.timeline import Span, Timeline
from tvm_rammer.schedule.traffic import Traffic

#: Nothing but the kernels takes time.
_FREE = CostModel(point_to_point=0.0, barrier=0.0, launch=0.0)


@dataclass(frozen=True)
class Bounds:
    """Seconds that no schedule of the same rKernels on as many vEUs can beat, launch not counted.

    Attributes
    ----------
    critical_path : float
        The longest path of the graph, every operator across all vEUs.
    work : float
        All tiles, spread evenly over the vEUs.
    traffic : float
        The weights that the last-level cache cannot hold over the bandwidth of memory.
    """

    critical_path: float
    work: float
    traffic: float = 0.0

    @property
    def makespan(self) -> float:
        return max(self.critical_path, self.work, self.traffic)


def simulate(program: RProgram, costs: CostModel, demands: Demands | None = None) -> Timeline:
    """Run a program on paper.

    An rTask starts when its vEU is free and every rTask that it waits for has ended
    ``costs.point_to_point`` ago, or as long ago as a signal takes from a vEU that is farther. How
    long it takes depends on where its data is and on what runs beside it when it starts
    (:class:`~.traffic.Traffic`). Time 0 is the launch.

    Parameters
    ----------
    program : RProgram
    costs : CostModel
    demands : Demands, optional
        Of the program's graph, where several of its programs are simulated.

    Returns
    -------
    Timeline
        One span for each rTask, vEU by vEU.

    Raises
    ------
    PlanError
        If rTasks wait for each other in a circle.
    """
    run = _Run(program, costs, demands)
    spans = run.spans()
    if len(spans) < program.num_tasks:
        # It names the circle.
        linear_extension(program)
    return Timeline(tuple(spans), "simulated", program.num_veus)


def seconds_by_wave(program: RProgram, timeline: Timeline, costs: CostModel) -> float:
    """Seconds of a program whose waves are a launch each, from which all vEUs return.

    Made of its simulation in one launch: rTasks take as long.
    """
    loads: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for span in timeline.spans:
        wave = program.veus[span.veu][span.position].wave
        loads[wave][span.veu] += span.duration
    return sum(costs.launch + max(mine.values()) for mine in loads.values())


def bounds(program: RProgram, costs: CostModel = _FREE) -> Bounds:
    """Lower bounds of the makespan of any plan that uses the same rKernels.

    Parameters
    ----------
    program : RProgram
    costs : CostModel
        Its bandwidths and caches count, synchronising does not.
    """
    traffic = Traffic(program, costs)
    predecessors = predecessors_of(program)
    ends = list[float]()
    for number, least in enumerate(traffic.least):
        tiles = program.kernel_of(number).num_tiles
        before = [ends[producer] for producer in predecessors[number]]
        longest = -(-tiles // program.num_veus) / tiles * least if tiles else 0.0
        ends.append(max(before, default=0.0) + longest)
    rate = costs.memory_bandwidth * costs.sockets(program.num_veus)
    fetching = sum(traffic.demands.memory_bytes) / rate
    return Bounds(max(ends, default=0.0), sum(traffic.least) / program.num_veus, fetching)


@dataclass(slots=True)
class _Awaited:
    """The waits of some rTasks.

    Attributes
    ----------
    waits : tuple of Wait
    veu : int
        One that waits: for all of them it takes as long to see a signal.
    over : int
        Of the waits, those before that are over.
    start : float
        When rTasks can start, by these.
    veus : list of (float, int)
        Who waits, and when each is free.
    """

    waits: tuple[Wait, ...]
    veu: int
    over: int = 0
    start: float = 0.0
    veus: list[tuple[float, int]] = field(default_factory=list)


class _Run:
    """rTasks in the order in which they start.

    Attributes
    ----------
    ends : list of list of float
        When the rTasks of each vEU ended that have run.
    ready : heap of (float, int)
        vEUs by when their next rTask starts.
    awaited : dict
        What waits amount to, by their identity: many rTasks share them. Of several distances, each
        vEU has its own.
    blocked : dict
        What waits for ``(vEU, count)`` first, which has not run yet.
    """

    def __init__(self, program: RProgram, costs: CostModel, demands: Demands | None) -> None:
        self.program = program
        self.costs = costs
        self.pairs = costs.pairs()
        self.traffic = Traffic(program, costs, demands)
        self.ends: list[list[float]] = [[] for _ in program.veus]
        self.ready: list[tuple[float, int]] = []
        self.awaited: dict[tuple[int, int], _Awaited] = {}
        self.blocked: dict[tuple[int, int], list[_Awaited]] = {}

    def spans(self) -> list[Span]:
        """The spans of all rTasks that can run."""
        found: list[list[Span]] = [[] for _ in self.program.veus]
        for veu in range(self.program.num_veus):
            self._offer(veu)
        while self.ready:
            start, veu = heappop(self.ready)
            position = len(self.ends[veu])
            task = self.program.veus[veu][position]
            stop = start + self.costs.row + self.traffic.run(veu, task, start)
            self.ends[veu].append(stop)
            found[veu].append(Span(veu, position, task.operator, start, stop))
            self._offer(veu)
            for awaited in self.blocked.pop((veu, position + 1), ()):
                self._look(awaited)
        return [span for mine in found for span in mine]

    def _offer(self, veu: int) -> None:
        """Find out when the next rTask of a vEU starts, if that is known."""
        mine = self.ends[veu]
        if len(mine) == len(self.program.veus[veu]):
            return
        waits = self.program.veus[veu][len(mine)].waits
        start = mine[-1] if mine else self.costs.launch
        if waits:
            key = id(waits), -1 if self.costs.topology is None else veu
            awaited = self.awaited.get(key)
            if awaited is None:
                awaited = self.awaited[key] = _Awaited(waits, veu)
                self._look(awaited)
            if awaited.over < len(waits):
                awaited.veus.append((start, veu))
                return
            start = max(start, awaited.start)
        heappush(self.ready, (start, veu))

    def _look(self, awaited: _Awaited) -> None:
        """Go on with waits until one is not over; those who waited for all of them can start."""
        for number in range(awaited.over, len(awaited.waits)):
            wait = awaited.waits[number]
            theirs = self.ends[wait.veu]
            if len(theirs) < wait.count:
                awaited.over = number
                self.blocked.setdefault((wait.veu, wait.count), []).append(awaited)
                return
            signal = self._signal(awaited.veu, wait.veu)
            awaited.start = max(awaited.start, theirs[wait.count - 1] + signal)
        awaited.over = len(awaited.waits)
        for start, veu in awaited.veus:
            heappush(self.ready, (max(start, awaited.start), veu))

    def _signal(self, veu: int, other: int) -> float:
        """Seconds until a vEU sees what another one has ended."""
        topology = self.costs.topology
        if topology is None:
            return self.costs.point_to_point
        return self.pairs[topology.distance(veu, other)].point_to_point
