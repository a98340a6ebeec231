"""Converters from PyTorch's operators to Relax; the operators are those after decomposition.

Each gives what PyTorch computes in eager mode, with one exception: a reduction (and a pooling) by
maximum passes over NaN.

=====================  ============================================================================
``arithmetic``         two operands: promotion of types, division, comparison, limits, ``where``
``elementwise``        one operand: mathematics, rounding, activations, casts
``special_functions``  those of Gauss, gamma and Bessel functions
``creation``           tensors made of numbers
``recurrence``         LSTM, GRU and RNN
``reduction``          sums, maxima, norms, cumulation, order, softmax
``scan``               running maxima, minima, sums of exponentials
``chosen``             as many results as the data say: positions, numbers, what differs
``counting``           histograms, places in what is sorted
``layout``             views, permutations, slices, concatenation, padding
``indexing``           elements by their positions
``scattering``         elements replaced or added to
``bags``               ``EmbeddingBag``
``product``            products of matrices
``linear_algebra``     determinants, inverses, systems of equations
``grouped_product``    those of groups of rows with a matrix each
``convolution``        convolutions, transposed ones too
``pooling``            windows: maxima, averages
``interpolation``      images in another size
``normalization``      by means and variances
``quantization``       changes of scale
``vision``             operators of torchvision
``complex_numbers``    all that complex numbers have a converter for
=====================  ============================================================================
"""

from tvm_rammer.frontend.torch.converters import (
    arithmetic,
    bags,
    chosen,
    convolution,
    counting,
    creation,
    elementwise,
    grouped_product,
    indexing,
    interpolation,
    layout,
    linear_algebra,
    normalization,
    pooling,
    product,
    quantization,
    recurrence,
    reduction,
    scan,
    scattering,
    special_functions,
    vision,
)
from tvm_rammer.frontend.torch.converters.complex_numbers import complex_converters
from tvm_rammer.frontend.torch.operator_call import Converter

_FAMILIES = (
    arithmetic,
    bags,
    chosen,
    convolution,
    counting,
    creation,
    elementwise,
    grouped_product,
    indexing,
    interpolation,
    layout,
    linear_algebra,
    normalization,
    pooling,
    product,
    quantization,
    recurrence,
    reduction,
    scan,
    scattering,
    special_functions,
    vision,
)

_REAL: dict[str, Converter] = {
    name: converter for family in _FAMILIES for name, converter in family.CONVERTERS.items()
}

#: Those of calls whose operands or results are complex numbers.
COMPLEX_CONVERTERS: dict[str, Converter] = complex_converters(_REAL)

#: Converters by the name of the operator and its overload, such as "add.Tensor".
CONVERTERS: dict[str, Converter] = {**COMPLEX_CONVERTERS, **_REAL}

__all__ = ["COMPLEX_CONVERTERS", "CONVERTERS"]
