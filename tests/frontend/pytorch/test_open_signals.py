"""Programs of PyTorch that transform signals of any length."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm_rammer  # noqa: E402

ANY = torch.export.Dim.AUTO
NN = torch.nn


class Spectrum(NN.Module):
    """Windows that overlap, of a signal that is mirrored at its ends."""

    def __init__(self, **options):
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.options = options

    def transformed(self, x):
        window, options = self.window, self.options
        return torch.stft(x, 64, 16, window=window, return_complex=True, **options)

    def forward(self, x):
        return torch.view_as_real(self.transformed(x))


class ThereAndBack(Spectrum):
    def forward(self, x):
        return torch.istft(self.transformed(x), 64, 16, window=self.window)


class MelFeatures(Spectrum):
    """What models of speech take."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mel", torch.rand(20, 33))

    def forward(self, x):
        power = self.transformed(x).abs() ** 2
        return (self.mel @ power).clamp(min=1e-10).log10()


class Windows(NN.Module):
    def forward(self, x):
        return x.unfold(-1, 64, 16) * 2, x[:, None].unfold(1, 1, 1).flatten(2)


class Transform(NN.Module):
    """Of an axis of any size."""

    def __init__(self, function, **options):
        super().__init__()
        self.function, self.options = function, options

    def forward(self, x):
        return torch.view_as_real(self.function(x, **self.options))


class TransformOfTwoAxes(NN.Module):
    def forward(self, x):
        return torch.fft.fftn(x, dim=(0, 1), norm="ortho").real


class TransformBesideAKnownSize(NN.Module):
    def forward(self, x):
        return torch.fft.fft2(x[:, :, None] * torch.arange(4), norm="ortho").imag


class TransformToReal(NN.Module):
    def forward(self, x):
        return torch.fft.irfft(torch.view_as_complex(x), dim=1)


def signals(*shapes):
    return [torch.randn(shape) for shape in shapes]


WAVES = signals((2, 800), (1, 1000), (3, 336))
LINES = signals((2, 64), (3, 65), (1, 1))
PARTS = signals((2, 33, 2), (1, 64, 2), (1, 100, 2))
CASES = {
    "spectra": (Spectrum(), WAVES),
    "spectra without mirrored ends": (Spectrum(center=False, normalized=True), WAVES),
    "there and back": (ThereAndBack(), WAVES),
    "mel features": (MelFeatures(), WAVES),
    "windows": (Windows(), WAVES),
    "of real numbers": (Transform(torch.fft.rfft), LINES),
    "of real numbers, by the root": (Transform(torch.fft.rfft, norm="ortho"), LINES),
    "of real numbers, by the size": (Transform(torch.fft.fft, norm="forward"), LINES),
    "of two axes": (TransformOfTwoAxes(), LINES),
    "of an open and a known axis": (TransformBesideAKnownSize(), LINES),
    "to real numbers": (TransformToReal(), PARTS),
}


@pytest.mark.parametrize("name", CASES)
def test_signals_of_any_length(name):
    module, given = CASES[name]
    open_axes = dict.fromkeys(range(2), ANY)
    program = torch.export.export(module, (given[0],), dynamic_shapes=(open_axes,))
    sizes = ("b", "t", *given[0].shape[2:])
    instance = tvm_rammer.build(program, shapes={"x": sizes}).create()
    for x in given:
        want = module(x)
        want = want if isinstance(want, tuple) else (want,)
        for found, other in zip(instance(x.numpy()), want, strict=True):
            scale = other.abs().max().item()
            assert tuple(found.shape) == tuple(other.shape)
            np.testing.assert_allclose(found.numpy() / scale, other / scale, atol=2e-6)


def test_longer_axes_than_the_matrix_has():
    module = Transform(torch.fft.fft)
    dims = ({1: torch.export.Dim("t", max=5000)},)
    program = torch.export.export(module, (torch.randn(1, 64),), dynamic_shapes=dims)
    instance = tvm_rammer.build(program, shapes={"x": (1, "t")}).create()
    instance(np.zeros((1, 4096), "float32"))
    with pytest.raises(tvm_rammer.InputError, match="is off by 4"):
        instance(np.zeros((1, 4100), "float32"))


def test_windows_of_a_transposed_signal():
    class Transposed(NN.Module):
        def forward(self, x):
            return x.transpose(0, 1).unfold(-1, 4, 2).contiguous()

    program = torch.export.export(
        Transposed(), (torch.randn(8, 3),), dynamic_shapes=({0: ANY, 1: ANY},)
    )
    with pytest.raises(tvm_rammer.ModelError, match=r"a view of open sizes; make it contiguous"):
        tvm_rammer.build(program, shapes={"x": ("t", "b")})


def test_doubles_stay_doubles():
    module, dims = Transform(torch.fft.rfft), ({0: ANY, 1: ANY},)
    given = (torch.randn(2, 64).double(),)
    program = torch.export.export(module, given, dynamic_shapes=dims)
    instance = tvm_rammer.build(program, shapes={"x": ("b", "t")}).create()
    x = torch.randn(1, 75).double()
    (found,) = instance(x.numpy())
    np.testing.assert_allclose(found.numpy(), torch.view_as_real(torch.fft.rfft(x)), atol=1e-12)
