"""From a model to a compiled library, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm

from tvm_rammer.backend.protocol import DEFAULT_TOLERANCE, WAIT_LIMIT
from tvm_rammer.errors import InputError, ModelError, RammerError, last_line
from tvm_rammer.frontend import LoadedModel
from tvm_rammer.frontend.input_constants import Constants, as_constant
from tvm_rammer.frontend.input_states import States
from tvm_rammer.frontend.several_shapes import SeveralShapes, joined, load_several
from tvm_rammer.one_at_a_time import one_at_a_time
from tvm_rammer.options import Form, Options
from tvm_rammer.progress import tell
from tvm_rammer.relax_util import type_shape
from tvm_rammer.runtime.check import check_library, require_reference
from tvm_rammer.runtime.library import Library, assemble
from tvm_rammer.tensors import as_tensor
from tvm_rammer.transform.pipeline import Records, partition_module
from tvm_rammer.units import listed

#: What is said where memory cannot be had, of which a thread wants some for its stack. A pass that
#: TVM calls loses the type of its error.
_NO_MEMORY = (
    "bad_alloc",
    "can't start new thread",
    "Cannot allocate memory",
    "Unable to allocate",  # numpy's
)


@one_at_a_time
def build(
    model: Any,
    target: Any = None,
    params: Mapping[str, Any] | None = None,
    policy: str = "auto",
    num_veus: int | None = None,
    *,
    form: Form = "program",
    shapes: SeveralShapes = None,
    constants: Constants | None = None,
    states: States | None = None,
    oversubscribe: bool = False,
    winograd_tolerance: float = DEFAULT_TOLERANCE,
    wait_limit: float = WAIT_LIMIT,
    max_arena_bytes: int | None = None,
    backend: str | None = None,
    round_data: bool = False,
    check: bool = False,
    database: Records | None = None,
) -> Library:
    """Compile a model into a library that runs independent operators together.

    It may take a minute, and other threads that build wait for it; inside of
    ``with tvm_rammer.progress.watching(print):`` it says what it does (after
    ``import tvm_rammer.progress``).

    Parameters
    ----------
    model : path, onnx.ModelProto, torch.export.ExportedProgram, tvm.IRModule or LoadedModel
        See :func:`tvm_rammer.load_model`.
    target : str, dict, Target or None
        What to compile for; this machine if not given.
    params : mapping of str to array, optional
        Parameters of a Relax ``main`` to bind as constants.
    policy : str
        One of :func:`tvm_rammer.schedule.choices`; ``"auto"`` measures the best plans if the
        target is this machine, and keeps the fastest.
    num_veus : int, optional
        vEUs to plan for; the cores that this process may use if not given.
    form : {"program", "wavefront", "per-op"}
        See :class:`~tvm_rammer.options.Options`.
    shapes : mapping of str to sequence of int or str, or sequence of such mappings, optional
        Shapes of inputs with symbolic dimensions; text is the name of a size that each run decides.
        With several mappings the library has a plan for each, and the weights once; an instance
        takes inputs of any of them.
    constants : mapping of str to array_like, optional
        Values of inputs, which are none any more; what they decide is computed when compiling.
    states : mapping of str to str, optional
        Names of outputs by names of inputs: what such an output was after a run, its input is in
        the next one, at first zeros. Neither is an input or an output any more.
    oversubscribe : bool
        Allow more vEUs than hardware threads: correct, but slow.
    winograd_tolerance : float
        Largest error that a convolution may gain by Winograd's algorithm, relative to the root mean
        square of its outputs; 0 for none.
    wait_limit : float
        Seconds after which a run gives up waiting for another vEU, with an error; 0 waits for ever.
    max_arena_bytes : int, optional
        Most memory for the intermediate results of a region; plans that need more run on fewer
        vEUs.
    backend : str, optional
        Name of the back end; the one that serves the target's kind if not given.
    round_data : bool
        Where weights are 8 bits times a scale, also round what many rows multiply to 8 bits; see
        :class:`~tvm_rammer.options.Options`.
    check : bool
        Run the library, and the model in ONNX Runtime or PyTorch, and compare the outputs; see
        :func:`~tvm_rammer.runtime.check.check_library`.
    database : Database or MetaScheduleRecords, optional
        What :func:`tvm_rammer.tune` found: operators that it has records of, for this device,
        are computed as the fastest of them say. Or, for GPUs, what MetaSchedule itself found: its
        schedules are among those that the plan chooses from.

    Returns
    -------
    Library

    Raises
    ------
    ModelError
        The model cannot be read, imported or compiled, or the check found an error.
    InputError, DeviceError
        An option does not fit, or there is nothing to check against.
    PlanError
        No plan fits into ``max_arena_bytes``.
    """
    _require_records(database)
    if check:
        require_reference(model)
    options = Options(
        policy,
        num_veus,
        form,
        oversubscribe,
        winograd_tolerance,
        wait_limit,
        max_arena_bytes,
        backend,
        round_data,
    )
    # Whether there is such a device is known before the model is.
    goal = options.resolve(target)
    tell("reading the model")
    loaded = load_several(model, shapes, constants, states)
    module, names = joined([_bind(each, params) for each in loaded] if params else loaded)
    try:
        # The weights as they were read make room for the packed ones: new memory takes long.
        del loaded
        partitions = partition_module(module, goal, database)
        del module
        library = assemble(partitions, goal, names)
    except RammerError:
        raise
    except Exception as error:
        raise ModelError(f"the model cannot be compiled: {_reason(error)}") from error
    if check:
        tell("comparing")
        bound = {
            name: value.numpy() if isinstance(value, tvm.runtime.Tensor) else value
            for name, value in (params or {}).items()
        }
        check_library(library, model, {**(constants or {}), **bound}, states)
    return library


def _reason(error: Exception) -> str:
    """What the matter is, and what to do about it."""
    said = last_line(error)
    if isinstance(error, MemoryError) or any(words in said for words in _NO_MEMORY):
        return (
            f"out of memory ({said}): end other programs, or let this one have more memory and "
            "threads"
        )
    return f"{said}; please report it with the model"


def _require_records(database: object) -> None:
    """Raise an InputError for what is given in place of records, such as their path."""
    if database is None or hasattr(database, "tuned"):
        return
    folder = os.fspath(database) if isinstance(database, str | os.PathLike) else "folder"
    raise InputError(
        f"database is {database!r}: give what tvm_rammer.tune returned, or "
        f"tvm_rammer.Database({folder!r})"
    )


def _bind(loaded: LoadedModel, params: Mapping[str, Any]) -> LoadedModel:
    """Bind parameters of ``main``; they are no inputs any more."""
    unknown = sorted(set(params) - set(loaded.input_names))
    if unknown:
        known = listed(map(repr, loaded.input_names))
        raise InputError(f"params: there is no parameter {unknown[0]!r}; main has {known}")
    by_name = dict(zip(loaded.input_names, loaded.input_params, strict=True))
    fitting = {name: _fitting(name, value, by_name[name].ty) for name, value in params.items()}
    return loaded.with_constants(fitting)


def _fitting(name: str, value: Any, ty: Any) -> tvm.runtime.Tensor:
    """A value as a tensor of a parameter's type; an InputError if it is none."""
    shape, dtype = type_shape(ty), str(getattr(ty, "dtype", "float32"))
    if not isinstance(value, tvm.runtime.Tensor):
        return as_tensor(as_constant(name, value, np.dtype(dtype), shape, "params"))
    if str(value.dtype) != dtype or (shape is not None and tuple(value.shape) != shape):
        raise InputError(
            f"params: {name!r} is {dtype} of shape {shape}; got {value.dtype} of shape "
            f"{tuple(map(int, value.shape))}"
        )
    return value
