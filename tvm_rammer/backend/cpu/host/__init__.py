"""The machine that this process runs on: what it is, what it costs, and how threads use it.

- ``cpu_target``: from what a user writes to a target and a vDevice; ``processor``: this machine's
- ``calibrate`` with ``measure_machine``, ``measure_pairs`` and ``memory_sweep``: what synchronising
  and memory cost
- ``measure_ceilings`` with ``ceiling_text``: what a core reaches at best
- ``one_core``: threads that stay on a core; ``pool``: TVM's workers;
  ``exit_after_fork``: how a process ends that has lost some
- ``diagnosis``: what makes co-scheduled programs wrong or slow on this machine
"""

from tvm_rammer.backend.cpu.host.calibrate import calibrated
from tvm_rammer.backend.cpu.host.cpu_target import host_target, resolve_target, vdevice_of
from tvm_rammer.backend.cpu.host.diagnosis import diagnose
from tvm_rammer.backend.cpu.host.pool import configure_own_pool, configure_pool, in_pool_thread
from tvm_rammer.backend.cpu.host.processor import HostCPU, detect_cpu, host_cpu

__all__ = [
    "HostCPU",
    "calibrated",
    "configure_own_pool",
    "configure_pool",
    "detect_cpu",
    "diagnose",
    "host_cpu",
    "host_target",
    "in_pool_thread",
    "resolve_target",
    "vdevice_of",
]
