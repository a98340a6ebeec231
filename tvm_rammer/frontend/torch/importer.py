"""TVM's importer of exported programs, with the converters of this package in place of its own.

Complex numbers have no type in Relax: weights become real where a program begins, and what would be
complex where it ends is refused. Operators that TVM has no code for in floats of 16 bits are
computed in float32, and rounded.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from tvm_rammer.errors import ModelError
from tvm_rammer.frontend.loaded_model import end_blocks, one_line
from tvm_rammer.frontend.random_numbers import key_of, normal, uniform
from tvm_rammer.frontend.sizes import FAR, as_size, end_unless_zero
from tvm_rammer.frontend.torch.converters import COMPLEX_CONVERTERS, CONVERTERS
from tvm_rammer.frontend.torch.input_formulas import (
    cast_to_formulas,
    open_shapes,
    symbols_of,
)
from tvm_rammer.frontend.torch.numbers_of_views import missed_numbers
from tvm_rammer.frontend.torch.operator_call import (
    Converter,
    OperatorCall,
    are_numbers,
    dtype_of,
    place,
    refusal,
    shape_of,
    tvm_dtype,
    wide_dtype,
)
from tvm_rammer.frontend.torch.program_loops import Scan, WhileLoop
from tvm_rammer.frontend.torch.random_definitions import DRAWN, number_of_run
from tvm_rammer.frontend.torch.size_guards import unmet
from tvm_rammer.frontend.torch.size_symbols import (
    FEWEST,
    SIZE_OPERATORS,
    SIZE_RELATIONS,
    SizeSymbols,
    has_open_sizes,
    is_symbolic,
    missing,
)
from tvm_rammer.frontend.torch.weights import weight_of

#: Why an operator is refused that computes with sizes as with numbers, and what helps.
_OPEN = (
    "its sizes are first known in a run, which is not supported here",
    "fix what decides them with shapes= or constants=, or export the model with torch.onnx.export "
    "instead",
)


def imported(program: Any, where: str, open_sizes: Mapping[str, str]) -> tvm.IRModule:
    """The Relax module of a prepared program; its weights are constants.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    where : str
        The model, for messages.
    open_sizes : mapping of str to str
        Names of sizes that each run decides, by PyTorch's symbols or formulas.

    Raises
    ------
    ModelError
        A converter refuses an operator's arguments.
    """
    program = with_real_ends(program, where)
    importer = _Importer(program, where, open_sizes)
    try:
        return importer.from_exported_program(program, False, False, False, None)
    except Exception:
        if importer.block_builder is not None:
            end_blocks(importer.block_builder)
        raise


class _Importer(ExportedProgramImporter):
    """An importer that knows what ``CONVERTERS`` have, and no other operator."""

    env: dict[Any, Any]

    def __init__(self, program: Any, where: str, open_sizes: Mapping[str, str]) -> None:
        super().__init__()
        self.program, self.where, self.draws = program, where, 0
        self.sizes = SizeSymbols(open_sizes)
        self.input_shapes = open_shapes(program)
        symbols = symbols_of(self.input_shapes)
        limits = program.range_constraints
        self.ranges = {symbol: limits[symbol] for symbol in limits if symbol in symbols}

    def create_input_vars(self, program: Any) -> Any:
        """The inputs, whose open sizes have the user's names."""
        weights, inputs, _ = super().create_input_vars(program)
        for name, shape in self.input_shapes.items():
            ty = relax.TensorType(list(map(self.sizes.of_input, shape)), inputs[name].ty.dtype)
            inputs[name] = relax.Var(inputs[name].name, ty)
        return weights, inputs, {}

    def _translate_fx_graph(
        self, module: Any, nodes: Any, inputs: Mapping[str, Any], *rest: Any
    ) -> Any:
        if module is self.program.graph_module:
            inputs = cast_to_formulas(self.block_builder, self.sizes, inputs, self.input_shapes)
            for symbol, limits in self.ranges.items():
                self._require_range(self.sizes.of_symbol(symbol), limits)
            missed = missed_numbers(self.program, self.sizes, symbols_of(self.input_shapes))
            missed = missed + unmet(self.program, self.sizes, self.where)
            end_unless_zero(self.block_builder, self.sizes.simplified(missed))
        return super()._translate_fx_graph(module, nodes, inputs, *rest)

    def _require_range(self, size: Any, limits: Any) -> None:
        """End runs whose sizes are not those that the program was exported for.

        PyTorch says 2 of sizes that it knows nothing of, and runs programs with 1.
        """
        if limits.lower > FEWEST:
            end_unless_zero(self.block_builder, missing(as_size(int(limits.lower)), as_size(size)))
        if limits.upper < FAR:
            end_unless_zero(self.block_builder, missing(as_size(size), as_size(int(limits.upper))))

    def create_convert_map(self) -> dict[str, Callable[[Any], Any]]:
        own = {name: partial(self._convert, name) for name in CONVERTERS}
        drawn = {name: partial(self._drawn, kind) for name, kind in DRAWN.items()}
        sizes = {
            **dict.fromkeys(SIZE_OPERATORS, self._size),
            **dict.fromkeys(SIZE_RELATIONS, lambda node: None),
            "_assert_scalar.default": self._check,
        }
        language = {
            "getitem": self._item_of_results,
            "cond": self._cond,
            "while_loop": self._while_loop,
            "scan": self._scan,
        }
        return {**own, **drawn, **sizes, **language}

    def _while_loop(self, node: Any) -> list[Any]:
        condition, body, states, read = node.args
        graphs = [self.env[each] for each in (condition, body)]
        given = [self._loop_operands(node, operands) for operands in (states, read)]
        loop = WhileLoop(graphs[0], self.block_builder, self._translated, graphs[1], *given)
        return loop.run(loop.goes_on(*given))

    def _scan(self, node: Any) -> list[Any]:
        body, states, scanned, read = node.args
        given = [self._loop_operands(node, each) for each in (states, [*scanned, *read])]
        results = [
            (tuple(value.shape), tvm_dtype(value.dtype))
            for value in node.meta["val"][len(states) :]
        ]
        count = int(scanned[0].meta["val"].shape[0])
        rest = self.block_builder, self._translated, self.env[body], *given
        return Scan(len(scanned), count, results, *rest).stacked()

    def _loop_operands(self, node: Any, operands: Any) -> list[Any]:
        """What a loop begins with or reads; weights are constants in its functions."""
        found = [self._loop_operand(each) for each in operands]
        for each in found:
            if not isinstance(each, relax.Expr) or None in shape_of(each):
                why = "it computes with numbers that are no tensors"
                raise ModelError(f"{self.where}: {refusal(node, why, 'make them tensors')}")
            if not are_numbers(*shape_of(each)):
                raise ModelError(f"{self.where}: {refusal(node, *_OPEN)}")
        return found

    def _loop_operand(self, operand: Any) -> Any:
        weight = weight_of(self.program, operand) if operand.op == "placeholder" else None
        if weight is None:
            return self.env[operand]
        table, name = weight
        return relax.const(self._convert_pytorch_tensor_to_tvm(table[name]))

    def _translated(self, graph: Any, operands: Sequence[Any]) -> list[Any]:
        """The results of a graph inside of the program, computed where this is asked for."""
        around = self.env, self.sizes
        places = graph.graph.find_nodes(op="placeholder")
        # Its sizes that are data are others each time.
        self.env, self.sizes = dict(zip(places, operands, strict=True)), SizeSymbols()
        try:
            found = self._translate_fx_graph(graph, list(graph.graph.nodes), {})
        finally:
            self.env, self.sizes = around
        return list(found)

    def _check(self, node: Any) -> None:
        """Sizes that do not fit end the run, as in PyTorch."""
        try:
            excess = self.sizes.excess(node.args[0].meta["val"].node.expr)
        except ModelError as error:
            raise ModelError(f"{self.where}: {refusal(node, str(error))}") from error
        end_unless_zero(self.block_builder, excess)

    def _size(self, node: Any) -> Any:
        """What a number is that PyTorch computed of sizes."""
        try:
            return self.sizes.size(node.meta["val"])
        except ModelError as error:
            raise ModelError(f"{self.where}: {refusal(node, str(error))}") from error

    def _convert(self, name: str, node: Any) -> Any:
        converter = (COMPLEX_CONVERTERS if has_complex_numbers(node) else CONVERTERS).get(name)
        if converter is None:
            why = "complex numbers are not supported here"
            advice = "compute with their real and imaginary parts"
            raise ModelError(f"{self.where}: {refusal(node, why, advice)}")
        call = OperatorCall(node, self.block_builder, self.sizes)
        try:
            arguments = self._arguments(node, converter)
            if has_open_sizes(node) and _is_pointwise(node):
                arguments = [call.fitted(x) if _is_tensor(x) else x for x in arguments]
            if widened(name, call, arguments):
                return in_float32(converter, call, arguments)
            note_bounds(call)
            return with_sizes(call, converter(call, *arguments))
        except ModelError as error:
            raise ModelError(f"{self.where}: {error}") from error
        except Exception as error:
            if any(map(has_open_sizes, (node, *node.all_input_nodes))):
                raise ModelError(f"{self.where}: {refusal(node, *_OPEN)}") from error
            raise ModelError(f"{self.where}: {refusal(node, one_line(error))}") from error

    def _arguments(self, node: Any, converter: Converter) -> list[Any]:
        """Arguments in the order of the schema, with its defaults, as many as are taken."""
        given = self._retrieve_args(node.args)
        named = self._retrieve_args(dict(node.kwargs))
        schema = node.target._schema.arguments
        values = [
            given[place] if place < len(given) else named.get(arg.name, arg.default_value)
            for place, arg in enumerate(schema)
        ]
        values = [list(value) if isinstance(value, tuple) else value for value in values]
        taken = inspect.signature(converter).parameters.values()
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in taken):
            return values
        return values[: len(taken) - 1]

    def _drawn(self, kind: str, node: Any) -> Any:
        """Random numbers, by the number of the run and a key of the operator's own."""
        run = number_of_run(node.graph)
        if run is None:
            why = "a branch of torch.cond draws random numbers"
            raise ModelError(f"{self.where}: {refusal(node, why, 'draw them before')}")
        key = key_of(f"operator {self.draws}")
        self.draws += 1
        size = list(map(as_size, self._retrieve_args(node.args[0])))
        draw = {"uniform": uniform, "normal": normal}[kind]
        return self.block_builder.emit_te(
            lambda number, size: draw(size, number, key),
            self.env[run],
            size,
            primfunc_name_hint=kind,
        )

    def _item_of_results(self, node: Any) -> Any:
        results, place = node.args
        values = self.env[results]
        if isinstance(values, list):
            return values[place] if place < len(values) else None
        return self._getitem(node)


