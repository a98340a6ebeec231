"""Decide which plan a region runs: ``auto``, with this machine and earlier decisions at hand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import tvm

from tvm_rammer.backend.protocol import Stopwatch
from tvm_rammer.backend.registry import backend_named
from tvm_rammer.backend.signature import RegionSignature
from tvm_rammer.machine import VDevice
from tvm_rammer.options import Goal
from tvm_rammer.progress import tell
from tvm_rammer.region.operator_graph import RegionGraph
from tvm_rammer.rprogram import OperatorGraph, RProgram
from tvm_rammer.schedule import POLICIES, Policy, policies
from tvm_rammer.schedule.arena_cap import policies_within
from tvm_rammer.schedule.auto import BASELINE, Plan, auto, stored_policy
from tvm_rammer.schedule.decisions import Decision, load_decision, store_decision
from tvm_rammer.schedule.policies import finish


def decide_plan(
    region: RegionGraph,
    goal: Goal,
    signature: RegionSignature,
    module: Callable[[], tvm.runtime.Module],
    ids: Mapping[str, int],
    kernel_keys: Mapping[str, str],
) -> tuple[Plan, Decision]:
    """Choose the plan of a region, measured where that is possible.

    Parameters
    ----------
    region : RegionGraph
    goal : Goal
    signature : RegionSignature
        Of the region, in program form.
    module : callable
        Compiles the kernels of the region, in program form; called only to measure.
    ids : mapping of str to int
        The dispatcher's number of every body.
    kernel_keys : mapping of str to str
        What identifies the code and the device of each kernel.

    Returns
    -------
    tuple of (Plan, Decision)
        The plan is complete and proved safe.
    """
    tell("planning")
    vdevice, by_wave = goal.vdevice, goal.options.by_wave
    max_arena_bytes = goal.options.max_arena_bytes
    backend, graph = backend_named(vdevice.kind), region.graph
    costs, stopwatch, known = backend.costs(vdevice), backend.stopwatch, policies()
    finished: list[tuple[RProgram, RProgram]] = []

    def finish_once(program: RProgram) -> RProgram:
        """``finish``, which takes seconds for thousands of operators: plans may share a program."""
        for known, result in finished:
            if known is program:
                return result
        finished.append((program, finish(program)))
        return finished[-1][1]

    def measure(plans: Sequence[Plan]) -> list[list[float]]:
        runs = [(finish_once(plan.program), plan.by_wave) for plan in plans]
        compiled = module()
        tell(f"measuring {len(plans)} plans")
        assert stopwatch is not None
        return stopwatch.plans(compiled, signature, ids, runs, region.constants, race=True)

    def within_limit(stored: Decision | None) -> Mapping[str, Policy]:
        if max_arena_bytes is None:
            return known
        name = stored_policy(stored, known)
        # Where the baseline does not fit, any other one stands in for it.
        wanted = known if name is None or name == BASELINE else {name: known[name]}
        return policies_within(max_arena_bytes, graph, vdevice.num_veus, costs, wanted)

    if why_not := _cannot_measure(stopwatch, vdevice):
        chosen, decision = auto(graph, vdevice.num_veus, costs, within_limit(None), by_wave=by_wave)
        decision = replace(decision, note=f"not measured: {why_not}")
    else:
        key = _key(graph, goal, kernel_keys, known)
        stored, note = load_decision(key)
        chosen, decision = auto(
            graph, vdevice.num_veus, costs, within_limit(stored), measure, stored, by_wave
        )
        decision = replace(decision, note=note)
        if decision.how == "measured" and decision.settled:
            store_decision(key, decision)
    return replace(chosen, program=finish_once(chosen.program)), decision


def _cannot_measure(stopwatch: Stopwatch | None, vdevice: VDevice) -> str:
    """Why plans for a device cannot be measured in this process; empty if they can."""
    if stopwatch is None:
        return f"the back end {vdevice.kind!r} times nothing"
    return stopwatch.obstacle(vdevice)


def _key(
    graph: OperatorGraph, goal: Goal, kernel_keys: Mapping[str, str], known: Iterable[str]
) -> str:
    """What a decision depends on: the graph, its kernels' code, the device, form and memory.

    And on the policies from outside, in whose absence it is as if there were none.
    """
    buffers = [(b.shape, b.dtype, b.space, b.index, b.offset, b.pitch) for b in graph.buffers]
    operators = [
        ([kernel_keys[k.name] for k in op.candidates], op.arguments) for op in graph.operators
    ]
    others = [name for name in known if name not in POLICIES]
    asked = (goal.vdevice.num_veus, goal.options.by_wave, goal.options.max_arena_bytes)
    text = repr((buffers, operators, *asked, *others))
    return hashlib.sha256(text.encode()).hexdigest()
