"""The same merged kernels for GPUs of AMD: their CUDA C as HIP, which is nearly the same language.

What differs is written once before the kernels: waves have 64 lanes, of which shuffles use halves
of 32, so that masks say nothing; counters are read and written by atomics of the device's scope
where CUDA has instructions of PTX. Nothing has run it: there is no runtime for it here.
"""

from __future__ import annotations

import re

from tvm_rammer.errors import ModelError

_PRELUDE = """#include <hip/hip_runtime.h>
#include <cstdint>

#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
// Shuffles stay inside of 32 lanes, all of which take part.
#define __activemask() 0xffffffffu
#define __shfl_sync(mask, value, lane, width) __shfl((value), (lane), (width))
#define __shfl_down_sync(mask, value, delta, width) __shfl_down((value), (delta), (width))
#define __shfl_up_sync(mask, value, delta, width) __shfl_up((value), (delta), (width))
#define __shfl_xor_sync(mask, value, bits, width) __shfl_xor((value), (bits), (width))
// A nap of 64 cycles, about as long as CUDA's.
#define __nanosleep(ns) __builtin_amdgcn_s_sleep(1)
#define __trap() __builtin_trap()
#define __cvta_global_to_generic(address) ((void*)(address))

"""
#: What TVM writes before the kernels ends with these lines.
_PREAMBLE_END = re.compile(
    r"#define uint unsigned int\s+#define uchar .*\s+#define ushort .*\s+#endif"
)
#: Instructions of PTX, and what stands in for them.
_INSTRUCTIONS = (
    (
        re.compile(
            r'asm volatile\("ld\.acquire\.gpu\.global\.s32 %0, \[%1\];" : "=r"\((\w+)\) : '
            r'"l"\((\w+)\) : "memory"\);'
        ),
        r"\1 = __hip_atomic_load(\2, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);",
    ),
    (
        re.compile(
            r'asm volatile\("st\.release\.gpu\.global\.s32 \[%0\], %1;" : : "l"\((\w+)\), '
            r'"r"\((\w+)\) : "memory"\);'
        ),
        r"__hip_atomic_store(\1, \2, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);",
    ),
    # Of a branch for other devices.
    (re.compile(r'asm volatile\("cp\.async[^;]*;[^;]*;'), ""),
    (
        re.compile(r'asm volatile\("mov\.u32 %0, %%tid\.x;" : "=r"\((\w+)\)\);'),
        r"\1 = threadIdx.x;",
    ),
    # A load under a condition.
    (
        re.compile(
            r'asm volatile\("\{\.reg \.pred p; setp.*?"r"\(\(unsigned\)(\w+)\)\);', re.DOTALL
        ),
        r"if (\1) value = *from;",
    ),
    # Its clock has 100 MHz.
    (
        re.compile(r'asm volatile\("mov\.u64 %0, %%globaltimer;" : "=l"\((\w+)\) : : "memory"\);'),
        r"\1 = 10 * wall_clock64();",
    ),
)
#: Before the type, clang takes GNU's attributes and not C++'s.
_ALIGNED = re.compile(r"__shared__ alignas\((\d+)\)")


def hip_text(source: str) -> str:
    """CUDA C of merged kernels as HIP.

    Parameters
    ----------
    source : str
        As a module of this back end holds it.

    Raises
    ------
    ModelError
        When it holds instructions of PTX that have no counterpart here, or types of NVIDIA's.
    """
    found = _PREAMBLE_END.search(source)
    if found is None:
        raise ModelError("this is no source of merged kernels: TVM's first lines are missing")
    text = source[found.end() :]
    for pattern, replacement in _INSTRUCTIONS:
        text = pattern.sub(replacement, text)
    if foreign := re.search(r"\basm\b[^\n]*|\b(?:nvcuda|__nv_\w+|cooperative_groups)\b", text):
        raise ModelError(f"no HIP is known for this part of a kernel: {foreign[0].strip()}")
    return _PRELUDE + _ALIGNED.sub(r"__shared__ __attribute__((aligned(\1)))", text)
