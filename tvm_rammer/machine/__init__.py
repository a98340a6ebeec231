"""What a device is to a plan: its vEUs, caches and vectors, and what synchronising and data cost.

- ``vdevice``: the data type; ``speeds``: the numbers that models of time read; ``ceilings``: what
  one core reaches at best
- ``topology``: how far cores are from each other; ``described_machine``: machines to plan for that
  are not here; ``machines_like``: machines that this one may be, if its numbers are wrong
- ``target``: from what a user writes to a TVM target
- ``cache``: what was measured and decided, on disk
"""

from tvm_rammer.machine.cache import CacheFile, CacheFolder, cache_directory, clear_cache
from tvm_rammer.machine.vdevice import MemoryCosts, OversubscriptionWarning, VDevice

__all__ = [
    "CacheFile",
    "CacheFolder",
    "MemoryCosts",
    "OversubscriptionWarning",
    "VDevice",
    "cache_directory",
    "clear_cache",
]
