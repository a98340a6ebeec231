"""A compiler pass that keeps equal constants once, also those of different functions.

Functions of one model for inputs of several shapes have the same weights. Those of one type are
compared, most by a few of their elements.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm_ffi import structural_map

from tvm_rammer.relax_util import static_shape, with_functions
from tvm_rammer.tensors import as_array

#: Constants of more elements are compared.
_LARGE = 1 << 10
#: So many bytes of two constants are compared before all are.
_SAMPLES = 1 << 8


@tvm.transform.module_pass(opt_level=0, name="ShareConstants")
class ShareConstants:
    """Keep the first of equal large constants of all Relax functions, also of several modules."""

    def __init__(self) -> None:
        self.known = KnownConstants()

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The same functions with fewer tensors."""

        def share(constant: Any) -> Any:
            first = self.known.first(constant) if is_large(constant) else constant.value
            return constant if first.same_as(constant.value) else GenericConst(first, constant.ty)

        def shared(func: relax.Function) -> relax.Function:
            body = structural_map(func.body, (GenericConst, share))
            if body.same_as(func.body):
                return func
            return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

        return with_functions(mod, shared)


def is_large(constant: Any) -> bool:
    """Whether keeping a constant once is worth comparing it."""
    shape = static_shape(constant)
    return shape is not None and prod(shape) > _LARGE


class KnownConstants:
    """Large constants, of which equal ones are one."""

    def __init__(self) -> None:
        self._first: dict[Any, Any] = {}
        self._alike: dict[Any, list[tuple[Any, np.ndarray]]] = {}

    def first(self, constant: Any) -> Any:
        """The tensor of the first constant with these elements, bit by bit."""
        tensor = constant.value
        if tensor not in self._first:
            self._first[tensor] = tensor
            elements = as_array(tensor)
            if elements.flags.c_contiguous:
                self._first[tensor] = self._equal(tensor, elements)
        return self._first[tensor]

    def _equal(self, tensor: Any, elements: np.ndarray) -> Any:
        content = elements.reshape(-1).view(np.uint8)
        # An odd step meets all bytes of elements: the low ones may be zeros everywhere.
        step = max(1, content.size // _SAMPLES) | 1
        key = (elements.shape, str(tensor.dtype), content[::step].tobytes())
        alike = self._alike.setdefault(key, [])
        for other, bytes_of_other in alike:
            if np.array_equal(content, bytes_of_other):
                return other
        alike.append((tensor, content))
        return tensor
