"""A wait that is never over gives the run up: an error that names it, and a clean next run."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest
from stress.compiled_regions import in_new_thread, same_bits, source_of

from tvm_rammer.backend.cpu.codegen.instruction_table import Header
from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.backend.protocol import WAIT_LIMIT

WORKERS = tuple(w for w in (1, 2, 3) if w <= 4 * host_cpu().threads)


def never_over(compiled, milliseconds):
    """The compiled plan with one wait for a step that no vEU ever reaches."""
    table = compiled.table.copy()
    table[Header.WAIT_LIMIT] = milliseconds
    first = table[Header.WAITS]
    table[first + 1] = 1_000_000
    compiled.__dict__["table"] = table
    return int(table[first])


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("by_wave", [False, True])
def test_a_wait_that_is_never_over(workers, by_wave):
    source = source_of("lstm_8x8x256")
    program = source.plan("wavefront", 2)
    good, bad = (source.compile(program, by_wave) for _ in range(2))
    awaited = never_over(bad, 50)
    inputs = source.inputs()

    def alternate():
        want = good.run(inputs)
        for _ in range(3):
            with pytest.raises(RuntimeError) as caught:
                bad.run(inputs)
            assert same_bits(good.run(inputs), want)
        return str(caught.value)

    message = in_new_thread(alternate, workers)
    # With two workers, the other vEU comes to wait for the one that is stuck.
    stuck = f"vEU {1 - awaited} waited 50 ms for step 1000000 of vEU {awaited}"
    behind = f"vEU {awaited} waited 50 ms for step [0-9]+ of vEU {1 - awaited}"
    text = re.escape(
        "suspended? Run again; if an rTask takes that long, build with a longer wait_limit (0 "
        "waits for ever)"
    )
    which = f"({stuck}|{behind}), which is at step [0-9]+"
    process = r"\. Was the process, or one of its threads, "
    assert re.fullmatch(f"rammer_region0: {which}{process}{text}", message), message


def test_the_limit_in_the_table():
    """A minute unless told otherwise."""
    source = source_of("lstm_8x8x256")
    compiled = source.compile(source.plan("wavefront", 2))
    assert compiled.table[Header.WAIT_LIMIT] == 1000 * WAIT_LIMIT == 60_000


STOPPED = """
import sys
sys.path[:0] = {path!r}
from stress.compiled_regions import source_of
from test_wait_limit import never_over
source = source_of("lstm_8x8x256")
compiled = source.compile(source.plan("wavefront", 2))
never_over(compiled, 1500)
print("ready", flush=True)
try:
    compiled.run(source.inputs())
except RuntimeError:
    print("given up", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs signals that stop a process")
def test_time_in_which_the_process_is_stopped_does_not_count():
    """Stopped for longer than the limit, a run still has most of its limit left."""
    script = STOPPED.format(path=sys.path)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        process.send_signal(signal.SIGCONT)
        resumed = time.monotonic()
        assert process.stdout.readline() == b"given up\n"
        assert time.monotonic() - resumed > 0.5
