"""The emulation of CUDA runs what a GPU runs, in any order, and says what a GPU would hang on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from emulated_cuda import (
    ORDERS,
    barriers,
    compile_source,
    lane_order,
    obstacle,
    resident_blocks,
    run_emulated,
    time_limit,
    without_barrier,
)
from emulated_cuda.compile_source import translate

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle())

TAGS = ("blockIdx.x", "threadIdx.x")
COOPERATIVE = (*TAGS, "tirx.use_cooperative_launch")


def kernel(
    body: str, before: str = "", tags: tuple[str, ...] = COOPERATIVE, races: bool = False
) -> Callable[..., Any]:
    """``run(array, blocks, threads)`` of a kernel over ``int* x``, whose result it returns."""
    text = f'{before}\nextern "C" __global__ void k(int* x, int n) {{\n{body}\n}}\n'
    module = tvm_ffi.load_module(str(compile_source(text, {"k": tags}, races)))

    def run(array: Any, blocks: int, threads: int, *more: int) -> np.ndarray:
        x = np.array(array, "int32")
        pointer = ctypes.c_void_p(x.ctypes.data)
        # TVM's host code passes no second marker for a cooperative launch.
        module["k"](pointer, len(x), blocks, threads, *more)
        return x

    return run


def refusal(run: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(RuntimeError) as error:
        run(*args)
    return str(error.value).splitlines()[0]


#: Sums neighbours by shared memory: needs both of its barriers.
NEIGHBOURS = """
  __shared__ alignas(64) int near[128];
  for (int turn = 0; turn < 3; ++turn) {
    near[threadIdx.x] = x[threadIdx.x] + turn;
    __syncthreads();
    x[threadIdx.x] = near[(threadIdx.x + 33) % 128];
    __syncthreads();
  }
"""


def neighbours() -> np.ndarray:
    x = np.arange(128)
    for turn in range(3):
        x = np.roll(x + turn, -33)
    return x


def runs(run: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    results = []
    for order in ORDERS:
        with lane_order(order):
            results.append(run(*args))
    return results


def test_barriers_hold_in_every_order():
    for result in runs(kernel(NEIGHBOURS), np.arange(128), 1, 128):
        assert (result == neighbours()).all()


@pytest.mark.parametrize("nth", [0, 1])
def test_a_barrier_that_is_missing_shows_in_some_order_and_is_a_race(nth):
    line = barriers("\n\n" + NEIGHBOURS)[nth]
    watched = kernel(NEIGHBOURS, races=True)
    assert (watched(np.arange(128), 1, 128) == neighbours()).all()
    with without_barrier(line):
        results = runs(kernel(NEIGHBOURS), np.arange(128), 1, 128)
        assert any((result != neighbours()).any() for result in results)
        assert refusal(watched, np.arange(128), 1, 128).startswith("emulated CUDA: a race: thread ")


RACES = {
    "x[threadIdx.x / 2] = 1;": "thread 1 of block 0 writes what thread 0 of block 0 writes",
    "x[threadIdx.x + 1] = x[threadIdx.x];": (
        "thread 1 of block 0 reads what thread 0 of block 0 writes"
    ),
    "if (threadIdx.x == 0) x[1] = x[blockIdx.x];": (
        "thread 0 of block 1 reads what thread 0 of block 0 writes"
    ),
    "x[threadIdx.x] += 1; __shfl_xor_sync(-1, 1, 1); x[threadIdx.x ^ 1] += 1;": (
        "thread 0 of block 0, last at line 3, reads what thread 1 of block 0 writes"
    ),
}


@pytest.mark.parametrize("body", RACES)
def test_accesses_that_nothing_orders_are_a_race(body):
    text = refusal(kernel(body, races=True), np.zeros(80), 2, 64)
    assert text == f"emulated CUDA: a race: {RACES[body]}, and nothing orders them"


ORDERED = (
    "atomicAdd(x, 1);",
    "((char*)x)[blockIdx.x * blockDim.x + threadIdx.x] = 1;",
    "if (blockIdx.x == 0) { x[threadIdx.x] += 1; __syncwarp(); x[threadIdx.x ^ 1] += 1; }",
    "__shared__ int own; if (threadIdx.x == 0) own = 1; __syncthreads(); atomicAdd(x, own);",
)


@pytest.mark.parametrize("body", ORDERED)
def test_accesses_that_something_orders_are_none(body):
    runs(kernel(body, races=True), np.zeros(80), 2, 64)


def test_orders_differ():
    run = kernel("x[atomicAdd(x + n - 1, 1)] = blockIdx.x * 64 + threadIdx.x;")
    forward, backward, shuffled = (r[:-1] for r in runs(run, np.zeros(129), 2, 64))
    assert (forward == np.arange(128)).all()
    assert sorted(shuffled) == sorted(backward) == list(range(128))
    assert len({tuple(r) for r in (forward, backward, shuffled)}) == 3


def test_many_blocks_of_an_ordinary_launch():
    run = kernel("x[blockIdx.x * blockDim.x + threadIdx.x] += gridDim.x;", tags=TAGS)
    for result in runs(run, np.arange(20_000), 625, 32):
        assert (result == np.arange(20_000) + 625).all()


SHUFFLES = """
  int lane = threadIdx.x & 31, mask = __activemask(), v = x[threadIdx.x];
  if (lane < 16) v += __shfl_down_sync(0xffff, v, 8, 16);
  __syncwarp();
  v += __shfl_xor_sync(0xffffffff, v, 1) + __shfl_sync(0xffffffff, v, 3, 32);
  x[threadIdx.x] = v + __shfl_up_sync(0xffffffff, v, 2) + (mask == -1);
