"""What a resident block does, in CUDA C: it walks its rows of the table.

Block ``b`` runs the rTasks of vEU ``b`` in order. An rTask waits until the counters of other blocks
say that what it needs is done, calls its body, and sets the counter of its own block. One that
has no tiles hands on what it has waited for, a barrier of the blocks that wait for it. A counter is
written with release and read with acquire semantics at the scope of the device, and a barrier of
the block stands between it and the other threads, so that all of them see what was written before.

What the table says of the next rTasks is fetched while a body runs: a row two rTasks ahead, and one
ahead what the row points to, pointers and waits. To read one after the other when they are needed
took as long as most bodies. They lie in shared memory then; acquiring a counter forgets what the
first-level cache has.

Nothing here is read through the cache for constants, which nothing makes forget.
"""

from __future__ import annotations

from tvm_rammer.backend.cuda.codegen.plan_table import (
    COUNTER_BYTES,
    HEADER_WORDS,
    LAST_OPERAND,
    PlanWord,
)
from tvm_rammer.backend.cuda.thread_body import SHARED, THREAD
from tvm_rammer.backend.plan_rows import OPERAND_WORDS, ROW_WORDS, WAIT_WORDS, Row
from tvm_rammer.rprogram import ALIGNMENT

#: Functions of the text that the kernels of regions call.
BASE, CLEAR, WALK = "rammer_base", "rammer_clear", "rammer_walk"
#: Where a pointer of a body points to; the function that calls the bodies.
OPERAND, DISPATCH = "rammer_operand", "rammer_dispatch"
#: A load under a condition.
LOAD_IF = "rammer_load_if"
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

// What is loaded or not without a branch: loads that follow each other are under way together.
__device__ __forceinline__ float {load_if}(bool wanted, const float* from, float value) {{
  asm volatile("{{.reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.f32 %0, [%1];}}"
               : "+f"(value) : "l"(from), "r"((unsigned)wanted));
  return value;
}}

__device__ __forceinline__ float4 {load_if}(bool wanted, const float4* from, float4 value) {{
  asm volatile("{{.reg .pred p; setp.ne.u32 p, %5, 0; "
               "@p ld.global.v4.f32 {{%0, %1, %2, %3}}, [%4];}}"
               : "+f"(value.x), "+f"(value.y), "+f"(value.z), "+f"(value.w)
               : "l"(from), "r"((unsigned)wanted));
  return value;
}}

// Two words to shared memory, there when its thread calls rammer_arrived.
__device__ __forceinline__ void rammer_fetch(int* to, const int* from) {{
#if __CUDA_ARCH__ >= 800
  const uint64_t place = __cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" : : "l"(place), "l"(from) : "memory");
#else
  *(int2*)to = *(const int2*)from;
#endif
}}

__device__ __forceinline__ void rammer_arrived() {{
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}}

// The first row of a block and the end of its last, as words of the table; how long waits may take,
// and where stamps are wanted. Not in registers, which bodies need all.
__device__ __forceinline__ int* rammer_place() {{
  __shared__ int place[4];
  return place;
}}

__device__ __forceinline__ int* rammer_row(int number) {{
  __shared__ alignas(8) int rows[3 * {row_words}];
  return rows + number % 3 * {row_words};
}}

__device__ __forceinline__ int* rammer_operands(int number) {{
  __shared__ alignas(8) int operands[2 * {most_operands} * {operand_words}];
  return operands + number % 2 * ({most_operands} * {operand_words});
}}

// What a thread waits for first.
__device__ __forceinline__ int* rammer_awaited() {{
  __shared__ alignas(8) int awaited[{block_threads} * {wait_words}];
  return awaited + threadIdx.x * {wait_words};
}}

__device__ __forceinline__ void rammer_fetch_row(const int* table, int number) {{
  const int place = rammer_place()[0] + number * {row_words}, word = 2 * threadIdx.x;
  if (place < rammer_place()[1] && word < {row_words})
    rammer_fetch(rammer_row(number) + word, table + place + word);
}}

// What a row points to.
__device__ __forceinline__ void rammer_fetch_rest(const int* table, int number) {{
  if (rammer_place()[0] + number * {row_words} >= rammer_place()[1]) return;
  const int* row = rammer_row(number);
  const int first = row[{ROW_OPERANDS}];
  for (int each = 2 * threadIdx.x; each < row[{LAST_OPERAND}] - first; each += 2 * blockDim.x)
    rammer_fetch(rammer_operands(number) + each, table + first + each);
  const int wait = row[{ROW_FIRST_WAIT}] + {wait_words} * threadIdx.x;
  if (wait < row[{ROW_LAST_WAIT}]) rammer_fetch(rammer_awaited(), table + wait);
}}

