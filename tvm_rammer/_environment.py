"""What this process is like before TVM is used: its CPUs, and versions that are known to break."""

from __future__ import annotations

import os
import re
from importlib import metadata

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
