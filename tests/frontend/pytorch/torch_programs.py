"""Small programs of PyTorch, by name: a function or a module and its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.ao.quantization.fx._decomposed  # the operators of quantised programs
import torch.nn.functional as F
from torch import nn

NAN = float("nan")

torch.manual_seed(0)


class Program(NamedTuple):
    """What is exported; ``refusal`` is a part of the one line it is refused with, if it is."""

    body: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    refusal: str | None = None


class Wrapped(nn.Module):
    """A function as a module, as ``torch.export`` wants it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class Using(nn.Module):
    """A function of a layer and of the inputs."""

    def __init__(self, layer: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = layer
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self.layer, *inputs)


def floats(*shape: int) -> torch.Tensor:
    """Random numbers around zero, the same for the same shape."""
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(*shape, generator=generator)


def ints(high: int, *shape: int, low: int = 0, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Random integers below ``high``, the same for the same arguments."""
    generator = torch.Generator().manual_seed(high + sum(shape))
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def bools(*shape: int) -> torch.Tensor:
    return floats(*shape) > 0


HALVES = (torch.float16, torch.bfloat16)

X, Y = floats(3, 4), floats(4)
I, J = ints(9, 3, 4, low=-9), ints(5, 4, low=1)  # noqa: E741
IMAGE = floats(2, 4, 5, 6)
CUBE = floats(2, 3, 4)
SPECIAL = torch.tensor([NAN, math.inf, -math.inf, -1.0, -0.0, 0.0, 0.5, 1.5, 2.5, 7.0])

_ROWS = ints(2, 1, 2, 3)

INDEXING = {
    "select_last": Program(lambda x: x[-1], (X,)),
    "select_last_column": Program(lambda x: x[:, -1], (X,)),
    "select_before_last": Program(lambda x: x[:, -2], (X,)),
    "select_inside": Program(lambda x: x[1, :, -2], (CUBE,)),
    "slice": Program(lambda x: x[:, 1:3], (X,)),
    "slice_negative": Program(lambda x: x[:, -3:-1], (X,)),
    "slice_step": Program(lambda x: x[:, ::2, 1::3], (CUBE,)),
    "slice_beyond": Program(lambda x: x[1:99, -99:2], (X,)),
    "slice_empty": Program(lambda x: torch.cat([x[2:2], x], 0), (X,)),
    "new_axes": Program(lambda x: x[None, :, None, 1:], (X,)),
    "ellipsis": Program(lambda x: x[..., 0], (CUBE,)),
    "index_one": Program(lambda x, i: x[i], (X, ints(3, 5, low=-3))),
    "index_one_matrix": Program(lambda x, i: x[i], (X, ints(3, 2, 5))),
    "index_last_axis": Program(lambda x, i: x[:, :, i], (CUBE, ints(4, 2, 3, low=-4))),
    "index_pair": Program(lambda x, i, j: x[i, j], (X, ints(3, 5), ints(4, 5))),
    "index_pair_behind": Program(lambda x, i, j: x[:, i, j], (CUBE, ints(3, 5), ints(4, 5))),
    "index_pair_behind_2d": Program(
        lambda x, i, j: x[:, i, j], (CUBE, ints(3, 2, 5), ints(4, 5, low=-4))
    ),
    "index_pair_between": Program(lambda x, i, j: x[i, :, j], (CUBE, ints(2, 5), ints(4, 5))),
    "index_pair_outer": Program(lambda x, i, j: x[:, i, j], (CUBE, ints(3, 5, 1), ints(4, 6))),
    "index_pair_inside": Program(
        lambda x, i, j: x[:, i, j], (floats(2, 3, 4, 5), ints(3, 6), ints(4, 6))
    ),
    "index_list": Program(lambda x: x[[2, 0, 1, 1]], (X,)),
    "index_lists": Program(lambda x: x[:, [0, 2], [1, 3]], (CUBE,)),
    "index_int32": Program(lambda x, i: x[i], (X, ints(3, 5, dtype=torch.int32))),
    "index_mask": Program(lambda x, m: x[m], (X, bools(3, 4))),
    "masked_select": Program(torch.masked_select, (X, bools(3, 4))),
    "nonzero": Program(torch.nonzero, (bools(3, 4),)),
    "index_select": Program(lambda x, i: x.index_select(-1, i), (CUBE, ints(4, 3))),
    "index_select_one": Program(lambda x, i: x.index_select(1, i), (CUBE, torch.tensor(2))),
    "take": Program(torch.take, (X, ints(12, 2, 3, low=-12))),
    "take_along_dim": Program(lambda x, i: torch.take_along_dim(x, i, 1), (X, ints(4, 3, 2))),
    "gather": Program(lambda x, i: x.gather(1, i), (X, ints(4, 2, 3))),
    "gather_negative_axis": Program(lambda x, i: x.gather(-2, i), (CUBE, ints(3, 1, 2, 3))),
    "gather_smaller": Program(lambda x, i: x.gather(0, i), (CUBE, ints(2, 1, 2, 3))),
    "scatter": Program(lambda x, i, s: x.scatter(1, i, s), (X, ints(1, 3, 1), floats(3, 2))),
    "scatter_permutation": Program(
        lambda x, s: x.scatter(1, torch.tensor([[3, 1, 0, 2]] * 3), s), (X, floats(3, 4))
    ),
    "scatter_value": Program(lambda x, i: x.scatter(1, i, 2.5), (X, ints(4, 3, 2))),
    "scatter_int_value": Program(
        lambda x, i: x.scatter(1, i, 1), (torch.zeros(3, 5), ints(5, 3, 1))
    ),
    "scatter_add": Program(
        lambda x, i, s: x.scatter_add(1, i, s), (X, ints(4, 3, 6), floats(3, 6))
    ),
    "scatter_add_smaller": Program(
        lambda x, i, s: x.scatter_add(0, i, s), (X, ints(3, 2, 3), floats(4, 4))
    ),
    "scatter_smaller": Program(lambda x, i, s: x.scatter(0, i, s), (CUBE, _ROWS, floats(1, 2, 3))),
    "scatter_smaller_inside": Program(
        lambda x, i, s: x.scatter(1, i, s), (CUBE, ints(3, 2, 1, 2), floats(2, 1, 2))
    ),
    "scatter_add_smaller_behind": Program(
        lambda x, i, s: x.scatter_add(-1, i, s), (CUBE, ints(4, 2, 2, 6), floats(2, 2, 6))
    ),
    "scatter_empty": Program(lambda x, i: x.scatter(1, i, 2.5), (X, ints(4, 3, 0))),
    "scatter_reduce_amax": Program(
        lambda x, i, s: x.scatter_reduce(1, i, s, "amax"), (X, ints(4, 3, 6), floats(3, 6))
    ),
    "scatter_reduce_sum": Program(
        lambda x, i, s: x.scatter_reduce(1, i, s, "sum"), (X, ints(4, 3, 6), floats(3, 6))
    ),
    **{
        f"scatter_reduce_{how}_{own}": Program(
            lambda x, y, i, j, s, t, how=how, own=own: (
                x.scatter_reduce(1, i, s, how, include_self=own),
                y.scatter_reduce(-2, j, t, how, include_self=own),
            ),
            (
                *(X, ints(9, 3, 4, low=-9), ints(4, 3, 6), ints(3, 2, 4)),
                *(floats(3, 6), ints(9, 2, 4, low=-9)),
            ),
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    },
    **{
        f"index_reduce_{how}": Program(
            lambda x, i, s, t, how=how: (
                x.index_reduce(0, i, s, how),
                x.index_reduce(-1, i, t, how, include_self=False),
            ),
            (X, torch.tensor([0, 2, 0]), floats(3, 4), floats(3, 3)),
        )
        for how in ("prod", "mean", "amax", "amin")
    },
    "put": Program(
        lambda x, i, s: (x.put(i, s), x.put(i, s, accumulate=True)),
        (X, torch.tensor([[0, 5], [11, -3]]), floats(2, 2)),
    ),
    "scatter_reduce_nothing": Program(
        lambda x, i: x.scatter_reduce(1, i, x, "mean", include_self=False), (X, ints(4, 3, 0))
    ),
    "masked_scatter": Program(
        lambda x, m, s: x.masked_scatter(m, s), (CUBE, bools(3, 4), floats(30))
    ),
    "masked_scatter_nothing": Program(
        lambda x, m, s: x.masked_scatter(m, s), (X, torch.zeros(3, 1) > 0, floats(2))
    ),
    "index_add": Program(
        lambda x, i, s: x.index_add(0, i, s), (X, torch.tensor([0, 2, 0]), floats(3, 4))
    ),
    "index_add_alpha": Program(
        lambda x, i, s: x.index_add(1, i, s, alpha=-2), (X, torch.tensor([1, 1]), floats(3, 2))
    ),
    "index_copy": Program(
        lambda x, i, s: x.index_copy(0, i, s), (X, torch.tensor([2, 0]), floats(2, 4))
    ),
    "index_fill": Program(lambda x, i: x.index_fill(1, i, 3.0), (X, torch.tensor([2, 0]))),
    "index_put": Program(
        lambda x, i, v: x.index_put((i,), v), (X, torch.tensor([2, 0]), floats(2, 4))
    ),
    "index_put_pair": Program(
        lambda x, i, j, v: x.index_put((i, j), v),
        (X, torch.tensor([2, 0]), torch.tensor([1, -1]), floats(2)),
    ),
    "index_put_broadcast": Program(
        lambda x, i: x.index_put((i,), torch.tensor(1.5)), (X, torch.tensor([2, 0]))
    ),
    "index_put_behind": Program(
        lambda x, v: _assigned(x, (slice(None), torch.tensor([1, 3])), v), (X, floats(3, 2))
    ),
    "index_put_accumulate": Program(
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        (X, torch.tensor([0, 2, 0, 0]), floats(4, 4)),
    ),
    "index_put_mask": Program(
        lambda x, m: torch.where(m, x, x).index_put((m,), Y[0]), (X, bools(3, 4))
    ),
    "assign_slice": Program(lambda x: _assigned(x, (slice(None), slice(1, 3)), 0.0), (X,)),
    "assign_step": Program(lambda x: _assigned(x, (slice(None), slice(0, 4, 2)), 7), (X,)),
    "assign_row": Program(lambda x, y: _assigned(x, -1, y), (X, Y)),
    "assign_mask": Program(lambda x: _assigned(x, x < 0, 0.0), (X,)),
    "assign_slice_of_nothing": Program(
        lambda x: torch.cat([_assigned(x[2:2], (slice(None), slice(1, 3)), 0.0), x]), (X,)
    ),
    "slice_scatter": Program(lambda x, s: torch.slice_scatter(x, s, 1, -3, -1), (X, floats(3, 2))),
    "select_scatter": Program(lambda x, s: torch.select_scatter(x, s, 1, -2), (X, floats(3))),
    "diagonal": Program(lambda x: x.diagonal(), (X,)),
    "diagonal_scatter": Program(
        lambda x, y: (
            x.diagonal_scatter(y[:2], 2),
            x.mT.diagonal_scatter(y[:3]),
            x[None].expand(2, 3, 4).diagonal_scatter(y[:2].expand(3, 2), 0, 0, 2),
            (x > 0).diagonal_scatter(torch.ones(1, dtype=torch.bool), -2),
            x.int().diagonal_scatter(torch.zeros(0, dtype=torch.int32), 4),
        ),
        (X, Y),
    ),
    "fill_diagonal": Program(
        lambda x: (x.clone().fill_diagonal_(7.0), x.mT.clone().fill_diagonal_(0)), (X,)
    ),
    "as_strided_scatter": Program(
        lambda x, y: torch.as_strided_scatter(x, y.reshape(2, 2), (2, 2), (5, 1), 1), (X, Y)
    ),
    "diag_embed": Program(lambda x: (torch.diag_embed(x), torch.diag_embed(x, 1, 0, 2)), (X,)),
    "diagonal_offset": Program(lambda x: x.diagonal(1, -1, 0), (CUBE,)),
    "tril": Program(lambda x: torch.tril(x, -1), (CUBE,)),
    "triu_bool": Program(lambda x: torch.triu(x, 1), (bools(5, 5),)),
    "masked_fill": Program(lambda x, m: x.masked_fill(m, -math.inf), (X, bools(3, 4))),
    "masked_fill_broadcast": Program(lambda x, m: x.masked_fill(m, 2), (CUBE, bools(3, 1))),
    "masked_fill_int": Program(lambda x, m: x.masked_fill(m, 3), (I, bools(4))),
    "where_scalar": Program(lambda m, x: torch.where(m, x, 0.0), (bools(3, 4), X)),
    "where_mixed": Program(lambda m, x, y: torch.where(m, x, y), (bools(3, 1), I, Y)),
    "embedding": Program(lambda i, w: F.embedding(i, w), (ints(7, 2, 3), floats(7, 5))),
    "embedding_padding": Program(lambda i, w: F.embedding(i, w, 2), (ints(7, 2, 3), floats(7, 5))),
    "one_hot": Program(lambda i: F.one_hot(i, 6), (ints(6, 2, 3),)),
    "searchsorted": Program(
        lambda s, x: torch.bucketize(x, s), (torch.arange(4.0), torch.tensor([0.5, 2.0, 9.0]))
    ),
    "searchsorted_right": Program(
        lambda s, x: torch.bucketize(x, s, right=True),
        (torch.arange(4.0), torch.tensor([2.0, -1.0])),
    ),
    "isin": Program(torch.isin, (ints(9, 3, 4), ints(9, 3))),
}


def _assigned(x: torch.Tensor, where: Any, value: Any) -> torch.Tensor:
    x = x.clone()
    x[where] = value
    return x


def bags(mode: str, offsets: list[int] | None = None, **options: Any) -> Program:
    """``F.embedding_bag`` of a table of 7 rows."""
    indices = ints(7, 3, 4) if offsets is None else ints(7, 10)
    where = None if offsets is None else torch.tensor(offsets)
    weights = floats(*indices.shape) if options.pop("weighted", False) else None

    def body(table: torch.Tensor, indices: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        given = list(more)
        return F.embedding_bag(
            indices,
            table,
            given.pop(0) if where is not None else None,
            mode=mode,
            per_sample_weights=given.pop(0) if weights is not None else None,
            **options,
        )

    extra = tuple(t for t in (where, weights) if t is not None)
    return Program(body, (floats(7, 5), indices, *extra))


EMBEDDING_BAGS = {
    **{f"bags_{mode}": bags(mode) for mode in ("sum", "mean", "max")},
    **{f"bags_{mode}_offsets": bags(mode, [0, 3, 3, 9]) for mode in ("sum", "mean", "max")},
    "bags_weighted": bags("sum", weighted=True),
    "bags_weighted_offsets": bags("sum", [0, 4, 10, 10], weighted=True),
    "bags_last_offset": bags("mean", [0, 4, 10], include_last_offset=True),
    "bags_padding": bags("mean", padding_idx=3),
    "bags_padding_max": bags("max", [0, 4, 10], padding_idx=3),
    "bags_sum_padding": bags("sum", [0, 4, 7], padding_idx=3),
    "bags_int32": Program(
        lambda i, w: F.embedding_bag(i, w, mode="sum"),
        (ints(7, 2, 3, dtype=torch.int32), floats(7, 5)),
    ),
}

ARITHMETIC = {
    "add_alpha": Program(lambda x, y: torch.add(x, y, alpha=2), (X, Y)),
    "sub_alpha": Program(lambda x, y: torch.sub(x, y, alpha=3), (X, Y)),
    "rsub": Program(lambda x: 2 - x, (X,)),
    "rsub_alpha": Program(lambda x, y: torch.rsub(x, y, alpha=0.5), (X, Y)),
    "rsub_int": Program(lambda x: 1.5 - x, (I,)),
    "add_int_float": Program(lambda i: i + 0.5, (I,)),
    "mul_int_float": Program(lambda i: i * 0.5, (I,)),
    "add_int_int": Program(lambda i, j: i + j, (I, J.int())),
    "add_int_tensor_float": Program(lambda i, y: i + y, (I, Y)),
    "add_scalar_tensor": Program(lambda x, s: x + s, (X, torch.tensor(2.0, dtype=torch.float64))),
    "add_int_scalar_tensor": Program(lambda i, s: i + s, (I, torch.tensor(2.5))),
    "add_bool": Program(lambda a, b: a + b, (bools(3, 4), bools(4))),
    "add_bool_int": Program(lambda a: a + 1, (bools(3, 4),)),
    "mul_bool": Program(lambda a, b: a * b, (bools(3, 4), bools(4))),
    "mul_bool_float": Program(lambda a, x: a * x, (bools(3, 4), X)),
    "rsub_bool": Program(lambda a: 1 - a.int(), (bools(3, 4),)),
    "rsub_bool_float": Program(lambda a: 1.0 - a.float(), (bools(3, 4),)),
    "add_uint8": Program(lambda i: i + 200, (ints(99, 5, dtype=torch.uint8),)),
    "add_double": Program(lambda x, y: x.double() + y, (X, Y)),
    **{
        f"numbers_beyond_{str(dtype).removeprefix('torch.')}": Program(
            lambda x: (
                *((x > n, x <= n, x == n, x != n, n > x) for n in (-1, -3, 200, 256, 300)),
                x << -1,
                *(x + -1, 300 - x, x * -1, torch.where(x > 3, x, -1), x.masked_fill(x == -3, -1)),
                torch.full_like(x, -1),
            ),
            (torch.tensor([0, 1, 3, 44, 127, -128, -3, -1]).to(dtype),),
        )
        for dtype in (torch.uint8, torch.int8)
    },
    "div_int": Program(lambda i, j: i / j, (I, J)),
    "div_int_scalar": Program(lambda i: i / 4, (I,)),
    "div_int32": Program(lambda i, j: i / j, (I.int(), J.int())),
    "div_floor": Program(lambda x, y: torch.div(x, y, rounding_mode="floor"), (X, Y)),
    "div_trunc": Program(lambda x, y: torch.div(x, y, rounding_mode="trunc"), (X, Y)),
    "div_floor_int": Program(lambda i, j: torch.div(i, j, rounding_mode="floor"), (I, J)),
    "div_trunc_int": Program(lambda i, j: torch.div(i, j, rounding_mode="trunc"), (I, J)),
    "div_trunc_scalar": Program(lambda i: torch.div(i, 2, rounding_mode="trunc"), (I,)),
    "floor_divide_int": Program(lambda i: i // 2, (I,)),
    "floor_divide_by_negative": Program(lambda i: i // -4, (I,)),
    "floor_divide_float": Program(lambda x: x // 0.3, (X,)),
    "floor_divide_tensor": Program(lambda i, j: i // j, (I, -J)),
    "floor_divide_by_infinity": Program(
        lambda x, y: (x // y, x % y),
        (
            torch.tensor([-5.0, 5.0, -5.0, 5.0, 0.0, -7.5, 1.0, -1.0, 6.0]),
            torch.tensor([math.inf, -math.inf, -math.inf, math.inf, math.inf, 2.5, 0.1, 0.1, -4]),
        ),
    ),
    "remainder_int": Program(lambda i: i % 4, (I,)),
    "remainder_negative": Program(lambda i: i % -4, (I,)),
    "remainder_float": Program(lambda x, y: x % y, (X, Y)),
    "remainder_mixed": Program(lambda i: i % 2.5, (I,)),
    "fmod_int": Program(lambda i, j: torch.fmod(i, j), (I, J)),
    "fmod_float": Program(lambda x: torch.fmod(x, 0.7), (X,)),
    "pow_int": Program(lambda i: i**3, (I,)),
    "pow_int_zero": Program(lambda i: i**0, (I,)),
    "pow_int_tensor": Program(lambda i, j: i**j, (I, J), "aten.pow.Tensor_Tensor"),
    "pow_int_half": Program(lambda i: i.abs() ** 0.5, (I,)),
    "pow_square": Program(lambda x: x**2, (X,)),
    "pow_negative": Program(lambda x: x**-1, (X,)),
    "pow_cube_of_negative": Program(lambda x: x**3, (X,)),
    "pow_tensor_of_negative": Program(lambda x, y: x**y, (X, torch.tensor([2.0, 3.0, 0.0, 1.0]))),
    "pow_scalar": Program(lambda x: 2**x, (X,)),
    "pow_scalar_int": Program(lambda i: 2.0**i, (I,)),
    "pow_mixed": Program(lambda x, j: x.abs() ** j, (X, J)),
    "maximum": Program(torch.maximum, (SPECIAL, SPECIAL.flip(0))),
    "minimum": Program(torch.minimum, (SPECIAL, SPECIAL.flip(0))),
    "maximum_int": Program(torch.maximum, (I, J)),
    "maximum_mixed": Program(torch.maximum, (I, Y)),
    "maximum_bool": Program(torch.maximum, (bools(3, 4), bools(4))),
    "fmax": Program(torch.fmax, (SPECIAL, SPECIAL.flip(0))),
    "clamp": Program(lambda x: x.clamp(-1, 1), (SPECIAL,)),
    "clamp_min": Program(lambda x: x.clamp(min=0.25), (SPECIAL,)),
    "clamp_max": Program(lambda x: x.clamp(max=0.25), (SPECIAL,)),
    "clamp_int": Program(lambda i: i.clamp(-2, 3), (I,)),
    "clamp_int_by_float": Program(lambda i: i.clamp(-1.5, 2.5), (I,)),
    "clamp_tensors": Program(lambda x, a, b: x.clamp(a, b), (X, Y - 1, Y + 1)),
    "clamp_crossed": Program(lambda x: x.clamp(1, -1), (X,)),
    "atan2": Program(torch.atan2, (X, Y)),
    "hypot": Program(torch.hypot, (X, Y)),
    "copysign": Program(
        lambda x, y: (x.copysign(y), x.copysign(-0.0)), (SPECIAL[1:], SPECIAL.flip(0)[:-1])
    ),
    "of_bytes": Program(lambda x: (-x, x.sign(), x.sgn()), (torch.arange(4, dtype=torch.uint8),)),
    "signbit": Program(lambda x, i: (x.signbit(), i.signbit()), (SPECIAL, I)),
    "logaddexp": Program(torch.logaddexp, (X, Y)),
    "lerp": Program(lambda x, y: torch.lerp(x, y, 0.3), (X, Y)),
    "lerp_transposed": Program(lambda x: torch.lerp(x.mT, x.mT * 2, 0.25), (X,)),
    "addcmul": Program(lambda x, y: torch.addcmul(x, x, y, value=0.5), (X, Y)),
    "addcdiv": Program(lambda x, y: torch.addcdiv(x, x, y, value=-2), (X, Y)),
    "compare_mixed": Program(lambda i, y: (i < y, i >= y, i == y), (I, Y)),
    "compare_int_to_float": Program(lambda i: (i > 0.5, i <= -0.5, i != 2.5), (I,)),
    "compare_bool": Program(lambda a, b: (a == b, a != b, a > b), (bools(3, 4), bools(4))),
    "compare_nan": Program(lambda x: (x == x, x < 1, x != 0), (SPECIAL,)),
    "logical": Program(
        lambda a, i: (torch.logical_and(a, i), torch.logical_or(a, i), torch.logical_xor(a, i), ~a),
        (bools(3, 4), ints(2, 4)),
    ),
    "logical_not_float": Program(torch.logical_not, (SPECIAL,)),
    "bitwise": Program(lambda i, j: (i & j, i | j, i ^ j, ~i), (I, J)),
    "bitwise_bool": Program(lambda a, b: (a & b, a | b, a ^ b, ~a), (bools(3, 4), bools(4))),
    "bitwise_mixed": Program(lambda i, j: i & j, (I, J.int())),
    "shifts": Program(lambda i, j: (i << 2, i >> j), (I, J)),
    **{
        f"shifts_beyond_{str(dtype).removeprefix('torch.')}": Program(
            lambda x, n: (x << n, x >> n),
            (
                torch.tensor([[5], [100], [0 if dtype is torch.uint8 else -7]], dtype=dtype),
                torch.tensor(counts, dtype=dtype),
            ),
        )
        for dtype, counts in (
            (torch.int64, [-1, 0, 1, 62, 63, 64, 99]),
            (torch.int32, [-1, 0, 1, 30, 31, 32, 99]),
            (torch.uint8, [0, 1, 7, 8, 99, 255]),
        )
    },
    "shifts_beyond_by_numbers": Program(lambda i: (i << 64, i >> 64, i << -1, i >> -1), (I,)),
    "cast_float_to_int": Program(lambda x: (x * 3).to(torch.int64), (X,)),
    "cast_to_bool": Program(lambda x: x.to(torch.bool), (torch.tensor([0.0, 0.5, -2.0]),)),
    "cast_bool_to_float": Program(lambda a: a.to(torch.float32) * 2, (bools(3, 4),)),
    "cast_to_uint8": Program(lambda i: i.to(torch.uint8), (ints(255, 3, 4),)),
    "cast_to_half": Program(lambda x: x.half().float(), (X,)),
    "cast_to_double": Program(lambda x: x.double() * 2, (X,)),
    "cast_type_as": Program(lambda x, i: x.type_as(i), (X, I)),
    "signs": Program(lambda x: (x.sign(), x.abs(), -x), (SPECIAL[1:],)),
    "sign_nan": Program(torch.sign, (SPECIAL,)),
    "abs_int": Program(lambda i: (i.abs(), -i, i.sign()), (I,)),
    "square": Program(torch.square, (X,)),
    "isfinite": Program(lambda x: (x.isfinite(), x.isinf(), x.isnan()), (SPECIAL,)),
    "isnan_int": Program(lambda i: (i.isnan(), i.isinf()), (I,)),
    "nan_to_num": Program(lambda x: torch.nan_to_num(x, 1.0, 2.0, -2.0), (SPECIAL,)),
    "round": Program(torch.round, (torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49]),)),
    "round_decimals": Program(lambda x: torch.round(x, decimals=1), (X,)),
    "floor_ceil_trunc": Program(lambda x: (x.floor(), x.ceil(), x.trunc(), x.frac()), (X * 3,)),
    "floor_int": Program(lambda i: (i.floor(), i.round(), i.trunc()), (I,)),
    "sqrt_int": Program(lambda j: (j.sqrt(), j.rsqrt(), j.reciprocal()), (J,)),
    "functions_of_int": Program(
        lambda j: (j.exp(), j.log(), j.sin(), j.tanh(), j.sigmoid(), j.erf(), j.log1p()), (J,)
    ),
    "functions_of_bool": Program(lambda a: (a.exp(), a.sigmoid()), (bools(3, 4),)),
    "exponentials": Program(lambda x: (x.exp(), x.exp2(), x.expm1()), (X,)),
    "expm1_small": Program(torch.expm1, (torch.tensor([1e-7, -1e-6, 1e-3, 2.0]),)),
    "logarithms": Program(lambda x: (x.log(), x.log2(), x.log10(), x.log1p()), (X.abs() + 0.1,)),
    "log1p_small": Program(torch.log1p, (torch.tensor([1e-7, -1e-6, 1e-3, 2.0]),)),
    "trigonometry": Program(
        lambda x: (x.sin(), x.cos(), x.tan(), x.asin(), x.acos(), x.atan()), (X.tanh(),)
    ),
    "hyperbolics": Program(
        lambda x: (x.sinh(), x.cosh(), x.tanh(), x.asinh(), (x.abs() + 1).acosh(), x.atanh()),
        (X.tanh() * 0.9,),
    ),
    "erf": Program(lambda x: (x.erf(), torch.erfc(x)), (X,)),
}

ACTIVATIONS = {
    **{
        function.__name__: Program(function, (torch.cat([SPECIAL[1:], floats(11) * 3]),))
        for function in (
            F.elu,
            F.selu,
            F.celu,
            F.silu,
            F.mish,
            F.hardswish,
            F.hardsigmoid,
            F.hardtanh,
            F.relu6,
            F.leaky_relu,
            F.softplus,
            F.softsign,
            F.softshrink,
            F.hardshrink,
            F.logsigmoid,
            F.tanhshrink,
            torch.sigmoid,
            torch.tanh,
        )
    },
    "relu_nan": Program(F.relu, (SPECIAL,)),
    "relu6_nan": Program(F.relu6, (SPECIAL,)),
    "rrelu": Program(lambda x: F.rrelu(x, 0.1, 0.5), (SPECIAL,)),
    "rrelu_training": Program(
        lambda x: F.rrelu(x, training=True), (X,), "random slopes are not supported; call model.ev"
    ),
    "leaky_relu_nan": Program(lambda x: F.leaky_relu(x, 0.2), (SPECIAL,)),
    "relu_int": Program(F.relu, (I,)),
    "elu_alpha": Program(lambda x: F.elu(x, 0.5), (X,)),
    "celu_alpha": Program(lambda x: F.celu(x, 0.5), (X,)),
    "gelu": Program(F.gelu, (X,)),
    "gelu_tanh": Program(lambda x: F.gelu(x, approximate="tanh"), (X,)),
    "softplus_beta": Program(lambda x: F.softplus(x, 2, 1.5), (X,)),
    "softshrink_lambda": Program(lambda x: F.softshrink(x, 0.2), (X,)),
    "threshold": Program(lambda x: F.threshold(x, 0.1, 20.0), (X,)),
    "hardtanh_limits": Program(lambda x: F.hardtanh(x, -0.3, 0.2), (X,)),
    "prelu_one": Program(F.prelu, (X, torch.tensor([0.3]))),
    "prelu_channels": Program(F.prelu, (IMAGE, floats(4))),
    "glu": Program(lambda x: F.glu(x, 1), (X,)),
    "softmax": Program(lambda x: F.softmax(x, 1), (CUBE,)),
    "softmax_negative_axis": Program(lambda x: F.softmax(x, -2), (CUBE,)),
    "softmax_masked": Program(
        lambda x, m: F.softmax(x.masked_fill(m, -math.inf), -1), (X, torch.tensor([0, 1, 0, 1]) > 0)
    ),
    "softmax_dtype": Program(lambda i: F.softmax(i, -1, dtype=torch.float32), (I,)),
    "log_softmax": Program(lambda x: F.log_softmax(x, 0), (CUBE,)),
    "softmin": Program(lambda x: F.softmin(x, -1), (CUBE,)),
    "logit": Program(lambda x: torch.logit(x, 1e-3), (torch.tensor([0.0, 0.2, 0.9, 1.0]),)),
    "dropout_eval": Program(nn.Dropout().eval(), (X,)),
    "dropout_training": Program(nn.Dropout().train(), (X,), "call model.eval()"),
    "dropout_of_nothing": Program(
        lambda x: (F.dropout(x, 0.0), F.dropout(x, 1.0), F.alpha_dropout(x, 0.0, True)), (X,)
    ),
}

_RUNNING = torch.tensor(
    [[1.0, 3.0, 3.0, NAN, 2.0, 5.0], [-math.inf, -math.inf, 0.0, 0.0, -1.0, math.inf]]
)
_SWINGS = torch.tensor([128.0, -128.0]).repeat(1, 512)

REDUCTIONS = {
    "sum": Program(lambda x: x.sum(), (CUBE,)),
    "sum_axis": Program(lambda x: x.sum(-2, keepdim=True), (CUBE,)),
    "sum_axes": Program(lambda x: x.sum((0, -1)), (CUBE,)),
    "sum_int": Program(lambda i: (i.int().sum(0), i.sum(0)), (I,)),
    "sum_bool": Program(lambda a: a.sum(1), (bools(3, 4),)),
    "sum_dtype": Program(lambda i: i.sum(1, dtype=torch.float32), (I,)),
    "mean": Program(lambda x: (x.mean(), x.mean(-1), x.mean((0, 2), keepdim=True)), (CUBE,)),
    "mean_dtype": Program(lambda i: i.mean(1, dtype=torch.float32), (I,)),
    "prod": Program(lambda x: (x.prod(), x.prod(-1), x.prod(0, keepdim=True)), (CUBE,)),
    "prod_int": Program(lambda j: j.int().prod(0), (J,)),
    "amax": Program(lambda x: (x.amax(), x.amax(-1), x.amax((0, 2), keepdim=True)), (CUBE,)),
    "amin": Program(lambda x: (x.amin(), x.amin(-1), x.amin((0, 2), keepdim=True)), (CUBE,)),
    "max_min": Program(lambda x: (x.max(), x.min()), (CUBE,)),
    "max_int": Program(lambda i: (i.max(), i.amin(0)), (I,)),
    "max_axis": Program(lambda x: x.max(1), (CUBE,)),
    "max_axis_keepdim": Program(lambda x: x.max(-1, keepdim=True), (CUBE,)),
    "min_axis": Program(lambda x: x.min(0), (CUBE,)),
    "argmax": Program(lambda x: (x.argmax(), x.argmax(-1), x.argmin(0, keepdim=True)), (CUBE,)),
    "argmax_ties": Program(
        lambda x: (x.argmax(1), x.argmin(1), x.argmax()), (torch.tensor([[1.0, 3, 3], [2, 2, 0]]),)
    ),
    "max_ties": Program(lambda x: x.max(1), (torch.tensor([[1.0, 3, 3], [2, 2, 0]]),)),
    "argmax_int": Program(lambda i: i.argmax(1), (I,)),
    "any_all": Program(
        lambda a: (a.any(), a.all(), a.any(1), a.all(0, keepdim=True)), (bools(3, 4),)
    ),
    "any_float": Program(lambda x: (x.any(1), x.all(1)), (torch.tensor([[0.0, -0.5], [0, 0]]),)),
    "any_axes": Program(lambda a: torch.any(a, (0, 2)), (bools(2, 3, 4),)),
    "any_uint8": Program(
        lambda i: (i.any(), i.any(1), i.all(0)), (ints(2, 3, 4, dtype=torch.uint8) * 3,)
    ),
    "any_of_no_axes": Program(
        lambda x, i: (torch.any(x, ()), torch.any(i, ())), (X.relu(), ints(3, 4).to(torch.uint8))
    ),
    "var_scalar_tensor": Program(
        lambda s: (s.var(correction=0), s.var(), s.std(correction=0)), (torch.tensor(2.0),)
    ),
    "var": Program(lambda x: (x.var(), x.var(1), x.var((0, 2), unbiased=False)), (CUBE,)),
    "std": Program(lambda x: (x.std(-1), x.std(0, keepdim=True, correction=0)), (CUBE,)),
    "var_mean": Program(lambda x: torch.var_mean(x, -1, keepdim=True), (CUBE,)),
    "norm": Program(lambda x: (x.norm(), x.norm(dim=1), x.norm(1, dim=-1)), (X,)),
    "norm_inf": Program(lambda x: torch.linalg.vector_norm(x, math.inf, dim=1, keepdim=True), (X,)),
    "norm_zero": Program(lambda x: torch.linalg.vector_norm(x, 0, dim=1), (X.relu(),)),
    "normalize": Program(lambda x: F.normalize(x, dim=1), (CUBE,)),
    "cosine_similarity": Program(lambda x, y: F.cosine_similarity(x, y, dim=-1), (X, Y)),
    "logsumexp": Program(lambda x: torch.logsumexp(x, -1), (CUBE,)),
    "cumsum": Program(lambda x: x.cumsum(-1), (CUBE,)),
    "cumsum_bool": Program(lambda a: a.cumsum(1), (bools(3, 4),)),
    "cumsum_int32": Program(lambda i: i.int().cumsum(0), (I,)),
    "cumsum_dtype": Program(lambda i: i.cumsum(1, dtype=torch.float32), (I,)),
    "cumprod": Program(lambda x: x.cumprod(0), (CUBE,)),
    "cumprod_int": Program(lambda i: i.int().cumprod(1), (I,)),
    **{
        f"running_{name}{axis}": Program(
            lambda x, i, b, name=name, axis=axis: [
                getattr(each, name)(axis) for each in (x, i, b, x[:, :1], x[:0], x[:1])
            ],
            (_RUNNING, ints(4, 9, 3), bools(5, 3)),
        )
        for name in ("cummax", "cummin")
        for axis in (-1, 0)
    },
    "running_long": Program(lambda x: (x.cummax(1), x.cummin(1)[1]), (floats(2, 33),)),
    "running_scalar": Program(lambda x: x.sum().cummax(0), (X,)),
    "logcumsumexp": Program(
        lambda x, y: (x.logcumsumexp(-1), y.logcumsumexp(0), y[:0].logcumsumexp(0)),
        (_RUNNING, 100 * floats(33, 2)),
    ),
    "kthvalue": Program(lambda x: (x.kthvalue(3, 0), x.kthvalue(1, keepdim=True)), (X,)),
    "kthvalue_of_equals": Program(lambda x: x.kthvalue(3, 1)[0], (ints(3, 3, 7),)),
    "topk": Program(lambda x: x.topk(2, dim=1), (CUBE,)),
    "topk_smallest": Program(lambda x: x.topk(3, dim=-1, largest=False), (CUBE,)),
    "sort": Program(lambda x: x.sort(-1), (CUBE,)),
    "sort_descending": Program(lambda x: x.sort(1, descending=True), (CUBE,)),
    "argsort": Program(lambda x: x.argsort(0), (X,)),
    "sort_ties": Program(
        lambda x: x.sort(stable=True), (torch.tensor([[1.0, 0, 1, 0, 1], [2, 2, 2, 1, 1]]),)
    ),
    "median": Program(lambda x: x.median(1), (floats(3, 5),)),
    **{
        f"order_of_{str(values.dtype).removeprefix('torch.')}": Program(
            lambda x: (
                x.sort(dim=1, stable=True),
                x.sort(dim=1, stable=True, descending=True),
                x.argsort(stable=True),
                x.topk(2)[0],
                x.median(1)[0],
            ),
            (values,),
        )
        for values in (
            ints(99, 3, 5, low=-99, dtype=torch.int8),
            ints(255, 3, 5, dtype=torch.uint8),
            ints(999, 3, 5, low=-999, dtype=torch.int16),
            floats(3, 5).half(),
        )
    },
    "order_of_bool": Program(
        lambda x: (x.sort(dim=1, stable=True), x.argsort(descending=True, stable=True)),
        (bools(3, 5),),
    ),
    "topk_of_none": Program(lambda x: x.topk(0), (X,), "it asks for no elements"),
    **{
        f"{name}_of_many_{str(dtype).removeprefix('torch.')}": Program(
            lambda x, body=body, dtype=dtype: body(x.to(dtype)).float(), (value,)
        )
        for dtype in HALVES
        for name, body, value in (
            ("sum", lambda x: x.sum(1), torch.ones(2, 4096)),
            ("sum_of_all", torch.sum, torch.ones(2, 4096)),
            ("mean", lambda x: x.mean(1), torch.full((1, 1024), 128.0)),
            ("mean_of_all", torch.mean, torch.full((1, 1024), 128.0)),
            ("prod", lambda x: x.prod(1), torch.tensor([[512.0, 512.0, 1 / 1024]])),
            ("var", lambda x: x.var(1, correction=0), _SWINGS),
            ("norm", lambda x: x.norm(dim=1), torch.full((1, 1024), 128.0)),
            ("norm_of_order_3", lambda x: x.norm(3, dim=1), torch.full((1, 8), 64.0)),
            ("softmax", lambda x: x.softmax(1), torch.zeros(2, 8192)),
            ("cumsum", lambda x: x.cumsum(1)[:, -1], torch.ones(2, 4096)),
        )
    },
    "median_of_nan": Program(
        lambda x: (x.median(1), x.median(0, keepdim=True), x.median(), x[1:, 3:].median(1)),
        (torch.tensor([[1.0, NAN, 2, NAN], [math.inf, -3, 0, 1], [5, 4, NAN, -math.inf]]),),
    ),
    "count_nonzero": Program(lambda i: torch.count_nonzero(i, 1), (ints(2, 3, 4),)),
    "diff": Program(lambda x: torch.diff(x), (X,)),
    "cross_entropy": Program(F.cross_entropy, (X, ints(4, 3))),
    "mse_loss": Program(F.mse_loss, (X, X * 2)),
    "reduce_scalar_tensor": Program(lambda s: (s.sum(), s.max(), s.mean()), (torch.tensor(2.0),)),
}

_ODD = torch.cat([SPECIAL, torch.tensor([0.46875, -4.5, 1e-30, -1e-30, 17.9, 18.1, -2.4570246])])
_PROBABILITIES = torch.tensor([0.0, 1.0, 0.5, 1e-30, 1e-3, 0.9999999, 0.07, 0.93, -0.1, 1.1, NAN])

SPECIAL_FUNCTIONS = {
    **{
        name: Program(
            lambda x, y, function=function: (function(x), function(y), function(y.double())),
            (_ODD, 3 * CUBE),
        )
        for name, function in {
            "erfc": torch.erfc,
            "erfcx": lambda x: torch.special.erfcx(x.clamp(min=-8)),
            "log_ndtr": torch.special.log_ndtr,
            "lgamma": torch.lgamma,
            "digamma": torch.digamma,
            "mvlgamma": lambda x: torch.mvlgamma(x, 2),
            "i0": torch.special.i0,
            "i0e": torch.special.i0e,
            "i1": torch.special.i1,
            "i1e": torch.special.i1e,
        }.items()
    },
    **{
        name: Program(
            lambda p, function=function: (function(p), function(-p), function(p.double())),
            (_PROBABILITIES,),
        )
        for name, function in {"erfinv": torch.erfinv, "ndtri": torch.special.ndtri}.items()
    },
    "of_integers": Program(lambda i: (torch.lgamma(i), torch.special.i0e(i)), (I,)),
    **{
        f"of_{str(dtype).removeprefix('torch.')}": Program(
            lambda x, dtype=dtype: (
                torch.erfinv(x.to(dtype)).float(),
                torch.digamma(x.to(dtype)).float(),
            ),
            (floats(3, 4).sigmoid(),),
        )
        for dtype in HALVES
    },
    "polygamma": Program(lambda x: torch.polygamma(1, x), (X,), "polygamma.default"),
}

COUNTING = {
    "histogram": Program(lambda x: torch.histc(x, 4, 0, 3), (SPECIAL,)),
    "histogram_of_all": Program(torch.histc, (floats(6, 5),)),
    "histogram_of_equals": Program(lambda x: torch.histc(x, 4), (torch.full((7,), 2.0),)),
    "histogram_of_nothing": Program(lambda x: torch.histc(x, 3), (floats(0),)),
    "histogram_doubles": Program(lambda x: torch.histc(x.double(), 5, -1, 2), (CUBE,)),
    "histogram_half": Program(lambda x: torch.histc(x.half(), 5, -1, 2).float(), (CUBE,)),
    **{
        f"searchsorted_{side}": Program(
            lambda s, x, t, y, side=side: (
                torch.searchsorted(s, x, side=side),
                torch.searchsorted(t, y, right=side == "right", out_int32=True),
                torch.searchsorted(s, 0.0, side=side),
                torch.searchsorted(s.int(), x, side=side),
                torch.bucketize(x, s, right=side == "right"),
                torch.searchsorted(s[:0], x, side=side),
                torch.searchsorted(s, x[:0], side=side),
            ),
            (
                torch.tensor([-1.0, 0.0, 0.0, 2.0, 3.0]),
                torch.tensor([[-2.0, 0.0, 0.5, 3.0], [NAN, 5.0, -1.0, 2.0]]),
                *(floats(2, 3, 7).sort(-1)[0], floats(2, 3, 4)),
            ),
        )
        for side in ("left", "right")
    },
    "searchsorted_by_an_order": Program(
        lambda s, x: torch.searchsorted(s, x, sorter=s.argsort(-1)), (CUBE, floats(2, 3, 5))
    ),
    "histogram_of_integers": Program(
        lambda x: torch.histc(x.float(), 17, 0, 16), (ints(17, 40, dtype=torch.int32),)
    ),
}

_Numbers = Callable[..., torch.Tensor]


def complex_numbers(function: _Numbers, *shapes: tuple[int, ...]) -> Program:
    """A function of complex numbers, whose parts come in and go out along a last axis."""

    def body(*inputs: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(function(*map(torch.view_as_complex, inputs)).resolve_conj())

    shapes = shapes or ((3, 4), (3, 4))
    return Program(body, tuple(floats(*shape, 2) + k for k, shape in enumerate(shapes)))


def transformed(function: _Numbers, *shape: int) -> Program:
    """The results of a transform, as real numbers if they are not."""

    def body(x: torch.Tensor) -> torch.Tensor:
        result = function(x)
        return torch.view_as_real(result.resolve_conj()) if result.is_complex() else result

    return Program(body, (floats(*shape),))


class Rotary(nn.Module):
    """Turns by the angles of positions, as complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(7.0), 0.1 ** torch.arange(4))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(numbers * self.turns[:, None]).flatten(3)


