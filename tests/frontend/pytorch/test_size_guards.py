"""Programs of PyTorch that went one way through the user's code, by what sizes are."""

import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm_rammer  # noqa: E402
from tvm_rammer.errors import InputError  # noqa: E402

ANY = torch.export.Dim.AUTO
REFUSED = "does not take these inputs"


class Branches(torch.nn.Module):
    """Three ways that sizes decide."""

    def forward(self, x, y):
        if x.shape[0] % 2 == 0:
            x = x * 2
        if x.shape[0] * y.shape[0] > 20:
            x = x + 1
        if x.shape[0] != y.shape[0]:
            x = x + 5
        return x, y + 0


class Nested(torch.nn.Module):
    def forward(self, x, pair, *, last):
        first, others = pair
        if first.shape[0] > others["q"].shape[0] or last.shape[0] < 5:
            x = x + 1
        return x, first + 0, last + others["q"]


class Keywords(torch.nn.Module):
    """PyTorch makes no code of the guards of variable keyword arguments."""

    def forward(self, **given):
        x = given["x"]
        if x.shape[0] % 2 == 0:
            x = x * 2
        return (x + 0,)


class Quarters(torch.nn.Module):
    def forward(self, x):
        return (x.reshape(x.shape[0] // 4, 4, -1) + 1,)


def ones(*shape):
    return np.ones(shape, "float32")


def saved(program):
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("again", [lambda program: program, saved])
def test_runs_on_another_way_are_refused(strict, again):
    examples, dims = (torch.randn(8, 4), torch.randn(6, 4)), ({0: ANY}, {0: ANY})
    program = torch.export.export(Branches(), examples, dynamic_shapes=dims, strict=strict)
    shapes = {"x": ("n", 4), "y": ("m", 4)}
    instance = tvm_rammer.build(again(program), shapes=shapes).create()
    for n, m in ((8, 6), (4, 6), (22, 1)):
        x, _ = instance(ones(n, 4), ones(m, 4))
        np.testing.assert_array_equal(x.numpy(), 8 * ones(n, 4))
    for n, m in ((8, 8), (4, 3), (7, 6)):
        with pytest.raises(InputError, match=REFUSED):
            instance(ones(n, 4), ones(m, 4))


def test_inputs_inside_of_others():
    examples = torch.randn(8, 4), [torch.randn(6, 4), {"q": torch.randn(6, 4)}]
    program = torch.export.export(
        Nested(),
        examples,
        {"last": torch.randn(6, 4)},
        dynamic_shapes={"x": {0: ANY}, "pair": [{0: ANY}, {"q": {0: ANY}}], "last": {0: ANY}},
    )
    names = ("x", "pair_0", "pair_1_q", "last")
    shapes = {name: (size, 4) for name, size in zip(names, "nmqq", strict=True)}
    instance = tvm_rammer.build(program, shapes=shapes).create()
    found = instance(ones(3, 4), ones(4, 4), ones(5, 4), ones(5, 4))
    np.testing.assert_array_equal(found[0].numpy(), ones(3, 4))
    with pytest.raises(InputError, match=REFUSED):
        instance(ones(3, 4), ones(6, 4), ones(5, 4), ones(5, 4))
    with pytest.raises(InputError, match=REFUSED):
        instance(ones(3, 4), ones(2, 4), ones(4, 4), ones(4, 4))


def keyword_program():
    dims = {"given": {"x": {0: ANY}}}
    x = {"x": torch.randn(8, 4)}
    try:
        return torch.export.export(Keywords(), (), x, dynamic_shapes=dims, strict=False)
    except AssertionError:
        pytest.skip("this version of PyTorch exports no variable keyword arguments")


def test_variable_keyword_arguments():
    instance = tvm_rammer.build(keyword_program(), shapes={"x": ("n", 4)}).create()
    np.testing.assert_array_equal(instance(ones(6, 4))[0].numpy(), 2 * ones(6, 4))
    with pytest.raises(InputError, match=REFUSED):
        instance(ones(7, 4))


def test_known_sizes_on_another_way():
    lib = tvm_rammer.build(keyword_program(), shapes={"x": (6, 4)}, check=True)
    np.testing.assert_array_equal(lib.create()(ones(6, 4))[0].numpy(), 2 * ones(6, 4))
    message = (
        r"exported for sizes of which \(L\['given'\]\['x'\]\.size\(\)\[0\] % 2\) == 0 holds, and "
        "for the given ones it does not; give others, or export it for them"
    )
    with pytest.raises(InputError, match=message):
        tvm_rammer.build(keyword_program(), shapes={"x": (7, 4)})


def test_sizes_that_would_be_divided_by_nothing():
    program = torch.export.export(Quarters(), (torch.randn(8, 4),), dynamic_shapes=({0: ANY},))
    instance = tvm_rammer.build(program, shapes={"x": ("n", 4)}).create()
    assert instance(ones(12, 4))[0].numpy().shape == (3, 4, 4)
    for count in (9, 3):
        with pytest.raises(InputError, match=REFUSED):
            instance(ones(count, 4))
