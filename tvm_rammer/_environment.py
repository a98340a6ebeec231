"""What this process is like before TVM is used: its CPUs, and versions that are known to break."""

from __future__ import annotations

import os
import re
import sys
import traceback
from importlib import metadata
from pathlib import Path

#: What the process may use. TVM's default pool pins the thread that touches it to the first half of
#: the cores, and threads started from that one inherit the pin; it is only known before.
CPUS_AT_IMPORT = tuple(sorted(os.sched_getaffinity(0)))


def tvm_ffi_problem() -> str | None:
    """One line about the installed tvm-ffi if it is known to break, else None."""
    try:
        version = metadata.version("apache-tvm-ffi")
    except metadata.PackageNotFoundError:
        return None
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < (0, 1, 15):
        return None
    return (
        f"apache-tvm-ffi {version} crashes in tvm.ir.save_json and in every tuning run: "
        'pip install "apache-tvm-ffi>=0.1.14.post0,<0.1.15"'
    )


def import_problem(error: Exception) -> str | None:
    """One line about an exception if it is an import of TVM that failed, else None."""
    if "tvm" in sys.modules:
        return None
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    folders = {part for file in files for part in file.parts}
    cause = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
    if "torch" in folders:
        return (
            f"PyTorch cannot be imported, and TVM imports it wherever it is installed ({cause}); "
            "install PyTorch again, or uninstall it"
        )
    if folders & {"tvm", "tvm_ffi"} or getattr(error, "name", None) in ("tvm", "tvm_ffi"):
        return (
            f"TVM cannot be imported ({cause}); install it again: pip install --force-reinstall "
            '"apache-tvm==0.27.*" "apache-tvm-ffi>=0.1.14.post0,<0.1.15"'
        )
    return None
