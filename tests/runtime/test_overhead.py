"""What a run allocates besides the kernel: nothing. (python/bench_overhead.py times it.)"""

from __future__ import annotations

import shutil
import subprocess

import pytest
from small_models import python

# Counts what any thread allocates from the moment on that it is loaded.
COUNTER = """
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static long calls;
long malloc_calls(void) { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST); }
static void count(void) { __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST); }

void *malloc(size_t n) { count(); return __libc_malloc(n); }
void *calloc(size_t m, size_t n) { count(); return __libc_calloc(m, n); }
void *realloc(void *p, size_t n) { count(); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { count(); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { count(); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
    count();
    *p = __libc_memalign(a, n);
    return *p ? 0 : 12;
}
"""

ALLOCATIONS = """
import ctypes
import gc
from small_models import Branches, floats
import tvm_rammer

counter = ctypes.CDLL(None)
module = tvm_rammer.build(Branches).create()
module.set_input(0, floats(4, 8))
for _ in range(100):
    module.run()
gc.collect()
gc.disable()
before = counter.malloc_calls()
assert before > 1000, "the counter does not count"
for _ in range(1000):
    module.run()
print(counter.malloc_calls() - before)
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to count")
def test_a_run_allocates_nothing_after_the_first(tmp_path):
    source, counter = tmp_path / "counter.c", tmp_path / "counter.so"
    source.write_text(COUNTER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", counter, source], check=True)
    assert int(python(ALLOCATIONS, LD_PRELOAD=str(counter))) == 0


def test_memory_does_not_grow(tmp_path):
    """Where outputs come from the VM, each run frees those of the run before."""
    code = """
import ctypes
import gc
from small_models import Sorting, floats
import tvm_rammer

class Mallinfo(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Mallinfo
module = tvm_rammer.build(Sorting).create()
module.set_input(0, floats(4, 8))

def used(runs):
    for _ in range(runs):
        module.run()
    gc.collect()
    return libc.mallinfo2().uordblks

first = used(100)
print(used(1000) - first)
"""
    assert int(python(code)) < 1000
