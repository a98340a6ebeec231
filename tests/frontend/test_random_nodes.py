"""Operators of ONNX that draw: by a generator that counts, others in each run, step and place."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx_values import model_of, tensor

import tvm_rammer
from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.random_numbers import STATE, key_of

N = helper.make_node
INT, BOOL, DOUBLE = TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE


def unit(key, count, draw=0, which=0):
    """The generator in numpy's words: numbers from 0 to 1 (Widynski, 2020)."""
    with np.errstate(over="ignore"):
        places = np.arange(count, dtype="uint64") * np.uint64(2) + np.uint64(which)
        first = (np.uint64(draw << 32) + places) * np.uint64(key)
        second, found = first + np.uint64(key), first
        for added in (first, second, first):
            found = found * found + added
            found = (found >> np.uint64(32)) | (found << np.uint64(32))
        bits = (found * found + second) >> np.uint64(32)
    return (bits >> np.uint64(8)).astype("float32") * np.float32(2**-24)


def gauss(key, count, draw=0):
    first, second = (unit(key, count, draw, which).astype("float64") for which in (0, 1))
    return np.sqrt(-2 * np.log(1 - first)) * np.cos(2 * np.pi * second)


def made(nodes, inputs, outputs, **weights):
    module = tvm_rammer.build(
        model_of(nodes, inputs, outputs, **weights), "llvm", policy="sequential"
    ).create()

    def run(**feeds):
        for name, array in feeds.items():
            module.set_input(name, array)
        module.run()
        return [module.get_output(k).numpy() for k in range(len(outputs))]

    return module, run


def test_a_key_has_different_digits_in_each_half():
    keys = [f"{key_of(f'operator {number}'):016x}" for number in range(200)]
    assert len(set(keys)) == 200
    for key in keys:
        assert len(set(key[:8])) == 8 and len(set(key[8:15])) == 7
        assert int(key, 16) % 2 and "0" not in key


