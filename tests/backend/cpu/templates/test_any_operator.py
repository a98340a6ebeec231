"""A model of one operator of every kind, built and run as users do."""

from __future__ import annotations

import numpy as np
import pytest
from close import assert_close
from kernel_runs import constant, numbers
from tvm import relax

import tvm_rammer

OP = relax.op
X, B = numbers((6, 16)), numbers((6, 16), "bool")
INDICES = np.array([[5, 0, 9], [1, 1, 2]] * 3, "int64")
W, BIAS = numbers((16, 32), seed=1), numbers((32,), seed=2)
IMAGE, KERNEL = numbers((1, 3, 8, 8)), numbers((16, 3, 3, 3), seed=1)
WINDOWS = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3), axis=(2, 3))
ROWS, UPDATES = np.array([[4], [0]]), numbers((2, 16), seed=4)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def standardise(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def scatter(x, i):
    out = x.copy()
    np.put_along_axis(out, i, 0, 1)
    return out


#: Relax on (x, i, b, image), numpy on the same.
OPERATORS = {
    "dense": (
        lambda x, i, b, image: OP.nn.relu(OP.add(OP.matmul(x, constant(W)), constant(BIAS))),
        lambda x, i, b, image: np.maximum(x @ W + BIAS, 0),
    ),
    "square": (
        lambda x, i, b, image: OP.matmul(x, OP.permute_dims(x)),
        lambda x, i, b, image: x @ x.T,
    ),
    "convolution": (
        lambda x, i, b, image: OP.nn.conv2d(image, constant(KERNEL)),
        lambda x, i, b, image: np.einsum("nchwyx,ocyx->nohw", WINDOWS, KERNEL),
    ),
    "pool": (
        lambda x, i, b, image: OP.nn.max_pool2d(image, 3),
        lambda x, i, b, image: WINDOWS.max((-1, -2)),
    ),
    "softmax": (lambda x, i, b, image: OP.nn.softmax(x), lambda x, i, b, image: softmax(x)),
    "norm": (
        lambda x, i, b, image: OP.nn.layer_norm(
            x, constant(np.ones(16, "float32")), constant(np.zeros(16, "float32")), -1
        ),
        lambda x, i, b, image: standardise(x),
    ),
    "where": (
        lambda x, i, b, image: OP.where(b, x, relax.const(0.0)),
        lambda x, i, b, image: np.where(b, x, 0),
    ),
    "not": (lambda x, i, b, image: OP.logical_not(b), lambda x, i, b, image: ~b),
    "gather": (
        lambda x, i, b, image: OP.gather_elements(x, i, 1),
        lambda x, i, b, image: np.take_along_axis(x, i, 1),
    ),
    "scatter": (
        lambda x, i, b, image: OP.scatter_elements(x, i, constant(np.zeros((6, 3), "float32")), 1),
        lambda x, i, b, image: scatter(x, i),
    ),
    "scatter_nd": (
        lambda x, i, b, image: OP.scatter_nd(x, constant(ROWS), constant(UPDATES)),
        lambda x, i, b, image: np.concatenate([UPDATES[1:], x[1:4], UPDATES[:1], x[5:]]),
    ),
    "hyperbolic": (
        lambda x, i, b, image: OP.subtract(OP.cosh(x), OP.sinh(x)),
        lambda x, i, b, image: np.exp(-x),
    ),
    "argmax": (
        lambda x, i, b, image: OP.argmax(x, 1),
        lambda x, i, b, image: x.argmax(1),
    ),
    "integers": (
        lambda x, i, b, image: OP.floor_divide(OP.multiply(i, i), relax.const(4, "int64")),
        lambda x, i, b, image: i * i // 4,
    ),
    "join": (
        lambda x, i, b, image: OP.concat([x, OP.permute_dims(OP.permute_dims(x)), x], 1),
        lambda x, i, b, image: np.concatenate([x, x, x], 1),
    ),
    "parts": (
        lambda x, i, b, image: OP.tanh(OP.split(x, 2, 1)[1]),
        lambda x, i, b, image: np.tanh(x[:, 8:]),
    ),
    "scalar": (lambda x, i, b, image: OP.mean(x), lambda x, i, b, image: x.mean()),
    "half": (
        lambda x, i, b, image: OP.astype(OP.exp(OP.astype(x, "float16")), "float32"),
        lambda x, i, b, image: np.exp(x.astype("float16")).astype("float32"),
    ),
    "double": (
        lambda x, i, b, image: OP.sqrt(OP.abs(OP.astype(x, "float64"))),
        lambda x, i, b, image: np.sqrt(np.abs(x.astype("float64"))),
    ),
    "nothing": (
        lambda x, i, b, image: OP.strided_slice(x, [0], [3], [3]),
        lambda x, i, b, image: x[3:3],
    ),
}

INPUTS = [X, INDICES, B, IMAGE]


def everything():
    params = [
        relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
        for name, array in zip(("x", "i", "b", "image"), INPUTS, strict=True)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            outputs = [
                builder.emit_output(builder.normalize(build(*params)))
                for build, _ in OPERATORS.values()
            ]
        builder.emit_func_output(outputs)
    return builder.get()


@pytest.fixture(scope="module")
def library():
    return tvm_rammer.build(everything())


def check(instance):
    results = instance(*INPUTS)
    for name, got in zip(OPERATORS, results, strict=True):
        _, reference = OPERATORS[name]
        assert_close(got.numpy(), reference(*INPUTS), 2e-3 if name == "half" else 1e-5), name


@pytest.mark.parametrize("policy", ["sequential", "wavefront"])
@pytest.mark.parametrize("num_veus", [1, 2, 4])
@pytest.mark.filterwarnings("ignore::tvm_rammer.machine.vdevice.OversubscriptionWarning")
def test_planned(library, policy, num_veus):
    planned = library.replan(policy, num_veus, oversubscribe=True)
    assert planned.programs
    check(planned.create())


def test_a_launch_for_each_wave(library):
    check(library.replan(form="wavefront").create())


def test_one_by_one():
    """The same kernels as ordinary call_tirs."""
    check(tvm_rammer.build(everything(), form="per-op").create())


def test_what_is_left_out_runs_too():
    """Sorting long rows calls a library: it stays between planned operators, with a reason."""
    long = numbers((6, 600))
    x = relax.Var("x", relax.TensorType(long.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            results = [OP.tanh(OP.sort(OP.exp(x), 1)), OP.negative(x), OP.nn.relu(x)]
            outputs = [builder.emit_output(builder.normalize(result)) for result in results]
        builder.emit_func_output(outputs)
    built = tvm_rammer.build(builder.get())
    assert any("relax.sort" in item.reason for item in built.report.left_out)
    wanted = [np.tanh(np.sort(np.exp(long), 1)), -long, np.maximum(long, 0)]
    for got, want in zip(built.create()(long), wanted, strict=True):
        assert_close(got.numpy(), want)
