"""What an exported program may have besides operators: sizes, inputs, outputs, weights, state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

torch = pytest.importorskip("torch")

from torch_programs import Wrapped, floats, ints  # noqa: E402

import tvm_rammer  # noqa: E402
from tvm_rammer.errors import InputError, ModelError  # noqa: E402
from tvm_rammer.frontend import LoadedModel, load_model  # noqa: E402

X = floats(3, 4)


def exported(body: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
    module = body if isinstance(body, torch.nn.Module) else Wrapped(body)
    return torch.export.export(module.eval(), inputs, **options)


def run(loaded: LoadedModel, *inputs: torch.Tensor) -> list[torch.Tensor]:
    machine = relax.VirtualMachine(relax.build(loaded.module, "llvm"), tvm.cpu())
    outputs = machine["main"](*map(tvm.runtime.from_dlpack, inputs))
    return [torch.from_dlpack(output) for output in outputs]


def message(program: Any, error: type[Exception] = ModelError, **options: Any) -> str:
    with pytest.raises(error) as caught:
        load_model(program, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


def constants(loaded: LoadedModel) -> list[np.ndarray]:
    """The distinct constants of a module."""
    found: dict[Any, np.ndarray] = {}

    def visit(expression: Any) -> None:
        if isinstance(expression, tvm.ir.GenericConst):
            found[expression] = expression.value.numpy()

    relax.analysis.post_order_visit(loaded.module["main"], visit)
    return list(found.values())


# Sizes


class Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        rows = x.shape[0]
        return x.reshape(rows * 2, 2) * rows, torch.arange(rows), x[rows - 1]


def rows_of_any_number(most: int = 64) -> Any:
    return exported(Rows(), X, dynamic_shapes={"x": {0: torch.export.Dim("rows", max=most)}})


def test_sizes_that_are_computed_with_are_those_given():
    loaded = load_model(rows_of_any_number(), {"x": (5, 4)})
    x = floats(5, 4)
    for found, expected in zip(run(loaded, x), Rows()(x), strict=True):
        assert torch.equal(found, expected)


def test_sizes_are_asked_for():
    text = message(rows_of_any_number())
    assert text.startswith("the model: input 'x' has the symbolic shape (s")
    assert text.endswith(
        ", 4); give it sizes, such as --shape x=1,4 (in Python shapes={'x': (1, 4)})"
    )


def test_sizes_that_the_program_excludes():
    text = message(rows_of_any_number(most=8), shapes={"x": (9, 4)})
    assert text.startswith("the model: PyTorch cannot export the program for these shapes: ")
    assert "<= 8" in text


def test_sizes_that_are_fixed_in_the_program():
    assert message(rows_of_any_number(), InputError, shapes={"x": (5, 3)}).endswith(
        "the shape (5, 3) does not fit"
    )


def test_an_input_that_this_machine_cannot_hold(monkeypatch):
    """It is refused before PyTorch takes the memory."""
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**20}.__getitem__)
    assert message(rows_of_any_number(), InputError, shapes={"x": (10**12, 4)}) == (
        "the model: input 'x' of shape (1000000000000, 4) has 14901.2 GiB, but this machine's "
        "memory has 4.0 GiB; give it a smaller shape"
    )


# Inputs and outputs


class Nested(torch.nn.Module):
    def forward(self, x: Any, y: Any, times: int, named: Any, pair: Any) -> Any:
        return {"a": x * times + named["k"], "b": (pair[0] + pair[1], None, 3, [x - 1])}


def test_nested_inputs_and_outputs_are_flat_and_what_is_no_tensor_is_left_out():
    # Tensors of their own: the export takes one that is given twice for one input.
    program = exported(Nested(), X, None, 2, {"k": X + 1}, (X + 2, X + 3))
    loaded = load_model(program)
    assert loaded.input_names == ("x", "named_k", "pair_0", "pair_1")
    assert loaded.output_names == ("add", "add_1", "sub")
    a, b, c = run(loaded, X, X, X + 1, X)
    assert torch.equal(a, X * 2 + X)
    assert torch.equal(b, X + 1 + X)
    assert torch.equal(c, X - 1)


def test_an_input_may_be_an_output_twice():
    loaded = load_model(exported(lambda x: (x, x), X))
    assert all(torch.equal(found, X) for found in run(loaded, X))


def test_no_tensor_comes_out():
    assert message(exported(lambda x: 3, X)) == (
        "the model: the program returns no tensors; there is nothing to compile"
    )


# Weights


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(7, 4)
        self.head = torch.nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(tokens)) + self.table.weight.sum()


def test_a_weight_with_several_names_is_one_constant():
    model, tokens = Tied(), ints(7, 3)
    loaded = load_model(exported(model, tokens))
    assert [c.shape for c in constants(loaded)] == [(7, 4)]
    torch.testing.assert_close(run(loaded, tokens)[0], model(tokens), rtol=1e-5, atol=1e-5)


class Steps(torch.nn.Module):
    """A loop that is unrolled, with one cell."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x)
        for _ in range(5):
            state = self.cell(x, state)
        return state


