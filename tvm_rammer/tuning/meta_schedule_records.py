"""MetaSchedule's own databases: schedules that somebody tuned, as candidates of operators.

TVM applies the fastest record to the PrimFunc that it was measured for (MetaScheduleApplyDatabase).
Here it is one of the rKernels that plans choose from, if the back end can run it beside others.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import meta_schedule as ms

from tvm_rammer.backend.registry import backend_named
from tvm_rammer.errors import InputError, ModelError, last_line
from tvm_rammer.frontend import load_model
from tvm_rammer.kernel.scheduled import Choice, Scheduled
from tvm_rammer.machine import VDevice
from tvm_rammer.options import Options
from tvm_rammer.region.kernel_library import Tuned
from tvm_rammer.transform.pipeline import partition_module
from tvm_rammer.tuning.database import FAILED_SECONDS, RECORDS, WORKLOADS
from tvm_rammer.units import listed

#: So many of the fastest records of an operator are tried until one of them can be run.
_MOST_TRIED = 8


class MetaScheduleRecords:
    """Records that MetaSchedule keeps in a ``JSONDatabase``.

    Parameters
    ----------
    folder : path
        With ``database_workload.json`` and ``database_tuning_record.json``. The workloads are what
        :func:`operators_to_tune` lists.

    Raises
    ------
    InputError
        If there is no database that can be read.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        missing = [name for name in (WORKLOADS, RECORDS) if not (self.folder / name).is_file()]
        if missing:
            raise InputError(
                f"{self.folder}: there is no {missing[0]}; give the folder of a JSONDatabase of "
                "MetaSchedule"
            )

    def tuned(self, vdevice: VDevice, winograd_tolerance: float) -> Tuned:
        """What a build asks for the choices of an operator, the fastest first.

        Raises
        ------
        InputError
            If none of the records is for the device.
        """
        if not backend_named(vdevice.kind).takes_schedules:
            raise InputError(
                f"{self.folder}: records of MetaSchedule are not taken for {vdevice.name}; tune "
                "with tvm_rammer.tune, and give its Database"
            )
        usable = [record for record in self._records if _is_for(record.target, vdevice)]
        if self._records and not usable:
            others = listed(sorted({_named(record.target) for record in self._records}))
            here = " ".join((vdevice.kind, *vdevice.features[:1]))
            raise InputError(
                f"{self.folder}: its records are for {others}, not for {here}: tune for that target"
            )
        known: dict[Any, list[Any]] = defaultdict(list)
        for record in sorted(usable, key=_seconds):
            known[_key(record.workload.mod)].append(record)

        def choices(func: tirx.PrimFunc, constants: frozenset[int]) -> Sequence[Choice]:
            fastest = known.get(_key(tvm.IRModule({"main": func})), [])[:_MOST_TRIED]
            return [Choice(_text(record), partial(_scheduled, record)) for record in fastest]

        return choices

    @cached_property
    def _records(self) -> list[Any]:
        """All that ran."""
        paths = [str(self.folder / name) for name in (WORKLOADS, RECORDS)]
        try:
            database = ms.database.JSONDatabase(*paths)
            records = list(database.get_all_tuning_records())
        except (tvm.error.InternalError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(
                f"{self.folder}: holds no database of MetaSchedule: {last_line(error)}"
            ) from None
        return [each for each in records if each.run_secs and _seconds(each) < FAILED_SECONDS]


def operators_to_tune(model: Any, target: Any) -> dict[str, tirx.PrimFunc]:
    """The distinct PrimFuncs of a model as a build schedules them, for MetaSchedule to tune.

    Parameters
    ----------
    model : path, onnx.ModelProto, tvm.IRModule or LoadedModel
        See :func:`tvm_rammer.load_model`.
    target : dict, str or Target

    Returns
    -------
    dict of str to PrimFunc
        By a name for each.
    """
    goal = Options().resolve(target)
    partitions = partition_module(load_model(model).module, goal)
    compiler = partitions.compiler
    compiler.graphs(partitions.merged_for(goal.vdevice))
    functions = dict.fromkeys(func for func, _ in compiler.kernels.uses)
    return {f"operator{number}": func for number, func in enumerate(functions)}


def _is_for(target: Any, vdevice: VDevice) -> bool:
    arch = str(target.attrs.get("arch", "")) if target is not None else ""
    return target is not None and target.kind.name == vdevice.kind and arch in vdevice.features


def _named(target: Any) -> str:
    if target is None:
        return "no target"
    return " ".join([target.kind.name, *filter(None, [str(target.attrs.get("arch", ""))])])


def _seconds(record: Any) -> float:
    seconds = list(map(float, record.run_secs))
    return sum(seconds) / len(seconds)


def _text(record: Any) -> str:
    return f"the record of {_seconds(record) * 1e6:,.1f} us"


def _key(workload: Any) -> Any:
    """What a PrimFunc computes, whatever its name and attributes."""
    (func,) = workload.functions.values()
    for name in list(func.attrs.keys()) if func.attrs else ():
        func = func.without_attr(name)
    structure: Any = tvm_ffi.StructuralKey
    return structure(func)


def _scheduled(record: Any) -> Scheduled:
    """The workload of a record as its trace schedules it.

    Raises
    ------
    ModelError
        If the trace is of another workload or version of TVM.
    """
    schedule = tvm.s_tir.Schedule(record.workload.mod)
    try:
        record.trace.apply_to_schedule(schedule, remove_postproc=False)
    except (tvm.error.InternalError, tvm.s_tir.ScheduleError, ValueError, IndexError) as error:
        raise ModelError(f"its trace cannot be applied: {last_line(error)}") from error
    (func,) = schedule.mod.functions.values()
    return Scheduled(func, "record", "")