"""


def test_shuffles_read_what_lanes_brought():
    lanes = np.arange(64).reshape(2, 32) * 3
    v = lanes.copy()
    v[:, :8] += lanes[:, 8:16]
    v[:, 8:16] += lanes[:, 8:16]
    v = v + v[:, np.arange(32) ^ 1] + v[:, 3:4]
    expected = v + np.concatenate([v[:, :2], v[:, :-2]], 1) + 1
    for result in runs(kernel(SHUFFLES), lanes.ravel(), 1, 64):
        assert (result == expected.ravel()).all()


#: Each block adds to what the one before it left, by a counter that it waits for.
HANDED_ON = """
  if (threadIdx.x == 0) { WAIT }
  __syncthreads();
  x[threadIdx.x + 1] += blockIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) { PASS }
"""
LOADS = {
    "volatile and nanosleep": (
        "while (*(volatile int*)x != blockIdx.x) __nanosleep(32); __threadfence();",
        "__threadfence(); *(volatile int*)x = blockIdx.x + 1;",
    ),
    "volatile": (
        "while (*(volatile int*)x != blockIdx.x) {} __threadfence();",
        "__threadfence(); atomicAdd(x, 1);",
    ),
    "atomic_ref": (
        "while (counter(x).load(cuda::memory_order_acquire) != blockIdx.x) {}",
        "counter(x).store(blockIdx.x + 1, cuda::memory_order_release);",
    ),
    "inline PTX": ("while (acquire(x) != blockIdx.x) {}", "release(x, blockIdx.x + 1);"),
}
HELPERS = """#include <cuda/atomic>
#define counter(x) cuda::atomic_ref<int, cuda::thread_scope_device>(*(x))
__device__ __forceinline__ int acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void release(int* p, int v) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;\\n" :: "l"(p), "r"(v) : "memory");
}
"""


@pytest.mark.parametrize("how", LOADS)
def test_blocks_of_a_cooperative_launch_wait_for_each_other(how):
    wait, hand_on = LOADS[how]
    blocks = 3 if how == "volatile" else 20
    for races in (False, True):
        run = kernel(HANDED_ON.replace("WAIT", wait).replace("PASS", hand_on), HELPERS, races=races)
        for result in runs(run, np.zeros(65), blocks, 64):
            assert (result[1:] == blocks * (blocks - 1) / 2).all()


WEAK = [
    ("inline PTX", "ld.acquire", "ld.relaxed"),
    ("inline PTX", "st.release", "st.relaxed"),
    ("atomic_ref", "memory_order_acquire", "memory_order_relaxed"),
    ("atomic_ref", "memory_order_release", "memory_order_relaxed"),
    ("volatile and nanosleep", "(32); __threadfence();", "(32);"),
    ("volatile and nanosleep", "__threadfence(); *", "*"),
]


@pytest.mark.parametrize(("how", "strong", "weak"), WEAK)
def test_a_fence_that_is_missing_is_a_race(how, strong, weak):
    wait, hand_on = LOADS[how]
    text = HANDED_ON.replace("WAIT", wait).replace("PASS", hand_on)
    assert strong in text + HELPERS
    run = kernel(text.replace(strong, weak), HELPERS.replace(strong, weak), races=True)
    assert refusal(run, np.zeros(65), 3, 64).startswith("emulated CUDA: a race: thread ")


def test_blocks_of_an_ordinary_launch_cannot():
    wait, hand_on = LOADS["volatile and nanosleep"]
    run = kernel(HANDED_ON.replace("WAIT", wait).replace("PASS", hand_on), tags=TAGS)
    with lane_order(1):
        assert refusal(run, np.zeros(65), 2, 64) == (
            "emulated CUDA: deadlock: block (1, 0, 0): 63 at __syncthreads (line 5), "
            "1 in a loop that waits (line 4)"
        )


GRID_BARRIER = """
  x[blockIdx.x] += 1;
  cooperative_groups::this_grid().sync();
  int sum = 0;
  for (int i = 0; i < gridDim.x; ++i) sum += x[i];
  cooperative_groups::this_grid().sync();
  x[blockIdx.x] = sum;
