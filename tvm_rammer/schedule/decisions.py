"""What ``auto`` decided, as data, and the decisions that are kept on disk between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tvm_rammer._version import __version__
from tvm_rammer.machine.cache import CacheFolder
from tvm_rammer.typed_json import read_as

How = Literal["measured", "stored", "simulated"]

#: Raised when policies, kernels or measuring change so much that older decisions are not used.
FORMAT_VERSION = 3


@dataclass(frozen=True)
class Contender:
    """A plan that was considered.

    Attributes
    ----------
    name : str
        Its policy, with the number of vEUs if some idle, or ``"per-op"``: the operators of
        ``sequential``, one launch each.
    predicted : float
        Simulated seconds of a run.
    measured : float, optional
        Median seconds of a run on the device.
    ratio : tuple of three float, optional
        Its time over that of ``sequential`` in the same round: the median, and the limits between
        which the median lies with a confidence of 95 %. Of less than six rounds they are the
        smallest and the largest.
    rounds : int
        In how many it was measured; one that could not win any more is given up.
    """

    name: str
    predicted: float
    measured: float | None = None
    ratio: tuple[float, float, float] | None = None
    rounds: int = 0

    def times(self) -> list[float]:
        """All that was predicted or measured."""
        measured = [] if self.measured is None else [self.measured]
        return [self.predicted, *measured, *(self.ratio or ())]


@dataclass(frozen=True)
class Decision:
    """Which plan a region runs, and why.

    Attributes
    ----------
    chosen : str
        Name of a contender.
    how : {"measured", "stored", "simulated"}
        Measured now, measured by an earlier build and kept, or decided by simulation.
    reason : str
        In a sentence.
    contenders : tuple of Contender
        The best prediction first.
    left_out : tuple of (str, str)
        Policies that were not tried, and why.
    seconds : float
        What measuring took.
    settled : bool
        Whether noise leaves no doubt that matters; only such decisions are kept.
    note : str
        What became of a stored decision that is of no use; empty if there was none.
    """

    chosen: str
    how: How
    reason: str
    contenders: tuple[Contender, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    settled: bool = True
    note: str = ""

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Decision:
        """The decision that ``dataclasses.asdict`` and JSON made plain data of.

        Raises
        ------
        ValueError
            If it is of another form.
        """
        decision: Decision = read_as(cls, content)
        names = [contender.name for contender in decision.contenders]
        if decision.chosen not in names:
            raise ValueError(f"{decision.chosen!r} is chosen, but it is no contender")
        times = [time for contender in decision.contenders for time in contender.times()]
        if min(times) < 0:
            raise ValueError(f"{min(times)} is no time")
        return decision


@dataclass(frozen=True)
class _Entry:
    """A decision as it is kept; only that of this version has a form that is known."""

    version: str
    decision: Any


def _check(entry: _Entry) -> None:
    if entry.version == _version():
        Decision.from_dict(entry.decision)


_DECISIONS = CacheFolder("decisions", _Entry, _check, most=2_000)


def load_decision(key: str) -> tuple[Decision | None, str]:
    """The decision that is kept under ``key``, if it can be used.

    Returns
    -------
    tuple of (Decision or None, str)
        The note says why a decision that is there cannot be used; empty otherwise.
    """
    entry: _Entry | None = _DECISIONS.get(key)
    if entry is None:
        return None, ""
    if entry.version != _version():
        note = f"a stored decision of version {entry.version} was ignored (this is {_version()})"
        return None, note
    return Decision.from_dict(entry.decision), ""


def store_decision(key: str, decision: Decision) -> None:
    """Keep a decision for the next build."""
    _DECISIONS.put(key, asdict(_Entry(_version(), asdict(decision))))


def _version() -> str:
    return f"{__version__}/{FORMAT_VERSION}"
