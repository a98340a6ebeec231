"""What a block does for a tile is counted from its TIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

from tvm_rammer.backend.cuda.operation_counts import Operations, count_operations

THREADS, TILES = 256, 4
SYNC = tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))


def buffer(scope: str = "global", dtype: str = "float32") -> Any:
    return tirx.decl_buffer((1 << 16,), dtype, name=scope, scope=scope)


X, Y, SHARED = buffer(), buffer(), buffer("shared")
REGISTER = buffer("local")


def counted(make: Callable[[Any, Any], Any]) -> Operations:
    """Of a body whose statements for a tile and a thread ``make`` makes."""
    start, stop = tirx.Var("start", "int32"), tirx.Var("stop", "int32")
    tile, thread = tirx.Var("tile", "int32"), tirx.Var("thread", "int32")
    loop = tirx.For(tile, start, stop - start, tirx.ForKind.SERIAL, make(tile, thread))
    index = tirx.Bind(thread, tirx.call_extern("int32", "the_thread"))
    func = tirx.PrimFunc([start, stop], tirx.SeqStmt([index, loop]))
    return count_operations(func, TILES, THREADS, lambda value: value.same_as(index.value))


def loop(extent: int, make: Callable[[Any], Any]) -> Any:
    variable = tirx.Var("i", "int32")
    return tirx.For(variable, 0, extent, tirx.ForKind.SERIAL, make(variable))


def store(to: Any, index: Any, value: Any) -> Any:
    return tirx.BufferStore(to, value, [index])


def test_lanes_side_by_side_share_sectors():
    found = counted(lambda tile, t: store(Y, tile * 256 + t, X[tile * 256 + t] + 1.0))
    assert found == Operations(float32=256, accesses=512, passes=16, l2_bytes=2048, global_loads=1)


def test_lanes_apart_move_whole_sectors():
    found = counted(lambda tile, t: store(REGISTER, 0, X[t * 8]))
    assert (found.passes, found.l2_bytes) == (8 * 8, 256 * 32)


def test_a_tile_moves_what_it_reads_again_once():
    found = counted(lambda tile, t: loop(9, lambda i: store(REGISTER, 0, X[t + i])))
    assert found.l2_bytes == -(-(256 + 8) * 4 // 32) * 32


@pytest.mark.parametrize(("stride", "passes"), [(0, 1), (1, 1), (2, 2), (32, 32), (33, 1)])
def test_lanes_that_meet_in_a_bank_wait_for_each_other(stride, passes):
    found = counted(lambda tile, t: store(REGISTER, 0, SHARED[t * stride]))
    assert found == Operations(accesses=256, passes=8 * passes)


def test_a_guard_counts_the_threads_that_pass():
    found = counted(lambda tile, t: tirx.IfThenElse(t < 64, store(SHARED, t, X[t] * 2.0), None))
    assert (found.float32, found.accesses, found.global_loads) == (64, 128, 0.25)


def test_a_multiply_add_is_one_instruction():
    def make(tile: Any, t: Any) -> Any:
        return loop(10, lambda i: store(REGISTER, 0, REGISTER[0] + REGISTER[i] * REGISTER[1]))

    assert counted(make) == Operations(float32=10 * 256)


def test_half_precision_and_functions_are_counted_apart():
    half = buffer("local", "float16")
    assert counted(lambda tile, t: store(half, 0, half[0] * half[1])) == Operations(float16=256)
    found = counted(lambda tile, t: store(REGISTER, 0, tirx.exp(REGISTER[0])))
    assert found == Operations(float32=256, special=256)
    # An addition of halves widens one; to round is a conversion.
    widened = counted(lambda tile, t: store(REGISTER, 0, half[0].astype("float32")))
    assert widened == Operations(float16=256)
    assert counted(lambda tile, t: store(half, 0, REGISTER[0].astype("float16"))) == Operations(
        special=256
    )


def test_tensor_cores_are_counted_by_warps():
    half = buffer("shared", "float16")
    held = buffer("wmma.accumulator")

    def collective(name: str, *arguments: Any) -> Callable[[Any, Any], Any]:
        call = tirx.call_intrin("handle", f"tirx.{name}", *arguments)
        return lambda tile, t: tirx.Evaluate(call)

    product = collective("tvm_mma_sync", *(held.data, 0) * 4)
    assert counted(product) == Operations(tensor=8 * 16**3)
    # Rows of 32 bytes meet in banks, of 48 bytes they do not.
    for pitch, conflicts in ((24, 1), (16, 2)):
        place = (held.data, 16, 16, 16, 0, half.access_ptr("r"), pitch, "row_major")
        found = counted(collective("tvm_load_matrix_sync", *place))
        assert found == Operations(accesses=256, passes=8 * 4 * conflicts)


def test_what_a_thread_has_loaded_stays_in_a_register_up_to_the_next_barrier():
    def twice(between: list[Any]) -> Callable[[Any, Any], Any]:
        def make(tile: Any, t: Any) -> Any:
            one = [store(REGISTER, k, SHARED[t] + float(k)) for k in range(2)]
            return tirx.SeqStmt([one[0], *between, one[1]])

        return make

    assert counted(twice([])).accesses == 256
    after = counted(twice([SYNC]))
    assert (after.accesses, after.barriers) == (512, 1)


def test_what_a_loop_loads_again_stays_in_a_register():
    def make(tile: Any, t: Any) -> Any:
        return loop(4, lambda i: loop(8, lambda j: store(REGISTER, i, SHARED[t + j * 32])))

    assert counted(make).accesses == 8 * 256


def test_an_index_that_depends_on_data_is_its_own_access():
    def make(tile: Any, t: Any) -> Any:
        return store(REGISTER, 0, X[buffer("local", "int32")[t]])

    found = counted(make)
    assert (found.passes, found.l2_bytes) == (8, 256 * 4)