def _is_tensor(argument: Any) -> bool:
    """Whether an argument is no number, and no formula of sizes (which Relax takes for both)."""
    return isinstance(argument, relax.Expr) and not tvm.ir.is_prim_expr(argument)


def _is_pointwise(node: Any) -> bool:
    """Whether an operator computes each element of those of its operands at the same place."""
    import torch

    return torch.Tag.pointwise in getattr(node.target, "tags", ())


def has_complex_numbers(node: Any) -> bool:
    """Whether any operand or result of a node is complex."""
    return any(map(_is_complex, (node, *node.all_input_nodes)))


def with_real_ends(program: Any, where: str) -> Any:
    """A program whose complex weights are given by their parts.

    Raises
    ------
    ModelError
        An input or an output is complex.
    """
    outputs = next(iter(program.graph.find_nodes(op="output")))
    for node in outputs.all_input_nodes:
        if _is_complex(node):
            raise ModelError(
                f"{where}: the program returns complex numbers ({place(node)}); return "
                "torch.view_as_real of them"
            )
    for node in program.graph.find_nodes(op="placeholder"):
        if _is_complex(node):
            _make_real(program, node, where)
    return program


def _make_real(program: Any, node: Any, where: str) -> None:
    """Store a weight as a real tensor, which the program takes for complex numbers."""
    import torch

    weight = weight_of(program, node)
    if weight is None:
        raise ModelError(
            f"{where}: input {node.name!r} is complex; take torch.view_as_real of it, and begin "
            "with torch.view_as_complex"
        )
    table, name = weight
    parts = torch.view_as_real(table[name].detach().resolve_conj()).contiguous()
    table[name] = parts
    with program.graph.inserting_after(node):
        joined = program.graph.call_function(torch.ops.aten.view_as_complex.default, (node,))
    node.replace_all_uses_with(joined, delete_user_cb=lambda user: user is not joined)
    joined.meta["val"] = node.meta["val"]
    node.meta["val"] = torch.empty_like(parts, device="meta")