__device__ __forceinline__ void rammer_wait_all(const int* table, const int* row) {{
  int wait = row[{ROW_FIRST_WAIT}] + threadIdx.x * {wait_words};
  const int last = row[{ROW_LAST_WAIT}], limit = rammer_place()[2];
  if (wait >= last) return;
  rammer_wait(rammer_counter(rammer_awaited()[0]), rammer_awaited()[1], limit);
  while ((wait += blockDim.x * {wait_words}) < last)
    rammer_wait(rammer_counter(table[wait]), table[wait + 1], limit);
}}

// When a row starts (0) or stops (1), in nanoseconds; by one thread alone.
__device__ __forceinline__ void rammer_stamp(const int* table, int number, int end) {{
  const int64_t stamps = rammer_place()[3];
  if (stamps == 0) return;
  const int row = (rammer_place()[0] - table[{HEADER_WORDS}]) / {row_words} + number;
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) : : "memory");
  ((uint64_t*)(rammer_bases()[{arena}] + stamps * {alignment}))[2 * row + end] = now;
}}

__device__ __forceinline__ void {walk}(int segment, const int* table) {{
  if (threadIdx.x < 2) {{
    const int first = {HEADER_WORDS} + segment * (gridDim.x + 1) + blockIdx.x;
    rammer_place()[threadIdx.x] = table[first + threadIdx.x];
  }}
  if (threadIdx.x == 2) rammer_place()[2] = table[{WAIT_LIMIT}];
  if (threadIdx.x == 3) rammer_place()[3] = table[{STAMPS}];
  __syncthreads();
  rammer_fetch_row(table, 0);
  rammer_fetch_row(table, 1);
  rammer_arrived();
  __syncthreads();
  rammer_fetch_rest(table, 0);
  for (int number = 0; rammer_place()[0] + number * {row_words} < rammer_place()[1]; ++number) {{
    rammer_arrived();
    rammer_wait_all(table, rammer_row(number));
    // All threads are done with the row before, have waited, and see what was fetched.
    __syncthreads();
    if (threadIdx.x == 0) rammer_stamp(table, number, 0);
    rammer_fetch_rest(table, number + 1);
    rammer_fetch_row(table, number + 2);
    const int* row = rammer_row(number);
    // Every tile ends with a barrier.
    if (row[{ROW_START}] < row[{ROW_STOP}])
      {dispatch}(row[{ROW_KERNEL}], row[{ROW_START}], row[{ROW_STOP}], rammer_operands(number));
    // Of the last warp: the first looks at counters meanwhile.
    if (threadIdx.x == blockDim.x - 1) {{
      rammer_stamp(table, number, 1);
      const int signal = rammer_row(number)[{ROW_SIGNAL}];
      if (signal > 0) rammer_release(rammer_counter(blockIdx.x), signal);
    }}
  }}
}}
"""
#: The pool's, at most once between the arrays.
_SHARED_ALIGNMENT, _WORD_BYTES = 128, 4
#: Nanoseconds between two looks at a counter, at most twice as many; looks in a millisecond.
_NAP, _POLLS = 20, 50_000


def block_text(pool_bytes: int, num_bases: int, block_threads: int, most_operands: int) -> str:
    """The text that all kernels of a module import.

    Parameters
    ----------
    pool_bytes : int
        Most shared memory that a body wants.
    num_bases : int
        Most base pointers of a region.
    block_threads : int
        Threads of a block.
    most_operands : int
        Most pointers of a body.
    """
    words = {word.name: word.value for word in PlanWord}
    words |= {"HEADER_WORDS": HEADER_WORDS, "LAST_OPERAND": int(LAST_OPERAND)}
    words |= {f"ROW_{word.name}": word.value for word in Row}
    return _TEXT.format(
        pool_bytes=max(1, pool_bytes),
        num_bases=num_bases,
        block_threads=block_threads,
        most_operands=max(1, most_operands),
        thread=THREAD,
        shared=SHARED,
        base=BASE,
        clear=CLEAR,
        walk=WALK,
        load_if=LOAD_IF,
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


def walking_bytes(block_threads: int, most_operands: int) -> int:
    """Bytes of shared memory that a block walks its rows with, beside base pointers."""
    place, rows = 4, 3 * ROW_WORDS
    words = place + rows + 2 * most_operands * OPERAND_WORDS + block_threads * WAIT_WORDS
    return words * _WORD_BYTES + _SHARED_ALIGNMENT