_HANN = torch.hann_window(16)

COMPLEX_NUMBERS = {
    "rotary": Program(Rotary(), (floats(2, 7, 3, 8),)),
    **{
        f"both_{name}": complex_numbers(function)
        for name, function in {
            "add": lambda x, y: x + y,
            "sub": lambda x, y: x - 2 * y.real,
            "rsub": lambda x, y: 2 - x + 1j * y,
            "mul": lambda x, y: x * y * y.imag,
            "div": lambda x, y: x / y + y / 3 + 2 / y,
            "matmul": lambda x, y: x @ y.mT,
            "bmm": lambda x, y: x[None] @ y.mH[None],
            "cat": lambda x, y: torch.cat([x, y.real, y]),
            "stack": lambda x, y: torch.stack([x, y], -1),
            "where": lambda x, y: torch.where(x.real > 0, x, y),
            "conjugate": lambda x, y: x.conj() * y.conj().imag,
            "functions": lambda x, y: x**2 + y.exp() + y.reciprocal(),
            "powers": lambda x, y: x**3 + y**-2 + x**0.5 + y**1.5,
            "waves": lambda x, y: x.sin() * y.cos() + x.sinh() - y.cosh(),
            "tangents": lambda x, y: x.tanh() + (y * 1e-3).tanh() * 1e3 + (x * 99).tanh() + y.tan(),
            "more": lambda x, y: x.sigmoid() + (y + 5).rsqrt() + y.square(),
            "put": lambda x, y: x.index_put((I[0] % 3, I[1] % 4), y[0], accumulate=True),
            "roots": lambda x, y: (x - 1).sqrt() + (x.real - 1 + 0j).sqrt() + (y * 0).sqrt(),
            "logarithms": lambda x, y: x.log() + (x - y.real).log(),
            "vectors": lambda x, y: x @ y[0] + (x[0] @ y[0]),
            "comparisons": lambda x, y: torch.where(x == y.real, x, y) * (x != 2) + torch.sgn(y),
        }.items()
    },
    **{
        f"moved_{name}": complex_numbers(function, (3, 4))
        for name, function in {
            "view": lambda x: x.mT.reshape(2, 6),
            "part": lambda x: x[1:, ::2],
            "row": lambda x: x[-1],
            "expand": lambda x: x[None].expand(2, 3, 4),
            "flip": lambda x: x.flip(0).roll(1, 1).repeat(2, 1),
            "sums": lambda x: x.sum(1) + x.mean(),
            "taken": lambda x: x[torch.tensor([2, 0])],
            "split": lambda x: x.split(2, 1)[1],
            "pad": lambda x: F.pad(x, (1, 2)),
            "cast": lambda x: x.to(torch.complex128).to(torch.complex64),
            "of_real": lambda x: x.real * (1 + 2j) + 1j * x.imag,
            "filled": lambda x: torch.full_like(x.real, 2 + 1j, dtype=x.dtype) + x,
            "filled_later": lambda x: torch.empty_like(x).fill_(2 + 1j) + x.clone().fill_(-1),
            "diagonal": lambda x: x.diagonal(1) + x.triu().sum(0)[:3] - x.tril(-1)[2, :3],
            "identity": lambda x: torch.eye(3, 4, dtype=x.dtype) + torch.eye(4, dtype=x.dtype)[:3],
            "between": lambda x: torch.linspace(1j, 2, 4, dtype=x.dtype) * x,
        }.items()
    },
    "parts": Program(
        lambda x, y: (
            torch.view_as_real(torch.complex(x, y)),
            torch.view_as_real(torch.polar(x.abs(), y)),
            torch.complex(x, y).abs(),
            torch.complex(x, y).angle(),
        ),
        (X, floats(3, 4) + 1),
    ),
    **{
        f"{name}_{size}_{norm}": transformed(
            lambda x, name=name, norm=norm: getattr(torch.fft, name)(x, norm=norm), 3, size
        )
        for name in ("fft", "ifft", "rfft", "ihfft", "hfft")
        for size in (2, 5, 12)
        for norm in ("backward", "ortho", "forward")
    },
    **{
        f"irfft_{size}": transformed(lambda x, n=size: torch.fft.irfft(torch.fft.rfft(x), n), 3, 8)
        for size in (1, 7, 8, 10)
    },
    "fft_other_axis": transformed(lambda x: torch.fft.fft(x, 7, 0), 3, 4, 5),
    "fft2": transformed(torch.fft.fft2, 3, 4, 5),
    "fftn": transformed(lambda x: torch.fft.fftshift(torch.fft.fftn(x)), 3, 4, 5),
    "rfft2": transformed(lambda x: torch.fft.rfft2(x, dim=(0, 1), norm="ortho"), 3, 4, 5),
    "irfft2": transformed(
        lambda x: torch.fft.irfft2(torch.fft.rfft2(x, norm="ortho"), x.shape[1:], norm="ortho"),
        *(3, 4, 5),
    ),
    "ifft2": transformed(
        lambda x: torch.fft.ifft2(torch.fft.fft2(x, dim=(0, 2)), dim=(2, 0)), 3, 4, 5
    ),
    "fft_doubles": transformed(lambda x: torch.fft.rfft(x.double()), 3, 9),
    "stft": transformed(
        lambda x: torch.stft(x, 16, 4, window=_HANN, return_complex=True, normalized=True), 2, 64
    ),
    "stft_whole": transformed(
        lambda x: torch.stft(x, 16, 4, 12, onesided=False, center=False, return_complex=True), 2, 64
    ),
    "istft": transformed(
        lambda x: torch.istft(
            torch.stft(x, 16, 4, window=_HANN, return_complex=True), 16, 4, window=_HANN, length=60
        ),
        *(2, 64),
    ),
    "returned": Program(
        torch.fft.rfft, (X,), "the program returns complex numbers (node '_fft_r2c'"
    ),
    "given": Program(
        lambda x: x.real + 1,
        (torch.complex(X, X),),
        "is complex; take torch.view_as_real of it, and begin with torch.view_as_complex",
    ),
    "tangent": Program(lambda x: torch.fft.fft(x).tanh().real, (X,)),
    "arc_tangent": Program(lambda x: torch.fft.fft(x).atan().real, (X,), "compute with their real"),
    "fft_large": Program(
        lambda x: torch.fft.fft(x).real, (floats(1, 5000),), "it transforms more than 4096 elem"
    ),
}

