"""A child of fork ends with its own status, with TVM or without, however it comes to its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILDREN = """
import os, signal, sys, threading
from tvm_rammer.backend.cpu.host.exit_after_fork import end_before_pool

assert "tvm_ffi" not in sys.modules
go_on = threading.Event()
threading.Thread(target=go_on.wait, daemon=True).start()
sys.last_value = ValueError("of before the fork")

def forked():
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        end_before_pool()
        return True
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status, flush=True)
    os._exit(0)

if forked():
    exec(sys.argv[1])
"""

CAUGHT = "try: sys.exit(4)\nexcept SystemExit as error: assert error.code == 4"
IN_A_THREAD = "a = threading.Thread(target=lambda: sys.exit(5)); a.start(); a.join()"


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("sys.exit(-1)", 255),
        ("sys.exit(2**70)", 255),
        ("sys.exit('why')", 1),
        ("sys.exit(None)", 0),
        ("raise SystemExit(3)", 3),
        ("exit(3)", 3),
        ("raise ValueError", 1),
        (CAUGHT, 0),
        (CAUGHT + "\nraise SystemExit(3)", 3),
        (IN_A_THREAD, 0),
        ("os.kill(os.getpid(), signal.SIGINT)", -2),
    ],
)
def test_a_child_ends_with_its_own_status(ending, status):
    """Also where no C++ variable of the thread's has to be destroyed before."""
    command = [sys.executable, "-c", CHILDREN, ending]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == f"{status}\n", done.stderr


UNCHANGED = """
import os, sys, threading
import tvm_rammer.backend.cpu.host.pool
from tvm_rammer.backend.cpu.host import exit_after_fork

go_on = threading.Event()
threading.Thread(target=go_on.wait, daemon=True).start()
child = os.fork()
if child == 0:
    assert not exit_after_fork._end.installed
else:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_without_tvm_a_child_ends_as_ever():
    done = subprocess.run([sys.executable, "-c", UNCHANGED], stdout=subprocess.PIPE, text=True)
    assert done.stdout == "0\n"
