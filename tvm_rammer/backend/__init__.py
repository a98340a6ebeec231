"""What depends on the kind of a device, a folder for each, behind one protocol.

- ``protocol``: what the rest asks of a back end; ``signature``: what a region's kernel is called
  with; ``plan_rows``: what the tables of all of them hold of a plan
- ``registry``: which back ends there are, and which of them serves a target; ``rules`` from
  outside; ``diagnose``: what all of them find on this machine
- ``cpu``: x86-64 and AArch64 processors, by LLVM and the threads of TVM's pool
- ``cuda``: GPUs of NVIDIA
- ``interpret``: plans run step by step, without a device
"""

from tvm_rammer.backend.protocol import Backend, Finding
from tvm_rammer.backend.registry import (
    backend_for,
    backend_named,
    backends,
    register_backend,
    resolve_target,
    vdevice_for,
)

__all__ = [
    "Backend",
    "Finding",
    "backend_for",
    "backend_named",
    "backends",
    "register_backend",
    "resolve_target",
    "vdevice_for",
]
