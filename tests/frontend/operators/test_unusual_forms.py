"""Legal forms of operators that TVM's importer misreads or refuses give what ONNX Runtime gives."""

from __future__ import annotations

from typing import Any

import contributed
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.runtime.onnx_reference import run_onnxruntime

pytest.importorskip("onnxruntime")

INF = np.inf


def model(
    kind: str,
    inputs: list[np.ndarray],
    constants: tuple[np.ndarray, ...] = (),
    version: int = 13,
    outputs: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """One operator; its constants come behind its inputs."""
    given = [
        helper.make_tensor_value_info(
            f"x{n}", helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for n, value in enumerate(inputs)
    ]
    known = [numpy_helper.from_array(value, f"c{n}") for n, value in enumerate(constants)]
    results = [f"y{n}" for n in range(outputs)]
    node = helper.make_node(
        kind, [each.name for each in (*given, *known)], results, name="node", **attributes
    )
    wanted = [onnx.ValueInfoProto(name=name) for name in results]
    graph = helper.make_graph([node], "g", given, wanted, known)
    opset = helper.make_opsetid("", version)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


def run(made: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    results = tvm_rammer.build(made, policy="sequential").create()(*inputs)
    return [result.numpy() for result in results]


def assert_as_onnxruntime(made: onnx.ModelProto, inputs: list[np.ndarray]) -> None:
    names = [value.name for value in made.graph.input]
    expected = run_onnxruntime(made, dict(zip(names, inputs, strict=True)))
    found = run(made, inputs)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("ArgMax", np.array([[-INF] * 3, [-INF, 1, 1]], "float32")),
        ("ArgMin", np.array([[INF] * 3, [2, 1, 1]], "float32")),
        ("ArgMax", np.full((2, 3), -(2**31), "int32")),
    ],
)
def test_the_place_of_the_largest_of_the_least_is_the_first(kind, rows, last):
    """TVM gives -1, which is no place."""
    assert_as_onnxruntime(model(kind, [rows], axis=1, select_last_index=last), [rows])


def test_a_row_of_minus_infinities_has_a_hard_maximum():
    rows = np.full((1, 4), -INF, "float32")
    assert_as_onnxruntime(model("Hardmax", [rows], axis=1), [rows])


@pytest.mark.parametrize(("size", "kernel", "stride"), [(11, 4, 3), (10, 2, 3), (9, 1, 4)])
def test_windows_of_same_lower_begin_at_every_stride(size, kernel, stride):
    x = np.random.default_rng(0).normal(size=(1, 2, size, size + 1)).astype("float32")
    attributes = {"kernel_shape": [kernel, kernel + 1], "strides": [stride, 2]}
    assert_as_onnxruntime(model("MaxPool", [x], auto_pad="SAME_LOWER", **attributes), [x])


@pytest.mark.parametrize(
    "kind", ["ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceL1"]
)
def test_reductions_of_integers_are_integers(kind):
    x = np.array([[1, 2, 5], [3, -7, 19]], "int32")
    assert_as_onnxruntime(model(kind, [x], axes=[1]), [x])


@pytest.mark.parametrize("attributes", [{}, {"axes": [0]}, {"axes": [-2], "keepdims": 0}])
def test_the_mean_of_nothing_is_no_number(attributes):
    """ONNX says that it is not defined; numpy and PyTorch say that it is NaN."""
    x = np.zeros((0, 3), "float32")
    made = model("ReduceMean", [x], **attributes)
    (found,) = run(made, [x])
    assert found.shape == run_onnxruntime(made, {"x0": x})[0].shape and np.isnan(found).all()


def test_the_largest_of_no_truth_values_is_false():
    x = np.zeros((0, 3), bool)
    (found,) = run(model("ReduceMax", [x], (np.array([0]),), 20, keepdims=0), [x])
    assert found.tolist() == [False] * 3


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (np.array([1, 2, -3], "float32"), np.array(2)),
        (np.array([1, 2, 3], "float32"), np.array([2, 0.5, 3])),
        (np.array([1, 2, 3], "int32"), np.array([2, 0.5, 3], "float32")),
        (np.array([1, 2, 3], "int32"), np.array([2, 0, 3])),
        (np.array([1, 2, -3], "int64"), np.array([2, 0, 3])),
    ],
)
def test_a_power_is_of_the_type_of_its_base(base, exponent):
    assert_as_onnxruntime(model("Pow", [base], (exponent,)), [base])
    assert_as_onnxruntime(model("Pow", [base, exponent]), [base, exponent])


