"""Which operator is tuned next: where a trial is expected to gain most for the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

#: What the first choices of an operator are expected to gain, and what each batch without a gain
#: leaves of an expectation.
_HOPE, _FADES = 0.3, 0.5
#: A new best choice that gains less than this is no gain.
_GAIN = 0.01
#: Nothing is near where all operators together are expected to gain less than this of the plan.
_WORTHWHILE = 1e-3


@dataclass
class TaskProgress:
    """How far an operator is.

    Attributes
    ----------
    untuned, best : float
        Seconds of the untuned choice and of the best one.
    bound : float
        Seconds that no choice can beat.
    hope : float
        The share of its time that the next batch is expected to gain.
    exhausted : bool
        Whether there is no choice left.
    """

    untuned: float = inf
    best: float = inf
    bound: float = 0.0
    hope: float = _HOPE
    exhausted: bool = False

    def took(self, seconds: float) -> None:
        """A batch was measured, the fastest of which took so many seconds."""
        gain = max(0.0, 1 - seconds / self.best) if self.best < inf else 0.0
        self.best = min(self.best, seconds)
        self.hope = max(gain, _FADES * self.hope) if gain >= _GAIN else _FADES * self.hope

    @property
    def expected(self) -> float:
        """The share of its time that can be gained, and is expected to be."""
        if self.exhausted or self.best == inf:
            return 0.0
        return max(0.0, min(self.hope, 1 - self.bound / self.best))


def next_task(progress: Sequence[TaskProgress], weights: Sequence[float]) -> int | None:
    """The operator of which the next batch should be.

    Parameters
    ----------
    progress : sequence of TaskProgress
    weights : sequence of float
        The seconds of the plan that hang on each operator.

    Returns
    -------
    int or None
        ``None`` where what all are expected to gain is not worth while.
    """
    expected = [w * p.expected for w, p in zip(weights, progress, strict=True)]
    if sum(expected) <= _WORTHWHILE * sum(weights):
        return None
    return max(range(len(expected)), key=expected.__getitem__)