def test_the_weights_of_an_unrolled_loop_are_imported_once():
    shapes = [c.shape for c in constants(load_model(exported(Steps(), X))) if c.ndim == 2]
    assert sorted(shapes) == [(12, 4), (12, 4)]


class EveryLayer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.layer_norm = torch.nn.LayerNorm(8)
        self.group_norm = torch.nn.GroupNorm(2, 8)
        self.convolution = torch.nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.group_norm(self.layer_norm(self.linear(x).relu()))
        return self.convolution(x[..., None].expand(-1, -1, 4)).softmax(1)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)],
)
def test_weights_keep_their_type(dtype, tolerance):
    torch.manual_seed(0)
    model, x = EveryLayer().to(dtype), floats(3, 8).to(dtype)
    found = run(load_model(exported(model, x)), x)[0]
    assert found.dtype == dtype
    torch.testing.assert_close(found, model(x), rtol=0, atol=tolerance)


class Rotated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.view_as_complex(floats(3, 2)), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(x) * self.turns)


def test_a_program_runs_after_it_was_imported():
    program = exported(Rotated(), floats(3, 2))
    load_model(program)
    assert program.module()(floats(3, 2)).shape == (3, 2)


# State and control flow


class Moved(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Buffer(floats(5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table = self.table.to(x.device, x.dtype)
        return x + self.table[2]


def test_a_buffer_may_be_given_the_value_that_it_has():
    """As the table of positions of CTRL."""
    loaded = load_model(exported(Moved(), X, strict=False))
    assert torch.equal(run(loaded, X)[0], Moved()(X))


class Marked(torch.nn.Linear):
    """With a sparse buffer for who looks at the model from outside, as Whisper has."""

    def __init__(self) -> None:
        super().__init__(4, 4)
        marks = torch.eye(3, dtype=torch.bool).to_sparse()
        self.register_buffer("marks", marks, persistent=False)


def test_a_sparse_buffer_that_nothing_reads():
    model = Marked()
    assert torch.allclose(run(load_model(exported(model, X)), X)[0], model(X))


class Normed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def test_statistics_of_each_batch_are_refused():
    program = torch.export.export(Normed().train(), (X,))
    text = message(program)
    assert text.startswith("the model: PyTorch's aten.batch_norm.default (node 'batch_norm'")
    assert text.endswith(
        "it normalises by the statistics of each batch, as in training; call model.eval() before "
        "the export"
    )
    assert message(program.run_decompositions()).endswith("call model.eval() before the export")


def test_weights_may_be_normalised():
    """As standardised convolutions do."""

    def normalised(x: torch.Tensor) -> torch.Tensor:
        weight = torch.nn.functional.batch_norm(X[None], None, None, training=True)
        return x + weight[0]

    assert torch.allclose(run(load_model(exported(normalised, X)), X)[0], normalised(X), atol=1e-6)


def test_a_refusal_is_all_that_is_said(capfd):
    message(exported(lambda x: (x + 1).topk(0), X))
    assert "remaining blocks" not in capfd.readouterr().err


class InPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.add_(1)
        y[0].mul_(2)
        return y.relu_()


def test_an_input_that_changes_is_only_read():
    program = exported(InPlace(), X.clone())
    with pytest.warns(UserWarning) as warned:
        loaded = load_model(program)
    assert [str(w.message) for w in warned if w.category is UserWarning] == [
        "the model: the program changes its input 'x' in place; the compiled model leaves it as "
        "it is"
    ]
    x = X.clone()
    found = run(loaded, x)
    assert loaded.output_names == ("relu",)
    assert torch.equal(x, X)
    assert torch.equal(found[0], InPlace()(x))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_that_the_data_choose(sign):
    def body(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.relu() + 1, lambda x: 2 - x, (x,))

    x = X.abs() * sign
    loaded = load_model(exported(body, X))
    torch.testing.assert_close(run(loaded, x)[0], body(x), rtol=1e-6, atol=1e-6)


def test_a_view_of_what_its_definition_lays_out_otherwise():
    """As in GPT-2: a view of an attention, whose heads eager mode leaves side by side."""

    def body(q: torch.Tensor) -> torch.Tensor:
        heads = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        return heads.transpose(1, 2).reshape(2, 3, 8).contiguous().view(-1, 8)

    q = floats(2, 2, 3, 4)
    loaded = load_model(exported(body, q))
    torch.testing.assert_close(run(loaded, q)[0], body(q), rtol=1e-6, atol=1e-6)


# Refusals


class Gamma(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.polygamma(1, x)


def test_a_refusal_names_operator_place_and_remedy():
    model = torch.nn.Sequential(torch.nn.ReLU(), Gamma())
    line = Gamma.forward.__code__.co_firstlineno + 1
    assert message(exported(model, X)) == (
        "the model: PyTorch's aten.polygamma.default (node 'polygamma', at "
        f"\"{__file__}\", line {line}, in forward, layer '1'): it is not supported; "
        "rewrite this operation with others, or compute it outside of the model"
    )


def test_a_view_of_any_number_of_rows():
    def body(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(2, count.item(), 4) + 1
        return rows.transpose(0, 1).unsqueeze(0).view(1, count.item(), 2, 4) * x[0]

    instance = tvm_rammer.build(exported(body, X, torch.tensor(3))).create()
    for count in map(torch.tensor, (3, 1, 5)):
        (got,) = instance(X.numpy(), count.numpy())
        np.testing.assert_array_equal(got.numpy(), body(X, count).numpy())


def test_a_number_that_may_change_is_no_input():
    program = exported(lambda x, n: x * n, X, 3, dynamic_shapes=((None, torch.export.Dim.DYNAMIC),))
    assert message(program).endswith(
        "is a number that may change; export the program with a fixed one, or with a tensor"
    )


def test_what_is_true_of_nothing_and_its_mean():
    class Model(torch.nn.Module):
        def forward(self, x):
            mean, variance = x.mean(0), x.var(0)
            return (x > 0).any(0), (x > 0).all(0), (x > 0).any(1), mean, variance, x.mean(1)

    x = torch.zeros(0, 3)
    library = tvm_rammer.build(torch.export.export(Model(), (x,)), policy="sequential")
    for got, want in zip(library.create()(x.numpy()), Model()(x), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


SHORT = {
    "acos": torch.acos,
    "atan2": lambda x: torch.atan2(x, x.flip(0)),
    "cosh": torch.cosh,
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "ne": lambda x: torch.ne(x, x.flip(0)),
    "isnan": torch.isnan,
    "isfinite": torch.isfinite,
    "nan_to_num": lambda x: torch.nan_to_num(x / 0),
    "softplus": torch.nn.functional.softplus,
    "log1p": torch.log1p,
    "pow": lambda x: x**0.3,
    "fmod": lambda x: torch.fmod(x, 0.3),
    "remainder": lambda x: x % 0.3,
    "floor_divide": lambda x: x // (x + 1),
    "argmax": torch.argmax,
    "cummax": lambda x: x.cummax(0),
    "cosine_similarity": lambda x: torch.nn.functional.cosine_similarity(x, x.flip(0), 0),
    "searchsorted": lambda x: torch.searchsorted(x.sort()[0], x),
    "isin": lambda x: torch.isin(x, x[:3]),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_operators_on_short_floats(dtype):
    """TVM has no code for these in bfloat16, or in no 16 bits at all."""

    class All(torch.nn.Module):
        def forward(self, x):
            return [body(x) for body in SHORT.values()]

    x = (torch.arange(1, 25) / 32).to(dtype)
    program = torch.export.export(All(), (x,))
    library = tvm_rammer.build(program, policy="sequential")
    instance = library.create()
    instance.set_input(0, x)
    instance.run()
    found = [
        torch.from_dlpack(instance.get_output(number))
        for number in range(instance.get_num_outputs())
    ]
    wanted = torch.utils._pytree.tree_leaves(All()(x))
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        torch.testing.assert_close(got.float(), want.float(), rtol=0.02, atol=0.01)


def test_tensors_of_one_number_that_bytes_do_not_hold_are_compared_by_their_lower_bits():
    def body(x: torch.Tensor) -> Any:
        return x > torch.tensor(-1), torch.maximum(x, torch.tensor(-3))

    x = torch.tensor([0, 1, 200, 253, 254, 255], dtype=torch.uint8)
    model = tvm_rammer.build(exported(body, x), policy="sequential").create()
    model.set_input(0, x.numpy())
    model.run()
    for place, expected in enumerate(body(x)):
        np.testing.assert_array_equal(model.get_output(place).numpy(), expected.numpy())


def _zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def _replaced(x: torch.Tensor, index: torch.Tensor, values: Any) -> torch.Tensor:
    x = x.clone()
    x[index] = values
    return x


NONE = _zeros(0, dtype=torch.int64)
OF_NOTHING = {
    "layer_norm": (lambda x: torch.nn.functional.layer_norm(x, (4, 0)), _zeros(3, 4, 0)),
    "gather rows": (lambda x, at: x.gather(0, at), X, _zeros(0, 4, dtype=torch.int64)),
    "gather columns": (lambda x, at: x.gather(1, at), X, _zeros(3, 0, dtype=torch.int64)),
    "replace by rows": (_replaced, X, NONE, _zeros(0, 4)),
    "replace by a number": (lambda x, at: _replaced(x, at, 3.0), X, NONE),
    "replace rows of nothing": (_replaced, _zeros(3, 0), torch.tensor([1, 2]), _zeros(2, 0)),
    "replace elements": (
        lambda x, i, j, values: torch.index_put(x, (i, j), values),
        *(X, NONE, NONE, _zeros(0)),
    ),
    "accumulate": (
        lambda x, at, rows: torch.index_put(x, (at,), rows, accumulate=True),
        *(X, NONE, _zeros(0, 4)),
    ),
    "index_add": (lambda x, at, rows: x.index_add(0, at, rows), X, NONE, _zeros(0, 4)),
}


@pytest.mark.parametrize("name", OF_NOTHING)
def test_sizes_may_be_zero(name):
    body, *inputs = OF_NOTHING[name]
    library = tvm_rammer.build(exported(body, *inputs), policy="sequential")
    (got,) = library.create()(*(each.numpy() for each in inputs))
    np.testing.assert_array_equal(got.numpy(), body(*inputs).numpy())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_constant_may_be_a_tensor_of_any_floats(dtype):
    """That NumPy has no bfloat16, and takes no tensor that is trained, is nobody's concern."""

    def body(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x * w

    x, w = floats(3, 4).to(dtype), floats(4).bfloat16()
    program = exported(body, x, w.to(dtype))
    for given in (w, torch.nn.Parameter(w), w.float().numpy()):
        tvm_rammer.build(program, constants={"inputs_1": given}, policy="sequential", check=True)