def _is_complex(node: Any) -> bool:
    return any(value.is_complex() for value in _tensors(node.meta.get("val")))


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


#: Functions that processors have in 32 bits only.
_FUNCTIONS = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "cosh", "sinh", "erfc", "erfinv"),
    *("lgamma", "digamma", "i0", "special_i0e", "special_i1", "special_i1e", "special_erfcx"),
    "special_ndtri",
)
#: What tests for NaN, divides, or compares with more than one number at a time; of bfloat16 alone.
_OF_BFLOAT16 = (
    *("argmax", "argmin", "cummax", "cummin", "div", "floor_divide", "fmax", "fmin", "fmod"),
    *("isinf", "isnan", "ldexp", "log1p", "logaddexp", "maximum", "minimum", "nan_to_num"),
    *("pow", "remainder", "searchsorted", "softplus"),
)
_WIDENED = {"float16": frozenset(_FUNCTIONS), "bfloat16": frozenset((*_FUNCTIONS, *_OF_BFLOAT16))}


class _WideCall(OperatorCall):
    """A call whose result is wider than the node says."""

    @property
    def dtype(self) -> str:
        return wide_dtype(super().dtype)


def widened(name: str, call: OperatorCall, arguments: list[Any]) -> bool:
    """Whether an operator is computed in float32, of which some operands have 16 bits."""
    operator = name.partition(".")[0].strip("_")
    given = [dtype_of(value) for value in arguments if isinstance(value, relax.Expr)]
    return any(operator in _WIDENED.get(dtype, ()) for dtype in (*given, call.dtype))


