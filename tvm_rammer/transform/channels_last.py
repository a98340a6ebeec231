"""A compiler pass that puts the channels of convolutions last.

What a convolution makes stays in its layout as long as operators can work in it. Which can, and how
their attributes change, say the rules of TVM's operators, the same that its ConvertLayout asks.
ConvertLayout hands each rule a copy of the layouts of all variables, which takes minutes for
thousands of convolutions; here a rule gets the layouts of the operands.

An operator whose rule fails, or whose result is not what the rule says, works in the layout that it
was given in: the rule of TVM 0.27 for stacked tensors names an axis that no other rule knows. Some
element-wise operators, changes of scale and padding have no rule there; theirs is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from string import ascii_uppercase
from typing import Any

import tvm
from tvm import relax
from tvm.error import InternalError
from tvm.ir import Call, Op

from tvm_rammer.relax_util import calls_any, known_shapes, operator_name, rewrite, variables_read
from tvm_rammer.transform.layouts import (
    Layout,
    fits,
    from_decision,
    given_layout,
    to_decision,
    transposed,
    transposed_type,
)
from tvm_rammer.transform.scales import DEQUANTIZE, QUANTIZE
from tvm_rammer.transform.split_transposed_convolutions import TRANSPOSED

#: Layouts in which neighbouring channels are neighbours in memory, so that they fill vectors.
_LAYOUTS = {
    "relax.nn.conv1d": ["NWC", "OWI"],
    "relax.nn.conv2d": ["NHWC", "OHWI"],
    "relax.nn.conv3d": ["NDHWC", "ODHWI"],
    "relax.nn.conv1d_transpose": ["NWC", "IOW"],
    "relax.nn.conv2d_transpose": ["NHWC", "IOHW"],
    "relax.nn.conv3d_transpose": ["NDHWC", "IODHW"],
}
#: Operators that work in any layout, though TVM has no rule that says so; padding has attributes.
_ANY_LAYOUT = frozenset({"relax.clip", "relax.nn.leakyrelu", "relax.nn.softplus", "relax.where"})
_PAD = "relax.nn.pad"
#: Those whose weights have the axes that they normalise over.
_OF_AXES = frozenset({"relax.nn.layer_norm", "relax.nn.rms_norm"})
#: Operators that have a scale and a zero point for all elements, or for those along an axis.
_OF_SCALES = frozenset({QUANTIZE, DEQUANTIZE})


@tvm.transform.module_pass(opt_level=0, name="ChannelsLast")
class ChannelsLast:
    """Convert the layouts of a module that convolves."""

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Convert every Relax function of a module."""
        return rewrite(mod, _Converter(mod)) if calls_any(mod, _LAYOUTS) else mod


