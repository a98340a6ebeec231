"""What single decisions are worth on a model: each is taken back, and everything else stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import onnx

from bench.findings import FindingsFile
from bench.own_cores import NearCores, Patience
from bench.plan_roofline import Demand, demands, least_seconds, typical
from bench.race import race, ratios
from bench.side_by_side import SideBySide
from bench.slow_operators import SlowOperator, slow_operators
from tvm_rammer.backend import vdevice_for
from tvm_rammer.backend.cpu.host.measure_ceilings import CeilingsTogether
from tvm_rammer.errors import InputError
from tvm_rammer.machine.ceilings import Ceilings
from tvm_rammer.runtime.build import build
from tvm_rammer.runtime.graph_module import GraphModule
from tvm_rammer.runtime.kernel_report import KernelReport, kernel_report
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.report import Report, make_report
from tvm_rammer.schedule import AUTO, POLICIES, CostModel, simulate
from tvm_rammer.testing.reference import random_inputs

#: Everything is compared with it.
BASE = "sequential"
#: The plan whose waits become barriers.
_WITH_BARRIERS = "wavefront"
BARRIERS = f"{_WITH_BARRIERS}, barriers"
NO_WINOGRAD = f"{BASE}, Winograd off"
_SIDE_BY_SIDE, _LEAST = "side by side", "roofline"
#: Runs of each kind in a profile, and profiles of which the operators' medians are taken.
_PROFILED, _PROFILES = 11, 5


@dataclass(frozen=True)
class PlanResult:
    """A plan that was timed against the others.

    Attributes
    ----------
    milliseconds : float
        Median of a run.
    ratio : tuple of three float
        Its time over that of :data:`BASE` in the same round: the median and its 95 % interval.
    simulated : float, optional
        Predicted milliseconds; None for a plan that is not simulated as a whole.
    tasks, waits : int
    utilisation_simulated, utilisation_measured : float, optional
        Share of the vEUs' time that they compute; measured where a profile can be taken.
    """

    milliseconds: float
    ratio: tuple[float, float, float]
    simulated: float | None
    tasks: int
    waits: int
    utilisation_simulated: float | None
    utilisation_measured: float | None


@dataclass(frozen=True)
class KernelTimes:
    """A model's operators one after the other on one core, and the least that these may take."""

    milliseconds: float
    roofline: float


@dataclass(frozen=True)
class PlanRoofline:
    """The least time of a plan's operators, and the plan's time over it.

    Attributes
    ----------
    milliseconds : float
        Median over the rounds, as the rates of the vEUs change.
    ratio : tuple of three float
        The plan's time over the least of the same round: the median and its 95 % interval.
    side_by_side : tuple of three float
        Likewise of the same kernels where each core runs the whole model by itself, all at the same
        time: what a core's run takes, shared out.
    quiet : float
        Of the fastest tenth of the rounds the slowest, over :attr:`milliseconds`: what the plan
        takes where neighbours on the host disturb least.
    """

    milliseconds: float
    ratio: tuple[float, float, float]
    side_by_side: tuple[float, float, float]
    quiet: float


@dataclass(frozen=True)
class Study:
    """Everything that was found about a model.

    Attributes
    ----------
    num_veus : int
    policy : str
        What ``auto`` chose, for each region.
    plans : mapping of str to PlanResult
        By policy or variant.
    dispatch_ns, dispatch_share : float, optional
        What an rTask costs beside computing, on one vEU, where nothing waits: nanoseconds, and
        share of the run.
    kernels : KernelTimes, optional
        Every rKernel by itself; None where the machine's ceilings are not known.
    roofline : PlanRoofline
        The plan :data:`BASE` against what all vEUs reach side by side.
    slowest : tuple of SlowOperator
        What loses most to its roofline in that plan, the worst first; none where no profile can be
        taken.
    """

    num_veus: int
    policy: tuple[str, ...]
    plans: dict[str, PlanResult]
    dispatch_ns: float | None
    dispatch_share: float | None
    kernels: KernelTimes | None
    roofline: PlanRoofline
    slowest: tuple[SlowOperator, ...]


#: What ablations.py writes.
STUDIES = FindingsFile("ablations.py", Study)