def test_numbers_are_those_of_the_generator():
    like = [tensor("x", [3, 40])]
    nodes = [
        N("RandomUniformLike", ["x"], ["a"], low=-2.0, high=4.0),
        N("RandomNormalLike", ["x"], ["b"], mean=3.0, scale=0.5),
        N("RandomNormal", [], ["c"], shape=[50], dtype=DOUBLE, seed=7.0),
    ]
    outputs = [tensor("a", [3, 40]), tensor("b", [3, 40]), tensor("c", [50], DOUBLE)]
    module, run = made(nodes, like, outputs)
    for draw in (0, 1, 2):
        a, b, c = run(x=np.zeros((3, 40), "float32"))
        flat = unit(key_of("operator 0"), 120, draw).reshape(3, 40)
        np.testing.assert_allclose(a, flat * 6 - 2, rtol=1e-6, atol=1e-6)
        flat = gauss(key_of("operator 1"), 120, draw).reshape(3, 40)
        np.testing.assert_allclose(b, flat * 0.5 + 3, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(c, gauss(key_of("seed 7.0"), 50, draw), rtol=1e-4, atol=1e-5)
        assert c.dtype == "float64"
    assert int(module.state[STATE].numpy()) == 3


def test_the_state_says_what_is_drawn():
    module, run = made([N("RandomUniform", [], ["y"], shape=[1000])], [], [tensor("y", [1000])])
    first, second = run()[0], run()[0]
    assert not np.any(first == second)
    module.reset_state()
    np.testing.assert_array_equal(run()[0], first)
    module.state[STATE].copyfrom(np.array(1))
    np.testing.assert_array_equal(run()[0], second)


def test_operators_draw_apart_unless_they_have_one_seed():
    seeds = {"a": {}, "b": {}, "c": {"seed": 1.0}, "d": {"seed": 1.0}, "e": {"seed": 2.0}}
    nodes = [N("RandomNormal", [], [name], shape=[64], **seed) for name, seed in seeds.items()]
    _, run = made(nodes, [], [tensor(name, [64]) for name in seeds])
    a, b, c, d, e = run()
    np.testing.assert_array_equal(c, d)
    for one, other in ((a, b), (a, c), (b, c), (c, e)):
        assert not np.any(one == other)


def test_moments():
    _, run = made(
        [
            N("RandomNormal", [], ["a"], shape=[200_000]),
            N("RandomUniform", [], ["b"], shape=[200_000]),
        ],
        [],
        [tensor("a", [200_000]), tensor("b", [200_000])],
    )
    normal, uniform = run()
    powers = [float(np.mean(normal.astype("float64") ** power)) for power in (1, 2, 3, 4)]
    np.testing.assert_allclose(powers, [0, 1, 0, 3], atol=0.05)
    counts, _ = np.histogram(uniform, 20, (0, 1))
    np.testing.assert_allclose(counts, 10_000, rtol=0.04)
    assert uniform.min() >= 0 and uniform.max() < 1
    for numbers in (normal, uniform):
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.01


def test_chances_and_classes():
    nodes = [
        N("Bernoulli", ["chance"], ["a"]),
        N("Bernoulli", ["chance"], ["b"], dtype=INT),
        N("Multinomial", ["logits"], ["c"], sample_size=20_000),
        N("Multinomial", ["logits"], ["d"], dtype=INT),
    ]
    inputs = [tensor("chance", [3, 20_000]), tensor("logits", [2, 3])]
    outputs = [
        *(tensor("a", [3, 20_000]), tensor("b", [3, 20_000], INT)),
        *(tensor("c", [2, 20_000], TensorProto.INT32), tensor("d", [2, 1], INT)),
    ]
    _, run = made(nodes, inputs, outputs)
    chance = np.repeat(np.array([[0], [0.3], [1]], "float32"), 20_000, 1)
    classes = np.array([[0.2, 0.3, 0.5], [0, 1, 0]])
    with np.errstate(divide="ignore"):
        a, b, c, d = run(chance=chance, logits=np.log(classes).astype("float32"))
    assert (a.dtype, b.dtype, c.dtype, d.dtype) == ("float32", "int64", "int32", "int64")
    for drawn in (a, b):
        np.testing.assert_allclose(drawn.mean(1), [0, 0.3, 1], atol=0.02)
    shares = [np.bincount(row, minlength=3) / len(row) for row in c]
    np.testing.assert_allclose(shares, classes, atol=0.02)
    assert d[1, 0] == 1


def test_an_older_model_draws_classes():
    model = model_of(
        [N("Multinomial", ["logits"], ["y"], sample_size=50)],
        [tensor("logits", [1, 2])],
        [tensor("y", [1, 50], TensorProto.INT32)],
    )
    model.opset_import[0].version = 11
    module = tvm_rammer.build(model, "llvm", policy="sequential").create()
    (got,) = module(np.array([[-1e9, 0]], "float32"))
    assert got.numpy().tolist() == [[1] * 50]


def loop(limit):
    """Steps draw four numbers each."""
    body = helper.make_graph(
        [N("Identity", ["going"], ["more"]), N("RandomUniform", [], ["drawn"], shape=[4])],
        "body",
        [tensor("step", [], INT), tensor("going", [], BOOL)],
        [tensor("more", [], BOOL), tensor("drawn", [4])],
    )
    return N("Loop", [limit, ""], ["y"], body=body)


@pytest.mark.parametrize("known", [True, False], ids=["unrolled", "at run time"])
def test_steps_of_a_loop_draw_apart(known):
    limit = {"limit": np.array(5)} if known else {}
    inputs = [] if known else [tensor("limit", [], INT)]
    _, run = made([loop("limit")], inputs, [tensor("y", None)], **limit)
    feeds = {} if known else {"limit": np.array(5)}
    drawn = [run(**feeds)[0] for _ in range(3)]
    assert all(each.shape == (5, 4) for each in drawn)
    assert len(np.unique(np.concatenate(drawn))) == 60


def test_branches_draw():
    branches = {
        f"{name}_branch": helper.make_graph(
            [N("RandomUniform", [], [name], shape=[8], low=low, high=low + 1.0)],
            name,
            [],
            [tensor(name, [8])],
        )
        for name, low in (("then", 0.0), ("else", 10.0))
    }
    _, run = made(
        [N("If", ["which"], ["y"], **branches)], [tensor("which", [], BOOL)], [tensor("y", [8])]
    )
    for which in (True, False):
        (got,) = run(which=np.array(which))
        assert np.all((got < 1) == which)


def test_steps_of_a_scan_are_refused():
    body = helper.make_graph(
        [N("RandomNormalLike", ["part"], ["drawn"])],
        "body",
        [tensor("part", [4])],
        [tensor("drawn", [4])],
    )
    scan = N("Scan", ["x"], ["y"], "steps", body=body, num_scan_inputs=1)
    model = model_of([scan], [tensor("x", [3, 4])], [tensor("y", [3, 4])])
    with pytest.raises(ModelError) as caught:
        tvm_rammer.build(model, "llvm")
    assert str(caught.value) == (
        "the model: Scan (node 'steps') draws random numbers, and does not tell its steps apart; "
        "make them an input of the model"
    )


def test_a_network_computes_with_what_is_drawn():
    """As ONNX Runtime does that is given the numbers."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((16, 16)).astype("float32") / 4
    x = rng.standard_normal((8, 16)).astype("float32")
    rest = [
        N("MatMul", ["x", "w"], ["a"]),
        N("Add", ["a", "noise"], ["b"]),
        N("Relu", ["b"], ["y"]),
    ]
    drawn = [N("RandomNormalLike", ["x"], ["noise"])]
    _, run = made([*drawn, *rest], [tensor("x", [8, 16])], [tensor("y", [8, 16])], w=weight)
    given = model_of(
        rest, [tensor("x", [8, 16]), tensor("noise", [8, 16])], [tensor("y", [8, 16])], w=weight
    )
    session = onnxruntime.InferenceSession(given.SerializeToString())
    for draw in (0, 1):
        noise = gauss(key_of("operator 0"), 128, draw).reshape(8, 16).astype("float32")
        (wanted,) = session.run(None, {"x": x, "noise": noise})
        np.testing.assert_allclose(run(x=x)[0], wanted, rtol=1e-4, atol=1e-4)


def test_it_keeps_its_state_beside_those_that_a_user_names():
    nodes = [
        N("RandomUniform", [], ["drawn"], shape=[4]),
        N("Add", ["sum", "drawn"], ["after"]),
        N("Neg", ["after"], ["y"]),
    ]
    model = model_of(nodes, [tensor("sum", [4])], [tensor("y", [4]), tensor("after", [4])])
    library = tvm_rammer.build(model, "llvm", policy="sequential", states={"sum": "after"})
    module = library.create()
    keys = key_of("operator 0")
    total = np.zeros(4, "float32")
    for draw in range(3):
        module.run()
        total += unit(keys, 4, draw)
        np.testing.assert_allclose(module.get_output(0).numpy(), -total, rtol=1e-6)
    assert [*module.state] == ["sum", STATE]