@relax.expr_functor.mutator
class _Converter(relax.PyExprMutator):
    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        #: The variables in place of those whose layout has changed, and their layouts.
        self.converted: dict[Any, tuple[Any, Layout]] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        value = binding.value
        if self._is_untouched(value):
            self.builder_.emit_normalized(binding)
        elif isinstance(value, Call):
            self._emit(binding.var, *self._call(value))
        elif isinstance(value, relax.Tuple | relax.DataflowVar):
            layout = self._layout(value)
            self._emit(binding.var, self._in_layout(value, layout), layout)
        elif isinstance(value, relax.TupleGetItem):
            layouts: Any = self._layout(value.tuple_value)
            source = self._in_layout(value.tuple_value, layouts)
            item = relax.TupleGetItem(source, value.index)
            self._emit(binding.var, item, layouts[value.index])
        else:
            super().visit_var_binding_(binding)

    def _is_untouched(self, value: Any) -> bool:
        """Whether a value has no layout of its own and reads nothing whose layout has changed."""
        plain = isinstance(value, Call | relax.Tuple | relax.TupleGetItem | relax.DataflowVar)
        if not plain or operator_name(value) in _LAYOUTS:
            return False
        return not any(variable in self.converted for variable in variables_read(value))

    def visit_dataflow_var_(self, var: Any) -> Any:
        if var in self.converted:
            return transposed(*self.converted[var], given_layout(var.ty))
        return super().visit_dataflow_var_(var)

    def _emit(self, var: Any, value: Any, layout: Layout) -> None:
        """Bind a variable to a value; what leaves a dataflow block does so in its given layout."""
        given = given_layout(var.ty)
        value = self.builder_.normalize(value)
        if layout != given and not isinstance(var, relax.DataflowVar):
            value = transposed(self.builder_.emit(value), layout, given)
            value, layout = self.builder_.normalize(value), given
        if layout != given:
            converted = relax.DataflowVar(var.name, value.ty)
            self.converted[var] = converted, layout
            var = converted
        self.builder_.emit_normalized(relax.VarBinding(var, value))

    def _call(self, call: Any) -> tuple[Any, Layout]:
        """What replaces a call, and its layout."""
        given = [given_layout(argument.ty) for argument in call.args]
        if operator_name(call) in (*_ANY_LAYOUT, _PAD):
            return self._in_any_layout(call, given)
        if operator_name(call) in _OF_SCALES:
            return self._in_layout_of_data(call, given)
        answer = self._answer(call, given)
        if answer is not None:
            wanted = list(map(from_decision, answer.input_layouts))
            arguments = self._arguments(call, [*wanted, *given[len(wanted) :]])
            for place, argument in answer.new_args.items():
                arguments[int(place)] = argument
            layout = from_decision(answer.output_layouts[0])
            # TVM takes a millisecond to find out the type of a convolution.
            ty = transposed_type(call.ty, layout) if operator_name(call) in _LAYOUTS else None
            converted = Call(call.op, arguments, answer.new_attrs, call.ty_args, ret_ty=ty)
            converted = self.builder_.normalize(converted)
            if fits(converted.ty, layout, call.ty):
                return converted, layout
        unchanged = Call(call.op, self._arguments(call, given), call.attrs, call.ty_args)
        return unchanged, given_layout(call.ty)

    def _in_any_layout(self, call: Any, given: list[Layout]) -> tuple[Any, Layout]:
        """A call that takes the one other layout that its operands have, if it is one."""
        whole = given_layout(call.ty)
        operands = zip(call.args, given, strict=True)
        others = {self._layout(operand) for operand, have in operands if have == whole} - {whole}
        # What has fewer axes than the result, but some, is spread along the last ones.
        alike = all(have in (whole, "", None) for have in given)
        layout = others.pop() if alike and len(others) == 1 else whole
        arguments = self._arguments(call, [layout if have == whole else have for have in given])
        if operator_name(call) == _PAD and isinstance(layout, str):
            return _padded(arguments[0], call.attrs, layout), layout
        return Call(call.op, arguments, call.attrs, call.ty_args), layout

    def _in_layout_of_data(self, call: Any, given: list[Layout]) -> tuple[Any, Layout]:
        """A change of scale, in the layout that its data have."""
        layout = self._layout(call.args[0])
        arguments = self._arguments(call, [layout, *given[1:]])
        if not isinstance(layout, str) or not layout:
            return Call(call.op, arguments, call.attrs, call.ty_args), layout
        axis = layout.index(ascii_uppercase[int(call.attrs.axis) % len(layout)])
        change = getattr(relax.op, operator_name(call).removeprefix("relax."))
        return change(*arguments, axis, str(call.attrs.out_dtype)), layout

    def _answer(self, call: Any, given: list[Layout]) -> Any:
        """What the rule of an operator says, ``None`` if it has nothing to say."""
        layouts = [self._layout(argument) for argument in call.args]
        convolves = operator_name(call) in _LAYOUTS
        if not convolves and layouts == given:
            return None
        if operator_name(call) in _OF_AXES and len(call.attrs.axes) > 1:
            # The rule moves the axes of the data, and leaves those of the weights where they are.
            return None
        rule = call.op.get_attr("FRelaxInferLayout") if isinstance(call.op, Op) else None
        if operator_name(call) in TRANSPOSED and not known_shapes(*call.args, call):
            # TVM has no legalization in the layout that the rule names.
            return None
        if rule is None or any(_has_unknown_rank(argument.ty) for argument in call.args):
            return None
        known = {
            var: to_decision(self.converted[var][1])
            for var in _leaves(call.args)
            if var in self.converted
        }
        try:
            return rule(call, _LAYOUTS, known)
        except InternalError:
            return None

    def _arguments(self, call: Any, layouts: Iterable[Layout]) -> list[Any]:
        return [self._in_layout(*pair) for pair in zip(call.args, layouts, strict=True)]

    def _layout(self, expression: Any) -> Layout:
        """The layout that the value of an expression of the module as given has now."""
        if isinstance(expression, relax.Tuple):
            return tuple(map(self._layout, expression.fields))
        if expression in self.converted:
            return self.converted[expression][1]
        return given_layout(expression.ty)

    def _in_layout(self, expression: Any, layout: Any) -> Any:
        """The value of an expression of the module as given, in some layout."""
        if isinstance(expression, relax.Tuple) and isinstance(layout, tuple):
            return relax.Tuple(list(map(self._in_layout, expression.fields, layout)))
        if expression in self.converted:
            return transposed(*self.converted[expression], layout)
        return transposed(self.visit_expr(expression), given_layout(expression.ty), layout)


def _padded(data: Any, attrs: Any, layout: str) -> Any:
    """Data in a layout, padded by what the attributes say in the given one."""
    places = [2 * ascii_uppercase.index(axis) for axis in layout]
    widths = [int(width) for place in places for width in attrs.pad_width[place : place + 2]]
    return relax.op.nn.pad(data, widths, str(attrs.pad_mode), float(attrs.pad_value))


def _has_unknown_rank(ty: Any) -> bool:
    if isinstance(ty, relax.TupleType):
        return any(map(_has_unknown_rank, ty.fields))
    return isinstance(ty, relax.TensorType) and given_layout(ty) is None


def _leaves(expressions: Iterable[Any]) -> Iterator[Any]:
    """Expressions, and the fields of those that are tuples."""
    for expression in expressions:
        if isinstance(expression, relax.Tuple):
            yield from _leaves(expression.fields)
        else:
            yield expression
