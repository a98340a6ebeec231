"""Reductions whose terms threads share, as TVM lowers them right.

Its ``rfactor``, and how threads of a block add up, take only reductions that TVM knows, by what
they start from: maxima from the last finite number. And of the condition under which a block has
a result it keeps the parts of a conjunction: a condition that is none is forgotten where the result
is written, and threads of results that do not exist write over what lies behind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from tvm_rammer.kernel.blocks import is_reduced
from tvm_rammer.kernel.starts import start_value


@cache
def know_infinite_starts() -> None:
    """Tell TVM of these reductions, once."""
    register = tvm_ffi.get_global_func("s_tir.schedule.RegisterReducer")
    for combine, function in ((tirx.Max, tirx.max), (tirx.Min, tirx.min)):
        register(
            1,
            _kept(f"{combine.__name__}.combined", lambda a, b, f=function: [f(a[0], b[0])]),
            _kept(f"{combine.__name__}.start", lambda values, c=combine: [_start(c, values[0])]),
        )


def with_kept_conditions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled PrimFunc whose reductions have conjunctions for conditions."""

    def kept(realize: s_tir.SBlockRealize) -> Any:
        condition, block = realize.predicate, realize.block
        if isinstance(condition, tirx.And | tirx.IntImm) or not any(
            map(is_reduced, block.iter_vars)
        ):
            return realize
        # With a constant beside it TVM would not know the reduction as one that threads share.
        twice = tirx.And(condition, condition)
        return s_tir.SBlockRealize(realize.iter_values, twice, block)

    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlockRealize, kept)))


def _start(combine: Any, value: Any) -> Any:
    return start_value(combine, str(value.ty))


def _kept(name: str, function: Callable[..., Any]) -> Any:
    """A function that outlives Python: TVM frees those of a list of its own after Python's end."""
    name = f"tvm_rammer.reducers.{name}"
    tvm_ffi.register_global_func(name, function, override=True)
    return tvm_ffi.get_global_func(name)
