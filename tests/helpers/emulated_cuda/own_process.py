"""Runs functions of tests in one process that emulates CUDA, so that no other test is disturbed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any, ParamSpec, TypeVar

import pytest

from emulated_cuda.compile_source import obstacle

P = ParamSpec("P")
T = TypeVar("T")


def run_emulated(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function of a module where ``tvm.cuda(0)`` is emulated.

    Parameters
    ----------
    function : callable
        Defined at the top of a module; it, its arguments and its result are pickled.

    Returns
    -------
    object
        What it returns; what it raises is raised here. Without g++ the test is skipped.
    """
    if why := obstacle():
        pytest.skip(why)
    try:
        return _process().submit(_call, function, args, kwargs).result()
    except BrokenProcessPool:
        _process.cache_clear()
        raise RuntimeError(f"{function.__name__} ended the process that emulates CUDA") from None


def _call(function: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        # TVM's errors hold what cannot be pickled.
        raise RuntimeError(f"{type(error).__name__}: {error}") from None


@cache
def _process() -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, initializer=_install)


def _install() -> None:
    from emulated_cuda import install

    install()