LAYOUTS = {
    "view": Program(lambda x: x.view(2, -1), (CUBE,)),
    "reshape_transposed": Program(lambda x: x.transpose(1, 2).reshape(2, -1), (CUBE,)),
    "flatten": Program(lambda x: x.flatten(1), (CUBE,)),
    "unflatten": Program(lambda x: x.unflatten(-1, (2, 2)), (CUBE,)),
    "permute": Program(lambda x: x.permute(2, 0, -2), (CUBE,)),
    "transpose": Program(lambda x: (x.transpose(-1, 0), x.mT), (CUBE,)),
    "t": Program(lambda x: x.t(), (X,)),
    "movedim": Program(lambda x: x.movedim(-1, 0), (CUBE,)),
    "squeeze": Program(lambda x: x.squeeze(), (floats(1, 3, 1, 2),)),
    "squeeze_axis": Program(
        lambda x: (x.squeeze(0), x.squeeze(1), x.squeeze(-2)), (floats(1, 3, 1, 2),)
    ),
    "squeeze_axes": Program(lambda x: x.squeeze((0, 1)), (floats(1, 3, 1, 2),)),
    "unsqueeze": Program(lambda x: (x.unsqueeze(0), x.unsqueeze(-1), x.unsqueeze(-2)), (X,)),
    "expand": Program(lambda x: x.expand(5, -1, 4), (floats(3, 1),)),
    "expand_as": Program(lambda y, x: y.expand_as(x), (Y, X)),
    "repeat": Program(lambda x: x.repeat(2, 1, 3), (X,)),
    "repeat_interleave": Program(lambda x: x.repeat_interleave(2, 1), (X,)),
    "tile": Program(lambda x: x.tile((2, 2)), (CUBE,)),
    "cat": Program(lambda x, y: torch.cat([x, y, x], -1), (X, floats(3, 2))),
    "cat_mixed": Program(lambda x, i: torch.cat([x, i], 0), (X, I)),
    "stack": Program(lambda x: torch.stack([x, -x], -1), (X,)),
    "stack_mixed": Program(lambda x, i: torch.stack([x, i], 1), (X, I)),
    "split": Program(lambda x: x.split(3, -1), (floats(2, 7),)),
    "split_sizes": Program(lambda x: torch.split(x, [1, 4, 2], 1), (floats(2, 7),)),
    "chunk": Program(lambda x: x.chunk(3, 1), (floats(2, 7),)),
    "tensor_split": Program(lambda x: x.tensor_split(3, 1), (floats(2, 7),)),
    "unbind": Program(lambda x: x.unbind(-2), (CUBE,)),
    "flip": Program(lambda x: x.flip((0, -1)), (CUBE,)),
    "roll": Program(lambda x: x.roll(1, 1), (CUBE,)),
    "roll_axes": Program(lambda x: torch.roll(x, (-2, 5), (-1, 1)), (CUBE,)),
    "roll_flat": Program(lambda x: x.roll(2), (X,)),
    "rot90": Program(lambda x: torch.rot90(x, 1, (1, 2)), (CUBE,)),
    "pad": Program(lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), (CUBE,)),
    "pad_negative": Program(lambda x: F.pad(x, (-1, 2)), (CUBE,)),
    "pad_int": Program(lambda i: F.pad(i, (1, 0), value=1), (I,)),
    "pad_bool": Program(lambda a: F.pad(a, (1, 0), value=True), (bools(3, 4),)),
    "pad_reflect": Program(lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), (IMAGE,)),
    "pad_replicate": Program(lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), (IMAGE,)),
    "pad_circular": Program(lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"), (IMAGE,)),
    "pad_reflect_1d": Program(lambda x: F.pad(x, (2, 1), mode="reflect"), (CUBE,)),
    "unfold": Program(lambda x: x.unfold(1, 3, 2), (floats(2, 8),)),
    "im2col": Program(lambda x: F.unfold(x, 3, padding=1, stride=2), (IMAGE,)),
    "fold": Program(lambda x: F.fold(x, (4, 6), 2, stride=2), (floats(1, 8, 6),)),
    "pixel_shuffle": Program(lambda x: F.pixel_shuffle(x, 2), (IMAGE,)),
    "pixel_unshuffle": Program(lambda x: F.pixel_unshuffle(x, 2), (floats(1, 2, 4, 6),)),
    "channel_shuffle": Program(lambda x: F.channel_shuffle(x, 2), (IMAGE,)),
    "meshgrid": Program(lambda x, y: torch.meshgrid(x, y, indexing="xy"), (Y, floats(3))),
    "as_strided": Program(lambda x: x.as_strided((2, 3), (1, 4), 1), (X,)),
    "as_strided_of_part": Program(
        lambda x: (x[1:].as_strided((2, 3), (1, 2), 5), x[1:].as_strided((2, 3), (1, 2))), (X,)
    ),
    "as_strided_transposed": Program(
        lambda x: (x.mT.as_strided((2, 2, 3), (12, 2, 4)), x.mT[1:].as_strided((3, 3), (4, 1), 13)),
        (CUBE,),
    ),
    "as_strided_overlapping": Program(
        lambda x: x.unfold(1, 2, 1).as_strided((2, 2, 2), (1, 4, 3)) * 2, (X,)
    ),
    "as_strided_repeated": Program(lambda x: x[0].expand(5, 4).as_strided((3, 2), (0, 2)), (X,)),
    "as_strided_empty": Program(lambda x: x.mT.as_strided((0, 3), (1, 2)), (X,)),
    "unfold_channels_last": Program(
        lambda x: x.unfold(2, 3, 2).unfold(3, 2, 1).sum(-1),
        (IMAGE.to(memory_format=torch.channels_last),),
    ),
    "as_strided_outside": Program(
        lambda x: x[1:].as_strided((2, 3), (1, 2), 1), (X,), "it reads memory outside"
    ),
    "identity": Program(lambda x: (x, x), (X,)),
    "contiguous": Program(lambda x: x.t().contiguous().view(-1), (X,)),
    "view_as_bits": Program(
        lambda x, i: (x.view(torch.int32), i.view(torch.float32), x.half().view(torch.int16)),
        (X, ints(2**30, 4, dtype=torch.int32)),
    ),
    "view_as_bytes": Program(
        lambda x: x.view(torch.uint8), (X,), "it makes elements of another size"
    ),
    "repeat_interleave_as_told": Program(
        lambda x, r: x.repeat_interleave(r, -1, output_size=6), (X, torch.tensor([0, 3, 1, 2]))
    ),
}

