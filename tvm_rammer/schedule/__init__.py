"""Policies, one per file, from an operator graph and a vDevice to an rProgram."""

from tvm_rammer.schedule.auto import auto
from tvm_rammer.schedule.costs import CostModel, Device
from tvm_rammer.schedule.decisions import Contender, Decision
from tvm_rammer.schedule.estf import estf
from tvm_rammer.schedule.explain import Explanation, explain
from tvm_rammer.schedule.ios import ios
from tvm_rammer.schedule.locality import locality
from tvm_rammer.schedule.memory import MemoryReport, memory_report, plan_memory
from tvm_rammer.schedule.placement import Placed, Placement
from tvm_rammer.schedule.policies import AUTO, CHOICES, POLICIES, check_policy, plan
from tvm_rammer.schedule.sequential import sequential
from tvm_rammer.schedule.simulate import Bounds, bounds, simulate
from tvm_rammer.schedule.synchronise import synchronise
from tvm_rammer.schedule.timeline import Span, Timeline
from tvm_rammer.schedule.wavefront import wavefront

__all__ = [
    "AUTO",
    "CHOICES",
    "POLICIES",
    "Bounds",
    "Contender",
    "CostModel",
    "Decision",
    "Device",
    "Explanation",
    "MemoryReport",
    "Placed",
    "Placement",
    "Span",
    "Timeline",
    "auto",
    "bounds",
    "check_policy",
    "estf",
    "explain",
    "ios",
    "locality",
    "memory_report",
    "plan",
    "plan_memory",
    "sequential",
    "simulate",
    "synchronise",
    "wavefront",
]
