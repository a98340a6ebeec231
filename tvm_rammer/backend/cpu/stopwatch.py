"""Times kernels and plans with the very code that will run.

See :class:`~tvm_rammer.backend.protocol.Stopwatch`.
"""

from __future__ import annotations

from tvm_rammer.backend.cpu.host.pool import requested_workers
from tvm_rammer.backend.cpu.timing.measure_kernels import measure_kernels
from tvm_rammer.backend.cpu.timing.measure_plans import measure_plans
from tvm_rammer.machine import VDevice

kernels, plans = measure_kernels, measure_plans


def obstacle(vdevice: VDevice) -> str:
    """Why plans for a device cannot be timed in this process; empty if they can."""
    if not vdevice.host:
        return "the target is not this machine"
    workers = min(vdevice.threads, requested_workers() or vdevice.threads)
    if vdevice.num_veus > workers:
        return f"{vdevice.num_veus} vEUs are planned for, and this process has {workers}"
    return ""
