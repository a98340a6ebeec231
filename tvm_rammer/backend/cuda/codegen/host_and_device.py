"""Compiles lowered functions, those of the host and those of the device, into one module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_rammer.backend.cuda.codegen.machine_code import LAUNCH_TAGS, remember_signatures
from tvm_rammer.backend.cuda.lower_launch import with_aligned_vectors
from tvm_rammer.kernel.lowering.with_bodies import with_bodies
from tvm_rammer.relax_util import operator_name


def compile_both(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Compile a module whose host and device functions are split, as TVM's own pipelines end.

    Parameters
    ----------
    mod : IRModule
    target : Target
        Of kind ``cuda``, with its host.
    """
    from tvm.s_tir.pipeline import finalize_device_passes, finalize_host_passes
    from tvm.tirx.build import split_host_device_mods, tir_to_runtime

    with target:
        host, devices = split_host_device_mods(mod)
        # Equal targets may be told apart by the order of what they say.
        together = {s: f for each in devices.values() for s, f in each.functions_items()}
        host = _without_empty_launches(host, together.values())
        device = finalize_device_passes()(tvm.IRModule(together))
        built = tir_to_runtime(finalize_host_passes()(host), {target: device}, target.host)
    for each in built.imports:
        if each.kind == "cuda":
            remember_signatures(each.inspect_source(), device.functions)
    return built


def _without_empty_launches(host: tvm.IRModule, kernels: Iterable[tirx.PrimFunc]) -> tvm.IRModule:
    """With launches that the host leaves out where there is nothing to compute.

    A grid without blocks, of sizes that only the run tells, is an error of CUDA's.
    """
    tags = {
        str(kernel.attrs["global_symbol"]): list(map(str, kernel.attrs[LAUNCH_TAGS]))
        for kernel in kernels
        if LAUNCH_TAGS in kernel.attrs
    }

    def guarded(evaluated: tirx.Evaluate) -> Any:
        call = evaluated.value
        if operator_name(call) != "tirx.call_ffi_kernel":
            return evaluated
        known = tags[str(call.args[0].value)]
        extents = zip(known, call.args[len(call.args) - len(known) :], strict=True)
        conditions = [
            extent > 0
            for tag, extent in extents
            if tag.startswith("blockIdx") and not isinstance(extent, tirx.IntImm)
        ]
        return tirx.IfThenElse(tirx.all(*conditions), evaluated, None) if conditions else evaluated

    def body(statement: Any) -> Any:
        return tvm_ffi.structural_map(statement, (tirx.Evaluate, guarded))

    return with_bodies(host, body)


def build_operators(
    functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
) -> list[tvm.runtime.Module]:
    """Compile scheduled PrimFuncs for calls from Relax, by TVM's own lowering.

    Parameters
    ----------
    functions : mapping of str to PrimFunc
        By the symbol under which a module is to export them.
    target : Target
        Of kind ``cuda``, with its host.
    """
    if not functions:
        return []
    aligned = {name: with_aligned_vectors(func, target) for name, func in functions.items()}
    return [compile_launches(aligned, target)]


def compile_launches(
    functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
) -> tvm.runtime.Module:
    """Compile PrimFuncs whose loops are bound to threads, to be called by these symbols."""
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    with target:
        bound = tirx.transform.BindTarget(target)(tvm.IRModule(named))
        lower, _, _ = tirx.get_default_tir_pipeline(target)
        return compile_both(lower(bound), target)