CREATION = {
    "fftfreq": Program(lambda x: (x + torch.fft.fftfreq(4), torch.fft.rfftfreq(7, 0.5)), (Y,)),
    "zeros_ones": Program(lambda x: (torch.zeros(2, 3) + x.sum(), torch.ones_like(x)), (X,)),
    "full": Program(lambda x: (torch.full((2,), 7) + x.long().sum(), torch.full_like(x, 2)), (X,)),
    "full_like_bool": Program(lambda a: torch.full_like(a, 3, dtype=torch.float32), (bools(3),)),
    "new_zeros": Program(lambda x: (x.new_zeros(2), x.new_ones(2), x.new_full((2,), 3)), (X,)),
    "new_ones_dtype": Program(lambda x: x.new_ones(2, dtype=torch.int64) * x.long()[0, :2], (X,)),
    "arange": Program(lambda x: x + torch.arange(4), (X,)),
    "arange_step": Program(lambda x: x + torch.arange(1, 3, 0.5), (X,)),
    "arange_float": Program(lambda x: x + torch.arange(4, dtype=torch.float32) / 4, (X,)),
    "linspace": Program(lambda x: x + torch.linspace(-1, 1, 4), (X,)),
    "linspace_one": Program(lambda x: x + torch.linspace(2, 5, 1), (X,)),
    "eye": Program(lambda x: x @ torch.eye(4), (X,)),
    "eye_wide": Program(lambda x: x * torch.eye(3, 4), (X,)),
    "scalar_tensor": Program(lambda x: x * torch.tensor(0.5), (X,)),
    "tril_mask": Program(lambda x: x.masked_fill(torch.ones(4, 4).tril() == 0, 0), (floats(4, 4),)),
    "causal_indices": Program(lambda x: x[torch.arange(3)[:, None], torch.arange(2)], (X,)),
    "hamming_window": Program(lambda x: x * torch.hamming_window(4), (X,)),
    "windows": Program(
        lambda x: (
            x * torch.blackman_window(4),
            x * torch.bartlett_window(4, periodic=False),
            x * torch.kaiser_window(4),
            x * torch.kaiser_window(4, True, 3.0),
        ),
        (X,),
    ),
    "empty_filled": Program(lambda x: torch.empty(3, 4).copy_(x), (X,)),
    "bfloat16": Program(
        lambda x: (
            (torch.arange(4, dtype=torch.bfloat16) * x.bfloat16()).float(),
            (torch.linspace(-1, 1, 4, dtype=torch.bfloat16) * x.bfloat16()).float(),
            (x.bfloat16() + torch.tensor(0.5, dtype=torch.bfloat16)).float(),
        ),
        (X,),
    ),
    "bfloat16_and_back": Program(
        lambda x: (x.bfloat16().float() - x, x.double().bfloat16().float() - x), (X,)
    ),
    "zeros_like_int": Program(lambda x: torch.zeros_like(x, dtype=torch.int64), (X,)),
    "fill": Program(lambda x: torch.fill(x, 2.5), (X,)),
}