@pytest.mark.parametrize("exponent", [np.float32(3), np.array([3], "int64"), np.float32([[4]])])
def test_a_power_of_a_small_integer_warns_of_nothing(exponent, capfd):
    base = np.float32([[-2, -0.5, 0], [np.nan, 1.5, np.inf]])
    assert_as_onnxruntime(model("Pow", [base], (np.asarray(exponent),)), [base])
    assert "Warning" not in capfd.readouterr().err


def test_regions_are_sampled_as_often_as_their_size_wants():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 9, 9)).astype("float32")
    regions = np.array([[0, 0, 8, 8], [1, 2, 3, 6.5]], "float32")
    inputs = [x, regions, np.array([0, 1])]
    made = model("RoiAlign", inputs, version=16, output_height=2, output_width=3)
    assert_as_onnxruntime(made, inputs)


@pytest.mark.parametrize("version", [10, 16, 20])
@pytest.mark.parametrize("mode", [None, "half_pixel", "output_half_pixel"])
def test_regions_of_a_scaled_image(mode, version):
    # The attribute came with version 16.
    version = max(version, 16) if mode else version
    said = {"coordinate_transformation_mode": mode} if mode else {}
    x = np.random.default_rng(0).normal(size=(1, 4, 16, 16)).astype("float32")
    regions = np.array([[4, 4, 30, 30], [0, 6, 40, 50]], "float32")
    inputs = [x, regions, np.array([0, 0])]
    sizes = {"output_height": 4, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.25}
    made = model("RoiAlign", inputs, version=version, **sizes, **said)
    assert_as_onnxruntime(made, inputs)


def test_the_largest_sample_of_a_region_is_refused():
    inputs = [np.zeros((1, 1, 6, 6), "float32"), np.zeros((1, 4), "float32"), np.array([0])]
    with pytest.raises(ModelError) as error:
        run(model("RoiAlign", inputs, version=16, mode="max"), inputs)
    assert str(error.value) == (
        "the model: RoiAlign (node 'node') cannot be compiled: its mode is 'max', which TVM "
        "computes otherwise; export it with 'avg'"
    )


def test_any_order_of_the_largest_may_be_the_sorted_one():
    x = np.array([3, 1, 2, 9, -1, 4], "float32")
    made = model("TopK", [x], (np.array([4]),), outputs=2, sorted=0)
    values, places = run(made, [x])
    np.testing.assert_array_equal(values, [9, 4, 3, 2])
    np.testing.assert_array_equal(places, [3, 5, 0, 2])


@pytest.mark.filterwarnings("error")
def test_places_of_the_largest_that_nobody_reads_are_no_reason_to_complain():
    nodes = [
        helper.make_node("TopK", ["x", "count"], ["best", "places"]),
        helper.make_node("Neg", ["best"], ["y"]),
    ]
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [6])]
    wanted = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])]
    count = numpy_helper.from_array(np.array([2]), "count")
    graph = helper.make_graph(nodes, "g", given, wanted, [count])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    np.testing.assert_array_equal(run(made, [np.arange(6, dtype="float32")])[0], [-5, -4])


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("te,ehd,eth->td", [(5, 2), (2, 6, 4), (2, 5, 6)]),
        ("ij, jk, kl", [(2, 3), (3, 4), (4, 5)]),
        ("ab,ab,ab->", [(3, 4)] * 3),
        ("i,j,k,l->ljki", [(2,), (3,), (4,), (5,)]),
        ("bij,bjk,bk,b->bi", [(2, 3, 4), (2, 4, 5), (2, 5), (2,)]),
        ("...i,...i,...i->...", [(2, 3)] * 3),
    ],
)
def test_sums_of_products_of_many_tensors(equation, shapes):
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    (found,) = run(model("Einsum", inputs, equation=equation), inputs)
    np.testing.assert_allclose(found, np.einsum(equation, *inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    ("shape", "options", "domain"),
    [
        ((), {}, ""),
        ((), {}, "com.microsoft"),
        ((8,), {"axis": 1}, ""),
        ((8,), {"axis": 1}, "com.microsoft"),
        ((2, 4), {"axis": 1, "block_size": 2}, ""),
        ((1, 8), {"axis": 0, "block_size": 2}, ""),
    ],
)
def test_weights_of_four_bits(signed, shape, options, domain):
    """ONNX Runtime's quantiser has a domain of its own where the model's version has no INT4."""
    low = -8 if signed else 0
    numbers = np.arange(16).reshape(2, 8) + low
    points, scales = np.full(shape, low + 3), np.linspace(0.5, 1, int(np.prod(shape)) or 1)
    kind = onnx.TensorProto.INT4 if signed else onnx.TensorProto.UINT4
    weight = helper.make_tensor("weight", kind, numbers.shape, numbers.ravel())
    point = helper.make_tensor("point", kind, shape, points.ravel())
    scales = scales.astype("float32").reshape(shape)
    scale = numpy_helper.from_array(scales, "scale")
    names = ["weight", "scale", "point"]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["real"], domain=domain, **options),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    x = np.array([[1, 2]], "float32")
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)]
    wanted = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 8))]
    graph = helper.make_graph(nodes, "g", given, wanted, [weight, scale, point])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    (found,) = run(made, [x])
    if "block_size" in options:
        scales = np.repeat(scales, options["block_size"], options["axis"])
    np.testing.assert_allclose(found, x @ (scales * (numbers - (low + 3))), rtol=1e-6)


