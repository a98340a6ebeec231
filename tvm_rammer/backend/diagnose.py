"""What every back end, and every plug-in, finds on this machine: the answers of ``doctor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tvm_rammer._environment import import_problem
from tvm_rammer.backend.protocol import Finding
from tvm_rammer.backend.registry import backend_named, backends, known_names
from tvm_rammer.schedule.policies import policies


def _find_rules() -> None:
    # Rules are written in TVM's terms; what cannot import TVM is told here as well.
    from tvm_rammer.backend.rules import find_rules

    find_rules()


#: What loads the plug-ins of each kind.
_PLUG_INS: Mapping[str, Callable[[], object]] = {
    "back ends": backends,
    "policies": policies,
    "rules": _find_rules,
}


def diagnose(calibrate: bool = False) -> list[Finding]:
    """What every back end finds on this machine; a plug-in that cannot be loaded is a finding.

    Parameters
    ----------
    calibrate : bool
        Measure again what synchronising costs.
    """
    wrong: list[Finding] = []
    for topic, load in _PLUG_INS.items():
        try:
            load()
        except Exception as error:
            # Of a TVM that cannot be imported another finding tells.
            if not _is_of_tvm(error):
                problem, _, advice = str(error).rpartition(": ")
                wrong.append(Finding(topic, problem, "bad", advice))
    found: list[Finding] = []
    for name in known_names():
        try:
            found += backend_named(name).diagnose(calibrate)
        except Exception as error:
            if not _is_of_tvm(error):
                raise
    return [*found, *wrong]


def _is_of_tvm(error: Exception) -> bool:
    """Whether an import of TVM failed, in our own modules or in those of a plug-in."""
    causes = (error, error.__cause__)
    return any(isinstance(each, Exception) and import_problem(each) for each in causes)
