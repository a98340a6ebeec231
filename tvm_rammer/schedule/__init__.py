"""Policies, one per file, from an operator graph and a vDevice to an rProgram.

- ``policies``: which there are, and the way from a graph to a proved plan; ``check_graph`` before
  it; ``policy``: what one is, and the check of those from outside; ``fewer_candidates``: more
  choice never makes one's plans longer; ``cut_alike`` with ``agree``: data stay with who wrote them
- ``sequential``; ``wavefront`` with ``interplay``; ``estf`` and ``locality`` with
  ``list_schedule``, ``fill_veus``, ``ranks`` and ``share_tiles``; ``ios``: the policies
- ``auto``, with ``decisions`` and ``median_interval``: the choice among their plans, those for
  ``fewer_veus`` too
- ``placement``: what a policy decides; ``synchronise``: the waits that follow from it
- ``memory`` with ``arena_cap``: the arena
- ``costs``, ``simulate`` with ``demands``, ``traffic`` and ``transfers``, ``timeline``: plans on
  paper; ``trials``: several of one graph
- ``critical_path``: the rTasks that a makespan hangs on
- ``explanation``: why a plan is as it is, and what a better one would need; ``losses``: what each
  cost takes of it
"""

from tvm_rammer.schedule.auto import auto
from tvm_rammer.schedule.costs import CostModel, Device
from tvm_rammer.schedule.decisions import Contender, Decision
from tvm_rammer.schedule.estf import estf
from tvm_rammer.schedule.explanation import Explanation, explain
from tvm_rammer.schedule.ios import ios
from tvm_rammer.schedule.locality import locality
from tvm_rammer.schedule.losses import Loss, losses
from tvm_rammer.schedule.memory import MemoryReport, memory_report, plan_memory
from tvm_rammer.schedule.placement import Placed, Placement
from tvm_rammer.schedule.policies import (
    AUTO,
    POLICIES,
    check_policy,
    choices,
    plan,
    policies,
    register_policy,
)
from tvm_rammer.schedule.policy import Policy
from tvm_rammer.schedule.sequential import sequential
from tvm_rammer.schedule.simulate import Bounds, bounds, simulate
from tvm_rammer.schedule.synchronise import synchronise
from tvm_rammer.schedule.timeline import Span, Timeline
from tvm_rammer.schedule.wavefront import wavefront

__all__ = [
    "AUTO",
    "POLICIES",
    "Bounds",
    "Contender",
    "CostModel",
    "Decision",
    "Device",
    "Explanation",
    "Loss",
    "MemoryReport",
    "Placed",
    "Placement",
    "Policy",
    "Span",
    "Timeline",
    "auto",
    "bounds",
    "check_policy",
    "choices",
    "estf",
    "explain",
    "ios",
    "locality",
    "losses",
    "memory_report",
    "plan",
    "plan_memory",
    "policies",
    "register_policy",
    "sequential",
    "simulate",
    "synchronise",
    "wavefront",
]