PRODUCTS = {
    "matmul": Program(torch.matmul, (X, floats(4, 5))),
    "matmul_vector": Program(torch.matmul, (X, Y)),
    "matmul_vectors": Program(torch.matmul, (Y, Y)),
    "matmul_batched": Program(torch.matmul, (CUBE, floats(2, 4, 5))),
    "matmul_broadcast": Program(torch.matmul, (floats(2, 1, 3, 4), floats(5, 4, 2))),
    "matmul_int": Program(torch.matmul, (I, ints(5, 4, 2))),
    "matmul_double": Program(lambda x, y: x.double() @ y.double(), (X, floats(4, 5))),
    **{
        f"{name}_of_many_{str(dtype).removeprefix('torch.')}": Program(
            lambda x, y, body=body, dtype=dtype: body(x.to(dtype), y.to(dtype)).float(), (x, y)
        )
        for dtype in HALVES
        for name, body, x, y in (
            ("matmul", torch.matmul, torch.ones(2, 4096), torch.ones(4096, 3)),
            ("bmm", torch.matmul, torch.ones(2, 2, 4096), torch.ones(2, 4096, 3)),
            ("linear", F.linear, torch.ones(2, 4096), torch.ones(3, 4096)),
        )
    },
    "bmm": Program(torch.bmm, (CUBE, floats(2, 4, 5))),
    "addmm": Program(
        lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (floats(5), X, floats(4, 5))
    ),
    "baddbmm": Program(
        lambda b, x, y: torch.baddbmm(b, x, y, beta=0, alpha=0.5),
        (floats(2, 3, 5), CUBE, floats(2, 4, 5)),
    ),
    "addbmm": Program(
        lambda b, x, y: torch.addbmm(b, x, y, beta=0.5, alpha=2),
        (floats(3, 5), CUBE, floats(2, 4, 5)),
    ),
    "addmv": Program(torch.addmv, (floats(3), X, Y)),
    "outer": Program(torch.outer, (Y, floats(3))),
    "linear": Program(F.linear, (CUBE, floats(5, 4), floats(5))),
    "linear_1d": Program(F.linear, (Y, floats(5, 4))),
    "bilinear": Program(F.bilinear, (X, floats(3, 5), floats(2, 4, 5), floats(2))),
    "bilinear_3d": Program(F.bilinear, (CUBE, floats(2, 3, 5), floats(2, 4, 5))),
    "integers": Program(
        torch._int_mm,
        (ints(127, 32, 8, low=-128, dtype=torch.int8), ints(127, 8, 8, low=-128, dtype=torch.int8)),
    ),
    "einsum_product": Program(
        lambda x, y: torch.einsum("bij,bjk->bik", x, y), (CUBE, floats(2, 4, 5))
    ),
    "einsum_attention": Program(
        lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k), (floats(2, 2, 3, 4), floats(2, 2, 5, 4))
    ),
    "einsum_outer": Program(lambda x, y: torch.einsum("i,j->ij", x, y), (Y, floats(3))),
    "einsum_diagonal": Program(lambda x: torch.einsum("ii->i", x), (floats(4, 4),)),
    "einsum_trace": Program(lambda x: torch.einsum("bii->b", x), (floats(2, 4, 4),)),
    "einsum_transpose": Program(lambda x: torch.einsum("...ij->...ji", x), (CUBE,)),
    "einsum_three": Program(
        lambda x, y, z: torch.einsum("ij,jk,kl->il", x, y, z), (X, floats(4, 5), floats(5, 2))
    ),
    "cdist": Program(torch.cdist, (X, floats(5, 4))),
    "kron": Program(torch.kron, (X, floats(2, 2))),
    "cross": Program(lambda x, y: torch.linalg.cross(x, y), (floats(4, 3), floats(4, 3) + 1)),
    "eigenvalues": Program(torch.linalg.eigvalsh, (floats(3, 3),), "aten._linalg_eigh.default"),
}


