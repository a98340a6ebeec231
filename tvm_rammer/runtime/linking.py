"""Why a library could not be linked, and what to do about that cause."""

from __future__ import annotations

import errno
import platform

from tvm.support import cc

from tvm_rammer.whole_files import advice_for

_FULL = OSError(errno.ENOSPC, "No space left on device")


def link_problem(error: Exception, architecture: str) -> str:
    """Cause and advice, in one line.

    Parameters
    ----------
    error : Exception
        What TVM raised when it called the compiler.
    architecture : str
        What the library is for, e.g. ``"aarch64"``.
    """
    compiler = cc.get_cc()
    if compiler is None:
        return "no C++ compiler is found; install g++, or set CXX to one"
    if isinstance(error, OSError) and error.filename == compiler:
        return f"CXX is {compiler!r} ({error.strerror}); set it to a C++ compiler"
    if isinstance(error, OSError):
        return f"cannot be written: {error.strerror or error}; {advice_for(error)}"
    if str(_FULL.strerror) in str(error):
        return f"cannot be written: {_FULL.strerror}; {advice_for(_FULL)}"
    if architecture != platform.machine():
        return (
            f"cannot be linked ({compiler} does not link for {architecture}); "
            f"set CXX to a compiler that does, e.g. CXX={architecture}-linux-gnu-g++"
        )
    return f"cannot be linked ({_said(error)}); correct that, or set CXX to another compiler"


def _said(error: Exception) -> str:
    """What the compiler complains about, in its own words."""
    output = str(error).removeprefix("Compilation error:").partition("\nCommand line:")[0]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [line for line in lines if "error:" in line.lower()]
    return next(iter([*complaints, *reversed(lines), type(error).__name__]))
