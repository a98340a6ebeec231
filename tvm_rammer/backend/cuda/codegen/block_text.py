"""What a resident block does, in CUDA C: it walks its rows of the table.

Block ``b`` runs the rTasks of vEU ``b`` in order. An rTask waits until the counters of other blocks
say that what it needs is done, calls its body, and sets the counter of its own block. One that
has no tiles hands on what it has waited for, a barrier of the blocks that wait for it. A counter is
written with release and read with acquire semantics at the scope of the device, and a barrier of
the block stands between it and the other threads, so that all of them see what was written before.

Nothing here is read through the cache for constants but the table, which nobody writes.
"""

from __future__ import annotations

from tvm_rammer.backend.cuda.codegen.plan_table import COUNTER_BYTES, PlanWord
from tvm_rammer.backend.cuda.thread_body import SHARED, THREAD
from tvm_rammer.backend.plan_rows import OPERAND_WORDS, ROW_WORDS, WAIT_WORDS, Row
from tvm_rammer.rprogram import ALIGNMENT

#: Functions of the text that the kernels of regions call.
BASE, CLEAR, WALK = "rammer_base", "rammer_clear", "rammer_walk"
#: Where a pointer of a body points to; the function that calls the bodies.
OPERAND, DISPATCH = "rammer_operand", "rammer_dispatch"
#: Of the base pointers, the first is the arena's.
ARENA_BASE = 0

_TEXT = """
extern "C" __device__ int {dispatch}(int kernel, int start, int stop, int* __restrict__ operands);

// Anew for every body: what bodies derive from it would all be kept in registers between rows.
__device__ __forceinline__ int {thread}() {{
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  __builtin_assume(thread >= 0 && thread < {block_threads});
  return thread;
}}

__device__ __forceinline__ unsigned char* {shared}(int offset) {{
  __shared__ alignas(128) unsigned char pool[{pool_bytes}];
  return pool + offset;
}}

__device__ __forceinline__ uint64_t* rammer_bases() {{
  __shared__ uint64_t bases[{num_bases}];
  return bases;
}}

__device__ __forceinline__ void {base}(int number, const void* pointer) {{
  if (threadIdx.x == 0) rammer_bases()[number] = (uint64_t)pointer;
}}

__device__ __forceinline__ void* {operand}(const int* operands, int number) {{
  const int* words = operands + {operand_words} * number;
  const uint64_t base = rammer_bases()[words[0] / {alignment}];
  const uint64_t address = base + words[0] % {alignment} + (int64_t)words[1] * {alignment};
  // Says that it points to global memory: bodies need not find out.
  return __cvta_global_to_generic(address);
}}

__device__ __forceinline__ int* rammer_counter(int veu) {{
  return (int*)((char*)rammer_bases()[{arena}] + (int64_t)veu * {counter_bytes});
}}

__device__ __forceinline__ int rammer_acquire(const int* counter) {{
  int count;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
  return count;
}}

__device__ __forceinline__ void rammer_release(int* counter, int count) {{
  asm volatile("st.release.gpu.global.s32 [%0], %1;" : : "l"(counter), "r"(count) : "memory");
}}

// A wait that takes too long ends the run with an error of the device: no later run can be trusted.
__device__ __forceinline__ void rammer_wait(const int* counter, int count, int limit) {{
  int64_t polls = (int64_t)limit * {polls};
  while (rammer_acquire(counter) < count) {{
    __nanosleep({nap});
    if (limit != 0 && --polls < 0) __trap();
  }}
}}

__device__ __forceinline__ void {clear}(int num_veus) {{
  for (int veu = threadIdx.x; veu < num_veus; veu += blockDim.x) *rammer_counter(veu) = 0;
}}

// Where a block is in its rows, and where they end; not in registers, which bodies need all.
__device__ __forceinline__ int* rammer_place() {{
  __shared__ int place[2];
  return place;
}}

__device__ __forceinline__ const int* rammer_row(const int* table) {{
  return table + table[{ROWS}] + rammer_place()[0] * {row_words};
}}

__device__ __forceinline__ void rammer_wait_all(const int* table) {{
  const int* row = rammer_row(table);
  const int last = row[{ROW_LAST_WAIT}];
  if (row[{ROW_FIRST_WAIT}] == last) return;
  for (int wait = row[{ROW_FIRST_WAIT}] + threadIdx.x; wait < last; wait += blockDim.x) {{
    const int* awaited = table + table[{WAITS}] + wait * {wait_words};
    rammer_wait(rammer_counter(awaited[0]), awaited[1], table[{WAIT_LIMIT}]);
  }}
  __syncthreads();
}}

__device__ __forceinline__ void {walk}(int segment, const int* table) {{
  if (threadIdx.x == 0) {{
    const int* starts = table + table[{STARTS}] + segment * (gridDim.x + 1) + blockIdx.x;
    rammer_place()[0] = starts[0];
    rammer_place()[1] = starts[1];
  }}
  __syncthreads();
  while (rammer_place()[0] < rammer_place()[1]) {{
    rammer_wait_all(table);
    const int* row = rammer_row(table);
    int* operands = (int*)table + table[{OPERANDS}] + row[{ROW_OPERANDS}] * {operand_words};
    // Every tile ends with a barrier: all threads are done with this row.
    if (row[{ROW_START}] < row[{ROW_STOP}])
      {dispatch}(row[{ROW_KERNEL}], row[{ROW_START}], row[{ROW_STOP}], operands);
    else
      __syncthreads();
    if (threadIdx.x == 0) {{
      const int signal = rammer_row(table)[{ROW_SIGNAL}];
      if (signal > 0) rammer_release(rammer_counter(blockIdx.x), signal);
      rammer_place()[0] += 1;
    }}
    __syncthreads();
  }}
}}
"""
#: Nanoseconds between two looks at a counter, at most twice as many; looks in a millisecond.
_NAP, _POLLS = 20, 50_000


def block_text(pool_bytes: int, num_bases: int, block_threads: int) -> str:
    """The text that all kernels of a module import.

    Parameters
    ----------
    pool_bytes : int
        Most shared memory that a body wants.
    num_bases : int
        Most base pointers of a region.
    block_threads : int
        Threads of a block.
    """
    words = {word.name: word.value for word in PlanWord}
    words |= {f"ROW_{word.name}": word.value for word in Row}
    return _TEXT.format(
        pool_bytes=max(1, pool_bytes),
        num_bases=num_bases,
        block_threads=block_threads,
        thread=THREAD,
        shared=SHARED,
        base=BASE,
        clear=CLEAR,
        walk=WALK,
        dispatch=DISPATCH,
        operand=OPERAND,
        arena=ARENA_BASE,
        alignment=ALIGNMENT,
        counter_bytes=COUNTER_BYTES,
        operand_words=OPERAND_WORDS,
        row_words=ROW_WORDS,
        wait_words=WAIT_WORDS,
        nap=_NAP,
        polls=_POLLS,
        **words,
    )
