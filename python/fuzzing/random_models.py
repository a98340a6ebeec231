"""Random Relax models in the shapes of real networks, whose operators can be compiled and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from fuzzing.random_graphs import Shape, random_edges

#: Rows and columns that the matrices of a model may have; some are no multiple of a vector.
_SIZES = (8, 12, 16, 33)
_NUM_WEIGHTS = 4
#: Above 1 the operators do not damp: a wrong number anywhere is still seen in the outputs.
_GAIN = 1.5


def random_model(
    seed: int, shape: Shape = "mixed", operators: int = 50, noise: float = 0.0
) -> tvm.IRModule:
    """Make a model of products, softmaxes and normalisations of square matrices.

    Parameters
    ----------
    seed : int
        The same seed gives the same model.
    shape : {"chain", "tree", "diamond", "wide", "ladder", "mixed"}
        See :func:`~fuzzing.random_graphs.random_graph`.
    operators : int
        How many there are after fusion, about: where many results meet there is one more.
    noise : float
        Every operator's result is wrong by about this part of itself: what that does to the outputs
        tells how much rounding may do.

    Returns
    -------
    model : tvm.IRModule
        ``main`` has two inputs; the outputs are all results that nothing reads.
    """
    rng = np.random.default_rng(seed)
    edges = random_edges(rng, shape, operators)
    return _Writer(rng, noise).write(edges)


class _Writer:
    """Writes ``main``, operator after operator."""

    def __init__(self, rng: np.random.Generator, noise: float) -> None:
        self.rng, self.noise = rng, noise
        self.errors = np.random.default_rng(0)
        self.size = int(rng.choice(_SIZES))
        deviation = _GAIN / self.size**0.5
        self.weights = [self._constant(deviation) for _ in range(_NUM_WEIGHTS)]
        self.ones = relax.const(np.ones(self.size, "float32"))
        self.zeros = relax.const(np.zeros(self.size, "float32"))
        self.builder = relax.BlockBuilder()

    def write(self, edges: list[list[int]]) -> tvm.IRModule:
        size = (self.size, self.size)
        inputs = [relax.Var(name, relax.TensorType(size, "float32")) for name in ("x", "y")]
        read = {number for before in edges for number in before}
        with self.builder.function("main", inputs):
            with self.builder.dataflow():
                results: list[Any] = []
                for before in edges:
                    arguments = [results[number] for number in before]
                    result = self._operator(arguments or [inputs[self.rng.integers(2)]])
                    results.append(self._disturbed(result) if self.noise else result)
                leaves = [result for k, result in enumerate(results) if k not in read]
                outputs = self.builder.emit_output(relax.Tuple(leaves))
            self.builder.emit_func_output(outputs)
        return self.builder.finalize()

    def _operator(self, arguments: list[Any]) -> Any:
        if len(arguments) == 1:
            kinds: list[Callable[[Any], Any]] = [
                self._dense,
                self._dense,
                self._softmax,
                self._norm,
            ]
            return kinds[self.rng.integers(len(kinds))](arguments[0])
        if len(arguments) == 2:
            product = self._emit(op.matmul(*arguments))
            return self._emit(op.tanh(self._emit(op.add(product, arguments[0]))))
        return self._mean(arguments)

    def _dense(self, x: Any) -> Any:
        weight = self.weights[self.rng.integers(_NUM_WEIGHTS)]
        return self._emit(op.tanh(self._emit(op.matmul(x, weight))))

    def _softmax(self, x: Any) -> Any:
        return self._emit(op.nn.softmax(x))

    def _norm(self, x: Any) -> Any:
        return self._emit(op.nn.layer_norm(x, self.ones, self.zeros, axes=[-1]))

    def _mean(self, arguments: list[Any]) -> Any:
        joined = self._emit(op.concat(arguments, axis=0))
        stacked = self._emit(op.reshape(joined, (len(arguments), self.size, self.size)))
        return self._emit(op.mean(stacked, axis=0))

    def _disturbed(self, x: Any) -> Any:
        error = 1 + self.noise * self.errors.standard_normal((self.size, self.size))
        return self._emit(op.multiply(x, relax.const(error.astype("float32"))))

    def _constant(self, deviation: float) -> Any:
        values = self.rng.standard_normal((self.size, self.size)) * deviation
        return relax.const(values.astype("float32"))

    def _emit(self, value: Any) -> Any:
        return self.builder.emit(value)
