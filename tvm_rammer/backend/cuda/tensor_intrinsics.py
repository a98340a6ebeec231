"""What tensor cores do, for ``Schedule.tensorize``: products of 16 x 16 x 16 by a warp.

These are TVM's own (``tvm.s_tir.tensor_intrin.cuda``), of which a schedule needs five. Importing
them parses them all, hundreds, which takes half a minute.
"""

from __future__ import annotations

from functools import cache

import tvm
from tvm.s_tir import TensorIntrin

#: Rows and columns of a fragment.
SIDE = 16
#: Where factors and, after them, sums are shared: if it were one scope, TVM would put float32 where
#: float16 was, and then refuse to access it. (One array alone of "shared.dyn" would be declared
#: anew by every kernel of a source, of another type perhaps; two become one, of bytes.)
FACTORS_SCOPE, SUMS_SCOPE = "shared.dyn", "shared"

_COPY = """
@T.prim_func(s_tir=True)
def computed(a: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (16, 16), "{dtype}", align=64, offset_factor=16, scope="{source}")
    C = T.match_buffer(c, (16, 16), "{dtype}", align=64, offset_factor=16, scope="{scope}")
    with T.sblock("root"):
        T.reads(A[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j in T.grid(16, 16):
            with T.sblock("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj]
"""

_STRIDED_COPY = """
@T.prim_func(s_tir=True)
def called(a: T.handle, c: T.handle) -> None:
    s1 = T.int32()
    s0 = T.int32()
    d1 = T.int32()
    d0 = T.int32()
    A = T.match_buffer(
        a, (16, 16), "{dtype}", align=64, offset_factor=16, scope="{source}", strides=[s1, s0]
    )
    C = T.match_buffer(
        c, (16, 16), "{dtype}", align=64, offset_factor=16, scope="{scope}", strides=[d1, d0]
    )
    with T.sblock("root"):
        T.reads(A[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        T.evaluate({call})
"""

_LOAD = """T.tvm_load_matrix_sync(
    C.data, 16, 16, 16, C.elem_offset // d1 // 16 * (d1 // 16) + C.elem_offset % d1 // 16,
    A.access_ptr("r", ptr_type="{dtype}"), s1, "{layout}", dtype="void")"""

_STORE = """T.tvm_store_matrix_sync(
    A.data, 16, 16, 16, A.elem_offset // s1 // 16 * (s1 // 16) + A.elem_offset % s1 // 16,
    C.access_ptr("w", ptr_type="{dtype}"), d1, "row_major", dtype="void")"""

_FILL = """
@T.prim_func(s_tir=True)
def computed(c: T.handle) -> None:
    C = T.match_buffer(
        c, (16, 16), "{dtype}", align=64, offset_factor=16, scope="wmma.accumulator"
    )
    with T.sblock("root"):
        T.reads()
        T.writes(C[0:16, 0:16])
        for i, j in T.grid(16, 16):
            with T.sblock("init"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.{dtype}(0)
"""

_STRIDED_FILL = """
@T.prim_func(s_tir=True)
def called(c: T.handle) -> None:
    d1 = T.int32()
    d0 = T.int32()
    C = T.match_buffer(
        c, (16, 16), "{dtype}", align=64, offset_factor=16, scope="wmma.accumulator",
        strides=[d1, d0]
    )
    with T.sblock("root"):
        T.reads()
        T.writes(C[0:16, 0:16])
        T.evaluate(T.tvm_fill_fragment(
            C.data, 16, 16, 16, C.elem_offset // d1 // 16 * (d1 // 16) + C.elem_offset % d1 // 16,
            T.float32(0), dtype="void"))
"""

_PRODUCT = """
@T.prim_func(s_tir=True)
def computed(a: T.handle, b: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_a")
    B = T.match_buffer(b, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_b")
    C = T.match_buffer(
        c, (16, 16), "{dtype}", align=64, offset_factor=16, scope="wmma.accumulator"
    )
    with T.sblock("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        for i, j, k in T.grid(16, 16, 16):
            with T.sblock("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + {a} * {b}
"""

_STRIDED_PRODUCT = """
@T.prim_func(s_tir=True)
def called(a: T.handle, b: T.handle, c: T.handle) -> None:
    a1 = T.int32()
    a0 = T.int32()
    b1 = T.int32()
    b0 = T.int32()
    c1 = T.int32()
    c0 = T.int32()
    A = T.match_buffer(
        a, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_a", strides=[a1, a0]
    )
    B = T.match_buffer(
        b, (16, 16), "float16", align=64, offset_factor=16, scope="wmma.matrix_b", strides=[b1, b0]
    )
    C = T.match_buffer(
        c, (16, 16), "{dtype}", align=64, offset_factor=16, scope="wmma.accumulator",
        strides=[c1, c0]
    )
    with T.sblock("root"):
        T.reads(C[0:16, 0:16], A[0:16, 0:16], B[0:16, 0:16])
        T.writes(C[0:16, 0:16])
        T.evaluate(T.tvm_mma_sync(
            C.data, C.elem_offset // c1 // 16 * (c1 // 16) + C.elem_offset % c1 // 16,
            A.data, A.elem_offset // a1 // 16 * (a1 // 16) + A.elem_offset % a1 // 16,
            B.data, B.elem_offset // b1 // 16 * (b1 // 16) + B.elem_offset % b1 // 16,
            C.data, C.elem_offset // c1 // 16 * (c1 // 16) + C.elem_offset % c1 // 16,
            dtype="void"))
"""


def load(which: str, transposed: bool = False) -> str:
    """The name of the load of a fragment of float16 from shared memory.

    Parameters
    ----------
    which : {"a", "b"}
        The factor.
    transposed : bool
        Whether it lies there by columns.
    """
    layout = "col_major" if transposed else "row_major"
    return _copy("float16", FACTORS_SCOPE, f"wmma.matrix_{which}", _LOAD, layout)


def store(dtype: str) -> str:
    """The name of the store of a fragment of sums to shared memory."""
    return _copy(dtype, "wmma.accumulator", SUMS_SCOPE, _STORE, "row_major")


@cache
def fill(dtype: str) -> str:
    """The name of what makes all sums of a fragment zero."""
    return _registered(f"fill_{dtype}", _FILL, _STRIDED_FILL, dtype=dtype)


@cache
def product(dtype: str, transposed: bool) -> str:
    """The name of a product that is added to a fragment of sums of a type.

    Parameters
    ----------
    dtype : {"float32", "float16"}
    transposed : bool
        Whether the second factor lies by columns.
    """
    places = {"a": "A[vi, vk]", "b": "B[vj, vk]" if transposed else "B[vk, vj]"}
    if dtype != "float16":
        places = {name: f'T.Cast("{dtype}", {place})' for name, place in places.items()}
    name = f"product_{dtype}_{'by_columns' if transposed else 'by_rows'}"
    return _registered(name, _PRODUCT, _STRIDED_PRODUCT, dtype=dtype, **places)


@cache
def _copy(dtype: str, source: str, scope: str, call: str, layout: str) -> str:
    called = _STRIDED_COPY.replace("{call}", call)
    words = {"dtype": dtype, "source": source, "scope": scope, "layout": layout}
    return _registered(f"copy_{dtype}_{source}_{scope}_{layout}", _COPY, called, **words)


def _registered(name: str, computed: str, called: str, **words: str) -> str:
    symbol = f"tvm_rammer.{name}"
    functions = [tvm.script.from_source(text.format(**words)) for text in (computed, called)]
    TensorIntrin.register(symbol, *functions, override=True)
    return symbol
