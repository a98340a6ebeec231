"""Converters from PyTorch's operators to Relax; the operators are those after decomposition.

Each gives what PyTorch computes in eager mode, with one exception: a reduction (and a pooling) by
maximum passes over NaN.
"""

from tvm_rammer.frontend.torch.converters import (
    arithmetic,
    bags,
    convolution,
    creation,
    elementwise,
    indexing,
    layout,
    normalization,
    pooling,
    product,
    reduction,
    resizing,
    scattering,
)
from tvm_rammer.frontend.torch.operator_call import Converter

_FAMILIES = (
    arithmetic,
    bags,
    convolution,
    creation,
    elementwise,
    indexing,
    layout,
    normalization,
    pooling,
    product,
    reduction,
    resizing,
    scattering,
)

#: Converters by the name of the operator and its overload, such as "add.Tensor".
CONVERTERS: dict[str, Converter] = {
    name: converter for family in _FAMILIES for name, converter in family.CONVERTERS.items()
}

__all__ = ["CONVERTERS"]