def grouped(rows: int, ends: list[int]) -> Program:
    """Products of groups of rows with a matrix each; behind the last group may be anything."""
    return Program(
        lambda x, y, e: F.grouped_mm(x.bfloat16(), y.bfloat16(), offs=e)[: ends[-1]].float(),
        (floats(rows, 16), floats(len(ends), 16, 8), torch.tensor(ends, dtype=torch.int32)),
    )


_SQUARE = floats(2, 3, 5, 5)
_DEFINITE = _SQUARE @ _SQUARE.mT + torch.eye(5)
_FACTOR = torch.linalg.cholesky(_DEFINITE)
_SIDES = floats(2, 3, 5, 4)
_SINGULAR = torch.tensor([[[1.0, 2, 3], [2, 4, 6], [1, 0, 1]], [[0, 1, 0], [0, 0, 1], [1, 0, 0]]])

LINEAR_ALGEBRA = {
    "det": Program(lambda x, y: (torch.linalg.det(x), torch.det(y)), (_SQUARE, _SINGULAR)),
    "det_of_one": Program(torch.linalg.det, (floats(1, 1),)),
    "det_of_many_rows": Program(torch.linalg.det, (floats(64, 64) / 4,)),
    "slogdet": Program(
        lambda x, y: (torch.linalg.slogdet(x), torch.slogdet(y)), (_SQUARE, _SINGULAR)
    ),
    "logdet": Program(torch.logdet, (_DEFINITE,)),
    "inverse": Program(
        lambda x, y: (torch.linalg.inv(x), torch.inverse(y.double())), (_SQUARE, _SINGULAR[1])
    ),
    "inverse_power": Program(lambda x: torch.linalg.matrix_power(x, -2), (_DEFINITE,)),
    "solve": Program(
        lambda x, y: (
            torch.linalg.solve(x, y),
            torch.linalg.solve(x, y[..., 0]),
            torch.linalg.solve(x, y.mT, left=False),
            torch.linalg.solve(x[0, 0], y),
            torch.linalg.solve(x, y[0, 0]),
        ),
        (_SQUARE, _SIDES),
    ),
    "cholesky": Program(
        lambda x: (
            torch.linalg.cholesky(x),
            torch.linalg.cholesky(x.triu(), upper=True),
            torch.linalg.cholesky(x.double()),
            torch.linalg.cholesky_ex(x).L,
        ),
        (_DEFINITE,),
    ),
    "triangular": Program(
        lambda x, y: (
            torch.linalg.solve_triangular(x, y, upper=False),
            torch.linalg.solve_triangular(x.mT, y, upper=True),
            torch.linalg.solve_triangular(x, y.mT, upper=False, left=False),
            torch.linalg.solve_triangular(x[0, 0].mT, y.mT, upper=True, left=False),
            torch.linalg.solve_triangular(x / 4, y, upper=False, unitriangular=True),
        ),
        (_FACTOR, _SIDES),
    ),
    "by_factor": Program(
        lambda x, y: (
            torch.cholesky_solve(y, x),
            torch.cholesky_solve(y, x.mT, upper=True),
            torch.cholesky_inverse(x),
        ),
        (_FACTOR, _SIDES),
    ),
    "too_many_rows": Program(torch.linalg.inv, (floats(33, 33),), "have more than 32 rows"),
    "info": Program(
        lambda x: torch.linalg.inv_ex(x).info, (_SQUARE,), "only its first result can be computed"
    ),
}

GROUPED_PRODUCTS = {
    "few_rows": grouped(8, [2, 2, 6]),
    "a_row": grouped(1, [0, 0, 1, 1]),
    "many_rows": grouped(40, [0, 17, 40]),
    "many_rows_with_a_rest": grouped(130, [7, 15, 24, 129]),
    "all_in_the_last": grouped(130, [0, 0, 130]),
    "all_in_the_first": grouped(130, [130, 130, 130]),
    "equal_groups": grouped(64, [16, 32, 48, 64]),
    "more_groups_than_rows": grouped(5, [0, 1, 1, 2, 2, 3, 4, 4, 5]),
    "linear": Program(
        lambda x, y, e: F.grouped_mm(x.bfloat16(), y.bfloat16().mT, offs=e).float(),
        (floats(40, 16), floats(3, 8, 16), torch.tensor([3, 30, 40], dtype=torch.int32)),
    ),
    "columns": Program(
        lambda x, y, e: F.grouped_mm(x.bfloat16(), y.bfloat16(), offs=e).float(),
        (floats(3, 8, 16), floats(16, 40), torch.tensor([3, 30, 40], dtype=torch.int32)),
    ),
    "batches": Program(
        lambda x, y: F.grouped_mm(x.bfloat16(), y.bfloat16()).float(),
        (floats(3, 8, 16), floats(3, 16, 8)),
    ),
    "sums": Program(
        lambda x, y, e: F.grouped_mm(x.bfloat16(), y.bfloat16(), offs=e),
        (floats(8, 8), floats(8, 16), torch.tensor([2, 2, 8], dtype=torch.int32)),
        "sums over groups, as training has them, cannot be computed",
    ),
}


def conv(
    dimensions: int, *channels: int, kernel: int | tuple[int, ...] = 3, **options: Any
) -> Program:
    """A convolution with random weights over 9 by 8 by 7."""
    torch.manual_seed(0)
    transposed = options.pop("transposed", False)
    name = f"Conv{'Transpose' if transposed else ''}{dimensions}d"
    layer = getattr(nn, name)(*channels, kernel, **options)
    return Program(layer, (floats(2, channels[0], *(9, 8, 7)[:dimensions]),))


