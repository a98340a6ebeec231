"""What ONNX models compute of sizes that each run decides."""

import numpy as np
import pytest
from onnx import parser

import tvm_rammer
from tvm_rammer.errors import InputError
from tvm_rammer.frontend import load_model
from tvm_rammer.runtime.onnx_reference import run_onnxruntime

RNG = np.random.default_rng(0)
HEAD = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\n'

#: Bodies of graphs on ``x``, of which the sizes b and t are open, with the result ``y``.
BODIES = {
    "split axes": """
        shape = Shape(x)
        first = Constant<value: tensor = int64[2] {0, 0}>()
        rest = Constant<value: tensor = int64[2] {3, 4}>()
        sizes = Concat<axis = 0>(first, rest)
        y = Reshape(x, sizes)""",
    "rows": """
        sizes = Constant<value: tensor = int64[2] {-1, 12}>()
        y = Reshape(x, sizes)""",
    "the last axis follows": """
        shape = Shape(x)
        zero = Constant<value: tensor = int64[1] {0}>()
        b = Gather(shape, zero)
        minus = Constant<value: tensor = int64[1] {-1}>()
        sizes = Concat<axis = 0>(b, minus)
        y = Reshape(x, sizes)""",
    "batches of heads": """
        shape = Shape(x)
        i0 = Constant<value: tensor = int64 {0}>()
        i1 = Constant<value: tensor = int64 {1}>()
        b = Gather(shape, i0)
        t = Gather(shape, i1)
        three = Constant<value: tensor = int64 {3}>()
        bh = Mul(b, three)
        four = Constant<value: tensor = int64[1] {4}>()
        axis = Constant<value: tensor = int64[1] {0}>()
        u0 = Unsqueeze(bh, axis)
        u1 = Unsqueeze(t, axis)
        sizes = Concat<axis = 0>(u0, u1, four)
        y = Reshape(x, sizes)""",
    "as many positions": """
        shape = Shape<start = 1, end = 2>(x)
        table = Constant<value: tensor = float[1,8,1] {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}>()
        zero = Constant<value: tensor = int64[1] {0}>()
        one = Constant<value: tensor = int64[1] {1}>()
        part = Slice(table, zero, shape, one)
        y = Add(x, part)""",
    "the last ones": """
        start = Constant<value: tensor = int64[1] {-3}>()
        end = Constant<value: tensor = int64[1] {9223372036854775807}>()
        axis = Constant<value: tensor = int64[1] {1}>()
        y = Slice(x, start, end, axis)""",
    "all but the last": """
        start = Constant<value: tensor = int64[1] {0}>()
        end = Constant<value: tensor = int64[1] {-1}>()
        axis = Constant<value: tensor = int64[1] {1}>()
        step = Constant<value: tensor = int64[1] {2}>()
        y = Slice(x, start, end, axis, step)""",
    "halves": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64[1] {1}>()
        t = Gather(shape, i1)
        two = Constant<value: tensor = int64[1] {2}>()
        half = Div(t, two)
        y = Slice(x, half, t, i1)""",
    "numbers": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64 {1}>()
        t = Gather(shape, i1)
        zero = Constant<value: tensor = int64 {0}>()
        two = Constant<value: tensor = int64 {2}>()
        end = Add(t, two)
        y = Range(zero, end, two)""",
    "a causal mask": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64 {1}>()
        t = Gather(shape, i1)
        zero = Constant<value: tensor = int64 {0}>()
        one = Constant<value: tensor = int64 {1}>()
        numbers = Range(zero, t, one)
        axis0 = Constant<value: tensor = int64[1] {0}>()
        axis1 = Constant<value: tensor = int64[1] {1}>()
        row = Unsqueeze(numbers, axis0)
        column = Unsqueeze(numbers, axis1)
        seen = LessOrEqual(row, column)
        y = Cast<to = 1>(seen)""",
    "copies": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64[1] {1}>()
        t = Gather(shape, i1)
        one = Constant<value: tensor = int64[1] {1}>()
        times = Concat<axis = 0>(one, t, one)
        y = Tile(x, times)""",
    "as large as another": """
        shape = Shape(x)
        value = Constant<value: tensor = float[1] {2.5}>()
        y = Expand(value, shape)""",
    "chosen sizes": """
        shape = Shape(x)
        minus = Constant<value: tensor = int64[3] {-1, -1, 12}>()
        same = Equal(shape, minus)
        ones = Constant<value: tensor = int64[3] {1, 1, 1}>()
        sizes = Where(same, ones, shape)
        zeros = ConstantOfShape(sizes)
        y = Add(x, zeros)""",
    "wide integers": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64[1] {1}>()
        t = Gather(shape, i1)
        narrow = Cast<to = 6>(t)
        twice = Add(narrow, narrow)
        wide = Cast<to = 7>(twice)
        two = Constant<value: tensor = int64[1] {2}>()
        n = Div(wide, two)
        b = Shape<start = 0, end = 1>(x)
        rest = Constant<value: tensor = int64[1] {12}>()
        sizes = Concat<axis = 0>(b, n, rest)
        y = Reshape(x, sizes)""",
    "sizes as a result": """
        shape = Shape(x)
        start = Constant<value: tensor = int64[1] {1}>()
        end = Constant<value: tensor = int64[1] {3}>()
        y = Slice(shape, start, end)""",
    "the product of all": """
        shape = Shape(x)
        y = ReduceProd<keepdims = 0, axes = [0]>(shape)""",
    "padding of what is left": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64 {1}>()
        t = Gather(shape, i1)
        four = Constant<value: tensor = int64 {4}>()
        y = Mod(t, four)""",
    "padded by what a known size says": """
        shape = Shape(x)
        i2 = Constant<value: tensor = int64[1] {2}>()
        width = Gather(shape, i2)
        wide = Cast<to = 1>(width)
        five = Constant<value: tensor = float[1] {5.0}>()
        parts = Div(wide, five)
        whole = Ceil(parts)
        up = Mul(whole, five)
        more = Sub(up, wide)
        behind = Cast<to = 7>(more)
        none = Constant<value: tensor = int64[5] {0, 0, 0, 0, 0}>()
        pads = Concat<axis = 0>(none, behind)
        y = Pad(x, pads)""",
    "padded behind a batch of parts": """
        shape = Shape(x)
        first = Constant<value: tensor = int64[1] {0}>()
        second = Constant<value: tensor = int64[1] {1}>()
        last = Constant<value: tensor = int64[1] {2}>()
        b = Gather(shape, first)
        t = Gather(shape, second)
        width = Gather(shape, last)
        two = Constant<value: tensor = int64[1] {2}>()
        rows = Mul(b, two)
        half = Div(width, two)
        sizes = Concat<axis = 0>(rows, t, half)
        parts = Reshape(x, sizes)
        own = Shape<start = 2>(parts)
        seven = Constant<value: tensor = int64[1] {7}>()
        more = Mod(own, seven)
        none = Constant<value: tensor = int64[5] {0, 0, 0, 0, 0}>()
        pads = Concat<axis = 0>(none, more)
        y = Pad(parts, pads)""",
    "padded to a multiple": """
        shape = Shape(x)
        second = Constant<value: tensor = int64[1] {1}>()
        t = Gather(shape, second)
        four = Constant<value: tensor = int64[1] {4}>()
        three = Constant<value: tensor = int64[1] {3}>()
        more = Add(t, three)
        times = Div(more, four)
        whole = Mul(times, four)
        behind = Sub(whole, t)
        before = Constant<value: tensor = int64[3] {0, 1, 0}>()
        none = Constant<value: tensor = int64[1] {0}>()
        pads = Concat<axis = 0>(before, none, behind, none)
        value = Constant<value: tensor = float {-1.5}>()
        y = Pad(x, pads, value)""",
    "padded for as many windows as strides": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64 {1}>()
        t = Gather(shape, i1)
        size = Cast<to = 1>(t)
        three = Constant<value: tensor = float {3.0}>()
        parts = Div(size, three)
        count = Ceil(parts)
        one = Constant<value: tensor = float {1.0}>()
        others = Sub(count, one)
        span = Mul(others, three)
        four = Constant<value: tensor = float {4.0}>()
        reach = Add(span, four)
        total = Sub(reach, size)
        zero = Constant<value: tensor = float {0.0}>()
        more = Clip(total, zero)
        two = Constant<value: tensor = float {2.0}>()
        half = Div(more, two)
        below = Floor(half)
        above = Sub(more, below)
        axis = Constant<value: tensor = int64[1] {0}>()
        first = Unsqueeze(below, axis)
        last = Unsqueeze(above, axis)
        none = Constant<value: tensor = float[1] {0.0}>()
        both = Concat<axis = 0>(none, first, none, none, last, none)
        rows = Constant<value: tensor = int64[2] {2, 3}>()
        table = Reshape(both, rows)
        turned = Transpose<perm = [1, 0]>(table)
        back = Transpose(turned)
        flat = Constant<value: tensor = int64[1] {-1}>()
        line = Reshape(back, flat)
        pads = Cast<to = 7>(line)
        y = Pad(x, pads)""",
    "as much again and half": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64[1] {1}>()
        t = Gather(shape, i1)
        size = Cast<to = 1>(t)
        factor = Constant<value: tensor = float[1] {1.5}>()
        grown = Mul(size, factor)
        whole = Floor(grown)
        number = Cast<to = 7>(whole)
        one = Constant<value: tensor = int64[1] {1}>()
        twelve = Constant<value: tensor = int64[1] {12}>()
        sizes = Concat<axis = 0>(number, one, twelve)
        value = Constant<value: tensor = float {2.5}>()
        y = Expand(value, sizes)""",
    "cut below 0": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64 {1}>()
        t = Gather(shape, i1)
        size = Cast<to = 1>(t)
        half = Constant<value: tensor = float {-0.5}>()
        negative = Mul(size, half)
        y = Cast<to = 7>(negative)""",
    "limits": """
        least = Constant<value: tensor = float {-0.5}>()
        most = Constant<value: tensor = float {0.25}>()
        both = Clip(x, least, most)
        one = Clip(both, , most)
        y = Clip(one, least)""",
    "windows that reach beyond the end": """
        axis = Constant<value: tensor = int64[1] {1}>()
        image = Unsqueeze(x, axis)
        most = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1,
                       pads = [1, 1, 1, 1]>(image)
        half = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1>(most)
        y = AveragePool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1,
                        pads = [1, 1, 1, 1]>(half)""",
    "padding that follows from sizes": """
        axis = Constant<value: tensor = int64[1] {1}>()
        image = Unsqueeze(x, axis)
        w = Constant<value: tensor = float[1, 1, 3, 2] {1, -2, 3, 0.5, 2, -1}>()
        bias = Constant<value: tensor = float[1] {0.25}>()
        upper = Conv<auto_pad = "SAME_UPPER", strides = [2, 3]>(image, w, bias)
        lower = Conv<auto_pad = "SAME_LOWER", strides = [1, 2]>(upper, w)
        most = MaxPool<auto_pad = "SAME_UPPER", kernel_shape = [3, 3], strides = [2, 2]>(lower)
        y = MaxPool<auto_pad = "SAME_LOWER", kernel_shape = [2, 3], strides = [2, 1]>(most)""",
    "a table cut to the batch": """
        shape = Shape(x)
        zero = Constant<value: tensor = int64[1] {0}>()
        b = Gather(shape, zero)
        table = Constant<value: tensor = int64[6] {7, 8, 9, 10, 11, 12}>()
        y = Slice(table, zero, b)""",
    "whether it is two": """
        shape = Shape(x)
        zero = Constant<value: tensor = int64[1] {0}>()
        b = Gather(shape, zero)
        two = Constant<value: tensor = int64[1] {2}>()
        more = Sub(b, two)
        is_other = Cast<to = 9>(more)
        y = Cast<to = 7>(is_other)""",
    "a small part": """
        shape = Shape(x)
        zero = Constant<value: tensor = int64[1] {0}>()
        b = Gather(shape, zero)
        size = Cast<to = 1>(b)
        small = Constant<value: tensor = float[1] {0.25}>()
        part = Mul(size, small)
        y = Cast<to = 7>(part)""",
    "no sizes at all": """
        shape = Shape(x)
        three = Constant<value: tensor = int64[1] {3}>()
        rest = Slice(shape, three, three)
        sizes = Concat<axis = 0>(shape, rest)
        y = Reshape(x, sizes)""",
    "no difference": """
        shape = Shape(x)
        zero = Constant<value: tensor = int64[1] {0}>()
        b = Gather(shape, zero)
        none = Sub(b, b)
        many = Concat<axis = 0>(none, none, none, none, none, none)
        y = Pad(x, many)""",
    "least and most": """
        shape = Shape(x)
        i1 = Constant<value: tensor = int64 {1}>()
        t = Gather(shape, i1)
        four = Constant<value: tensor = int64 {4}>()
        least = Min(t, four)
        y = Max(least, i1)""",
}


def model(body):
    vectors = "numbers", "sizes as a result", "a table cut to the batch"
    vectors = *vectors, "whether it is two", "a small part"
    results = "int64[n] y" if body in vectors else "float[n] y"
    numbers = "the product of all", "padding of what is left", "least and most", "cut below 0"
    if body in numbers:
        results = "int64 y"
    text = f"{HEAD} g (float[b, t, 12] x) => ({results}) {{ {BODIES[body]} }}"
    made = parser.parse_model(text)
    del made.graph.output[0].type.tensor_type.shape.dim[:]
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


@pytest.mark.parametrize("body", BODIES)
def test_it_is_what_onnxruntime_computes(body):
    built = tvm_rammer.build(model(body), shapes={"x": ("b", "t", 12)}).create()
    for b, t in ((1, 1), (2, 4), (1, 7), (3, 8), (5, 2)):
        x = RNG.standard_normal((b, t, 12)).astype("float32")
        (want,) = run_onnxruntime(model(body), {"x": x})
        (found,) = built(x)
        assert found.shape == want.shape and str(found.dtype) == str(want.dtype)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)


def test_sizes_become_no_operators():
    loaded = load_model(model("batches of heads"), {"x": ("b", "t", 12)})
    (block,) = loaded.module["main"].body.blocks
    assert len(block.bindings) <= 2


def test_a_cut_that_reaches_too_far_ends_the_run():
    """The table has eight positions."""
    built = tvm_rammer.build(model("as many positions"), shapes={"x": (1, "t", 12)}).create()
    built(np.zeros((1, 8, 12), "float32"))
    with pytest.raises((InputError, RuntimeError)):
        built(np.zeros((1, 9, 12), "float32"))


def test_what_cannot_be_reshaped_ends_the_run():
    text = f"""{HEAD} g (float[n, 3] x) => (float[m, 2] y) {{
        sizes = Constant<value: tensor = int64[2] {{-1, 2}}>()
        y = Reshape(x, sizes) }}"""
    built = tvm_rammer.build(parser.parse_model(text), shapes={"x": ("n", 3)}).create()
    assert built(np.zeros((4, 3), "float32"))[0].shape == (6, 2)
    with pytest.raises(InputError):
        built(np.zeros((3, 3), "float32"))


def test_names_of_the_model_are_not_those_of_the_user():
    """The user's b is the model's t."""
    made = model("split axes")
    built = tvm_rammer.build(made, shapes={"x": (2, "b", 12)}).create()
    x = RNG.standard_normal((2, 5, 12)).astype("float32")
    np.testing.assert_array_equal(built(x)[0].numpy(), x.reshape(2, 5, 3, 4))
