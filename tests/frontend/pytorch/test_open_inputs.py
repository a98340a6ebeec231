"""Programs of PyTorch whose inputs have sizes that each run decides."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm_rammer  # noqa: E402
from tvm_rammer.errors import InputError  # noqa: E402

B, T = (torch.export.Dim(name, max=512) for name in "bt")


class Rows(torch.nn.Module):
    """Products, norms and shapes that follow from the input's."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(13, 64), torch.nn.LayerNorm(64)
        self.second = torch.nn.Linear(64, 5)

    def forward(self, x):
        hidden = self.norm(torch.relu(self.first(x)))
        flat = x.reshape(x.shape[0], -1)
        return self.second(hidden).softmax(-1), hidden.mean(1), flat, x.transpose(0, 1)


class Attending(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, x):
        return self.layer(x)


class Images(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, 2, 1),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 24, 3, padding=1),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(24, 10),
        )

    def forward(self, x):
        return self.layers(x)


class Joined(torch.nn.Module):
    """A cache that grows."""

    def forward(self, past, new):
        whole = torch.cat([past, new], 1)
        return whole, whole.sum(1)


class OfWindows(torch.nn.Module):
    """Windows of 3 x 3 of an image; the sizes of windows are formulas to PyTorch."""

    def __init__(self):
        super().__init__()
        self.mix, self.bias = torch.nn.Linear(8, 9), torch.nn.Parameter(torch.randn(9, 9))

    def forward(self, x):
        b, h, w, c = x.shape
        windows = x.view(b, h // 3, 3, w // 3, 3, c).permute(0, 1, 3, 2, 4, 5)
        scores = self.mix(windows.reshape(-1, 9, c)) + self.bias
        mixed = scores.softmax(-1) @ windows.reshape(-1, 9, c)
        whole = mixed.view(b, h // 3, w // 3, 3, 3, c).permute(0, 1, 3, 2, 4, 5)
        return whole.reshape(b, h, w, c)


def exported(module, arguments, dims):
    return torch.export.export(module.eval(), arguments, dynamic_shapes=dims)


def agrees(module, instance, arguments):
    with torch.no_grad():
        want = module(*arguments)
    want = want if isinstance(want, tuple) else (want,)
    found = instance(*(each.numpy() for each in arguments))
    return all(
        tuple(one.shape) == tuple(other.shape)
        and np.allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)
        for one, other in zip(found, want, strict=True)
    )


def test_batches_and_lengths():
    module = Rows()
    program = exported(module, (torch.randn(3, 7, 13),), ({0: B, 1: T},))
    built = tvm_rammer.build(program, shapes={"x": ("n", "m", 13)})
    assert built.description.interfaces[0].shapes == (("n", "m", 13),)
    assert built.description.outputs[0].shape == ("n", "m", 5)
    instance = built.create()
    for b, t in ((1, 2), (3, 7), (5, 40), (2, 1)):
        assert agrees(module, instance, (torch.randn(b, t, 13),)), (b, t)


def test_one_size_is_fixed():
    module = Rows()
    program = exported(module, (torch.randn(3, 7, 13),), ({0: B, 1: T},))
    instance = tvm_rammer.build(program, shapes={"x": (2, "m", 13)}).create()
    for t in (2, 7, 33):
        assert agrees(module, instance, (torch.randn(2, t, 13),)), t
    with pytest.raises(InputError):
        instance(np.zeros((3, 7, 13), "float32"))


def test_known_sizes_beside_open_ones():
    module = Rows()
    program = exported(module, (torch.randn(3, 7, 13),), ({0: B, 1: T},))
    shapes = [{"x": (1, 16, 13)}, {"x": ("n", "m", 13)}]
    instance = tvm_rammer.build(program, shapes=shapes).create()
    for b, t in ((1, 16), (3, 7), (1, 16)):
        assert agrees(module, instance, (torch.randn(b, t, 13),)), (b, t)


def test_an_encoder():
    module = Attending().eval()
    program = exported(module, (torch.randn(2, 9, 32),), ({0: B, 1: T},))
    instance = tvm_rammer.build(program, shapes={"x": ("b", "t", 32)}).create()
    for b, t in ((1, 2), (2, 40), (3, 17)):
        assert agrees(module, instance, (torch.randn(b, t, 32),)), (b, t)


def test_images():
    module = Images().eval()
    program = exported(module, (torch.randn(2, 3, 20, 20),), ({0: B},))
    instance = tvm_rammer.build(program, shapes={"x": ("b", 3, 20, 20)}).create()
    for b in (1, 2, 5):
        assert agrees(module, instance, (torch.randn(b, 3, 20, 20),)), b


def test_a_cache():
    dims = ({1: B}, {1: T})
    program = exported(Joined(), (torch.randn(1, 5, 4), torch.randn(1, 3, 4)), dims)
    built = tvm_rammer.build(program, shapes={"past": (1, "p", 4), "new": (1, "t", 4)})
    instance = built.create()
    for p, t in ((2, 2), (7, 3), (100, 2)):
        assert agrees(Joined(), instance, (torch.randn(1, p, 4), torch.randn(1, t, 4))), (p, t)


def test_sizes_of_one_name_are_equal():
    dims = ({1: B}, {1: T})
    program = exported(Joined(), (torch.randn(1, 5, 4), torch.randn(1, 3, 4)), dims)
    instance = tvm_rammer.build(program, shapes={"past": (1, "t", 4), "new": (1, "t", 4)}).create()
    assert agrees(Joined(), instance, (torch.randn(1, 6, 4), torch.randn(1, 6, 4)))
    with pytest.raises(InputError, match="set all inputs to the shapes of one"):
        instance(np.zeros((1, 6, 4), "float32"), np.zeros((1, 5, 4), "float32"))


def test_limits_of_the_export():
    """A run beyond what the program was exported for ends with an error."""
    program = exported(Rows(), (torch.randn(3, 7, 13),), ({0: B, 1: torch.export.Dim("t", max=9)},))
    instance = tvm_rammer.build(program, shapes={"x": ("n", "m", 13)}).create()
    instance(np.zeros((1, 9, 13), "float32"))
    with pytest.raises(InputError):
        instance(np.zeros((1, 10, 13), "float32"))


def test_a_size_without_a_name_or_a_number():
    program = exported(Rows(), (torch.randn(3, 7, 13),), ({0: B, 1: T},))
    with pytest.raises(tvm_rammer.ModelError, match="has the symbolic shape"):
        tvm_rammer.build(program)


def test_sizes_that_views_give_as_numbers():
    module = OfWindows()
    dims = ({axis: torch.export.Dim.AUTO for axis in range(3)},)
    program = exported(module, (torch.randn(2, 6, 9, 8),), dims)
    instance = tvm_rammer.build(program, shapes={"x": ("b", "h", "w", 8)}).create()
    for shape in ((2, 6, 9, 8), (1, 12, 6, 8)):
        assert agrees(module, instance, (torch.randn(shape),)), shape
    with pytest.raises(InputError, match="a check of their sizes"):
        instance(np.zeros((1, 7, 9, 8), "float32"))


def test_a_definition_that_asks_for_a_number():
    """Not all that PyTorch exports with a size left open can be decomposed so."""
    asks = []

    @torch.library.custom_op("tvm_rammer_tests::asking", mutates_args=())
    def asking(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @asking.register_fake
    def _(x):
        return x.new_empty(int(x.shape[1])) if asks else torch.empty_like(x)

    class Asking(torch.nn.Module):
        def forward(self, x):
            return asking(x)

    program = exported(Asking(), (torch.randn(3, 7),), ({0: B, 1: T},))
    asks.append(True)
    said = r"size 'm' \(axis 1 of input 'x'\) cannot stay open: in this program .* takes it for 7"
    with pytest.raises(tvm_rammer.ModelError, match=said):
        tvm_rammer.build(program, shapes={"x": ("n", "m")})


H, W = (torch.export.Dim(name, min=16, max=512) for name in "hw")
NN = torch.nn
POOLS = {
    "maxima": NN.MaxPool2d(3, 2, 1),
    "far maxima": NN.MaxPool2d(3, 1, 1, dilation=2, ceil_mode=True),
    "means": NN.AvgPool2d(2, 2),
    "means of padding": NN.AvgPool2d(3, 2, 1),
    "means without padding": NN.AvgPool2d(3, 2, 1, count_include_pad=False),
    "sums": NN.AvgPool2d(3, 2, 1, divisor_override=1),
    "the mean of all": NN.AdaptiveAvgPool2d(1),
    "so many means": NN.AdaptiveAvgPool2d((7, None)),
    "so many maxima": NN.AdaptiveMaxPool2d((5, 3)),
}
RESIZES = {
    "nearest": {"scale_factor": 2.0, "mode": "nearest"},
    "linear": {"scale_factor": 2.0, "mode": "bilinear", "align_corners": False},
    "linear between corners": {"scale_factor": 2.0, "mode": "bilinear", "align_corners": True},
    "cubic": {"scale_factor": 2.0, "mode": "bicubic", "align_corners": False},
}


class Resized(torch.nn.Module):
    """Half an image as large as the whole one again, and twice as large."""

    def __init__(self, options):
        super().__init__()
        self.options = options

    def forward(self, x):
        options = {**self.options, "scale_factor": None}
        half = torch.nn.functional.avg_pool2d(x, 2)
        whole = torch.nn.functional.interpolate(half, size=x.shape[2:], **options)
        return x + whole, torch.nn.functional.interpolate(x, **self.options)


@pytest.mark.parametrize("name", [*POOLS, *RESIZES])
def test_images_of_any_height_and_width(name):
    module = (POOLS[name] if name in POOLS else Resized(RESIZES[name])).eval()
    program = exported(module, (torch.randn(1, 3, 40, 48),), ({2: H, 3: W},))
    given = "input" if name in POOLS else "x"
    instance = tvm_rammer.build(program, shapes={given: (1, 3, "h", "w")}).create()
    for height, width in ((16, 17), (33, 64), (47, 30)):
        assert agrees(module, instance, (torch.randn(1, 3, height, width),))