def note_bounds(call: OperatorCall) -> None:
    """Of how many elements are true there are no more than elements."""
    value = call.node.meta.get("val")
    for symbol in call.node.meta.get("unbacked_bindings") or {}:
        if is_symbolic(value):
            continue
        operator, shape = call.node.target.__name__, call.node.args[0].meta["val"].shape
        known = operator == "nonzero.default" and are_numbers(*shape)
        call.sizes.bound(symbol, math.prod(shape) if known else None)
        if operator == "nms.default":
            call.sizes.pretend(symbol)


def with_sizes(call: OperatorCall, found: Any) -> Any:
    """Results with the program's names of their sizes, where those are not known before the run."""
    if not has_open_sizes(call.node):
        return found
    if not isinstance(found, list):
        return _with_sizes(call, found, call.node.meta["val"])
    types = call.node.meta["val"]
    return [_with_sizes(call, value, ty) for value, ty in zip(found, types, strict=False)]


def _with_sizes(call: OperatorCall, value: Any, ty: Any) -> Any:
    is_tensor = isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType)
    return call.sized(value, call.sizes.shape(ty.shape)) if is_tensor else value


def in_float32(converter: Callable[..., Any], call: OperatorCall, arguments: list[Any]) -> Any:
    """The result of a converter that is given float32, in the types that PyTorch has."""
    values = [call.wide(v) if isinstance(v, relax.Expr) else v for v in arguments]
    found = with_sizes(call, converter(_WideCall(call.node, call.builder, call.sizes), *values))
    types = call.node.meta["val"]
    if not isinstance(found, list):
        return call.cast(found, tvm_dtype(types.dtype))
    return [call.cast(value, tvm_dtype(ty.dtype)) for value, ty in zip(found, types, strict=False)]
