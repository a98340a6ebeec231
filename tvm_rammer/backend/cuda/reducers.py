"""Maxima and minima that start from infinity, for TVM's schedules of sums that threads share.

Its ``rfactor``, and how threads of a block add up, take only reductions that TVM knows, by what
they start from: maxima from the last finite number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import tvm_ffi
from tvm import tirx

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


def _start(combine: Any, value: Any) -> Any:
    return start_value(combine, str(value.ty))


def _kept(name: str, function: Callable[..., Any]) -> Any:
    """A function that outlives Python: TVM frees those of a list of its own after Python's end."""
    name = f"tvm_rammer.reducers.{name}"
    tvm_ffi.register_global_func(name, function, override=True)
    return tvm_ffi.get_global_func(name)
