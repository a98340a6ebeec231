"""Programs of PyTorch whose inputs have formulas for sizes, and sizes that only equal others."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm_rammer  # noqa: E402
from tvm_rammer.errors import InputError, ModelError  # noqa: E402

ANY = torch.export.Dim.AUTO
NN = torch.nn
#: What the message says of a run that the program is not for.
REFUSED = "does not take these inputs"


class Halved(NN.Module):
    """Two ways to half of the height and width."""

    def __init__(self):
        super().__init__()
        self.layer = NN.Conv2d(3, 8, 2, 2)

    def forward(self, x):
        return NN.functional.pixel_unshuffle(x, 2).relu(), self.layer(x)


class Beside(NN.Module):
    """A tensor has one row more than the other."""

    def forward(self, x, y):
        return (x[1:] + y).reshape(-1, 3), torch.cat([x, y])


class Around(NN.Module):
    """Down and up again, as U-Nets: sizes are equal where the height and width are even."""

    def __init__(self):
        super().__init__()
        self.down, self.up = NN.Conv2d(3, 8, 3, 2, 1), NN.ConvTranspose2d(8, 4, 2, 2)
        self.side = NN.Conv2d(3, 4, 1)

    def forward(self, x):
        below, side = self.up(torch.relu(self.down(x))), self.side(x)
        return below + side, torch.cat([below, side], 1), torch.where(side > 0, below, side)


class Turned(NN.Module):
    """Windows of four, and a roll by a number and by half of what there is."""

    def forward(self, x):
        windows = x.reshape(x.shape[0], x.shape[1] // 4, 4, -1)
        rolled = torch.roll(windows.softmax(2).reshape(x.shape), (2, -3), (1, 2))
        return rolled + x, torch.roll(x, x.shape[1] // 2, 1)


def built(module, examples, dims, shapes):
    program = torch.export.export(module.eval(), examples, dynamic_shapes=dims)
    return tvm_rammer.build(program, shapes=shapes).create()


def assert_agrees(module, instance, *arguments):
    with torch.no_grad():
        wanted = module(*arguments)
    found = instance(*(each.numpy() for each in arguments))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)


def test_a_multiple_of_a_size():
    module, half = Halved(), torch.export.Dim("_half", min=8, max=64)
    examples, dims = (torch.randn(1, 3, 32, 34),), ({2: 2 * half},)
    instance = built(module, examples, dims, {"x": (1, 3, "h", 34)})
    for height in (16, 48, 128):
        assert_agrees(module, instance, torch.randn(1, 3, height, 34))
    for height in (47, 14, 130):
        with pytest.raises(InputError, match=REFUSED):
            instance(np.zeros((1, 3, height, 34), "float32"))


def test_multiples_of_two_inputs():
    """One input says what the symbol is, and the other is checked to be what follows."""

    class Joined(NN.Module):
        def forward(self, x, y):
            return x.reshape(-1, 2, 3).sum(1), y.reshape(-1, 3, 3).mean(1) * x[::2]

    module, third = Joined(), torch.export.Dim("_third", min=2, max=64)
    examples, dims = (torch.randn(8, 3), torch.randn(12, 3)), ({0: 2 * third}, {0: 3 * third})
    instance = built(module, examples, dims, {"x": ("n", 3), "y": ("m", 3)})
    for count in (2, 4, 33):
        assert_agrees(module, instance, torch.randn(2 * count, 3), torch.randn(3 * count, 3))
    with pytest.raises(InputError, match="whose dimension 0 is 15, and the model says 12"):
        instance(np.zeros((8, 3), "float32"), np.zeros((15, 3), "float32"))


def test_a_size_and_the_next():
    module, examples = Beside(), (torch.randn(8, 6), torch.randn(7, 6))
    instance = built(module, examples, ({0: ANY}, {0: ANY}), {"x": ("n", 6), "y": ("m", 6)})
    for count in (11, 2):
        assert_agrees(module, instance, torch.randn(count + 1, 6), torch.randn(count, 6))
    with pytest.raises(InputError):
        instance(np.zeros((12, 6), "float32"), np.zeros((12, 6), "float32"))


def test_a_size_that_tells_no_symbol():
    class Multiplied(NN.Module):
        def forward(self, x):
            return x + 1

    program = torch.export.export(Multiplied(), (torch.randn(6, 4),), dynamic_shapes=({0: ANY},))
    (node,) = program.graph.find_nodes(op="placeholder")
    rows = node.meta["val"].shape[0]
    node.meta["val"] = node.meta["val"].new_empty(rows * rows, 4)
    with pytest.raises(
        ModelError, match=r"of its inputs do not tell what s[0-9]+ is; give numbers"
    ):
        tvm_rammer.build(program, shapes={"x": ("n", 4)})


def test_sizes_that_are_equal_in_runs_alone():
    module, examples = Around(), (torch.randn(2, 3, 32, 40),)
    instance = built(module, examples, ({0: ANY, 2: ANY, 3: ANY},), {"x": ("b", 3, "h", "w")})
    for shape in ((2, 3, 32, 40), (3, 3, 64, 34), (1, 3, 18, 20)):
        assert_agrees(module, instance, torch.randn(*shape))
    with pytest.raises(InputError, match=REFUSED):
        instance(np.zeros((1, 3, 33, 40), "float32"))


def test_open_axes_roll():
    module, examples = Turned(), (torch.randn(2, 32, 16),)
    instance = built(module, examples, ({0: ANY, 1: ANY},), {"x": ("b", "n", 16)})
    for batch, count in ((2, 32), (3, 8), (1, 12)):
        assert_agrees(module, instance, torch.randn(batch, count, 16))


class Repeated(NN.Module):
    def forward(self, x):
        count = x.shape[0]
        return x.repeat(count, 1, 2), x[:, :1].repeat(1, x.shape[1], 1), x.repeat(2, 1)


def test_open_axes_repeat():
    module, examples = Repeated(), (torch.randn(3, 5),)
    instance = built(module, examples, ({0: ANY, 1: ANY},), {"x": ("n", "m")})
    for shape in ((3, 5), (1, 2), (7, 4)):
        assert_agrees(module, instance, torch.randn(*shape))


class Scaled(NN.Module):
    """Floats of sizes, which become sizes again, and one that does not."""

    def forward(self, x):
        height, part = math.ceil(x.shape[2] / 2) * 2, math.floor(x.shape[2] / 3)
        resized = NN.functional.interpolate(x, size=(height, 15))
        return resized, x * (x.shape[2] / 7), x[:, :, :part]


def test_floats_of_sizes():
    module, examples = Scaled(), (torch.randn(1, 2, 16, 10),)
    instance = built(module, examples, ({2: ANY},), {"x": (1, 2, "h", 10)})
    for height in (16, 7, 31):
        assert_agrees(module, instance, torch.randn(1, 2, height, 10))


class ChannelsLast(NN.Module):
    """PyTorch's mean of all is a view in the layout that it works in."""

    def forward(self, x):
        mean = NN.functional.adaptive_avg_pool2d(x.permute(0, 3, 1, 2), 1)
        return mean, torch.histc(x, 4, -1, 1)


