"""Measures what two CPUs cost each other: a signal to the other one, and data of the other one.

Run as ``python -m tvm_rammer.backend.cpu.host.measure_pairs complex=0,1 socket=0,8``: prints one
line of JSON, from the name of each pair to the fields of :class:`~.topology.PairCosts`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

import tvm

from tvm_rammer.backend.cpu.host.cpu_target import host_target
from tvm_rammer.backend.cpu.host.measure_machine import kernels, seconds_each, transfers
from tvm_rammer.machine.target import architecture

# As in pool.py: the workers share the listed CPUs; every worker has one of its own.
_SHARE_ALL_CPUS, _ONE_CPU_EACH = -3, -2


def pair_costs(executable: Any, one: int, other: int) -> dict[str, float]:
    """Seconds of a signal, and of data, between two CPUs."""
    found: dict[str, float] = {}

    def measure() -> None:
        configure = tvm.get_global_func("runtime.config_threadpool")
        cpus = [str(one), str(other)]
        configure(_SHARE_ALL_CPUS, 2, cpus)
        configure(_ONE_CPU_EACH, 2, cpus)
        # The calling thread is the first worker, and the only one that TVM lets move.
        os.sched_setaffinity(0, {one})
        found["point_to_point"] = seconds_each(executable["point_to_point"], 2)
        found["transfer"], found["transfer_byte"] = transfers(executable["hand_over"], 2)

    # A pool belongs to its thread, and a new one can have other CPUs.
    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()
    return found


def main(pairs: list[str]) -> None:
    """Measure the pairs, each given as NAME=CPU,CPU, and print the result."""
    target = host_target()
    executable = tvm.compile(kernels(architecture(target)), target=target)
    costs = {}
    for pair in pairs:
        name, _, cpus = pair.partition("=")
        one, other = map(int, cpus.split(","))
        costs[name] = pair_costs(executable, one, other)
    print(json.dumps(costs))


if __name__ == "__main__":
    main(sys.argv[1:])
