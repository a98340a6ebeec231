"""Random operator graphs in the shapes of real networks, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Literal, get_args

import numpy as np

from tvm_rammer.rprogram import Buffer, Operator, OperatorGraph, RKernel, aligned
from tvm_rammer.rprogram.program import Mode, Space

Shape = Literal["chain", "tree", "diamond", "wide", "ladder", "mixed"]

#: Every shape that :func:`random_graph` knows.
SHAPES: tuple[Shape, ...] = get_args(Shape)

#: For each operator the operators whose results it reads.
Edges = list[list[int]]


def random_graph(
    seed: int | np.random.Generator, shape: Shape = "mixed", operators: int = 50
) -> OperatorGraph:
    """Make an operator graph with kernel candidates, constants, several outputs and odd buffers.

    Parameters
    ----------
    seed : int or numpy.random.Generator
        The same seed gives the same graph.
    shape : {"chain", "tree", "diamond", "wide", "ladder", "mixed"}
        One after the other; a reduction; forks and joins (Inception); independent towers under one
        join; a grid in which each cell needs its left and its lower neighbour (an unrolled LSTM);
        or any acyclic graph.
    operators : int
        How many operators.

    Returns
    -------
    graph : OperatorGraph
        One to three candidates per operator. Operators of one type share their candidates. Some
        buffers have no bytes, some operators write two buffers, some results are read by nobody,
        and some are parts of a buffer that is read in their place.
    """
    rng = np.random.default_rng(seed)
    return _GraphBuilder(rng).build(f"{shape}{operators}", random_edges(rng, shape, operators))


def random_edges(rng: np.random.Generator, shape: Shape, operators: int) -> Edges:
    """For each operator the operators whose results it reads; see :func:`random_graph`."""
    return _EDGES[shape](operators, rng)


def _chain(operators: int, rng: np.random.Generator) -> Edges:
    return [[i - 1] if i else [] for i in range(operators)]


def _tree(operators: int, rng: np.random.Generator) -> Edges:
    edges: Edges = [[] for _ in range((operators + 1) // 2)]
    roots = list(range(len(edges)))
    while len(edges) < operators:
        pair = [roots.pop(0) for _ in range(min(2, len(roots)))]
        roots.append(len(edges))
        edges.append(pair)
    return edges


def _diamond(operators: int, rng: np.random.Generator) -> Edges:
    edges: Edges = [[]]
    while len(edges) < operators:
        fork = len(edges) - 1
        ends = []
        for _ in range(rng.integers(2, 5)):
            end = fork
            for _ in range(rng.integers(1, 4)):
                edges.append([end])
                end = len(edges) - 1
            ends.append(end)
        edges.append(ends)
    return edges[:operators]


def _wide(operators: int, rng: np.random.Generator) -> Edges:
    edges: Edges = []
    for i in range(operators - 1):
        edges.append([i - 1] if i and rng.random() < 0.3 else [])
    inner = {p for before in edges for p in before}
    return [*edges, [i for i in range(operators - 1) if i not in inner]]


def _ladder(operators: int, rng: np.random.Generator) -> Edges:
    width = int(rng.integers(2, max(3, int(operators**0.5) + 1)))
    return [
        [p for p, exists in ((i - width, i >= width), (i - 1, i % width)) if exists]
        for i in range(operators)
    ]


def _mixed(operators: int, rng: np.random.Generator) -> Edges:
    edges: Edges = []
    for i in range(operators):
        near = np.arange(max(0, i - 12), i)
        edges.append(rng.permutation(near)[: rng.integers(0, 4)].tolist())
    return edges


_EDGES: dict[Shape, Callable[[int, np.random.Generator], Edges]] = {
    "chain": _chain,
    "tree": _tree,
    "diamond": _diamond,
    "wide": _wide,
    "ladder": _ladder,
    "mixed": _mixed,
}


class _GraphBuilder:
    """Hangs buffers and kernel candidates on the edges of a graph."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.buffers: list[Buffer] = []
        self.constants: list[int] = []
        self.inputs: list[int] = []
        self.num_outputs = 0
        self.constant_bytes = 0
        self.candidates: dict[tuple[object, ...], tuple[RKernel, ...]] = {}
        types = int(rng.integers(1, 6))
        self.shapes = [self._shape() for _ in range(types)]

    def build(self, name: str, edges: Edges) -> OperatorGraph:
        for index in range(self.rng.integers(1, 4)):
            self.inputs.append(self._buffer(f"input{index}", "input", index))
        read = {p for before in edges for p in before}
        results: list[int] = []
        operators: list[Operator] = []
        for number, before in enumerate(edges):
            reads = [results[p] for p in before] or [int(self.rng.choice(self.inputs))]
            if self.rng.random() < 0.5:
                reads.append(self._constant())
            writes = self._results(number, leaf=number not in read)
            results.append(int(self.rng.choice(writes)))
            operators.append(self._operator(number, reads, writes))
        operators = [self._concatenated(op) if self.rng.random() < 0.2 else op for op in operators]
        return OperatorGraph(name, tuple(self.buffers), tuple(operators), self.constant_bytes)

    def _shape(self) -> tuple[int, ...]:
        return tuple(int(2**n) for n in self.rng.uniform(0, 7, size=self.rng.integers(1, 4)))

    def _buffer(self, name: str, space: Space, index: int = 0, offset: int = 0) -> int:
        shape = self.shapes[self.rng.integers(len(self.shapes))]
        if self.rng.random() < 0.02:
            shape = (0, *shape[1:])
        dtype = str(self.rng.choice(["float32"] * 6 + ["float64", "int32", "bool"]))
        self.buffers.append(Buffer(name, shape, dtype, space, index, offset))
        return len(self.buffers) - 1

    def _constant(self) -> int:
        if self.constants and self.rng.random() < 0.2:
            return int(self.rng.choice(self.constants))
        name = f"constant{len(self.constants)}"
        self.constants.append(self._buffer(name, "constant", 0, self.constant_bytes))
        self.constant_bytes += aligned(self.buffers[-1].nbytes)
        return self.constants[-1]

    def _results(self, number: int, leaf: bool) -> list[int]:
        """One or two buffers; outputs of the graph if nobody reads them, and sometimes else."""
        spaces: list[Space] = ["output" if leaf or self.rng.random() < 0.03 else "arena"]
        if self.rng.random() < 0.1:
            spaces.append("output" if self.rng.random() < 0.2 else "arena")
        written = []
        for part, space in enumerate(spaces):
            index = self.num_outputs if space == "output" else 0
            written.append(self._buffer(f"result{number}.{part}", space, index))
            self.num_outputs += space == "output"
        return written

    def _concatenated(self, operator: Operator) -> Operator:
        """The operator reads a buffer whose parts are the results that it read.

        One part is read by itself too, and maybe the first two as one.
        """
        modes = operator.candidates[0].modes
        read = [b for b, mode in zip(operator.arguments, modes, strict=True) if mode == "read"]
        parts = [b for b in dict.fromkeys(read) if self.buffers[b].space == "arena"]
        if len(parts) < 2 or any(b.index in parts for b in self.buffers if b.space == "part"):
            return operator
        rows = int(self.rng.integers(1, 4))
        widths = self.rng.integers(1, 40, len(parts)).tolist()
        space: Space = "output" if self.rng.random() < 0.1 else "arena"
        index = self.num_outputs if space == "output" else 0
        self.num_outputs += space == "output"
        whole = len(self.buffers)
        name = "+".join(self.buffers[part].name for part in parts)
        self.buffers.append(Buffer(name, (rows, sum(widths)), "float32", space, index))
        pitch, start = 4 * sum(widths), 0
        for part, width in zip(parts, widths, strict=True):
            self.buffers[part] = Buffer(
                self.buffers[part].name, (rows, width), "float32", "part", whole, start, pitch
            )
            start += 4 * width
        instead = {parts[0]: whole}
        if len(parts) > 2 and self.rng.random() < 0.5:
            shape = (rows, widths[0] + widths[1])
            self.buffers.append(
                Buffer(f"start of {name}", shape, "float32", "part", whole, 0, pitch)
            )
            instead[parts[1]] = whole + 1
        return replace(operator, arguments=tuple(instead.get(a, a) for a in operator.arguments))

    def _operator(self, number: int, reads: list[int], writes: list[int]) -> Operator:
        modes: list[Mode] = ["read"] * len(reads)
        modes += ["write"] * len(writes)
        arguments = (*reads, *writes)
        return Operator(f"operator{number}", self._kernels(arguments, tuple(modes)), arguments)

    def _kernels(self, arguments: tuple[int, ...], modes: tuple[Mode, ...]) -> tuple[RKernel, ...]:
        types = tuple((self.buffers[a].shape, self.buffers[a].dtype) for a in arguments)
        if (modes, types) not in self.candidates:
            name = f"body{len(self.candidates)}"
            elements = prod(types[modes.index("write")][0])
            self.candidates[modes, types] = tuple(self._candidates(name, elements, modes))
        return self.candidates[modes, types]

    def _candidates(self, name: str, elements: int, modes: tuple[Mode, ...]) -> list[RKernel]:
        """From fast (many short tiles) to efficient (few long ones, less work in all)."""
        tiles = max(1, min(elements, int(2 ** self.rng.uniform(0, 6))))
        time = float(10 ** self.rng.uniform(-7, -4))
        found = [RKernel(f"{name}_0", tiles, modes, time, "random", "fast")]
        for variant in range(1, self.rng.integers(1, 4)):
            fewer = tiles // int(self.rng.integers(2, 5))
            if fewer == 0:
                break
            time *= max(1.0, tiles / fewer * self.rng.uniform(0.6, 0.95))
            tiles = fewer
            if time > 1e-4:
                break
            found.append(
                RKernel(f"{name}_{variant}", tiles, modes, time, "random", f"efficient {variant}")
            )
        return found