def test_means_and_histograms_of_open_sizes():
    module, examples = ChannelsLast(), (torch.rand(2, 8, 9, 5),)
    dims = ({0: ANY, 1: ANY, 2: ANY},)
    instance = built(module, examples, dims, {"x": ("b", "h", "w", 5)})
    for shape in ((2, 8, 9, 5), (1, 3, 2, 5), (4, 5, 7, 5)):
        assert_agrees(module, instance, torch.rand(*shape) * 2 - 1)


class Experts(NN.Module):
    """Rows that are sorted by their expert, as transformers has it; whole numbers are exact."""

    def __init__(self):
        super().__init__()
        self.weights = NN.Parameter(torch.randint(-3, 4, (3, 8, 8)).bfloat16())

    def forward(self, x, chosen):
        counts = torch.histc(chosen.float(), 3, 0, 2)
        ends = counts.cumsum(0).to(torch.int32)
        order = chosen.argsort(stable=True)
        rows = x[order].bfloat16()
        return (NN.functional.grouped_mm(rows, self.weights, offs=ends).float(),)


def test_experts_of_any_number_of_rows():
    module, examples = Experts(), (torch.ones(9, 8), torch.randint(0, 3, (9,)))
    shapes = {"x": ("n", 8), "chosen": ("n",)}
    instance = built(module, examples, ({0: ANY}, {0: ANY}), shapes)
    for count in (9, 2, 1, 50):
        rows, chosen = torch.randint(-3, 4, (count, 8)).float(), torch.randint(0, 3, (count,))
        assert_agrees(module, instance, rows, chosen)


class Counted(NN.Module):
    def forward(self, x):
        count = x.shape[0]
        down = torch.arange(count, -count, -1.0)
        return down, torch.arange(0.5, count, 0.25), torch.arange(count / 2, count, 1)


def test_numbers_up_to_open_sizes():
    instance = built(Counted(), (torch.randn(6, 2),), ({0: ANY},), {"x": ("n", 2)})
    for count in (6, 2, 9):
        assert_agrees(Counted(), instance, torch.randn(count, 2))


class Windows(NN.Module):
    """Windows of four by four, as Swin has them: padding up to them is cut off again."""

    def forward(self, x):
        height, width = x.shape[2:]
        padded = NN.functional.pad(x, (0, -width % 4, 0, -height % 4), value=2.0)
        rows, columns = padded.shape[2] // 4, padded.shape[3] // 4
        windows = padded.reshape(x.shape[0], -1, rows, 4, columns, 4).mean((3, 5))
        return windows, (padded * 2)[:, :, :height, :width]


def test_padding_up_to_windows():
    module, examples = Windows(), (torch.randn(1, 3, 18, 21),)
    instance = built(module, examples, ({2: ANY, 3: ANY},), {"x": (1, 3, "h", "w")})
    for height, width in ((18, 21), (13, 9), (27, 30)):
        assert_agrees(module, instance, torch.randn(1, 3, height, width))
