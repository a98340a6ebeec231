"""Layouts: in which order the axes of tensors, and of tensors in tuples, lie in memory."""

from __future__ import annotations

from functools import cache
from string import ascii_uppercase
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.s_tir import slayout

from tvm_rammer.relax_util import type_shape
from tvm_rammer.tensors import as_array, constant

#: The axes of a tensor from the outermost to the innermost, ``A`` for that which the module as
#: given calls the first, and so on; those of every field of a tuple; ``None`` for what is neither
#: or has an unknown number of axes.
Layout = str | tuple[Any, ...] | None


def given_layout(ty: Any) -> Layout:
    """The layout that values of a type have in the module as given: all axes in their order."""
    if isinstance(ty, relax.TupleType):
        return tuple(map(given_layout, ty.fields))
    if isinstance(ty, relax.TensorType) and ty.ndim >= 0:
        return ascii_uppercase[: ty.ndim]
    return None


def transposed(value: Any, have: Layout, want: Layout) -> Any:
    """A value that has one layout in another."""
    if have == want:
        return value
    if isinstance(have, tuple) and isinstance(want, tuple):
        parts = (relax.TupleGetItem(value, index) for index in range(len(have)))
        return relax.Tuple([transposed(*part) for part in zip(parts, have, want, strict=True)])
    if isinstance(have, str) and isinstance(want, str):
        axes = [have.index(axis) for axis in want]
        if isinstance(value, GenericConst):
            return constant(as_array(value.value).transpose(axes))
        return relax.op.permute_dims(value, axes)
    raise ValueError(f"a value of layout {have} cannot have layout {want}")


def transposed_type(ty: Any, layout: Layout) -> Any:
    """The type in some layout of a tensor of known shape, whose type is ``ty`` in the module.

    ``None`` for any other type, and for a layout that has other axes.
    """
    shape, axes = type_shape(ty), given_layout(ty)
    if shape is None or not isinstance(layout, str) or sorted(layout) != list(axes or ""):
        return None
    return relax.TensorType(
        [ty.shape.values[ascii_uppercase.index(axis)] for axis in layout], ty.dtype, ty.vdevice
    )


def fits(ty: Any, layout: Layout, given: Any) -> bool:
    """Whether a type is that of a value in a layout, whose type is ``given`` in the module."""
    if isinstance(layout, tuple):
        return all(map(fits, ty.fields, layout, given.fields))
    axes = given_layout(given)
    if layout == axes:
        return True
    if not isinstance(layout, str) or not isinstance(axes, str) or sorted(layout) != list(axes):
        return False
    expected = transposed_type(given, layout)
    if expected is None:
        return given_layout(ty) == axes
    return type_shape(ty) == type_shape(expected)


def from_decision(decision: Any) -> Layout:
    """The layout that a rule of an operator of TVM names."""
    if not hasattr(decision, "layout"):
        return tuple(map(from_decision, decision))
    if decision.is_unknown_dim:
        return None
    return "" if decision.layout is None else str(decision.layout.name)


@cache
def to_decision(layout: Layout) -> Any:
    """A layout in the form that the rules of TVM's operators take."""
    if isinstance(layout, tuple):
        return tuple(map(to_decision, layout))
    return tvm.ir.make_node(
        "relax.transform.LayoutDecision",
        layout=slayout(layout or ""),
        is_unknown_dim=layout is None,
    )
