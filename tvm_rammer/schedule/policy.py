"""What a policy is, and the check of one from outside of the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from tvm_rammer.errors import PlanError
from tvm_rammer.plug_ins import home_of
from tvm_rammer.rprogram.graph import OperatorGraph
from tvm_rammer.rprogram.structure import check_tasks
from tvm_rammer.schedule.costs import CostModel
from tvm_rammer.schedule.cut_alike import cut_alike
from tvm_rammer.schedule.fewer_candidates import place_with_any
from tvm_rammer.schedule.placement import Placed, Placement
from tvm_rammer.schedule.synchronise import synchronise
from tvm_rammer.schedule.trials import Trials

#: Decides which tiles run on which of so many vEUs, in which order.
Place = Callable[[OperatorGraph, int, CostModel], Placement]


def unlimited(graph: OperatorGraph, num_veus: int) -> str:
    """No graph is too much."""
    return ""


@dataclass(frozen=True)
class Comparing:
    """The ``place`` of a policy that simulates plans to choose from.

    Attributes
    ----------
    function : callable
        A ``place`` that takes the :class:`~.trials.Trials` of the graph as ``trials``.
    """

    function: Callable[..., Placement]

    def __call__(self, graph: OperatorGraph, num_veus: int, costs: CostModel) -> Placement:
        return self.function(graph, num_veus, costs)

    @property
    def __wrapped__(self) -> Callable[..., Placement]:
        """What messages name."""
        return self.function


@dataclass(frozen=True)
class Policy:
    """A way to plan operator graphs.

    Attributes
    ----------
    name : str
        What users ask for.
    place : callable
        Takes an :class:`~tvm_rammer.rprogram.OperatorGraph`, the number of vEUs and a
        :class:`~.costs.CostModel`, and returns a :class:`~.placement.Placement`: every tile of
        every operator once, operators in an order that their data allow. Waits and addresses
        follow from it.
    help : str
        What it does, on one line.
    limit : callable, optional
        Takes the graph and the number of vEUs and says why ``auto`` had better leave the policy
        out; an empty text if there is no reason. Who asks for the policy by name gets it anyway.
    final : bool
        Its placements are to stay as they are.
    """

    name: str
    place: Place
    help: str
    limit: Callable[[OperatorGraph, int], str] = unlimited
    final: bool = False

    def __call__(self, graph: OperatorGraph, num_veus: int, costs: CostModel) -> Placement:
        trials = Trials(graph, num_veus, costs)
        return self.refined(self.first(trials), trials)

    def first(self, trials: Trials) -> Placement:
        """The placement of the graph of some trials as ``place`` makes it."""
        return self._place(trials)(trials.graph, trials.num_veus, trials.costs)

    def refined(self, first: Placement, trials: Trials) -> Placement:
        """That, or a shorter one: with fewer candidates, or with operators that are cut alike."""
        if self.final:
            return first
        place = self._place(trials)

        @cache
        def alike(placement: Placement) -> Placement:
            # Of the whole graph: what stands in for a plan that is too large has seen no other.
            return cut_alike(placement, trials)

        return place_with_any(
            lambda fewer: alike(place(fewer, trials.num_veus, trials.costs)), alike(first), trials
        )

    def _place(self, trials: Trials) -> Place:
        if isinstance(self.place, Comparing):
            return partial(self.place.function, trials=trials)
        return self.place


@dataclass(frozen=True)
class CheckedPlace:
    """The ``place`` of a policy from outside: what is wrong with it is an error that names it."""

    policy: Policy

    def __call__(self, graph: OperatorGraph, num_veus: int, costs: CostModel) -> Placement:
        try:
            placement = self.policy.place(graph, num_veus, costs)
        except Exception as error:
            raise PlanError(
                f"{self._name()} raised {type(error).__name__}: {error}; mend its package, or "
                "choose another policy"
            ) from error
        if problem := _problem(placement, graph, num_veus):
            raise PlanError(f"{self._name()} returned {problem}; mend its package")
        placement = replace(placement, policy=self.policy.name)
        try:
            check_tasks(synchronise(graph, placement))
        except PlanError as error:
            raise PlanError(f"{self._name()} made a plan that is wrong: {error}") from error
        return placement

    def _name(self) -> str:
        return f"the policy {self.policy.name!r} ({home_of(self.policy.place)})"


def _is_whole(placed: Placed) -> bool:
    return all(isinstance(number, int) for number in vars(placed).values())


def _problem(placement: object, graph: OperatorGraph, num_veus: int) -> str:
    """Why something is no placement of a graph at all; empty if it is one, right or wrong."""
    if not isinstance(placement, Placement):
        return f"{type(placement).__name__!r} and no Placement"
    if len(placement.veus) != num_veus:
        return f"a placement for {len(placement.veus)} vEUs, where there are {num_veus}"
    for number, veu in enumerate(placement.veus):
        for placed in veu:
            if not isinstance(placed, Placed) or not _is_whole(placed):
                return f"{placed!r} on vEU {number}, which is no Placed of whole numbers"
            if not 0 <= placed.operator < len(graph.operators):
                return f"operator {placed.operator} of {len(graph.operators)} on vEU {number}"
            candidates = graph.operators[placed.operator].candidates
            if not 0 <= placed.candidate < len(candidates):
                name = graph.operators[placed.operator].name
                return f"candidate {placed.candidate} of {len(candidates)} of operator {name!r}"
    return ""
