"""ONNX's Fourier transforms along axes of any size, against NumPy's."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_rammer

RNG = np.random.default_rng(3)


def model(kind, parts, *constants, **attributes):
    """One operator, whose other inputs are constants; None leaves one out."""
    names = ["" if each is None else f"c{k}" for k, each in enumerate(constants)]
    weights = [
        numpy_helper.from_array(each, name)
        for each, name in zip(constants, names, strict=True)
        if each is not None
    ]
    node = helper.make_node(kind, ["x", *names], ["y"], **attributes)
    shape = ["b", "t", parts]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "transform", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def agrees(made, parts, wanted, lengths):
    instance = tvm_rammer.build(made, shapes={"x": ("b", "t", parts)}).create()
    for b, t in lengths:
        x = RNG.standard_normal((b, t, parts)).astype("float32")
        numbers = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
        want = wanted(numbers)
        (found,) = instance(x)
        assert found.shape == (*want.shape, 2)
        found = found.numpy()
        np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], want, atol=2e-6 * t)


LENGTHS = (1, 80), (3, 33), (2, 1)
AXIS = np.array(1)
CASES = {
    "forth": (2, {}, lambda x: np.fft.fft(x, axis=1)),
    "back": (2, {"inverse": 1}, lambda x: np.fft.ifft(x, axis=1)),
    "of real numbers": (1, {}, lambda x: np.fft.fft(x, axis=1)),
    "one side": (1, {"onesided": 1}, lambda x: np.fft.rfft(x, axis=1)),
}


@pytest.mark.parametrize("name", CASES)
def test_axes_of_any_size(name):
    parts, attributes, wanted = CASES[name]
    agrees(model("DFT", parts, None, AXIS, **attributes), parts, wanted, LENGTHS)


def test_a_length_of_its_own():
    """What is longer is cut, what is shorter is filled up with zeros."""
    made = model("DFT", 1, np.array(64), AXIS)
    agrees(made, 1, lambda x: np.fft.fft(x, 64, axis=1), [(1, 80), (2, 33), (1, 64)])


def test_windows_of_any_signal():
    window = np.hanning(64).astype("float32")
    made = model("STFT", 1, np.array(16), window, np.array(64), onesided=1)

    def wanted(x):
        windows = np.lib.stride_tricks.sliding_window_view(x, 64, axis=1)[:, ::16]
        return np.fft.rfft(windows * window)

    agrees(made, 1, wanted, [(1, 800), (3, 333), (2, 64)])
