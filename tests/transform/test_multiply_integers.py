"""Data that were rounded meet constant weights as small integers, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.ir import GenericConst

import tvm_rammer
from tvm_rammer.backend.registry import backend_named
from tvm_rammer.machine import VDevice
from tvm_rammer.relax_util import calls_of, operator_name
from tvm_rammer.transform.integer_products import IntegerProducts
from tvm_rammer.transform.multiply_integers import MultiplyIntegers
from tvm_rammer.transform.prepare import Prepare

OP = relax.op
SCALE, POINT = np.float32(0.02), np.int8(-7)
RNG = np.random.default_rng(0)

Data = tuple[tuple[int, ...], str]


def module(build: Callable[..., Any], *inputs: Data) -> tvm.IRModule:
    """A function of one result."""
    params = [relax.Var(f"x{k}", relax.TensorType(*each)) for k, each in enumerate(inputs)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(build(*params))
        builder.emit_func_output(result)
    return relax.transform.Normalize()(builder.get())


def floats(x: Any, scale: Any = SCALE, point: Any = POINT, axis: int = -1) -> Any:
    """What steps stand for."""
    dtype = "int8" if np.ndim(point) else str(point.dtype)
    return OP.dequantize(
        x, relax.const(scale, "float32"), relax.const(point, dtype), axis, out_dtype="float32"
    )


def scaled(shape: tuple[int, ...], per_column: bool = False) -> np.ndarray:
    """Weights that are bytes times a scale; the outputs lie first, or last in a matrix."""
    values = RNG.integers(-127, 128, shape).astype("float32")
    values.reshape(-1)[:2] = 127, -127
    if not per_column:
        return values * np.float32(0.01)
    count = shape[-1] if len(shape) == 2 else shape[0]
    scales = RNG.uniform(0.01, 0.03, count).astype("float32")
    return values * (scales if len(shape) == 2 else scales.reshape(-1, 1, 1, 1))


def convolution(data: Any, weights: np.ndarray, stride: int = 1, pad: int = 0, **more: Any) -> Any:
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    return OP.nn.conv2d(data, relax.const(weights), stride, [pad] * 4, **{**layouts, **more})


def multiplied(mod: tvm.IRModule, neighbours: int = 2) -> tvm.IRModule:
    return MultiplyIntegers(IntegerProducts(few_rows=4, neighbours=neighbours))(mod)


def integers_in(mod: tvm.IRModule, neighbours: int = 2) -> list[str]:
    """The operators of a rewritten module that make integers of 32 bits."""
    return integers_of(multiplied(mod, neighbours))


def integers_of(mod: tvm.IRModule) -> list[str]:
    """The operators of a module that make integers of 32 bits."""
    made = [each for each in calls_of(mod) if isinstance(each.ty, relax.TensorType)]
    return [operator_name(each) for each in made if str(each.ty.dtype) == "int32"]


def computed(mod: tvm.IRModule, *data: np.ndarray) -> np.ndarray:
    instance = tvm_rammer.build(mod, policy="sequential").create()
    return instance(*data)[0].numpy()


def steps(shape: tuple[int, ...], dtype: str = "int8") -> np.ndarray:
    """Any steps, the least and the largest among them."""
    limits = np.iinfo(dtype)
    made = RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)
    made.reshape(-1)[:2] = limits.min, limits.max
    return made


def test_a_product_becomes_one_of_integers_and_a_scale():
    weights = scaled((6, 8), per_column=True)
    mod = module(lambda x: OP.matmul(floats(x), relax.const(weights)), ((5, 6), "int8"))
    after = list(calls_of(multiplied(mod)))
    assert [operator_name(each) for each in after] == [
        "relax.astype",
        "relax.subtract",
        "relax.matmul",
        "relax.astype",
        "relax.multiply",
    ]
    wide, centred, product, _, result = after
    assert {str(each.ty.dtype) for each in (wide, centred, *product.args)} == {"int16"}
    assert int(centred.args[1].value.numpy()) == POINT
    values, scale = product.args[1].value.numpy(), result.args[1].value.numpy() / SCALE
    np.testing.assert_allclose(values * scale, weights, rtol=1e-6)


def test_without_a_zero_point_nothing_is_subtracted_and_what_two_read_is_made_once():
    weights = [relax.const(scaled((6, 8))) for _ in range(2)]

    def build(x: Any) -> Any:
        data = floats(x, point=np.int8(0))
        return OP.add(OP.matmul(data, weights[0]), OP.matmul(data, weights[1]))

    after = list(calls_of(multiplied(module(build, ((5, 6), "int8")))))
    names = [operator_name(each) for each in after]
    assert names.count("relax.astype") == 3
    assert "relax.subtract" not in names


def test_fours_are_of_bytes_whose_zero_point_is_taken_from_the_sums():
    weights = scaled((6, 8))
    mod = module(lambda x: OP.matmul(floats(x), relax.const(weights)), ((5, 6), "int8"))
    after = list(calls_of(multiplied(mod, 4)))
    assert [operator_name(each).removeprefix("relax.") for each in after] == (
        ["astype", "add", "astype", "nn.pad", "matmul", "subtract", "astype", "multiply"]
    )
    product, centred = after[4], after[5]
    assert [str(each.ty.dtype) for each in product.args] == ["uint8", "int8"]
    values = product.args[1].value.numpy()
    # The sum of six has two zeros more.
    np.testing.assert_array_equal(values[6:], 0)
    beyond = centred.args[1].value.numpy()
    np.testing.assert_array_equal(beyond, (int(POINT) + 128) * values.astype(int).sum(axis=0))


def test_fours_of_a_single_row_too():
    """Weights are bytes in both, and vectors widen them more slowly than they multiply them."""
    mod = module(lambda x: OP.matmul(floats(x), relax.const(scaled((8, 16)))), ((1, 8), "int8"))
    assert integers_in(mod, 2) == []
    assert integers_in(mod, 4) == ["relax.matmul", "relax.subtract"]


def test_data_without_a_zero_point_are_read_as_they_are():
    def build(x: Any) -> Any:
        return convolution(floats(x, point=np.uint8(0)), scaled((16, 3, 3, 8)), 1, 1)

    after = list(calls_of(multiplied(module(build, ((1, 12, 12, 8), "uint8")), 4)))
    names = [operator_name(each).removeprefix("relax.") for each in after]
    assert names == ["nn.conv2d", "astype", "multiply"]
    assert list(map(int, after[0].attrs.padding)) == [1] * 4


def test_a_window_beyond_the_data_meets_the_zero_point():
    def build(x: Any) -> Any:
        return convolution(floats(x, point=np.uint8(9)), scaled((16, 3, 3, 8)), 1, 1)

    after = list(calls_of(multiplied(module(build, ((1, 12, 12, 8), "uint8")), 4)))
    names = [operator_name(each).removeprefix("relax.") for each in after]
    assert names == ["nn.pad", "nn.conv2d", "subtract", "astype", "multiply"]
    assert int(after[0].attrs.pad_value) == 9
    assert list(map(int, after[1].attrs.padding)) == [0] * 4


@pytest.mark.parametrize("neighbours", [2, 4])
def test_weights_of_several_products_stay_one_constant(neighbours):
    """Steps of an LSTM: weights of their own would not stay in a cache."""
    weights = relax.const(scaled((10, 16), per_column=True))

    def build(*states: Any) -> Any:
        return OP.concat([OP.matmul(rounded(state), weights) for state in states])

    after = multiplied(module(build, *[((9, 10), "float32")] * 3), neighbours)
    calls = [(operator_name(call), call) for call in calls_of(after)]
    products = [call for name, call in calls if name == "relax.matmul"]
    assert [str(call.ty.dtype) for call in products] == ["int32"] * 3
    assert len({call.args[1].value for call in products}) == 1
    factors = {
        call.args[1].value
        for name, call in calls
        if name == "relax.multiply" and (isinstance(call.args[1], GenericConst))
    }
    assert len(factors) == 1


@pytest.mark.parametrize("neighbours", [2, 4])
def test_data_that_only_moved_are_still_integers(neighbours):
    weights = scaled((16, 1, 1, 6))
    mod = module(
        lambda x: convolution(OP.permute_dims(floats(x), [0, 2, 3, 1]), weights),
        ((1, 6, 6, 6), "int8"),
    )
    assert integers_in(mod, neighbours)[0] == "relax.nn.conv2d"
    data = steps((1, 6, 6, 6))
    wanted = np.einsum("nchw,oc->nhwo", (data - np.float64(POINT)) * SCALE, weights[:, 0, 0])
    got = computed(multiplied(mod, neighbours), data)
    assert np.abs(got - wanted).max() <= 2e-6 * np.abs(wanted).max()


def bytes_of(x: Any, least: float = 0.0, most: float = 255.0) -> Any:
    return OP.minimum(OP.maximum(x, relax.const(least)), relax.const(most))


def rounded(x: Any) -> Any:
    """As an LSTM rounds its state: bytes on the range of the data, as floating-point numbers."""
    zero, most = relax.const(0.0), relax.const(255.0)
    low = OP.minimum(OP.min(x), zero)
    scale = OP.divide(OP.subtract(OP.maximum(OP.max(x), zero), low), most)
    point = bytes_of(OP.round(OP.subtract(zero, OP.divide(low, scale))))
    return OP.subtract(bytes_of(OP.add(OP.round(OP.divide(x, scale)), point)), point)


@pytest.mark.parametrize("neighbours", [2, 4])
def test_what_was_rounded_on_its_own_range_is_of_integers_too(neighbours):
    weights = scaled((10, 16), per_column=True)

    def build(x: Any) -> Any:
        """Rounded together, multiplied in parts."""
        parts = OP.split(rounded(x), 2, 0)
        rows = (OP.reshape(relax.TupleGetItem(parts, k), (9, 10)) for k in range(2))
        return OP.concat([OP.matmul(each, relax.const(weights)) for each in rows])

    mod = module(build, ((2, 9, 10), "float32"))
    assert integers_in(mod, neighbours).count("relax.matmul") == 2
    data = RNG.normal(size=(2, 9, 10)).astype("float32")
    got, wanted = computed(multiplied(mod, neighbours), data), computed(mod, data)
    assert np.abs(got - wanted).max() <= 2e-6 * np.abs(wanted).max()


def test_floats_that_are_no_bytes_stay():
    weights = relax.const(scaled((10, 16)))

    def of(
        inside: Callable[[Any], Any] = bytes_of,
        whole: Callable[[Any], Any] = OP.round,
        point: Callable[[Any], Any] = lambda x: bytes_of(OP.round(x)),
    ) -> list[str]:
        def build(x: Any) -> Any:
            own = point(OP.max(x))
            return OP.matmul(OP.subtract(inside(OP.add(whole(x), own)), own), weights)

        return integers_in(module(build, ((9, 10), "float32")), 4)

    assert "relax.matmul" in of()
    assert of(inside=lambda x: bytes_of(x, most=256.0)) == []
    assert of(inside=lambda x: bytes_of(x, least=-1.0)) == []
    assert of(whole=OP.floor) == []
    # Such a point may be so large that sums of 32 bits would wrap around.
    assert of(point=OP.round) == []
    assert of(point=lambda x: bytes_of(x)) == []


def test_windows_beyond_data_with_a_zero_point_of_the_run_stay():
    mod = module(
        lambda x: convolution(rounded(x), scaled((16, 3, 3, 8)), 2, 1), ((1, 9, 9, 8), "float32")
    )
    assert integers_in(mod, 4) == []
    inside = module(
        lambda x: convolution(rounded(x), scaled((16, 3, 3, 8)), 2), ((1, 9, 9, 8), "float32")
    )
    assert "relax.nn.conv2d" in integers_in(inside, 4)


def test_concatenations_of_equal_scales_are_of_integers():
    weights = scaled((16, 1, 1, 12))

    def build(scale: float) -> Callable[[Any, Any], Any]:
        def made(x: Any, y: Any) -> Any:
            parts = [floats(x, point=np.int8(3)), floats(y, np.float32(scale), np.int8(5))]
            return convolution(OP.concat(parts, 3), weights)

        return made

    inputs = (((1, 9, 9, 8), "int8"), ((1, 9, 9, 4), "int8"))
    assert integers_in(module(build(SCALE), *inputs)) == ["relax.nn.conv2d"]
    assert integers_in(module(build(0.5), *inputs)) == []
    data = [steps(shape) for shape, _ in inputs]
    mod = module(build(SCALE), *inputs)
    joined = np.concatenate([data[0] - np.float64(3), data[1] - np.float64(5)], 3) * SCALE
    wanted = np.einsum("nhwc,oc->nhwo", joined, weights[:, 0, 0].astype(np.float64))
    np.testing.assert_allclose(computed(mod, *data), wanted, rtol=1e-6, atol=1e-4)


IMAGE = ((1, 9, 9, 8), "int8")
ROWS = ((5, 8), "int8")


@pytest.mark.parametrize(
    ("build", "data"),
    [
        pytest.param(
            lambda x: convolution(floats(x), scaled((16, 3, 3, 8))),
            ((1, 12, 12, 8), "int8"),
            id="a window for Winograd",
        ),
        pytest.param(
            lambda x: convolution(floats(x), scaled((16, 1, 1, 7))),
            ((1, 9, 9, 7), "int8"),
            id="an odd number of channels",
        ),
        pytest.param(
            lambda x: convolution(floats(x), scaled((4, 1, 1, 8))), IMAGE, id="few outputs"
        ),
        pytest.param(
            lambda x: convolution(floats(x), scaled((16, 1, 1, 4)), groups=2), IMAGE, id="groups"
        ),
        pytest.param(
            lambda x: convolution(floats(x), RNG.normal(size=(16, 1, 1, 8)).astype("float32")),
            IMAGE,
            id="weights that were not rounded",
        ),
        pytest.param(
            lambda x: convolution(OP.nn.relu(floats(x)), scaled((16, 1, 1, 8))),
            IMAGE,
            id="data that were not rounded",
        ),
        pytest.param(
            lambda x: convolution(
                floats(x, np.full(8, SCALE), np.zeros(8, "int8"), 3), scaled((16, 1, 1, 8))
            ),
            IMAGE,
            id="a scale for each channel of the data",
        ),
        pytest.param(
            lambda x: OP.matmul(floats(x), relax.const(scaled((8, 16)))),
            ((4, 8), "int8"),
            id="few rows",
        ),
        pytest.param(
            lambda x: OP.matmul(floats(x, point=np.int32(0)), relax.const(scaled((8, 16)))),
            ((5, 8), "int32"),
            id="large integers",
        ),
        pytest.param(
            lambda x: OP.matmul(OP.astype(x, "float32"), relax.const(scaled((8, 16)))),
            ROWS,
            id="no scale",
        ),
        pytest.param(
            lambda x: OP.matmul(floats(x), relax.const(np.full((66400, 8), 127, "float32"))),
            ((5, 66400), "int8"),
            id="sums beyond 32 bits",
        ),
    ],
)
def test_what_stays_as_it_is(build: Callable[[Any], Any], data: Data):
    mod = module(build, data)
    assert integers_in(mod) == []


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda x: convolution(floats(x), scaled((16, 1, 1, 8))), id="one element"),
        pytest.param(
            lambda x: convolution(floats(x), scaled((16, 3, 3, 8)), 2, 1), id="two at a time"
        ),
        pytest.param(
            lambda x: convolution(floats(x), scaled((16, 3, 3, 8)), 1, 0), id="few places"
        ),
    ],
)
def test_convolutions_that_are_rewritten(build: Callable[[Any], Any]):
    assert integers_in(module(build, IMAGE)) == ["relax.nn.conv2d"]


@settings(max_examples=12, deadline=None)
@given(
    size=st.integers(3, 9),
    channels=st.sampled_from((1, 2, 3, 6, 8, 30)),
    outputs=st.sampled_from((8, 13, 24, 40)),
    window=st.sampled_from(((1, 1, 0), (1, 2, 0), (3, 2, 1), (3, 1, 0), (3, 1, 1), (5, 3, 2))),
    dtype=st.sampled_from(("int8", "uint8")),
    per_column=st.booleans(),
    neighbours=st.sampled_from((2, 4)),
)
def test_convolutions_compute_what_is_defined(
    size, channels, outputs, window, dtype, per_column, neighbours
):
    kernel, stride, pad = window
    weights = scaled((outputs, kernel, kernel, channels), per_column)
    point = np.array(9, dtype)[()]
    data = steps((1, size + 2, size + 2, channels), dtype)
    mod = module(
        lambda x: convolution(floats(x, point=point), weights, stride, pad), (data.shape, dtype)
    )
    exact = np.pad((data - np.float64(point)) * SCALE, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(exact, (kernel, kernel), (1, 2))
    windows = windows[:, ::stride, ::stride]
    wanted = np.einsum("nhwcyx,oyxc->nhwo", windows, weights.astype(np.float64))
    got = computed(multiplied(mod, neighbours), data)
    assert np.abs(got - wanted).max() <= 2e-6 * np.abs(wanted).max()


@settings(max_examples=8, deadline=None)
@given(
    rows=st.integers(5, 40),
    summed=st.sampled_from((2, 7, 10, 64, 600)),
    columns=st.sampled_from((8, 10, 33, 64)),
    neighbours=st.sampled_from((2, 4)),
)
def test_products_compute_what_is_defined(rows, summed, columns, neighbours):
    weights, data = scaled((summed, columns), True), steps((rows, summed))
    mod = module(lambda x: OP.matmul(floats(x), relax.const(weights)), (data.shape, "int8"))
    wanted = (data - np.float64(POINT)) * SCALE @ weights.astype(np.float64)
    got = computed(multiplied(mod, neighbours), data)
    assert np.abs(got - wanted).max() <= 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("vector_bytes", "features", "count"),
    [
        (32, (), 1),
        (32, ("avx2",), 2),
        (32, ("avx2", "avxvnni"), 4),
        (64, ("avx2", "avx512bw"), 2),
        (64, ("avx512bw", "avx512vnni"), 4),
    ],
)
def test_devices_get_what_they_have_an_instruction_for(vector_bytes, features, count):
    vdevice = VDevice("any", vector_bytes=vector_bytes, features=features)
    assert backend_named("cpu").most_neighbours(vdevice) == count
    mod = module(lambda x: convolution(floats(x), scaled((16, 1, 1, 8))), IMAGE)
    script = Prepare(4, count)(mod).script()
    assert ("int16" in script, "uint8" in script) == (count > 1, count > 2)
    assert backend_named("interpret").most_neighbours(vdevice) == 1


def rounding(mod: tvm.IRModule, neighbours: int = 2) -> tvm.IRModule:
    """Where data may be rounded that the model does not round."""
    return MultiplyIntegers(IntegerProducts(4, neighbours), round_data=True)(mod)


@pytest.mark.parametrize("neighbours", [2, 4])
@pytest.mark.parametrize("shape", [(9, 22), (3, 5, 22)])
def test_rows_are_rounded_by_their_own_largest_magnitude(shape, neighbours):
    weights, data = scaled((22, 16), per_column=True), RNG.standard_normal(shape)
    data = (data * 10.0 ** RNG.integers(-3, 4, (*shape[:-1], 1))).astype("float32")
    data[..., 1, :] = 0
    mod = module(lambda x: OP.matmul(x, relax.const(weights)), (shape, "float32"))
    assert "relax.matmul" in integers_of(rounding(mod, neighbours))
    assert not integers_in(mod, neighbours)
    step = np.maximum(np.abs(data).max(-1, keepdims=True), np.finfo("float32").tiny) / 127
    wanted = np.rint(data / step).astype(np.float64) * step @ weights.astype(np.float64)
    got = computed(rounding(mod, neighbours), data)
    # What lies between two integers may be rounded to either of them.
    either = step * np.abs(weights).max() * 1.01
    assert (np.abs(got - wanted) <= 2e-6 * np.abs(wanted).max(-1, keepdims=True) + either).all()
    close = np.abs(got - wanted) <= 2e-6 * np.abs(wanted).max(-1, keepdims=True)
    assert close.mean() > 0.95
    assert (got[..., 1, :] == 0).all()


def test_what_several_products_read_is_rounded_once():
    weights = [relax.const(scaled((6, 8))) for _ in range(3)]

    def build(x: Any) -> Any:
        first, second, third = (OP.matmul(x, weight) for weight in weights)
        return OP.add(OP.add(first, second), third)

    names = [operator_name(each) for each in calls_of(rounding(module(build, ((5, 6), "float32"))))]
    assert (names.count("relax.round"), names.count("relax.matmul")) == (1, 3)


@pytest.mark.parametrize(
    ("rows", "weights"),
    [(4, scaled((6, 8))), (5, RNG.standard_normal((6, 8)).astype("float32"))],
)
def test_few_rows_and_weights_that_are_no_bytes_meet_data_as_they_are(rows, weights):
    mod = module(lambda x: OP.matmul(x, relax.const(weights)), ((rows, 6), "float32"))
    assert rounding(mod).same_as(mod)


def test_convolutions_meet_data_as_they_are():
    mod = module(lambda x: convolution(x, scaled((16, 1, 1, 8))), (IMAGE[0], "float32"))
    assert rounding(mod).same_as(mod)
