"""Which operator is tuned next: where a trial is expected to gain most for the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

#: What the first choices of an operator are expected to gain, and what each batch without a gain
#: leaves of an expectation.
_HOPE, _FADES = 0.3, 0.5
#: What the likely choices leave of it: most of what can be gained is among them.
_GLANCED = 0.25
#: A new best choice that gains less than this is no gain.
_GAIN = 0.01
#: What may be gained below a bound that no batch has tested: it rests on what the machine reached
#: at one moment, which may have been a busy one.
_DOUBT = 0.05
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
        Seconds that no choice can beat, if the machine was measured well.
    hope : float
        The share of its time that the next batch is expected to gain.
    exhausted : bool
        Whether there is no choice left.
    tested : bool
        Whether the last batch brought no gain: only then its bound can end an operator.
    """

    untuned: float = inf
    best: float = inf
    bound: float = 0.0
    hope: float = _HOPE
    exhausted: bool = False
    tested: bool = False

    def took(self, seconds: float) -> None:
        """A batch was measured, the fastest of which took so many seconds."""
        gain = self._gain(seconds)
        self.hope = _FADES * self.hope if self.tested else max(gain, _FADES * self.hope)

    def glanced(self, seconds: float) -> None:
        """A few likely choices were measured: what they gained says nothing of any further ones."""
        self._gain(seconds)
        self.hope *= _GLANCED

    def _gain(self, seconds: float) -> float:
        """The share of the best time that a batch gained, which is the best from now on."""
        gain = max(0.0, 1 - seconds / self.best) if self.best < inf else 0.0
        self.best = min(self.best, seconds)
        self.tested = gain < _GAIN
        return gain

    def expected(self, trust: float = 1.0) -> float:
        """The share of its time that can be gained, and is expected to be.

        Parameters
        ----------
        trust : float
            What of the bound counts.
        """
        if self.exhausted or self.best == inf:
            return 0.0
        room = max(0.0, 1 - trust * self.bound / self.best)
        return min(self.hope, room if self.tested else max(room, _DOUBT))


def trust_in_bounds(progress: Sequence[TaskProgress]) -> float:
    """What of the bounds counts, so that no measurement beats one.

    They all rest on the same ceilings of the machine: where one is beaten, all are too high.
    """
    return min([1.0, *(each.best / each.bound for each in progress if each.bound > 0)])


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
    trust = trust_in_bounds(progress)
    expected = [w * p.expected(trust) for w, p in zip(weights, progress, strict=True)]
    if sum(expected) <= _WORTHWHILE * sum(weights):
        return None
    return max(range(len(expected)), key=expected.__getitem__)