"""


def test_a_barrier_of_the_grid():
    for races in (False, True):
        run = kernel(GRID_BARRIER, "#include <cooperative_groups.h>", races=races)
        for result in runs(run, np.arange(17), 17, 1):
            assert (result == 17 * 16 / 2 + 17).all()
    with without_barrier(-1):
        assert refusal(run, np.arange(17), 17, 1).startswith("emulated CUDA: a race: thread ")


def test_too_many_blocks_are_an_error_as_on_a_gpu():
    run = kernel("x[0] = 1;")
    with resident_blocks(4):
        assert refusal(run, [0], 5, 32) == (
            "emulated CUDA: too many blocks in cooperative launch: 5 of at most 4"
        )
        assert run([0], 4, 32)[0] == 1


HALF = "#include <cuda_fp16.h>"
EACH = "const int i = blockIdx.x * blockDim.x + threadIdx.x;"


def test_half_precision_is_what_numpy_has():
    """All numbers of 16 bits widened, and some of 32 bits rounded: ties, too small, too large."""
    widen = kernel(f"{EACH} x[i] = __float_as_int(__half2float(__ushort_as_half(i)));", HALF)
    bits = np.arange(1 << 16, dtype="uint16")
    np.testing.assert_array_equal(
        widen(bits, 256, 256).view("float32"), bits.view("float16").astype("float32")
    )
    rounded = kernel(f"{EACH} x[i] = __half_as_ushort(__float2half(__int_as_float(x[i])));", HALF)
    rng = np.random.default_rng(0)
    some = rng.integers(0x32000000, 0x48000000, 1 << 15) & rng.choice([-1, -1 << 12], 1 << 15)
    some[:4] = np.array([0, np.inf, 65519.99, 65520], "float32").view("int32")
    some = np.concatenate([some, some | -1 << 31]).astype("int32")
    with np.errstate(over="ignore"):
        wanted = some.view("float32").astype("float16").view("uint16")
    np.testing.assert_array_equal(rounded(some, 256, 256), wanted)


WRONG = {
    "if (threadIdx.x < 32) __syncthreads(); else { while (true) __nanosleep(1); }": (
        "deadlock: block (0, 0, 0): 32 at __syncthreads (line 3), 32 in a loop that waits (line 3)"
    ),
    "if (threadIdx.x & 1) __syncthreads();\nelse __syncthreads();": (
        "threads of one block wait at two __syncthreads (line 4) and (line 3)"
    ),
    "if (threadIdx.x & 1) x[0] = __shfl_xor_sync(0xffffffffu, 1, 1); else __syncthreads();": (
        "deadlock: block (0, 0, 0): 32 at __syncthreads (line 3), "
        "32 at a warp's shuffle or __syncwarp (line 3)"
    ),
    "((int*)(long)x[0])[threadIdx.x] = 1;": (
        "thread 0 of block 0 uses an address that is not there"
    ),
    "((int2*)(x + 1))->y = 1;": "thread 0 of block 0 uses an address that is not aligned",
    "__shared__ int big[60000]; big[threadIdx.x] = 1;": (
        "240000 bytes of shared memory: at most 232448"
    ),
}


@pytest.mark.parametrize("body", WRONG)
def test_what_would_hang_is_an_error(body):
    assert refusal(kernel(body), [0], 1, 64) == f"emulated CUDA: {WRONG[body]}"


FRAGMENTS = {
    "if (threadIdx.x < 48) nvcuda::wmma::fill_fragment(sums, 0.0f);": (
        "a part of a warp uses tensor cores"
    ),
    "nvcuda::wmma::store_matrix_sync(near + 4, sums, 16, nvcuda::wmma::mem_row_major);": (
        "a fragment lies where it is not aligned: its rows to 16 bytes, itself to 32"
    ),
}


@pytest.mark.parametrize("body", FRAGMENTS)
def test_fragments_want_whole_warps_and_aligned_memory(body):
    sums = "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums;"
    run = kernel(f"__shared__ alignas(64) float near[512];\n{sums}\n{body}", "#include <mma.h>")
    assert refusal(run, [0], 1, 64) == f"emulated CUDA: {FRAGMENTS[body]}"


def test_too_many_threads_are_an_error():
    assert refusal(kernel(""), [0], 1, 1025) == (
        "emulated CUDA: 1025 threads in a block: at most 1024"
    )


def test_a_loop_without_an_end_is_an_error():
    with time_limit(1):
        assert refusal(kernel("while (*(volatile int*)x == 0) {}"), [0], 1, 1) == (
            "emulated CUDA: the kernel did not end in time: block (0, 0, 0): "
            "1 in a loop without __nanosleep"
        )


def test_shared_memory_starts_as_poison():
    body = "extern __shared__ __align__(64) int a[]; __shared__ int b; x[0] = a[3]; x[1] = b;"
    tags = (*TAGS, "tirx.use_dyn_shared_memory")
    assert set(kernel(body, tags=tags)([0, 0], 1, 1, 64)) == {0x7F7F7F7F}


def test_each_block_has_the_shared_memory_of_a_file():
    before = "__shared__ alignas(16) unsigned char pool[256];"
    body = "int* own = (int*)pool; *own = blockIdx.x; __nanosleep(1); x[blockIdx.x] = *own;"
    for result in runs(kernel(body, before), np.zeros(9), 9, 1):
        assert (result == np.arange(9)).all()


def test_a_trap_is_an_error():
    run = kernel("if (threadIdx.x == 9) __trap();\n__syncthreads();")
    assert refusal(run, [0], 1, 64) == "emulated CUDA: the kernel trapped (line 3)"


def test_ptx_that_is_not_known_is_an_error():
    with pytest.raises(ValueError) as error:
        translate('asm volatile("bar.sync 0;");')
    assert str(error.value) == (
        "no emulation of the PTX instruction 'bar.sync 0;'; give inline_ptx.py one"
    )


def test_without_a_compiler_tests_are_skipped_with_a_reason(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert obstacle() == (
        "no-such-compiler is not there, which compiles CUDA sources for the emulation"
    )
    with pytest.raises(pytest.skip.Exception, match="no-such-compiler is not there"):
        run_emulated(neighbours)