def test_what_is_quantised_to_four_bits_when_a_model_runs_is_refused():
    """Its zero point says of how many bits: it must not become a byte."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["steps"]),
        helper.make_node("DequantizeLinear", ["steps", "scale", "point"], ["y"]),
    ]
    sides = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (4,)) for name in "xy"]
    scale = numpy_helper.from_array(np.array(0.5, "float32"), "scale")
    point = helper.make_tensor("point", onnx.TensorProto.INT4, (), [3])
    graph = helper.make_graph(nodes, "g", sides[:1], sides[1:], [scale, point])
    opsets = [helper.make_opsetid("", 21)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    with pytest.raises(ModelError, match="elements of less than 8 bits are known only at run time"):
        tvm_rammer.load_model(made)


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("target", ["int8", "int16", "int32", "uint8", "uint16", "uint32"])
def test_a_cast_of_floats_to_short_integers_is_modulo_their_range(source, target):
    x = np.array([[-3.9, 0.5, 300.75, -40000.0, 60000.0], [np.inf, -np.inf, np.nan, 7, -1]], source)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    made = model("Cast", [x], to=kind)
    finite = np.where(np.isfinite(x), x, 0).astype("int64")
    (found,) = run(made, [x])
    np.testing.assert_array_equal(found, finite.astype(target))
    # One function beside the model's own: a cast in pieces is computed again for each of them.
    assert len(tvm_rammer.load_model(made).module.get_global_vars()) == 2


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_a_cast_to_eight_bits_and_back_rounds(name):
    x = np.array([0.3, 100.1, -2.7], "float32")
    casts = [
        helper.make_node("Cast", ["x"], ["small"], to=getattr(onnx.TensorProto, name)),
        helper.make_node("Cast", ["small"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    ends = [helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, (3,)) for end in "xy"]
    graph = helper.make_graph(casts, "g", ends[:1], ends[1:])
    opset = helper.make_opsetid("", 19)
    assert_as_onnxruntime(helper.make_model(graph, opset_imports=[opset], ir_version=9), [x])


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [5, 8, 11])
def test_transforms_of_a_part_of_the_elements_or_with_zeros_behind(length, parts, inverse):
    x = np.random.default_rng(0).normal(size=(2, 8, 3, parts)).astype("float32")
    made = model("DFT", [x], (np.array(length), np.array(1)), version=20, inverse=inverse)
    (found,) = run(made, [x])
    numbers = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    # ONNX Runtime is less exact.
    expected = (np.fft.ifft if inverse else np.fft.fft)(numbers, length, 1)
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], expected, atol=1e-5)


def test_windows_of_a_signal_that_leave_out_its_end():
    x = np.random.default_rng(0).normal(size=(2, 45, 1)).astype("float32")
    window = np.hanning(16).astype("float32")
    made = model("STFT", [x], (np.array(7), window, np.array(16)), version=17, onesided=0)
    assert_as_onnxruntime(made, [x])


def test_a_transform_along_an_axis_that_the_run_knows_is_refused():
    x = np.zeros((2, 8, 3, 1), "float32")
    made = model("DFT", [x, np.array(8), np.array(1)], version=20)
    with pytest.raises(ModelError, match="its axis is known only at run time; fix it with const"):
        tvm_rammer.build(made)


@pytest.mark.parametrize(
    ("kind", "run_time", "what"),
    [
        ("MatMulNBits", 1, "its weights"),
        ("MatMulNBits", 3, "its zero points are"),
        ("MatMulNBits", 4, "its index of groups"),
        ("GatherBlockQuantized", 3, "its zero points"),
    ],
)
def test_packed_weights_that_the_run_knows_are_refused(kind, run_time, what):
    rng = np.random.default_rng(0)
    weights, zeros = (rng.integers(0, 256, (6, 2, n), dtype="uint8") for n in (32, 1))
    scales = np.ones((6, 2), "float32")
    if kind == "MatMulNBits":
        operands = [
            np.ones((1, 64), "float32"),
            weights,
            scales,
            zeros[..., 0],
            np.arange(64) // 32,
        ]
        options = {"K": 64, "N": 6, "bits": 8, "block_size": 32}
        operands[4] = operands[4].astype("int32")
    else:
        operands = [weights.reshape(6, 64), np.array([1, 5]), scales, zeros[..., 0]]
        options = {"bits": 8, "block_size": 32}
    free = {run_time, 0 if kind == "MatMulNBits" else 1}
    made = contributed.case(
        kind, *operands, constants=tuple({*range(len(operands))} - free), **options
    ).model
    with pytest.raises(ModelError, match=f"{what} .*known only at run time"):
        tvm_rammer.build(made)


def test_packed_weights_as_integers_of_32_bits():
    """As older exporters wrote them."""
    weights = np.random.default_rng(0).integers(0, 256, (6, 2, 16), dtype="uint8")
    x = np.random.default_rng(1).normal(size=(2, 64)).astype("float32")
    scales = np.ones((6, 2), "float32")
    options = {"K": 64, "N": 6, "bits": 4, "block_size": 32}
    wanted, got = (
        tvm_rammer.build(
            contributed.case("MatMulNBits", x, each, scales, constants=(1, 2), **options).model
        )
        .create()(x)[0]
        .numpy()
        for each in (weights, weights.view("int32"))
    )
    np.testing.assert_array_equal(got, wanted)


BEYOND_A_STRIDE = {
    "one axis": {"dilations": [3], "output_padding": [2], "pads": [1, 0]},
    "two axes": {"dilations": [4, 3], "strides": [2, 1], "output_padding": [3, 0]},
    "groups": {"dilations": [3, 2], "output_padding": [2, 1], "pads": [0, 1, 2, 3], "group": 2},
}


@pytest.mark.parametrize("name", BEYOND_A_STRIDE)
def test_a_transposed_convolution_padded_behind_by_less_than_its_dilation(name):
    """ONNX Runtime refuses it. What is behind the result is zero, or what padding takes away."""
    options = BEYOND_A_STRIDE[name]
    extra = options["output_padding"]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 4, 6, 5)[: 2 + len(extra)], np.float32)
    w = rng.standard_normal((4, 3, 3, 2)[: 2 + len(extra)], np.float32)
    found = run(model("ConvTranspose", [x], (w,), **options), [x])[0]
    whole = {key: options[key] for key in ("dilations", "strides", "group") if key in options}
    expected = run_onnxruntime(model("ConvTranspose", [x], (w,), **whole), {"x0": x})[0]
    expected = np.pad(expected, [(0, 0), (0, 0), *((0, each) for each in extra)])
    pads = options.get("pads", [0, 0] * len(extra))
    for axis, (before, after) in enumerate(zip(pads, pads[len(extra) :], strict=False), start=2):
        expected = expected.take(range(before, expected.shape[axis] - after), axis)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_transposed_convolution_padded_behind_by_more_is_refused():
    x, w = np.zeros((1, 4, 6), np.float32), np.zeros((4, 3, 3), np.float32)
    made = model("ConvTranspose", [x], (w,), output_padding=[2])
    with pytest.raises(ModelError, match="of 2 is neither less than its stride nor than its dil"):
        run(made, [x])


def resized(x: np.ndarray, scales: list[float] | None = None, **options: Any) -> onnx.ModelProto:
    """A Resize by scales, or to the sizes in ``to``."""
    to, empty = options.pop("to", None), np.zeros(0, np.float32)
    if scales is not None:
        constants = (empty, np.array([1, 1, *scales], np.float32))
    else:
        constants = (empty, empty, np.array([*x.shape[:2], *to]))
    return model("Resize", [x], constants, **options)


@pytest.mark.parametrize("rule", ["align_corners", "half_pixel"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_images_with_an_axis_of_one_element_are_resized(mode, rule):
    options = {"mode": mode, "coordinate_transformation_mode": rule}
    for before, after in (((4, 5), (1, 7)), ((4, 1), (6, 1)), ((1, 3), (5, 4)), ((2, 2), (1, 1))):
        x = np.random.default_rng(0).standard_normal((1, 2, *before), np.float32)
        assert_as_onnxruntime(resized(x, to=after, **options), [x])


def test_sizes_are_multiplied_as_float32():
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 5), np.float32)
    assert_as_onnxruntime(resized(x, [0.25, 1.4], mode="linear"), [x])


def test_the_axis_that_is_one_may_be_a_number():
    """As PyTorch writes attentions whose queries share keys."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_as_onnxruntime(model("Unsqueeze", [x], (np.array(1),)), [x])
