"""Small modules whose operators write and read parts of each other's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from close import assert_close
from small_graphs import TARGET, run
from stress.compiled_regions import Source, in_new_thread
from tvm import relax

from tvm_rammer.rprogram import OperatorGraph, verify


def module(build: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    """A function of what ``build`` makes of tensors of these shapes, one result or several."""
    params = [relax.Var(f"x{k}", relax.TensorType(s, dtype)) for k, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            results = build(builder.emit, *params)
            several = isinstance(results, list)
            outputs = [builder.emit_output(r) for r in (results if several else [results])]
        builder.emit_func_output(outputs if several else outputs[0])
    return builder.get()


def graph_of(mod: Any) -> OperatorGraph:
    return Source.of_module(mod, TARGET).graph.graph


def names(graph: OperatorGraph) -> list[str]:
    return [op.name.removeprefix("tir_") for op in graph.operators]


def parts(graph: OperatorGraph) -> dict[str, tuple[str, int, int]]:
    """By name of each part: its whole, and the offset and the pitch in bytes."""
    return {
        b.name: (graph.buffers[b.index].name, b.offset, b.pitch)
        for b in graph.buffers
        if b.space == "part"
    }


def assert_runs(mod: Any, policy: str = "wavefront", num_veus: int = 2) -> OperatorGraph:
    """The planned model computes what TVM's own pipeline does; returns its graph."""
    source = Source.of_module(mod, TARGET)
    program = source.plan(policy, num_veus)
    verify(program)
    inputs = source.inputs()
    got = in_new_thread(lambda: source.compile(program).run(inputs), num_veus)
    want = run(relax.build(mod, "llvm"), inputs)
    for left, right in zip(got, want, strict=True):
        assert_close(left, right)
    return source.graph.graph