def study(model: onnx.ModelProto, seconds: float, patience: float) -> Study:
    """Study a model on this machine.

    Parameters
    ----------
    model : onnx.ModelProto
    seconds : float
        For timing, compiling not included.
    patience : float
        Seconds that the turns wait in all for cores of our own that share a cache.
    """
    library = build(model)
    assert library.source is not None
    report = make_report(library.description)
    inputs = random_inputs(model)
    variants = dict(_variants(library, report, model))
    modules = {name: _instance(variant, inputs) for name, variant in variants.items()}
    source, reached = library.source, []
    compiler = source.compiler
    # The clock of a shared machine changes from second to second, and its ceilings with it.
    ceilings = CeilingsTogether(compiler.target, compiler.kernels.vdevice)
    quiet = Patience(patience, NearCores)
    alone = library.replan(BASE, 1)
    together = SideBySide([_instance(alone, inputs).run for _ in range(report.num_veus)])
    times = race(
        {_SIDE_BY_SIDE: together, **{name: module.run for name, module in modules.items()}},
        seconds,
        quiet,
        lambda: reached.append(ceilings.measure()),
    )
    together.end()
    each = [call / together.runs_of_a_call for call in times.pop(_SIDE_BY_SIDE)]
    relative = ratios(times, BASE)
    plans = {
        name: _result(variants[name], modules[name], times[name], relative[name])
        for name in variants
    }
    single = modules.get(veus(1)) or _instance(library.replan(BASE, 1), inputs)
    dispatch = _dispatch(single)
    base = variants[BASE].programs.values()
    needed = demands(base, compiler.kernels.bodies, compiler.kernels.vdevice)
    least = [least_seconds(needed, moment) for moment in reached]
    to_least = ratios({BASE: times[BASE], _SIDE_BY_SIDE: each, _LEAST: least}, _LEAST)
    return Study(
        report.num_veus,
        tuple(program.policy for program in library.programs.values()),
        plans,
        *dispatch,
        _kernel_times(kernel_report(source.with_rows(report.merged_rows), compiler)),
        PlanRoofline(
            1e3 * median(least),
            to_least[BASE],
            to_least[_SIDE_BY_SIDE],
            _tenth(times[BASE]) / median(least),
        ),
        _slowest(modules[BASE], quiet, needed, typical(reached)),
    )


def veus(count: int) -> str:
    """The name of the plan that ``auto`` makes for so many vEUs."""
    return f"{AUTO}, {count} vEU{'s' if count > 1 else ''}"


def _variants(
    library: Library, report: Report, model: onnx.ModelProto
) -> Iterator[tuple[str, Library]]:
    yield BASE, library.replan(BASE)
    yield AUTO, library
    skipped = {
        name for region in report.regions if region.decision for name, _ in region.decision.left_out
    }
    for policy in POLICIES:
        if policy not in skipped and policy != BASE:
            yield policy, library.replan(policy)
    yield BARRIERS, library.replan(_WITH_BARRIERS, form="wavefront")
    count = 1
    while count < report.num_veus:
        yield veus(count), library.replan(AUTO, count)
        count *= 2
    if any("winograd" in kernel for region in report.regions for kernel in region.kernels):
        yield NO_WINOGRAD, build(model, policy=BASE, winograd_tolerance=0)


def _instance(library: Library, inputs: dict[str, Any]) -> GraphModule:
    module = library.create()
    for name, value in inputs.items():
        module.set_input(name, value)
    return module


def _result(
    library: Library,
    module: GraphModule,
    times: Sequence[float],
    ratio: tuple[float, float, float],
) -> PlanResult:
    programs = library.programs.values()
    simulated = utilisation = None
    if library.options is not None and library.options.form == "program" and programs:
        costs = CostModel.of(vdevice_for())
        timelines = [simulate(program, costs) for program in programs]
        makespan = sum(timeline.makespan for timeline in timelines)
        busy = sum(timeline.busy for timeline in timelines)
        simulated = 1e3 * makespan
        utilisation = busy / (makespan * module.num_veus) if makespan else None
    return PlanResult(
        1e3 * median(times),
        ratio,
        simulated,
        sum(program.num_tasks for program in programs),
        sum(len(task.waits) for program in programs for _, _, task in program.tasks()),
        utilisation,
        _measured_utilisation(module),
    )


def _tenth(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 10]


def _kernel_times(report: KernelReport) -> KernelTimes | None:
    if report.roofline_seconds is None:
        return None
    return KernelTimes(1e3 * report.seconds, 1e3 * report.roofline_seconds)


def _slowest(
    module: GraphModule, quiet: Patience, needed: Sequence[Demand], ceilings: Ceilings
) -> tuple[SlowOperator, ...]:
    profiles = []
    for _ in range(_PROFILES):
        quiet.wait()
        try:
            profiles.append(module.profile(_PROFILED))
        except InputError:
            return ()
    timelines = [profile.timeline for profile in profiles]
    return slow_operators(profiles[0].program, timelines, needed, ceilings)


def _measured_utilisation(module: GraphModule) -> float | None:
    try:
        return module.profile(_PROFILED).timeline.utilisation
    except InputError:  # more than one region, or less
        return None


def _dispatch(module: GraphModule) -> tuple[float | None, float | None]:
    """What an rTask costs beside computing: nanoseconds, and share of the run."""
    try:
        timeline = module.profile(_PROFILED).timeline
    except InputError:
        return None, None
    first = min(span.start for span in timeline.spans)
    spare = timeline.makespan - first - timeline.busy
    return 1e9 * spare / len(timeline.spans), spare / timeline.makespan