CONVOLUTIONS = {
    "conv1d": conv(1, 4, 6),
    **{
        f"conv_of_many_{str(dtype).removeprefix('torch.')}": Program(
            lambda x, w, dtype=dtype: (
                F.conv2d(x.to(dtype), w.to(dtype)).float(),
                F.conv_transpose2d(x.to(dtype), w.to(dtype).permute(1, 0, 2, 3)).float(),
            ),
            (torch.ones(1, 4096, 2, 2), torch.ones(2, 4096, 1, 1)),
        )
        for dtype in HALVES
    },
    "conv_tbc": Program(
        lambda x, w, b: torch.conv_tbc(x, w, b, 1), (floats(7, 2, 3), floats(3, 3, 5), floats(5))
    ),
    "conv1d_same": conv(1, 4, 6, kernel=4, padding="same"),
    "conv1d_dilated": conv(1, 4, 6, dilation=2, padding=2, stride=2, groups=2),
    "conv2d": conv(2, 4, 6, padding=1),
    "conv2d_with_libm": Program(
        Using(nn.Conv2d(16, 16, 3, padding=1), lambda layer, x: layer(x).atan()),
        (floats(1, 16, 16, 16),),
    ),
    "conv2d_uneven": conv(2, 4, 6, kernel=(3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
    "conv2d_same": conv(2, 4, 6, kernel=(2, 3), padding="same", bias=False),
    "conv2d_valid": conv(2, 4, 6, padding="valid"),
    "conv2d_groups": conv(2, 4, 6, groups=2),
    "conv2d_depthwise": conv(2, 4, 8, groups=4, padding=1),
    "conv2d_reflect": conv(2, 4, 6, padding=1, padding_mode="reflect"),
    "conv2d_circular": conv(2, 4, 6, padding=1, padding_mode="circular"),
    "conv2d_without_batch": Program(conv(2, 4, 6).body, (floats(4, 5, 6),)),
    "conv3d": conv(3, 2, 4, padding=1, stride=2),
    "transposed_1d": conv(1, 4, 6, transposed=True, stride=2),
    "transposed_1d_padded": conv(1, 4, 6, kernel=4, transposed=True, stride=2, padding=1),
    "transposed_1d_groups": conv(1, 4, 6, transposed=True, groups=2, stride=3, output_padding=1),
    "transposed_1d_padded_beyond": conv(
        1, 4, 6, transposed=True, dilation=3, output_padding=2, padding=1
    ),
    "transposed_2d": conv(2, 4, 6, transposed=True),
    "transposed_2d_padded_beyond": conv(
        2, 4, 6, transposed=True, dilation=(4, 3), stride=(2, 1), output_padding=(3, 0), groups=2
    ),
    "transposed_3d_padded_beyond": conv(
        3, 4, 6, kernel=2, transposed=True, dilation=2, output_padding=1
    ),
    "transposed_3d_stride": conv(3, 4, 12, kernel=2, transposed=True, stride=2),
    "transposed_3d_groups": conv(
        3, 4, 6, transposed=True, groups=2, stride=(1, 2, 3), padding=1, output_padding=(0, 1, 2)
    ),
    "conv3d_groups": conv(3, 4, 8, groups=2, dilation=(1, 2, 1)),
    "conv3d_depthwise": conv(3, 4, 4, groups=4, padding=1),
    "transposed_2d_stride": conv(2, 4, 6, kernel=2, transposed=True, stride=2),
    "transposed_2d_output_padding": conv(
        2, 4, 6, transposed=True, stride=2, padding=1, output_padding=1
    ),
    "transposed_2d_groups": conv(2, 4, 6, transposed=True, stride=(2, 1), groups=2, bias=False),
    "transposed_2d_dilated": conv(2, 4, 6, transposed=True, stride=2, dilation=2),
    "transposed_2d_uneven": conv(2, 4, 6, kernel=(2, 3), transposed=True, stride=2, padding=(0, 1)),
    "transposed_3d": conv(3, 2, 4, transposed=True, stride=2),
}

WINDOWS = {
    "max_pool": Program(lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "max_pool_padded": Program(lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "max_pool_dilated": Program(lambda x: F.max_pool2d(x, 2, 1, 0, 2), (IMAGE,)),
    "max_pool_ceil": Program(lambda x: F.max_pool2d(x, 2, ceil_mode=True), (IMAGE,)),
    "max_pool_ceil_padded": Program(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (IMAGE,)),
    "max_pool_ceil_beyond": Program(
        lambda x: F.max_pool2d(x, 2, 3, 1, ceil_mode=True), (floats(1, 1, 5, 6),)
    ),
    "max_pool_negative": Program(lambda x: F.max_pool2d(x - 10, 3, 2, 1), (IMAGE,)),
    "max_pool_indices": Program(lambda x: F.max_pool2d(x, 2, return_indices=True), (IMAGE,)),
    "max_pool_indices_padded": Program(
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (IMAGE,)
    ),
    "max_pool_1d": Program(lambda x: F.max_pool1d(x, 3, 2), (floats(2, 3, 8),)),
    "max_pool_3d": Program(lambda x: F.max_pool3d(x, 2), (floats(1, 2, 4, 5, 6),)),
    "max_pool_without_batch": Program(lambda x: F.max_pool2d(x, 2), (CUBE,)),
    "max_unpool": Program(
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (floats(1, 2, 4, 6),)
    ),
    "avg_pool": Program(lambda x: F.avg_pool2d(x, 2), (IMAGE,)),
    "avg_pool_of_many_halves": Program(
        lambda x: (
            F.avg_pool2d(x.half(), 32).float(),
            F.adaptive_avg_pool2d(x.half(), 2).float(),
            F.avg_pool2d(x.half(), 33, padding=1, count_include_pad=False).float(),
        ),
        (torch.full((1, 1, 63, 63), 128.0),),
    ),
    "avg_pool_padded": Program(lambda x: F.avg_pool2d(x, 3, 2, 1), (IMAGE,)),
    "avg_pool_without_padding": Program(
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGE,)
    ),
    "avg_pool_divisor": Program(lambda x: F.avg_pool2d(x, 2, divisor_override=3), (IMAGE,)),
    "avg_pool_ceil": Program(lambda x: F.avg_pool2d(x, 2, ceil_mode=True), (IMAGE,)),
    "avg_pool_ceil_padded": Program(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (IMAGE,)),
    "avg_pool_1d": Program(lambda x: F.avg_pool1d(x, 3, 2, 1), (floats(2, 3, 8),)),
    "avg_pool_3d": Program(lambda x: F.avg_pool3d(x, 2), (floats(1, 2, 4, 5, 6),)),
    "lp_pool": Program(lambda x: F.lp_pool2d(x, 2, 2), (IMAGE,)),
    "adaptive_avg": Program(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), (IMAGE,)),
    "adaptive_avg_one": Program(lambda x: F.adaptive_avg_pool2d(x, 1), (IMAGE,)),
    "adaptive_avg_up": Program(lambda x: F.adaptive_avg_pool2d(x, 7), (IMAGE,)),
    "adaptive_avg_1d": Program(lambda x: F.adaptive_avg_pool1d(x, 3), (floats(2, 3, 8),)),
    "adaptive_max": Program(lambda x: F.adaptive_max_pool2d(x, (3, 4)), (IMAGE,)),
    "adaptive_max_one": Program(lambda x: F.adaptive_max_pool2d(x, 1), (IMAGE,)),
    "adaptive_max_1d": Program(lambda x: F.adaptive_max_pool1d(x, 3), (floats(2, 3, 8),)),
}


def resize(
    shape: tuple[int, ...] = (1, 2, 5, 6), refusal: str | None = None, **options: Any
) -> Program:
    return Program(lambda x: F.interpolate(x, **options), (floats(*shape),), refusal)


def _of_doubles(**options: Any) -> Program:
    """The difference from PyTorch's own result, as large as float32 would make it visible."""
    x = floats(1, 2, 5, 6).double()
    expected = F.interpolate(x, size=(7, 11), **options)
    return Program(
        lambda x, y: 1e6 * (F.interpolate(x, size=(7, 11), **options) - y), (x, expected)
    )


RESIZING = {
    "nearest_double": resize(scale_factor=2),
    "nearest_5_to_7": resize(size=(7, 7)),
    "nearest_down": resize(size=(3, 4)),
    "nearest_factor": resize(scale_factor=1.3),
    "nearest_factors": resize(scale_factor=(2.0, 0.7)),
    "nearest_exact": resize(size=(7, 9), mode="nearest-exact"),
    "nearest_1d": resize((1, 2, 5), size=7),
    "nearest_3d": resize((1, 2, 3, 4, 5), scale_factor=2),
    "bilinear_double": resize(scale_factor=2, mode="bilinear"),
    "bilinear_5_to_7": resize(size=(7, 11), mode="bilinear"),
    "bilinear_down": resize(size=(3, 4), mode="bilinear"),
    "bilinear_corners": resize(size=(9, 11), mode="bilinear", align_corners=True),
    "bilinear_corners_factor": resize(scale_factor=2, mode="bilinear", align_corners=True),
    "bilinear_to_one": resize(size=(1, 1), mode="bilinear", align_corners=True),
    "bilinear_to_one_by_factors": resize(scale_factor=(0.25, 2.0), mode="bilinear"),
    "bicubic_to_one_by_factors": resize(scale_factor=(0.25, 0.3), mode="bicubic"),
    "bilinear_factor": resize(scale_factor=1.5, mode="bilinear"),
    "bilinear_factor_1_7": resize(scale_factor=1.7, mode="bilinear"),
    "bilinear_recomputed": resize(scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
    "bilinear_antialias": resize(size=(3, 4), mode="bilinear", antialias=True),
    "bilinear_antialias_up": resize(size=(7, 9), mode="bilinear", antialias=True),
    **{
        f"{mode}_antialias_factor{name}": resize(
            shape, scale_factor=factors, mode=mode, antialias=True
        )
        for mode in ("bilinear", "bicubic")
        for name, shape, factors in (
            ("_1_7", (1, 2, 5, 6), 1.7),
            ("_0_6", (1, 2, 9, 11), 0.6),
            ("_of_one_axis", (1, 2, 5, 6), (1.3, 1.0)),
            ("s_of_wide_images", (1, 1, 4, 70), (1.3, 1.01)),
        )
    },
    "bicubic": resize(size=(7, 9), mode="bicubic"),
    "bicubic_corners": resize(size=(7, 9), mode="bicubic", align_corners=True),
    "bicubic_down": resize(size=(3, 4), mode="bicubic"),
    "bicubic_antialias": resize(size=(3, 4), mode="bicubic", antialias=True),
    **{
        f"integers_{mode}{'_antialias' * bool(more)}": Program(
            lambda x, mode=mode, more=more: F.interpolate(x, size=(7, 9), mode=mode, **more),
            (ints(255, 1, 3, 5, 6, dtype=torch.uint8),),
            "integers can only be resized by their nearest; convert them to floats",
        )
        for mode, more in (("bilinear", {}), ("bicubic", {}), ("bilinear", {"antialias": True}))
    },
    **{
        f"integers_{mode}": Program(
            lambda x, mode=mode: (
                F.interpolate(x, size=(7, 9), mode=mode),
                F.interpolate(x, scale_factor=2, mode=mode),
            ),
            (ints(255, 1, 3, 5, 6, dtype=torch.uint8),),
        )
        for mode in ("nearest", "nearest-exact")
    },
    **{
        "_".join(["doubles", *options.values(), *more]): _of_doubles(**options, **more)
        for options in ({"mode": "bilinear"}, {"mode": "bicubic"})
        for more in ({}, {"align_corners": True}, {"antialias": True})
    },
    "linear_1d": resize((1, 2, 5), size=7, mode="linear"),
    "trilinear": resize((1, 2, 3, 4, 5), size=(4, 6, 5), mode="trilinear"),
    "area": resize(size=(3, 4), mode="area"),
    **{
        f"grid_sample_{mode}_{padding}{'_corners' * corners}": Program(
            lambda x, g, mode=mode, padding=padding, corners=bool(corners): F.grid_sample(
                x, g, mode, padding, corners
            ),
            (IMAGE, floats(2, 3, 4, 2)),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding, corners in (("zeros", 0), ("border", 1), ("reflection", 0), ("reflection", 1))
    },
    "grid_sample_3d": Program(
        lambda x, g: [
            F.grid_sample(x, g, mode, padding, corners)
            for mode in ("bilinear", "nearest")
            for padding in ("zeros", "border", "reflection")
            for corners in (False, True)
        ],
        (floats(2, 3, 4, 5, 6), 2 * floats(2, 3, 4, 5, 3)),
    ),
    "grid_sample_3d_reflected_point": Program(
        lambda x, g: F.grid_sample(x, g, "bilinear", "reflection", True),
        (floats(1, 2, 1, 3, 4), floats(1, 2, 2, 2, 3)),
    ),
    "grid_sample_reflected_point": Program(
        lambda x, g: [
            F.grid_sample(x, g, mode, "reflection", True)
            for mode in ("bilinear", "nearest", "bicubic")
        ],
        (floats(1, 2, 1, 4), 2 * floats(1, 2, 2, 2)),
    ),
    "affine_grid": Program(
        lambda t: F.affine_grid(t, (2, 1, 3, 4), align_corners=False), (floats(2, 2, 3),)
    ),
    "affine_grid_corners": Program(
        lambda t: F.affine_grid(t, (2, 1, 3, 4), align_corners=True), (floats(2, 2, 3),)
    ),
}

NORMS = {
    "batch_norm": Program(
        lambda x, w, b: F.batch_norm(x, b, w.abs() + 1, w, b), (IMAGE, floats(4), floats(4) + 1)
    ),
    "batch_norm_without_affine": Program(
        lambda x, m: F.batch_norm(x, m, m.abs() + 1, eps=0.1), (IMAGE, floats(4))
    ),
    "batch_norm_1d": Program(nn.BatchNorm1d(4).eval(), (floats(3, 4),)),
    "batch_norm_training": Program(nn.BatchNorm2d(4).train(), (IMAGE,), "call model.eval()"),
    "batch_norm_without_statistics": Program(
        nn.BatchNorm2d(4, track_running_stats=False), (IMAGE,)
    ),
    "layer_norm": Program(
        lambda x, w, b: F.layer_norm(x, (4,), w, b), (CUBE, floats(4), floats(4))
    ),
    "layer_norm_plain": Program(lambda x: F.layer_norm(x, (3, 4), eps=0.01), (CUBE,)),
    "group_norm": Program(lambda x, w, b: F.group_norm(x, 2, w, b), (IMAGE, floats(4), floats(4))),
    "group_norm_plain": Program(lambda x: F.group_norm(x, 2), (IMAGE,)),
    "group_norm_half": Program(
        lambda x: F.group_norm(x.half(), 1).float(),
        (torch.tensor([100.0, 102.0]).repeat(4096).reshape(1, 2, 4096),),
    ),
    "group_norm_flat": Program(lambda x, w: F.group_norm(x, 2, w), (floats(3, 4), floats(4))),
    "instance_norm": Program(lambda x, w: F.instance_norm(x, weight=w, bias=w), (IMAGE, floats(4))),
    "rms_norm": Program(lambda x, w: F.rms_norm(x, (4,), w), (CUBE, floats(4))),
    "local_response_norm": Program(lambda x: F.local_response_norm(x, 3), (IMAGE,)),
    "weight_norm": Program(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)).eval(), (X,)),
}


def attention(mask: torch.Tensor | None = None, heads: int = 2, **options: Any) -> Program:
    q, k, v = floats(2, 2, 3, 4), floats(2, heads, 5, 4), floats(2, heads, 5, 4) * 2
    extra = () if mask is None else (mask,)
    return Program(
        lambda q, k, v, *m: F.scaled_dot_product_attention(q, k, v, *m, **options),
        (q, k, v, *extra),
    )


ATTENTION = {
    "attention": attention(),
    "attention_causal": attention(is_causal=True),
    "attention_mask": attention(floats(3, 5)),
    "attention_bool_mask": attention(torch.ones(2, 1, 3, 5).tril() > 0),
    "attention_scale": attention(scale=0.3),
    "attention_grouped": attention(heads=1, enable_gqa=True),
    "attention_3d": Program(F.scaled_dot_product_attention, (CUBE, CUBE * 2, CUBE - 1)),
    "multi_head": Program(
        Using(nn.MultiheadAttention(8, 2, batch_first=True).eval(), lambda f, x: f(x, x, x)),
        (floats(2, 3, 8),),
    ),
    "encoder_layer": Program(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (floats(2, 3, 8),)
    ),
    "decoder_layer": Program(
        nn.TransformerDecoderLayer(8, 2, 16, batch_first=True).eval(),
        (floats(2, 3, 8), floats(2, 5, 8)),
    ),
    "key_padding": Program(
        Using(
            nn.MultiheadAttention(8, 2, batch_first=True).eval(),
            lambda f, x, m: f(x, x, x, key_padding_mask=m, need_weights=False),
        ),
        (floats(2, 3, 8), torch.tensor([[False, False, True], [False, True, True]])),
    ),
}

RECURRENT = {
    **{
        f"{name}_{form}": Program(getattr(nn, name)(4, 5, **options), (floats(3, 2, 4),))
        for name in ("RNN", "LSTM", "GRU")
        for form, options in {
            "plain": {},
            "stacked": {"num_layers": 2, "batch_first": True},
            "bidirectional": {"bidirectional": True, "bias": False},
        }.items()
    },
    "RNN_relu": Program(nn.RNN(4, 5, nonlinearity="relu"), (floats(3, 2, 4),)),
    "RNN_relu_nan": Program(
        nn.RNN(1, 2, nonlinearity="relu"), (torch.tensor([[1.0], [NAN], [1.0]]),)
    ),
    "LSTM_states": Program(
        Using(nn.LSTM(4, 5), lambda f, x, h, c: f(x, (h, c))),
        (floats(3, 2, 4), floats(1, 2, 5), floats(1, 2, 5)),
    ),
    "LSTM_projected": Program(nn.LSTM(4, 5, proj_size=3), (floats(3, 2, 4),)),
    "LSTM_everything": Program(
        Using(
            nn.LSTM(4, 5, 2, batch_first=True, dropout=0.5, bidirectional=True, proj_size=3).eval(),
            lambda f, x, h, c: f(x, (h, c)),
        ),
        (floats(2, 3, 4), floats(4, 2, 3), floats(4, 2, 5)),
    ),
    "GRU_everything": Program(
        nn.GRU(4, 5, 3, dropout=0.5, bidirectional=True).eval(),
        (floats(3, 2, 4), floats(6, 2, 5)),
    ),
    "GRU_one_step": Program(nn.GRU(4, 5, bidirectional=True), (floats(1, 2, 4),)),
    "LSTM_doubles": Program(
        nn.LSTM(4, 5, dtype=torch.float64), (floats(3, 2, 4).to(torch.float64),)
    ),
    "RNN_of_no_sequences": Program(nn.RNN(4, 5), (floats(3, 0, 4),)),
    "RNN_dropout_training": Program(
        nn.RNN(4, 5, 2, dropout=0.5).train(),
        (floats(3, 2, 4),),
        "dropout between layers is random; call model.eval() before the export",
    ),
    "LSTM_last_step": Program(Using(nn.LSTM(4, 5), lambda f, x: f(x)[0][-1]), (floats(3, 2, 4),)),
    "LSTM_without_batch": Program(nn.LSTM(4, 5), (floats(3, 4),)),
    "LSTMCell": Program(nn.LSTMCell(4, 5), (floats(2, 4),)),
    "GRUCell": Program(nn.GRUCell(4, 5), (floats(2, 4),)),
    "RNNCell": Program(nn.RNNCell(4, 5), (floats(2, 4),)),
}

#: Scales and zero points of three channels.
SCALES, POINTS = torch.tensor([0.03, 0.5, 1.0]), torch.tensor([3, -7, 0])
SCALES_OF_FOUR = floats(2, 32, 2)
DQ = torch.ops.quantized_decomposed


class QuantizedConvolution(nn.Module):
    """As a quantiser leaves it; by scales that are powers of two, every sum is exact."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", ints(128, 5, 3, 3, 3, low=-128, dtype=torch.int8))
        self.register_buffer("scales", 2.0 ** -torch.arange(4.0, 9.0))
        self.register_buffer("points", torch.zeros(5, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        limits = (-128, 127, torch.int8)
        weight = DQ.dequantize_per_channel(self.weight, self.scales, self.points, 0, *limits)
        x = self.rounded(x, 2**-5, 128)
        return self.rounded(F.relu(F.conv2d(x, weight, padding=1)), 0.25, 0)

    @staticmethod
    def rounded(x: torch.Tensor, *scale: float) -> torch.Tensor:
        limits = (0, 255, torch.uint8)
        steps = DQ.quantize_per_tensor(x, *scale, *limits)
        return DQ.dequantize_per_tensor(steps, *scale, *limits)


BYTES = (-128, 127, torch.int8)


class PackedProduct(nn.Module):
    """Weights of 4 bits in PyTorch's order, which hangs on the processor."""

    def __init__(self) -> None:
        super().__init__()
        integers = ints(16, 32, 64, dtype=torch.int32)
        self.words = nn.Buffer(torch.ops.aten._convert_weight_to_int4pack_for_cpu(integers, 1))
        self.scales = nn.Buffer(floats(2, 32, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.words, 32, self.scales)


class SmallFloats(nn.Module):
    """Weights of 8 bits, and a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Buffer(floats(5, 8).to(torch.float8_e4m3fn))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.to(x.dtype) * 0.3)


def rounded_rows(x: torch.Tensor, choose: Any) -> torch.Tensor:
    scales, points = choose(x, torch.int8)
    steps = DQ.quantize_per_token(x, scales, points, *BYTES)
    return DQ.dequantize_per_token(steps, scales, points, *BYTES, torch.float32)


def rounded_blocks(x: torch.Tensor, points: torch.Tensor | None) -> torch.Tensor:
    scales = torch.tensor([[0.25, 0.5], [0.03125, 1.0]])
    steps = DQ.quantize_per_channel_group(x, scales, torch.zeros(2, 2), *BYTES, 32)
    return DQ.dequantize_per_channel_group(steps, scales, points, *BYTES, 32, torch.float32)


QUANTIZED = {
    "choose_qparams": Program(
        lambda *xs: [DQ.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8) for x in xs],
        (floats(3, 40), floats(3, 40).abs() + 1, -floats(7).abs(), torch.zeros(3)),
    ),
    "choose_qparams_symmetric": Program(
        lambda x: (
            DQ.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, torch.int8),
            DQ.choose_qparams_symmetric.tensor(x, 0, 255, 1e-5, torch.uint8),
        ),
        (floats(3, 40),),
    ),
    "rows": Program(lambda x: rounded_rows(x, DQ.choose_qparams_per_token), (floats(2, 3, 40),)),
    "rows_asymmetric": Program(
        lambda x: rounded_rows(x, DQ.choose_qparams_per_token_asymmetric), (floats(2, 3, 40) + 0.5,)
    ),
    "blocks": Program(
        lambda x: rounded_blocks(x, torch.tensor([[1, 2], [3, 4]])), (floats(2, 64),)
    ),
    "blocks_without_points": Program(lambda x: rounded_blocks(x, None), (floats(2, 64),)),
    "convert_element_type": Program(
        lambda x: DQ.convert_element_type.no_fuse(x, torch.float64), (floats(3),)
    ),
    "bytes": Program(
        lambda x, weights, scales: torch.ops.aten._weight_int8pack_mm(x, weights, scales),
        (floats(3, 8), ints(128, 5, 8, low=-128, dtype=torch.int8), floats(5)),
    ),
    "packed": Program(PackedProduct(), (floats(3, 64),)),
    "packed_twice": Program(
        Using(PackedProduct(), lambda product, x: (product(x), product(x + 1))), (floats(3, 64),)
    ),
    "small_floats": Program(SmallFloats(), (floats(3, 8),)),
    "small_floats_unknown": Program(
        lambda x: x.float(),
        (floats(3).to(torch.float8_e4m3fn),),
        refusal="is a tensor of float8_e4m3fn, which is supported for weights only",
    ),
    "packed_unknown": Program(
        lambda x, words: torch.ops.aten._weight_int4pack_mm_for_cpu(x, words, 32, SCALES_OF_FOUR),
        (floats(3, 64), PackedProduct().words),
        refusal="its packed weights are known only at run time",
    ),
    "convolution": Program(QuantizedConvolution(), (floats(1, 3, 8, 9),)),
    "quantize": Program(
        lambda x: DQ.quantize_per_tensor(x, 0.0173, 11, 0, 255, torch.uint8), (floats(3, 40),)
    ),
    "quantize_ties_and_ends": Program(
        lambda x: DQ.quantize_per_tensor(x, 0.5, -3, -128, 127, torch.int8),
        (torch.arange(-300, 300) / 4,),
    ),
    "quantize_narrow": Program(
        lambda x: DQ.quantize_per_tensor(x, 0.01, 0, -127, 100, torch.int8), (floats(3, 40),)
    ),
    "quantize_int16": Program(
        lambda x: DQ.quantize_per_tensor(x, 1e-4, 5, -(2**15), 2**15 - 1, torch.int16),
        (floats(3, 40),),
    ),
    "quantize_tensors": Program(
        lambda x, scale, point: DQ.quantize_per_tensor.tensor(x, scale, point, 0, 255, torch.uint8),
        (floats(3, 40), torch.tensor(0.02), torch.tensor(100)),
    ),
    "quantize_channels": Program(
        lambda x: DQ.quantize_per_channel(x, SCALES, POINTS, 1, -128, 127, torch.int8),
        (floats(2, 3, 4),),
    ),
    "fake_quantize": Program(
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, 0, 255),
        (torch.arange(-40, 300) / 20,),
    ),
    "fake_quantize_tensors": Program(
        lambda x, scale, point: torch.fake_quantize_per_tensor_affine(x, scale, point, -8, 7),
        (floats(3, 40), torch.tensor(0.3), torch.tensor(2, dtype=torch.int32)),
    ),
    "fake_quantize_channels": Program(
        lambda x: torch.fake_quantize_per_channel_affine(
            x, SCALES.float(), POINTS.int(), 1, -128, 127
        ),
        (floats(2, 3, 4),),
    ),
    "dequantize": Program(
        lambda x: DQ.dequantize_per_tensor(x, 0.0173, 11, 0, 255, torch.uint8),
        (ints(256, 3, 4, dtype=torch.uint8),),
    ),
    "dequantize_tensors": Program(
        lambda x, scale, point: DQ.dequantize_per_tensor.tensor(
            x, scale, point, -128, 127, torch.int8
        ),
        (ints(128, 3, 4, low=-128, dtype=torch.int8), torch.tensor(0.02), torch.tensor(-100)),
    ),
    "dequantize_channels": Program(
        lambda x: DQ.dequantize_per_channel(x, SCALES, POINTS, -1, -128, 127, torch.int8),
        (ints(128, 2, 3, low=-128, dtype=torch.int8),),
    ),
    "dequantize_channels_without_points": Program(
        lambda x: DQ.dequantize_per_channel(x, SCALES, None, 0, -128, 127, torch.int8),
        (ints(128, 3, 2, low=-128, dtype=torch.int8),),
    ),
}

FAMILIES: dict[str, dict[str, Program]] = {
    "indexing": INDEXING,
    "bags": EMBEDDING_BAGS,
    "arithmetic": ARITHMETIC,
    "activations": ACTIVATIONS,
    "reductions": REDUCTIONS,
    "special_functions": SPECIAL_FUNCTIONS,
    "counting": COUNTING,
    "complex_numbers": COMPLEX_NUMBERS,
    "layouts": LAYOUTS,
    "creation": CREATION,
    "products": PRODUCTS,
    "linear_algebra": LINEAR_ALGEBRA,
    "grouped_products": GROUPED_PRODUCTS,
    "convolutions": CONVOLUTIONS,
    "windows": WINDOWS,
    "resizing": RESIZING,
    "norms": NORMS,
    "attention": ATTENTION,
    "recurrent": RECURRENT,
    "quantized": QUANTIZED,
}
