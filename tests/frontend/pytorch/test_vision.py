"""Operators of torchvision, as models that detect and restore have them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

torch = pytest.importorskip("torch")
ops = pytest.importorskip("torchvision").ops

from torch_programs import Wrapped, floats  # noqa: E402

from tvm_rammer.frontend import load_model  # noqa: E402
from tvm_rammer.transform.keep_indices_inside import KeepIndicesInside  # noqa: E402

#: Usual ones, one beyond the image, very small ones, one outside, and one from back to front.
REGIONS = torch.tensor(
    [
        *([0.0, 1, 2, 9, 12], [1, -3, -4, 30, 18], [0, 5, 5, 5.2, 5.1]),
        *([1, 15, 10, 19, 15.5], [0, 25, 25, 30, 30], [1, 3, 3, 2, 2]),
    ]
)


def assert_as_eager(function: Callable[..., Any], *inputs: Any) -> None:
    """All results of a function."""
    program = torch.export.export(Wrapped(function), inputs)
    module = KeepIndicesInside()(load_model(program).module)
    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    results = machine["main"](*(tvm.runtime.tensor(each.numpy()) for each in inputs))
    for found, expected in zip(results, function(*inputs), strict=True):
        assert found.numpy().dtype == expected.numpy().dtype
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_regions_are_averages_of_samples():
    ways = list(product((2, 0, -1), (False, True), (1.0, 0.37)))

    def all_ways(x: Any, regions: Any) -> list[Any]:
        return [
            *(ops.roi_align(x, regions, (4, 3), *(s, n, a)) for n, a, s in ways),
            ops.roi_align(x.double(), regions.double(), 2, 1.0, 3),
            ops.roi_align(x, regions[:0], (4, 3)),
        ]

    assert_as_eager(all_ways, floats(2, 3, 16, 20), REGIONS)


def test_regions_have_channels_for_every_place():
    def both(x: Any, regions: Any) -> list[Any]:
        return [
            *(ops.ps_roi_align(x, regions, (2, 3), s, 2) for s in (1.0, 0.37)),
            *(ops.ps_roi_align(x, regions[:-1], (2, 3), s, 0) for s in (1.0, 0.37)),
            ops.ps_roi_align(x, regions[:0], (2, 3)),
        ]

    assert_as_eager(both, floats(2, 12, 16, 20), REGIONS)


def test_regions_have_a_largest_pixel():
    def both(x: Any, regions: Any) -> list[Any]:
        return [
            *(ops.roi_pool(x, regions, (4, 3), scale) for scale in (1.0, 0.37, 2.0)),
            ops.roi_pool(x.double(), regions.double(), 7),
            ops.roi_pool(x, regions[:0], (2, 3)),
        ]

    assert_as_eager(both, floats(2, 3, 16, 20), REGIONS)


@pytest.mark.parametrize(
    ("groups", "offset_groups", "window", "options"),
    [
        (1, 1, (3, 3), {}),
        (2, 1, (3, 3), {"padding": 1}),
        (2, 4, (3, 2), {"padding": 2, "stride": 2, "dilation": 2}),
        (4, 2, (1, 3), {"stride": (1, 2), "padding": (0, 1), "dilation": (2, 1)}),
    ],
)
@pytest.mark.parametrize("reach", [0.0, 1.5, 20.0])
def test_deformable_convolutions_read_at_places_of_the_data(
    groups, offset_groups, window, options, reach
):
    x, weight, bias = floats(2, 8, 9, 11), floats(12, 8 // groups, *window), floats(12)
    size = torch.nn.functional.conv2d(x, weight, groups=groups, **options).shape[2:]
    elements = offset_groups * window[0] * window[1]
    offset, mask = reach * floats(2, 2 * elements, *size), floats(2, elements, *size).sigmoid()

    def both(x: Any, weight: Any, bias: Any, offset: Any, mask: Any) -> list[Any]:
        plain = ops.deform_conv2d(x, offset, weight, **options)
        return [plain, ops.deform_conv2d(x, offset, weight, bias, mask=mask, **options)]

    assert_as_eager(both, x, weight, bias, offset, mask)
