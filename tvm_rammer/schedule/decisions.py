"""What ``auto`` decided, as data, and the decisions that are kept on disk between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal, get_args

from tvm_rammer import __version__
from tvm_rammer.vdevice.cache import load_json, store_json

How = Literal["measured", "stored", "simulated"]

#: Raised when policies, kernels or measuring change so much that older decisions are not used.
FORMAT_VERSION = 1
_FILE = "decisions.json"
#: Older decisions are dropped beyond this many.
_MAX_ENTRIES = 2_000


@dataclass(frozen=True)
class Contender:
    """A plan that was considered.

    Attributes
    ----------
    name : str
        Its policy, or ``"per-op"``: the operators of ``sequential``, one launch each.
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
        """The decision that ``dataclasses.asdict`` made plain data of.

        Raises
        ------
        ValueError
            If it is of another form.
        """
        try:
            contenders = tuple(_contender(item) for item in content["contenders"])
            left_out = tuple((str(name), str(why)) for name, why in content["left_out"])
            made = cls(**{**content, "contenders": contenders, "left_out": left_out})
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"this is no decision: {error}") from error
        if made.chosen not in {contender.name for contender in contenders}:
            raise ValueError(f"{made.chosen!r} is chosen, but it is no contender")
        if made.how not in get_args(How):
            raise ValueError(f"{made.how!r} is no way to decide")
        return made


def load_decision(key: str) -> tuple[Decision | None, str]:
    """The decision that is kept under ``key``, if it can be used.

    Returns
    -------
    tuple of (Decision or None, str)
        The note says why a decision that is there cannot be used; empty otherwise.
    """
    stored = load_json(_FILE)
    entry = stored.get(key) if isinstance(stored, dict) else None
    if entry is None:
        return None, ""
    version = entry.get("version") if isinstance(entry, dict) else None
    if version != _version():
        return None, f"a stored decision of version {version} was ignored (this is {_version()})"
    try:
        return Decision.from_dict(entry["decision"]), ""
    except (LookupError, TypeError, ValueError):
        return None, "a stored decision that cannot be read was ignored"


def store_decision(key: str, decision: Decision) -> None:
    """Keep a decision for the next build."""
    stored = load_json(_FILE)
    entries = dict(stored) if isinstance(stored, dict) else {}
    entries.pop(key, None)
    entries[key] = {"version": _version(), "decision": asdict(decision)}
    store_json(_FILE, dict(list(entries.items())[-_MAX_ENTRIES:]))


def _version() -> str:
    return f"{__version__}/{FORMAT_VERSION}"


def _contender(item: Mapping[str, Any]) -> Contender:
    ratio = item["ratio"]
    if ratio is not None:
        middle, low, high = map(_seconds, ratio)
        ratio = (middle, low, high)
    measured = None if item["measured"] is None else _seconds(item["measured"])
    rounds = int(item.get("rounds", 0))
    return Contender(str(item["name"]), _seconds(item["predicted"]), measured, ratio, rounds)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    if not isfinite(value) or value < 0:
        raise ValueError(f"{value} is no time")
    return float(value)
