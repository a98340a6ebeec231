"""Programs of PyTorch whose sizes are data: one library for as many results as the run finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_programs import Wrapped, floats  # noqa: E402

from tvm_rammer import build  # noqa: E402
from tvm_rammer.errors import InputError, ModelError  # noqa: E402

X, ROW, WEIGHT = floats(6, 8), floats(8), floats(8, 8)
FOUR = torch.arange(6) % 3 != 1
MASKS = (FOUR, ~FOUR, torch.zeros(6) > 0, torch.zeros(6) == 0)


def positions(x: Any) -> Any:
    rows, columns = torch.where(x > 0)
    return torch.nonzero(x > 0), rows, columns, x[rows, columns], x[x > 0], x.masked_select(x > 0)


def masked_between_axes(x: Any, mask: Any) -> Any:
    y = torch.stack([x, -x])
    return y[:, mask], y[0, mask], y[1][mask, torch.tensor(2)], y[:, mask, None]


def reductions(x: Any, mask: Any) -> Any:
    y = x[mask]
    norms = y.norm(), y.sum(), y.sum(0), y.any(), y.mean(1), y.var(1), (y > 0).sum(0)
    return y.argmax(1), y.topk(2, 1).values, y.gather(1, (y > 0).long()), *norms


def layers(x: Any, mask: Any, weight: Any) -> Any:
    y = torch.nn.functional.layer_norm(x[mask] @ weight, (8,))
    return y.softmax(-1), y.log_softmax(0), torch.cat([y, x]), y.T @ y, torch.relu(y) + y.mean(0)


def views(x: Any, mask: Any) -> Any:
    y = x[mask]
    plain = y.view(-1, 2, 4), y.reshape(-1), y.unsqueeze(1).expand(-1, 3, -1), y.flip(1)
    return *plain, torch.stack([y, y], 1), *y.split(4, 1), torch.nn.functional.pad(y, (1, 2))


def slices(x: Any, mask: Any) -> Any:
    y = x[mask]
    count = y.shape[0]
    torch._check(count >= 2)
    ends = y[:-1], y[1:], y[-2:], y[:100], y[1:3], y[::2], y[:, 1:-1], y[..., -1]
    return *ends, y[count // 2 :], y[: count - 1], torch.arange(count), torch.arange(2, count, 2)


def picked(x: Any, mask: Any) -> Any:
    y = x[mask]
    flat = y[y > 0]
    torch._check(y.shape[0] >= 2)
    rows = torch.tensor([0, 1, -1])
    return y[rows], y[0], y[-1], y[:, rows], y[rows, rows], y[y[:, 0] > 0], flat * 2


def edges_to_oneself(edges: Any, weights: Any) -> Any:
    """As spectral graph convolutions count them."""
    there = edges[:, weights > 0]
    values = weights[weights > 0].clone()
    own = there[0] == there[1]
    values[own] = values[own] - 1
    return there, values


def squares(x: Any, mask: Any) -> Any:
    y = x[mask]
    scores = y @ y.T
    ones = torch.ones(y.shape[0], y.shape[0])
    identity = torch.eye(y.shape[0])
    det = torch.linalg.det(scores / 9 + identity)
    return scores.tril(), scores.triu(1), ones.tril(-1) > 0, y.shape[0] * x, identity, det


def cut(x: Any, count: Any) -> Any:
    k = count.item()
    torch._check(k >= 0)
    torch._check(k <= 6)
    return x[:k], x[k:] * 2, torch.zeros(k, 3) + 1


def cut_from_behind(x: Any, count: Any) -> Any:
    k = count.item()
    return x[:k].sum(0), x[k:].sum(0)


def parts(x: Any, sizes: Any) -> Any:
    first, second, third = sizes.tolist()
    for size in (first, second, third):
        torch._check(size >= 0)
    torch._check(first + second + third == 6)
    return tuple(part.sum(0) for part in x.split([first, second, third]))


def repeated(x: Any, times: Any) -> Any:
    y = torch.repeat_interleave(x, times, dim=0)
    return y, torch.nn.functional.conv1d(y.T[None], WEIGHT[:, :, None].expand(8, 8, 3), padding=1)


def experts(x: Any, weight: Any, expert: Any) -> Any:
    result = torch.zeros_like(x)
    for number in range(3):
        (rows,) = torch.where(expert == number)
        result.index_add_(0, rows, torch.relu(x[rows] @ weight) * number)
    return result


def assigned(x: Any, mask: Any, row: Any) -> Any:
    rows, doubled, front = x.clone(), x.clone(), torch.zeros_like(x)
    rows[mask] = row
    doubled[mask] = doubled[mask] * 2
    chosen = x[mask]
    front[: chosen.shape[0]] = chosen
    return rows, doubled, front


def scattered(x: Any, mask: Any) -> Any:
    places = torch.nonzero(mask)[:, 0]
    empty = torch.zeros_like(x)
    across = places[:, None].expand(-1, 8)
    return empty.scatter_add(0, across, x[places]), empty.index_put((places,), x[places])


def two_of_them(x: Any, mask: Any, expert: Any) -> Any:
    one, other = x[mask], x[expert > 0]
    return one @ other.T, torch.cat([one, other])


def counted(numbers: Any) -> Any:
    values, inverse, counts = torch.unique(numbers, return_inverse=True, return_counts=True)
    bins = torch.bincount(numbers), torch.bincount(numbers, minlength=12)
    return values, inverse, counts, torch.unique(numbers.reshape(2, 3)), *bins


def runs(numbers: Any) -> Any:
    """Of equal numbers, one after the other."""
    found = torch.unique_consecutive(numbers, return_inverse=True, return_counts=True)
    rows = torch.unique(numbers.reshape(3, 2), dim=0, return_counts=True)
    return *found, torch.unique_consecutive(numbers.reshape(2, 3)), *rows


def ordered(x: Any) -> Any:
    y = x[x > 0]
    return y.sort().values, y.argsort(descending=True), y.cumsum(0), y.flip(0)


def embedded(numbers: Any, mask: Any) -> Any:
    chosen = numbers[mask]
    return torch.nn.functional.embedding(chosen, WEIGHT), torch.nn.functional.one_hot(chosen, 9)


def attended(x: Any, mask: Any) -> Any:
    y = x[mask].unsqueeze(1)
    three = WEIGHT.repeat(3, 1)
    found, _ = torch.nn.functional.multi_head_attention_forward(
        *(y, y, y, 8, 2, three, None, None, None, False, 0.0, WEIGHT, None), training=False
    )
    return found


def convolved(x: Any, mask: Any) -> Any:
    kernel = WEIGHT.reshape(8, 1, 2, 4)[..., :3].contiguous()
    return torch.nn.functional.conv2d(x.reshape(6, 1, 2, 4)[mask], kernel, padding=1)


EXPERT = torch.tensor([0, 2, 0, 2, 1, 0])
#: A program, and inputs: what is compiled is exported with the first ones.
PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "positions": (positions, [(X,), (-X,), (X.abs(),), (-X.abs(),)]),
    "slices": (slices, [(X, mask) for mask in MASKS if mask.sum() > 1]),
    "picked": (picked, [(X, mask) for mask in MASKS if mask.sum() > 1]),
    "edges_to_oneself": (
        edges_to_oneself,
        [(EXPERT.repeat(2, 2), floats(12)), (EXPERT.repeat(2, 2), -floats(12).abs())],
    ),
    "cut": (cut, [(X, torch.tensor(count)) for count in (4, 0, 6)]),
    "cut_from_behind": (cut_from_behind, [(X, torch.tensor(k)) for k in (4, 0, 6, -2, 9, -9)]),
    "parts": (parts, [(X, torch.tensor(sizes)) for sizes in ((3, 1, 2), (0, 6, 0))]),
    "repeated": (
        repeated,
        [(X, torch.tensor(n)) for n in ((2, 0, 3, 1, 1, 1), (0, 0, 9, 0, 0, 0))],
    ),
    "experts": (experts, [(X, WEIGHT, EXPERT), (X, WEIGHT, EXPERT * 0)]),
    "assigned": (assigned, [(X, mask, ROW) for mask in MASKS]),
    "two_of_them": (two_of_them, [(X, mask, EXPERT) for mask in MASKS]),
    "counted": (counted, [(EXPERT,), (EXPERT * 7,)]),
    "runs": (runs, [(EXPERT,), (EXPERT * 0,), (EXPERT.sort().values,)]),
    "ordered": (ordered, [(X,), (-X,), (-X.abs(),)]),
    "embedded": (embedded, [(EXPERT, mask) for mask in MASKS]),
    "layers": (layers, [(X, mask, WEIGHT) for mask in MASKS]),
    **{
        function.__name__: (function, [(X, mask) for mask in MASKS])
        for function in (
            *(masked_between_axes, reductions, views, squares, scattered, attended, convolved),
        )
    },
}


def exported(function: Any, *inputs: Any) -> Any:
    return torch.export.export(Wrapped(function).eval(), inputs, strict=False)


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


def check(function: Callable[..., Any], inputs: list[tuple[Any, ...]]) -> None:
    instance = build(exported(function, *inputs[0])).create()
    for given in inputs:
        got = instance(*(tensor.numpy() for tensor in given))
        for mine, theirs in zip(got, flat(function(*given)), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), 2e-4, 2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_as_many_as_the_data_say(name):
    check(*PROGRAMS[name])


@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (cut, torch.tensor(6), [torch.tensor(7), torch.tensor(-1)]),
        (parts, torch.tensor((3, 1, 2)), [torch.tensor((3, 1, 3)), torch.tensor((7, -1, 0))]),
        (slices, FOUR, [FOUR & ~FOUR, torch.arange(6) == 2]),
        (lambda x, place: x[place.item()], torch.tensor(5), [torch.tensor(6), torch.tensor(-9)]),
    ],
)
def test_sizes_that_do_not_fit_end_the_run(function, good, bad):
    instance = build(exported(function, X, good)).create()
    for wrong in bad:
        with pytest.raises(InputError, match="does not take these inputs"):
            instance(X.numpy(), wrong.numpy())
    (first, *_) = instance(X.numpy(), good.numpy())
    np.testing.assert_allclose(first.numpy(), flat(function(X, good))[0].numpy(), 1e-5)


def boxes() -> Iterator[tuple[Any, Any]]:
    for shift in (0.5, 0.1, 5.0):
        corners = floats(40, 2).abs() * shift
        yield torch.cat([corners, corners + 1], 1), floats(40)
    # Three of ten parts are shared, which is 0.3 as a double and more as a float.
    yield torch.tensor([[0.0, 0.0, 1.0, 6.5], [0.0, 3.5, 1.0, 10.0]] * 20), floats(40)


def test_boxes_that_are_left():
    vision = pytest.importorskip("torchvision")

    def kept(corners: Any, scores: Any) -> Any:
        places = vision.ops.nms(corners, scores, 0.3)
        return places, corners[places], scores[places].sigmoid()

    check(kept, list(boxes()))


def in_every_image(x: Any, mask: Any) -> Any:
    images = torch.stack([x, -x])
    images[:, mask] = x[mask]
    return images


@pytest.mark.parametrize(
    ("function", "inputs", "words"),
    [
        (
            lambda x: x * x.max().item(),
            (X,),
            r"_local_scalar_dense.*only integers can be taken out of tensors; leave it a tensor, "
            r"without \.item\(\)",
        ),
        (
            in_every_image,
            (X, FOUR),
            "index_put.*a mask behind other axes takes the same for all that it selects",
        ),
        (
            lambda x, mask: torch.linalg.inv((y := x[mask]) @ y.T),
            (X, FOUR),
            "its sizes are first known in a run, which is not supported here; fix what decides "
            "them with shapes= or constants=, or export the model with torch.onnx.export instead",
        ),
    ],
)
def test_what_no_run_can_tell_is_refused_by_name(function, inputs, words):
    with pytest.raises(ModelError, match=words):
        build(exported(function, *inputs))
