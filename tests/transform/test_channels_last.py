"""Convolutions work with their channels last, and so does what follows them where it can."""

from __future__ import annotations

from math import gcd

import numpy as np
import pytest
from close import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import calls, run
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_rammer
from tvm_rammer.relax_util import operator_name, static_shape
from tvm_rammer.transform.channels_last import ChannelsLast
from tvm_rammer.transform.fold_constants import FoldConstants
from tvm_rammer.transform.remove_dead_code import remove_dead_code

OP = relax.op
RNG = np.random.default_rng(0)
SHAPE = (1, 4, 6, 8)
CONVERT_LAYOUT = relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})


def constant(*shape):
    return relax.const(RNG.uniform(-1, 1, shape).astype("float32"))


def convolution(x, most_groups=1):
    groups = gcd(most_groups, channels(x))
    return OP.nn.conv2d(x, constant(4, channels(x) // groups, 3, 3), padding=1, groups=groups)


def channels(x):
    return static_shape(x)[1]


def rounded(x, dtype="uint8", count=None):
    """In steps of one scale, or of one for each channel."""
    shape = () if count is None else (count,)
    scale = relax.const(RNG.uniform(0.01, 0.02, shape).astype("float32"))
    point = relax.const(np.full(shape, 100, dtype))
    steps = OP.quantize(x, scale, point, 1, dtype)
    return OP.dequantize(steps, scale, point, -3, "float32")


def swapped_halves(x):
    parts = OP.split(x, 2, 2)
    return OP.concat([parts[1], parts[0]], 2)


def gated(x):
    return OP.multiply(x, OP.sigmoid(OP.mean(x, axis=[2, 3], keepdims=True)))


#: Steps that work in either layout.
FOLLOW = {
    "relu": OP.nn.relu,
    "grouped": lambda x: convolution(x, 2),
    "depthwise": lambda x: convolution(x, 4),
    "max_pool2d": lambda x: OP.nn.max_pool2d(x, (3, 3), padding=(1, 1)),
    "avg_pool2d": lambda x: OP.nn.avg_pool2d(x, (3, 2)),
    "adaptive_avg_pool2d": lambda x: OP.nn.adaptive_avg_pool2d(x, (2, 3)),
    "constant per channel": lambda x: OP.add(x, constant(1, channels(x), 1, 1)),
    "scalar": lambda x: OP.multiply(x, relax.const(2.0, "float32")),
    "two uses": lambda x: OP.multiply(x, x),
    "swapped_halves": swapped_halves,
    "concat": lambda x: OP.concat([x, OP.nn.relu(x)], 1),
    "resize2d": lambda x: OP.image.resize2d(x, (5, 7), layout="NCHW", method="linear"),
    "softmax": lambda x: OP.nn.softmax(x, 1),
    "gated": gated,
    "strided_slice": lambda x: OP.strided_slice(x, [2, 3], [0, 1], [4, 5]),
    "expand_dims": lambda x: OP.squeeze(OP.expand_dims(x, 2), [2]),
    "mean": lambda x: OP.mean(x, axis=[1], keepdims=True),
    "layer_norm": lambda x: OP.nn.layer_norm(
        x, constant(static_shape(x)[3]), constant(static_shape(x)[3]), axes=[-1]
    ),
}

#: Steps that do, but of which TVM has no rule.
FOLLOW_BY_OUR_RULES = {
    "leakyrelu": lambda x: OP.nn.leakyrelu(x, 0.1),
    "clip": lambda x: OP.clip(x, -0.5, 0.5),
    "softplus": OP.nn.softplus,
    "where": lambda x: OP.where(OP.greater(x, OP.exp(x)), x, relax.const(0.5, "float32")),
    "pad": lambda x: OP.nn.pad(x, [0, 0, 1, 0, 2, 3, 0, 1], "constant", 0.5),
    "reflect": lambda x: OP.nn.pad(x, [0, 0, 0, 1, 1, 0, 0, 0], "reflect"),
}

#: These round: sums in another order may end on the other side of a tie.
ROUND = {"quantize": rounded, "quantize channels": lambda x: rounded(x, "int8", channels(x))}

#: Steps of which there is no rule, or one that is of no use.
GO_BACK = {
    "reshape": lambda x: OP.reshape(OP.reshape(x, (-1,)), static_shape(x)),
    "matmul": lambda x: OP.matmul(x, constant(static_shape(x)[3], 5)),
    "vector": lambda x: OP.where(OP.greater(x, OP.exp(x)), x, constant(static_shape(x)[3])),
    "layer_norm of several axes": lambda x: OP.nn.layer_norm(
        x, constant(*static_shape(x)[1:]), constant(*static_shape(x)[1:]), axes=[1, 2, 3]
    ),
    "stack": lambda x: OP.max(OP.stack([x, OP.negative(x)]), axis=[0]),
}


def module(*steps, shape=SHAPE):
    """A function that hands its input from step to step."""
    return network([(step, -1) for step in steps], 1, shape)


def network(steps, outputs, shape=SHAPE):
    """A function of the last values of steps, each with the number of the value it works on."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [x]
            for step, operand in steps:
                values.append(builder.emit(step(values[operand])))
            results = [builder.emit_output(value) for value in values[-outputs:]]
        builder.emit_func_output(results)
    return builder.get()


def operators(mod):
    names = [operator_name(call).removeprefix("relax.") for call in calls(mod["main"])]
    return [name for name in names if name]


def converted(mod):
    return FoldConstants()(ChannelsLast()(mod))


def transposes(mod):
    return operators(FoldConstants()(mod)).count("permute_dims")


def assert_computes_the_same(before, after):
    shapes = [parameter.ty.shape for parameter in before["main"].params]
    inputs = [RNG.uniform(-1, 1, [int(n) for n in shape]).astype("float32") for shape in shapes]
    wanted, got = (run(relax.build(mod, "llvm"), inputs) for mod in (before, after))
    for left, right in zip(got, wanted, strict=True):
        assert left.shape == right.shape
        assert_close(left, right)


def test_a_convolution_with_its_channels_last():
    weight = np.arange(3 * 2 * 3 * 3, dtype="float32").reshape(3, 2, 3, 3)
    before = module(lambda x: OP.nn.conv2d(x, relax.const(weight)), shape=(1, 2, 5, 6))
    after = converted(before)
    into, convolves, out = calls(after["main"])
    assert [int(axis) for axis in into.attrs.axes] == [0, 2, 3, 1]
    assert (convolves.attrs.data_layout, convolves.attrs.kernel_layout) == ("NHWC", "OHWI")
    np.testing.assert_array_equal(convolves.args[1].value.numpy(), weight.transpose(0, 2, 3, 1))
    assert [int(axis) for axis in out.attrs.axes] == [0, 3, 1, 2]
    assert after["main"].ret_ty == before["main"].ret_ty


@pytest.mark.parametrize("name", FOLLOW | FOLLOW_BY_OUR_RULES | ROUND)
def test_an_operator_follows_the_convolution_before_it(name):
    """The input and the output are transposed, and nothing between them."""
    step = (FOLLOW | FOLLOW_BY_OUR_RULES | ROUND)[name]
    found = operators(converted(module(convolution, step)))
    assert [name == "permute_dims" for name in found] == [True, *[False] * (len(found) - 2), True]


@pytest.mark.parametrize("name", ROUND)
def test_channels_keep_their_scales(name):
    weight = RNG.integers(-9, 9, (5, 4, 3, 3)).astype("float32")
    before = module(lambda x: OP.nn.conv2d(x, relax.const(weight)), ROUND[name])
    data = [RNG.integers(-3, 3, SHAPE).astype("float32") / 128]
    (wanted,), (got,) = (
        run(relax.build(m, "llvm"), data) for m in (before, ChannelsLast()(before))
    )
    assert len(np.unique(wanted)) > 50
    np.testing.assert_array_equal(got, wanted)


def test_transposed_convolutions_and_those_of_signals_follow_too():
    """TVM legalizes the first in no other layout: SplitTransposedConvolutions does."""

    def upsample(x):
        return OP.nn.conv2d_transpose(x, constant(channels(x), 4, 2, 2))

    assert operators(converted(module(convolution, upsample))) == [
        "permute_dims",
        "nn.conv2d",
        "nn.conv2d_transpose",
        "permute_dims",
    ]

    def signal(x):
        return OP.nn.conv1d(x, constant(5, channels(x), 3), padding=1)

    def longer(x):
        return OP.nn.conv1d_transpose(x, constant(channels(x), 4, 2), strides=2)

    mod = converted(module(signal, OP.nn.relu, longer, shape=(1, 4, 9)))
    assert operators(mod) == [
        "permute_dims",
        "nn.conv1d",
        "nn.relu",
        "nn.conv1d_transpose",
        "permute_dims",
    ]
    _, convolves, _, transposed, _ = calls(mod["main"])
    assert (convolves.attrs.data_layout, convolves.attrs.kernel_layout) == ("NWC", "OWI")
    assert (transposed.attrs.data_layout, transposed.attrs.kernel_layout) == ("NWC", "IOW")


def test_a_transposed_convolution_of_unknown_shape_keeps_its_layout():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor(("n", 3, 5, 6), "float32"),
            weight: R.Tensor((3, 2, 3, 3), "float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d_transpose(x, weight)
                R.output(a)
            return a

    assert operators(ChannelsLast()(Module)) == ["nn.conv2d_transpose"]


@pytest.mark.parametrize("step", GO_BACK.values(), ids=GO_BACK)
def test_an_operator_that_cannot_follow_gets_the_layout_back(step):
    before = module(convolution, step)
    assert operators(converted(before))[-1] == operators(before)[-1]


@st.composite
def networks(draw, names):
    steps = [(convolution, -1)]
    for _ in range(draw(st.integers(2, 5))):
        step = draw(st.sampled_from([*names, "convolution"]))
        steps.append((names.get(step, convolution), draw(st.integers(-len(steps) - 1, -1))))
    return network(steps, 2)


@settings(max_examples=4)
@given(before=networks(FOLLOW | FOLLOW_BY_OUR_RULES | GO_BACK))
def test_a_network_computes_the_same(before):
    assert_computes_the_same(before, ChannelsLast()(before))


@settings(max_examples=30)
@given(before=networks(FOLLOW))
def test_there_are_no_more_transposes_than_convert_layout_leaves(before):
    # ConvertLayout also removes what nothing reads.
    read = remove_dead_code(before)
    assert transposes(ChannelsLast()(read)) <= transposes(CONVERT_LAYOUT(read))


def test_what_is_no_operator_keeps_the_layout():
    """Tuples and their fields do; casts and branches take what the module gave them."""

    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((1, 3, 5, 6), "float32"),
            weight: R.Tensor((2, 3, 3, 3), "float32"),
            condition: R.Tensor((), "bool"),
        ):
            with R.dataflow():
                a = R.nn.conv2d(x, weight)
                both = ((a, x), a)
                first = both[0]
                again = first[0]
                b = R.nn.relu(again)
                c = R.match_cast(b, R.Tensor((1, 2, 3, 4), "float32"))
                d = R.exp(c)
                R.output(d)
            if condition:
                with R.dataflow():
                    e = R.nn.conv2d(x, weight)
                    f = R.nn.relu(e)
                    R.output(f)
                result = f
            else:
                result = d
            return result

    after = ChannelsLast()(Module)
    names = operators(after)
    assert names == ["permute_dims", "permute_dims", "nn.conv2d", "nn.relu", "permute_dims", "exp"]
    for condition in (True, False):
        inputs = [
            RNG.uniform(-1, 1, (1, 3, 5, 6)).astype("float32"),
            RNG.uniform(-1, 1, (2, 3, 3, 3)).astype("float32"),
            np.array(condition),
        ]
        wanted, got = (run(relax.build(mod, "llvm"), inputs) for mod in (Module, after))
        assert_close(got[0], wanted[0])


def test_shapes_and_ranks_that_are_not_known():
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor(("n", 3, 5, "m"), "float32"),
            weight: R.Tensor((2, 3, 3, 3), "float32"),
            other: R.Tensor(dtype="float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d(x, weight)
                b = R.nn.relu(a)
                c = R.add(b, other)
                R.output(c)
            return c

    after = ChannelsLast()(Module)
    names = operators(after)
    assert names == ["permute_dims", "permute_dims", "nn.conv2d", "nn.relu", "permute_dims", "add"]


def test_a_module_without_convolutions_stays():
    plain = module(OP.exp)
    assert ChannelsLast()(plain).same_as(plain)


def test_volumes_have_their_channels_last_too():
    """Between convolutions of volumes, transposed ones too, nothing is transposed."""

    def body(x):
        x = OP.nn.relu(OP.nn.conv3d(x, constant(8, 4, 3, 3, 3), padding=1))
        x = OP.nn.max_pool3d(x, (2, 2, 2), strides=(2, 2, 2))
        return OP.nn.conv3d_transpose(x, constant(8, 4, 2, 2, 2), strides=2)

    mod = module(body, shape=(1, 4, 4, 6, 8))
    after = ChannelsLast()(mod)
    moved = [call for call in calls(after["main"]) if operator_name(call) == "relax.permute_dims"]
    assert len(moved) == 2
    x = RNG.standard_normal((1, 4, 4, 6, 8)).astype("float32")
    library = tvm_rammer.build(mod, num_veus=2, policy="wavefront")
    assert_close(library.create()(x)[0].numpy(), run(relax.build(mod, "llvm"), [x])[0])
