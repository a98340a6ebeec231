"""A compiler pass that gives sizes which are computed at run time names of their own.

Where a tensor has ``8 * n`` places, a PrimFunc of it takes ``n`` as a number, and FuseTIR mixes up
sizes that are numbers, so that nothing could be fused. A tensor of ``m`` places, which are checked
to be ``8 * n``, is like any other: equal sizes have one name.

A cast says of a name what it is, and TVM 0.27 puts that in its place until nothing changes. Where
``m`` is ``n - 1``, a cast of ``m + 1`` to ``n`` would go round for ever, so a reshape is in its
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, sym, tirx

from tvm_rammer.kernel.nodes import collect, substitute
from tvm_rammer.relax_util import bind_again, calls_of, rewrite


@tvm.transform.module_pass(opt_level=0, name="NameSizes")
class NameSizes:
    """Name the sizes of results in dataflow blocks that are neither numbers nor names."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Rewrite every Relax function; a module without such sizes stays as it is."""
        return rewrite(mod, _Namer(mod)) if any(map(_has_formulas, calls_of(mod))) else mod


def _has_formulas(value: Any) -> bool:
    return any(_is_formula(size) for size in _sizes(value.ty))


def _sizes(ty: Any) -> list[Any]:
    is_known = isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr)
    return list(ty.shape.values) if is_known else []


def _is_formula(size: Any) -> bool:
    """Whether a size needs a name; FuseTIR never ends behind such names of casts and choices."""
    if isinstance(size, tirx.IntImm | tirx.Var):
        return False
    return not collect(size, tirx.Cast, tirx.Select, tvm.ir.Call)


@relax.expr_functor.mutator
class _Namer(relax.PyExprMutator):
    """Casts what has such sizes; names hold where they are made."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        #: Names, and what they stand for.
        self.names: list[tuple[Any, Any]] = []
        self.analyzer = sym.Analyzer()
        #: Names, and all names that casts say they are made of.
        self.made_of: dict[Any, set[Any]] = {}
        #: What is cast already, behind where it is made.
        self.cast: set[Any] = set()

    def visit_function_(self, func: Any) -> Any:
        tvm_ffi.structural_walk(func.body, (relax.MatchCast, self._keep))
        return super().visit_function_(func)

    def _keep(self, binding: Any) -> None:
        if isinstance(binding.value, relax.Var) and not _has_formulas(binding.var):
            self.cast.add(binding.value)

    def visit_seq_expr_(self, sequence: Any) -> Any:
        known = list(self.names)
        try:
            return super().visit_seq_expr_(sequence)
        finally:
            self.names = known

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.builder_.normalize(self.visit_expr(binding.value))
        sizes = _sizes(value.ty)
        is_free = isinstance(binding.var, relax.DataflowVar) and binding.var not in self.cast
        if is_free and any(map(_is_formula, sizes)):
            made = self.builder_.emit(value, binding.var.name)
            self.set_var_remap(binding.var, self._cast_to(made, self._named(value.ty)))
            return
        bind_again(self, binding, value)

    def _cast_by_name(self, binding: Any) -> Any:
        """A cast to formulas: that they are what the value has is seen before they get names."""
        value = self.visit_expr(binding.value)
        value = value if isinstance(value, relax.Var) else self.builder_.emit(value)
        named = self._named(binding.var.ty)
        if tvm_ffi.structural_equal(value.ty, named):
            return value
        if not tvm_ffi.structural_equal(value.ty, binding.var.ty):
            value = self.builder_.match_cast(value, binding.var.ty)
        return self._cast_to(value, named)

    def _cast_to(self, value: Any, named: Any) -> Any:
        """A tensor whose sizes are proved to be those of a type."""
        pairs = list(zip(_sizes(value.ty), _sizes(named), strict=True))
        if any(name in self._sources(size) for size, name in pairs if _is_formula(size)):
            return self.builder_.emit(relax.op.reshape(value, named.shape))
        self._note(pairs)
        return self.builder_.match_cast(value, named)

    def _sources(self, size: Any) -> set[Any]:
        """The names that a formula is made of, and what those are made of."""
        own = set(collect(size, tirx.Var))
        return own.union(*(self.made_of.get(name, ()) for name in own))

    def _note(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        for size, name in pairs:
            if isinstance(name, tirx.Var) and not name.same_as(size):
                self.made_of.setdefault(name, set()).update(self._sources(size))

    def _named(self, ty: Any) -> Any:
        return relax.TensorType(list(map(self._name, _sizes(ty))), ty.dtype)

    def visit_match_cast_(self, binding: Any) -> None:
        if isinstance(binding.var, relax.DataflowVar) and _has_formulas(binding.var):
            self.set_var_remap(binding.var, self._cast_by_name(binding))
            return
        super().visit_match_cast_(binding)
        pairs = list(zip(_sizes(binding.value.ty), _sizes(binding.var.ty), strict=False))
        self._note(pairs)
        for size, name in pairs:
            if _is_formula(size) and isinstance(name, tirx.Var):
                self.names.append((name, self._meaning(size)))

    def _meaning(self, size: Any) -> Any:
        return self.analyzer.simplify(substitute(size, dict(self.names)))

    def _name(self, size: Any) -> Any:
        """The name of a size; what it is where that is a name or a number."""
        meaning = self._meaning(size)
        if not _is_formula(meaning):
            return meaning
        for name, known in self.names:
            if self.analyzer.can_prove_equal(known, meaning):
                return name
        name = tirx.Var("size", "int64")
        self.names.append((name, meaning))
        return name
