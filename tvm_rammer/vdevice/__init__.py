"""What a device is: its vEUs, caches, vectors, and the costs of launching and synchronising.

- ``vdevice``: the data type; ``target``: from what a user writes to one; ``cpu``: this machine's
- ``calibrate`` with ``measure`` and ``memory_sweep``: what synchronising and memory cost
- ``ceilings`` with ``ceiling_text``: what a core reaches at best
- ``cache``: measurements on disk
- ``one_core``: threads that stay on a core; ``pool``: TVM's workers;
  ``exit_after_fork``: how a process ends that has lost some
- ``doctor``: what makes co-scheduled programs wrong or slow on this machine
"""

from tvm_rammer.vdevice.cache import CacheFile, CacheFolder, cache_directory, clear_cache
from tvm_rammer.vdevice.calibrate import calibrated
from tvm_rammer.vdevice.cpu import HostCPU, detect_cpu, host_cpu
from tvm_rammer.vdevice.doctor import Finding, diagnose
from tvm_rammer.vdevice.pool import configure_own_pool, configure_pool, in_pool_thread
from tvm_rammer.vdevice.target import host_target, resolve_target, vdevice_for
from tvm_rammer.vdevice.vdevice import OversubscriptionWarning, VDevice

__all__ = [
    "CacheFile",
    "CacheFolder",
    "Finding",
    "HostCPU",
    "OversubscriptionWarning",
    "VDevice",
    "cache_directory",
    "calibrated",
    "clear_cache",
    "configure_own_pool",
    "configure_pool",
    "detect_cpu",
    "diagnose",
    "host_cpu",
    "host_target",
    "in_pool_thread",
    "resolve_target",
    "vdevice_for",
]
