"""Products with matrices that data choose read them where they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from close import assert_close
from tvm import relax

import tvm_rammer
from tvm_rammer.relax_util import calls_of, operator_name
from tvm_rammer.transform.multiply_chosen import MultiplyChosen

Apply = Callable[[Any, Any, Any], Any]
COPIES = {"relax.take", "relax.gather_nd"}


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def module(
    stack: np.ndarray,
    shape: Sequence[int],
    chosen: Sequence[int],
    apply: Apply,
    given: bool = False,
) -> tvm.IRModule:
    """A function of data of a shape, of numbers of matrices, and of a stack if that is given."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    i = relax.Var("i", relax.TensorType(chosen, "int64"))
    w = relax.Var("w", relax.TensorType(stack.shape, "float32"))
    with builder.function("main", [x, i, *([w] if given else [])]):
        with builder.dataflow():
            made = builder.normalize(apply(x, w if given else relax.const(stack), i))
            result = builder.emit_output(relax.op.nn.relu(made))
        builder.emit_func_output(result)
    return builder.get()


def copies(mod: tvm.IRModule) -> set[str]:
    """The operators that still copy matrices."""
    return {operator_name(call) for call in calls_of(mod)} & COPIES


def run(mod: tvm.IRModule, *given: np.ndarray) -> np.ndarray:
    return tvm_rammer.build(mod, policy="wavefront").create()(*given)[0].numpy()


def taken(x: Any, w: Any, i: Any) -> Any:
    return relax.op.matmul(x, relax.op.take(w, i, axis=0))


def gathered(x: Any, w: Any, i: Any) -> Any:
    last = relax.op.expand_dims(i, -1)
    return relax.op.matmul(x, relax.op.gather_nd(w, last))


def transposed(x: Any, w: Any, i: Any) -> Any:
    return relax.op.matmul(x, relax.op.permute_dims(relax.op.take(w, i, axis=0), [0, 2, 1]))


def on_the_left(x: Any, w: Any, i: Any) -> Any:
    return relax.op.matmul(relax.op.take(w, i, axis=0, mode="clip"), x)


CASES = {
    "taken": (taken, (4, 24, 40), (6, 1, 24), (6,), "bmk,bkn->bmn"),
    "gathered": (gathered, (4, 24, 40), (6, 3, 24), (6,), "bmk,bkn->bmn"),
    "transposed": (transposed, (4, 40, 24), (6, 1, 24), (6,), "bmk,bnk->bmn"),
    "a column": (on_the_left, (4, 40, 24), (6, 24, 1), (6,), "bkm,bnk->bnm"),
    "columns": (on_the_left, (4, 40, 24), (6, 24, 3), (6,), "bkm,bnk->bnm"),
    "two axes": (taken, (5, 8, 16), (2, 3, 1, 8), (2, 3), "abmk,abkn->abmn"),
    "odd sizes": (taken, (3, 7, 19), (5, 2, 7), (5,), "bmk,bkn->bmn"),
}


@pytest.mark.parametrize("given", [False, True], ids=["constant", "input"])
@pytest.mark.parametrize("case", CASES)
def test_a_product_reads_the_matrices_where_they_lie(case, given):
    apply, stack, shape, chosen, sums = CASES[case]
    w, x = numbers(*stack), numbers(*shape)
    i = np.random.default_rng(0).integers(0, stack[0], chosen)
    mod = module(w, shape, chosen, apply, given)
    assert not copies(MultiplyChosen()(mod))
    wanted = np.maximum(np.einsum(sums, x, w[i]), 0)
    assert_close(run(mod, x, i, *([w] if given else [])), wanted)


def test_a_number_without_a_matrix_takes_the_nearest():
    w, x = numbers(3, 8, 16), numbers(4, 1, 8)
    mod = module(w, x.shape, (4,), taken)
    i = np.array([-7, 1, 3, 1 << 40])
    wanted = np.maximum(x @ w[np.clip(i, 0, 2)], 0)
    assert_close(run(mod, x, i), wanted)


def test_what_follows_is_fused():
    """Nothing is left to plan beside the one kernel."""
    w, x = numbers(4, 64, 256), numbers(8, 1, 64)
    library = tvm_rammer.build(module(w, x.shape, (8,), taken), policy="wavefront")
    assert [item.operator for item in library.report.left_out] == ["fused_matmul_relu"]
    i = np.array([3, 0, 0, 1, 2, 3, 3, 1])
    assert_close(library.create()(x, i)[0].numpy(), np.maximum(x @ w[i], 0))


def summed(x: Any, w: Any, i: Any) -> Any:
    """Matrices that are no factors of a product."""
    return relax.op.add(x, relax.op.take(w, i, axis=0))


def one_for_all(x: Any, w: Any, i: Any) -> Any:
    return relax.op.matmul(relax.op.reshape(x, (3, 8)), relax.op.take(w, i, axis=0))


def along_another_axis(x: Any, w: Any, i: Any) -> Any:
    return relax.op.matmul(x, relax.op.take(w, i, axis=1))


@pytest.mark.parametrize(
    ("apply", "stack", "shape", "chosen"),
    [
        (summed, (4, 8, 8), (3, 8, 8), (3,)),
        (one_for_all, (4, 8, 8), (3, 8), (3,)),
        (along_another_axis, (8, 4, 8), (8, 3, 8), (8,)),
    ],
    ids=["summed", "rows for all", "another axis"],
)
def test_what_stays(apply, stack, shape, chosen):
    assert copies(MultiplyChosen()(module(numbers(*stack), shape, chosen, apply))) == {"relax.take"}


def test_for_gpus_matrices_are_copied():
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        assert copies(MultiplyChosen()(module(numbers(4, 8, 8), (3, 1, 8), (3,), taken))) == {
            "relax.take"
        }
