"""IOS's dynamic programming: the best sequence of stages of one block (MLSys 2021)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

#: Operators of a block as bits; a stage is a set of groups.
Group = int
Stage = tuple[Group, ...]


class TooManyEndings(Exception):
    """The search would take longer than it may."""


class StageSearch:
    """``dp(S) = min over endings T of S of dp(S - T) + cost(T)``, memoised on bitmasks.

    An ending of ``S`` is a set that no operator of the rest needs. It runs as one stage: its
    connected parts are groups that run side by side, each in order. A group grows from its last
    operator backwards and may so have several sources, which the original never forms. (A stage
    keeps to its limits at every step of this growth.)

    Parameters
    ----------
    successors : sequence of int
        For each operator of the block, in topological order, the mask of those that read from it.
    cost : callable
        Seconds of a stage.
    largest, most : int
        IOS's r and s: operators of a group, and groups of a stage.
    budget : int
        How many endings may be looked at.
    """

    def __init__(
        self,
        successors: Sequence[int],
        cost: Callable[[Stage], float],
        largest: int,
        most: int,
        budget: int,
    ) -> None:
        self.successors = successors
        self.ancestors = _ancestors(successors)
        self.cost = cost
        self.largest = largest
        self.most = most
        self.budget = budget
        self.looked_at = 0
        self._costs: dict[int, float] = {}
        self._best: dict[int, tuple[float, int, Stage]] = {0: (0.0, 0, ())}

    def run(self) -> list[Stage]:
        """The best stages in the order in which they run."""
        rest = (1 << len(self.successors)) - 1
        self._solve(rest)
        stages: list[Stage] = []
        while rest:
            _, ending, groups = self._best[rest]
            stages.append(groups)
            rest &= ~ending
        return stages[::-1]

    def _solve(self, rest: int) -> float:
        if rest in self._best:
            return self._best[rest][0]
        best: tuple[float, int, Stage] | None = None
        for ending, groups in self._endings(rest):
            self.looked_at += 1
            if self.looked_at > self.budget:
                raise TooManyEndings
            if ending not in self._costs:
                self._costs[ending] = self.cost(groups)
            seconds = self._costs[ending]
            if best is None or seconds < best[0]:
                seconds += self._solve(rest & ~ending)
                if best is None or seconds < best[0]:
                    best = (seconds, ending, groups)
        assert best is not None, "the last operator of a topological order is an ending"
        self._best[rest] = best
        return best[0]

    def _endings(self, rest: int) -> Iterator[tuple[int, Stage]]:
        """All endings of ``rest`` that the limits allow, each once."""
        # (operators still to decide on, ending so far, its groups)
        stack: list[tuple[int, int, Stage]] = [(rest, 0, ())]
        while stack:
            allowed, ending, groups = stack.pop()
            if not allowed:
                if ending:
                    yield ending, groups
                continue
            operator = allowed.bit_length() - 1
            bit = 1 << operator
            stack.append((allowed & ~bit & ~self.ancestors[operator], ending, groups))
            after = self.successors[operator]
            group = bit | sum(g for g in groups if g & after)
            joined = (*(g for g in groups if not g & after), group)
            if group.bit_count() <= self.largest and len(joined) <= self.most:
                stack.append((allowed & ~bit, ending | bit, joined))


def _ancestors(successors: Sequence[int]) -> list[int]:
    """For each operator the mask of those that it needs, directly or not."""
    found = [0] * len(successors)
    for operator, after in enumerate(successors):
        for later in range(operator + 1, len(successors)):
            if after >> later & 1:
                found[later] |= found[operator] | 1 << operator
    return found
