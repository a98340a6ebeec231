"""``LinearAttention``: matrices that remember keys with their values, asked by queries.

Each column of a head's matrix goes its own way, from the first token to the last: some columns at a
time are one loop over all tokens, which stays in a processor's first cache. Such loops of other
heads and columns run beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

#: Columns of a matrix that go through the tokens together, at most.
_MOST_COLUMNS = 32
#: Queries of a matrix up to which each has code of its own.
_MOST_UNROLLED = 8


def linear_attention(
    bb: relax.BlockBuilder, inputs: Sequence[Any], attributes: Mapping[str, Any]
) -> relax.Expr:
    """What queries find, and the matrices after the last token.

    Parameters
    ----------
    bb : relax.BlockBuilder
    inputs : sequence of relax.Expr
        Queries, keys and values ``[batch, tokens, heads * size]``; the matrices before the first
        token ``[batch, heads, size of a key, size of a value]``, else they are 0; of how much a
        token lets stay the logarithm, for each row of a matrix or for all of them; and how much of
        its value is new, for each head or for all of them.
    attributes : mapping
        ONNX's ``q_num_heads``, ``kv_num_heads`` and ``scale``. Its ``update_rule`` is the one for
        the inputs that are there.

    Raises
    ------
    ValueError
        When only the run tells how many elements a token has.
    """
    inputs = [*inputs, None, None, None][:6]
    attention = _attention(inputs, attributes)
    query, key, value, past, decay, beta = inputs
    batch, tokens, _ = query.ty.shape.values
    heads, asked = attention.heads, attention.heads * attention.group
    if decay is not None:
        decay = bb.emit(relax.op.exp(decay))
    for each in (key, value, decay, beta):
        _end_unless_alike(bb, each, [batch, tokens])
    _end_unless_alike(bb, past, [batch])
    shaped = (
        (query, (batch, tokens, asked, attention.keys)),
        (key, (batch, tokens, heads, attention.keys)),
        (value, (batch, tokens, heads, attention.values)),
        (decay, (batch, tokens, heads, _size(decay, 2) // heads)),
        (beta, (batch, tokens, _size(beta, 2))),
        (past, (batch, heads, attention.keys, attention.values)),
    )
    operands = [
        bb.emit(relax.op.reshape(x, relax.ShapeExpr(shape))) for x, shape in shaped if x is not None
    ]
    found = bb.emit_te(attention.computed, *operands, primfunc_name_hint="linear_attention")
    read, left = (bb.emit(relax.TupleGetItem(found, number)) for number in (0, 1))
    packed = relax.ShapeExpr([batch, tokens, asked * attention.values])
    return relax.Tuple([bb.emit(relax.op.reshape(read, packed)), left])


@dataclass(frozen=True)
class _LinearAttention:
    """How matrices change with a token, and what is asked of them.

    Attributes
    ----------
    heads, group : int
        Matrices, and queries that ask each of them.
    keys, values : int
        Rows and columns of a matrix.
    scale : float
        Of what is read.
    forgets, corrects, remembers : bool
        Whether there is a decay; a beta, for what a matrix does not say already; a past.
    """

    heads: int
    group: int
    keys: int
    values: int
    scale: float
    forgets: bool
    corrects: bool
    remembers: bool

    def computed(self, *tensors: te.Tensor) -> list[te.Tensor]:
        """What is read, ``[batch, tokens, heads * group, values]``, and the matrices."""
        batch, tokens, asked, _ = tensors[0].shape
        shapes = [(batch, tokens, asked, self.values), (batch, self.heads, self.keys, self.values)]
        dtypes = [str(tensors[0].dtype)] * 2
        return list(te.extern(shapes, tensors, self._loops, name="linear_attention", dtype=dtypes))

    @property
    def _columns(self) -> int:
        """Of those that go through the tokens together."""
        most = min(self.values, _MOST_COLUMNS)
        return next(count for count in range(most, 0, -1) if self.values % count == 0)

    def _loops(self, read: Sequence[Any], written: Sequence[Any]) -> Any:
        batch, tokens = read[0].shape[:2]
        strips = self.values // self._columns
        with IRBuilder() as builder, T.parallel(0, batch * self.heads * strips) as strip:
            head = strip // strips
            place = head // self.heads, head % self.heads, strip % strips * self._columns
            steps = _Steps(self, list(map(T.buffer_proxy, (*read, *written))), place)
            steps.begin()
            with T.serial(0, tokens) as token:
                steps.learn(token)
                steps.answer(token)
            steps.end()
        return builder.get()


class _Steps:
    """What a loop over tokens does with some columns of a head's matrix.

    Parameters
    ----------
    attention : _LinearAttention
    buffers : list of tirx.Buffer
        Queries, keys, values; decay, beta, past as far as there are any; both results.
    place : tuple of tirx.Expr
        Of a batch, the head, the first column.
    """

    def __init__(
        self, attention: _LinearAttention, buffers: Sequence[Any], place: tuple[Any, Any, Any]
    ) -> None:
        self.attention = attention
        self.batch, self.head, self.first = place
        self.query, self.key, self.value, *given, self.result, self.left = buffers
        self.decay: Any = given.pop(0) if attention.forgets else None
        self.beta: Any = given.pop(0) if attention.corrects else None
        self.past: Any = given.pop(0) if attention.remembers else None
        self.columns = attention._columns
        dtype = str(self.query.dtype)
        self.zero = tirx.const(0, dtype)
        shapes = (self.columns,), (attention.group, self.columns), (attention.keys, self.columns)
        self.new, self.found, self.matrix = (
            T.buffer_proxy(T.alloc_buffer(shape, dtype, scope="local")) for shape in shapes
        )

    def begin(self) -> None:
        """The matrix before the first token."""
        with T.serial(0, self.attention.keys) as row, self._each_column() as column:
            at = self._at(row, column)
            self.matrix[row, column] = self.zero if self.past is None else self.past[at]

    def end(self) -> None:
        """The matrix after the last token."""
        with T.serial(0, self.attention.keys) as row, self._each_column() as column:
            self.left[self._at(row, column)] = self.matrix[row, column]

    def learn(self, token: Any) -> None:
        """What a token adds to each row, of which its key is a multiple."""
        with self._each_column() as column:
            self.new[column] = self.zero
        if not self.attention.corrects:
            with self._each_column() as column:
                self.new[column] = self._value(token, column)
            return
        with T.serial(0, self.attention.keys) as row, self._each_column() as column:
            kept = self.matrix[row, column]
            if self.decay is not None:
                self.matrix[row, column] = kept * self._stays(token, row)
            known = self.matrix[row, column] * self._key(token, row)
            self.new[column] = self.new[column] + known
        with self._each_column() as column:
            missing = self._value(token, column) - self.new[column]
            self.new[column] = self._share(token) * missing

    def answer(self, token: Any) -> None:
        """The matrix after a token, and what its queries find there."""
        group = self.attention.group
        scale = tirx.const(self.attention.scale, str(self.query.dtype))
        with self._each_query() as asked, self._each_column() as column:
            self.found[asked, column] = self.zero
        with T.serial(0, self.attention.keys) as row:
            with self._each_column() as column:
                kept = self.matrix[row, column]
                if self.decay is not None and not self.attention.corrects:
                    kept = kept * self._stays(token, row)
                self.matrix[row, column] = kept + self._key(token, row) * self.new[column]
            with self._each_query() as asked, self._each_column() as column:
                weight = self.query[self.batch, token, self.head * group + asked, row]
                read = weight * self.matrix[row, column]
                self.found[asked, column] = self.found[asked, column] + read
        with self._each_query() as asked, self._each_column() as column:
            to = self.batch, token, self.head * group + asked, self.first + column
            self.result[to] = self.found[asked, column] * scale

    def _each_column(self) -> Any:
        """All at once, so that what is summed up for them stays in registers."""
        return (T.vectorized if self.columns > 1 else T.serial)(0, self.columns)

    def _each_query(self) -> Any:
        group = self.attention.group
        return (T.unroll if group <= _MOST_UNROLLED else T.serial)(0, group)

    def _at(self, row: Any, column: Any) -> tuple[Any, ...]:
        return self.batch, self.head, row, self.first + column

    def _key(self, token: Any, row: Any) -> Any:
        return self.key[self.batch, token, self.head, row]

    def _value(self, token: Any, column: Any) -> Any:
        return self.value[self.batch, token, self.head, self.first + column]

    def _stays(self, token: Any, row: Any) -> Any:
        """How much of a row."""
        own = row if _size(self.decay, 3) > 1 else 0
        return self.decay[self.batch, token, self.head, own]

    def _share(self, token: Any) -> Any:
        """How much of what is missing is added."""
        return self.beta[self.batch, token, self.head if _size(self.beta, 2) > 1 else 0]


def _attention(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> _LinearAttention:
    """What a node says; ONNX has checked that shapes and rule agree, as far as sizes are known."""
    query, key, value, past, decay, beta = inputs
    asked, heads = int(attributes["q_num_heads"]), int(attributes["kv_num_heads"])
    keys, values = _size(query, 2) // asked, _size(value, 2) // heads
    for each, axes in ((key, (2,)), (past, (1, 2, 3))):
        for axis in axes:
            _size(each, axis)
    scale = float(attributes.get("scale", 0.0)) or 1 / sqrt(keys)
    flags = (each is not None for each in (decay, beta, past))
    return _LinearAttention(heads, asked // heads, keys, values, scale, *flags)


def _end_unless_alike(bb: relax.BlockBuilder, x: Any, sizes: Sequence[Any]) -> None:
    """End the run where it finds other sizes of the first axes than the queries'."""
    if x is None:
        return
    own = x.ty.shape.values
    known = [isinstance(size, tirx.IntImm) for size in (*own[: len(sizes)], *sizes)]
    if not all(known):
        found = bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr(own)))
        wanted = relax.ShapeType([*sizes, *own[len(sizes) :]])
        bb.match_cast(bb.emit(relax.op.tensor_to_shape(found)), wanted)


def _size(tensor: Any, axis: int) -> int:
    """Of the axis of an operand or a buffer; 0 of one that is left out."""
    if tensor is None:
        return 0
    shape = tensor.ty.shape if isinstance(tensor, relax.Expr) else tensor.shape
    size = shape[axis]
    if not isinstance(size, tirx.IntImm):
        raise ValueError("how many elements a token has is known only at run time")
    return int(size)
