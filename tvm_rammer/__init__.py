"""tvm_rammer: an extension for Apache TVM that runs independent operators of a network together.

The public surface is below. A name is imported when it is first used, so that importing the
package costs nothing and ``relax_pipeline="rammer"`` is all that stock TVM code needs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tvm_rammer import _autoload, _environment
from tvm_rammer._version import __version__
from tvm_rammer.errors import (
    DeviceError,
    InputError,
    LibraryError,
    ModelError,
    PlanError,
    RammerError,
    TuningError,
)
from tvm_rammer.no_collection import no_collection

if TYPE_CHECKING:
    from tvm_rammer.backend.registry import register_backend
    from tvm_rammer.backend.rules import register_rule
    from tvm_rammer.frontend import LoadedModel, load_model
    from tvm_rammer.runtime.build import build
    from tvm_rammer.runtime.graph_module import GraphModule
    from tvm_rammer.runtime.library import Library
    from tvm_rammer.runtime.loading import load
    from tvm_rammer.schedule.policies import register_policy
    from tvm_rammer.transform.pipeline import pipeline
    from tvm_rammer.tuning.database import Database
    from tvm_rammer.tuning.meta_schedule_records import MetaScheduleRecords
    from tvm_rammer.tuning.model import tune
    from tvm_rammer.tuning.tracker import Tracker

__all__ = [
    "Database",
    "DeviceError",
    "GraphModule",
    "InputError",
    "Library",
    "LibraryError",
    "LoadedModel",
    "MetaScheduleRecords",
    "ModelError",
    "PlanError",
    "RammerError",
    "Tracker",
    "TuningError",
    "__version__",
    "build",
    "load",
    "load_model",
    "pipeline",
    "register_backend",
    "register_policy",
    "register_rule",
    "tune",
]

_HOMES = {
    "Database": "tvm_rammer.tuning.database",
    "GraphModule": "tvm_rammer.runtime.graph_module",
    "Library": "tvm_rammer.runtime.library",
    "LoadedModel": "tvm_rammer.frontend",
    "MetaScheduleRecords": "tvm_rammer.tuning.meta_schedule_records",
    "Tracker": "tvm_rammer.tuning.tracker",
    "build": "tvm_rammer.runtime.build",
    "load": "tvm_rammer.runtime.loading",
    "load_model": "tvm_rammer.frontend",
    "pipeline": "tvm_rammer.transform.pipeline",
    "register_backend": "tvm_rammer.backend.registry",
    "register_policy": "tvm_rammer.schedule.policies",
    "register_rule": "tvm_rammer.backend.rules",
    "tune": "tvm_rammer.tuning.model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        with no_collection():
            value = getattr(import_module(_HOMES[name]), name)
    except Exception as error:
        if (problem := _environment.import_problem(error)) is None:
            raise
        raise ImportError(f"tvm_rammer: {problem}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


if (_problem := _environment.tvm_ffi_problem()) is not None:
    _autoload.warn(_problem)

# TVM is imported here only where nothing else would make it learn the pipeline's name: its import
# takes most of a second, which `tvm-rammer --help` need not pay.
if "tvm" in sys.modules or not _autoload.registers_at_import_of_tvm():
    _autoload.register()
