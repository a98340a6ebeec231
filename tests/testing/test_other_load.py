from __future__ import annotations

import os
import time

from tvm_rammer.testing.other_load import OtherLoad

CPUS = sorted(os.sched_getaffinity(0))


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_what_a_process_uses_itself_is_nobody_elses() -> None:
    mine, idle = OtherLoad(os.getpid(), CPUS), OtherLoad(1, CPUS)
    spin(0.3)
    # Process 1 sleeps: to it our time is others', to ourselves it is not.
    assert idle.seconds() - mine.seconds() > 0.2


def test_cpus_that_are_not_looked_at_do_not_count() -> None:
    load = OtherLoad(1, [])
    spin(0.1)
    assert load.seconds() == 0
