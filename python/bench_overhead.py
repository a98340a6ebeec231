"""What GraphModule.run() costs above the direct call of its kernel, with two small operators.

python python/bench_overhead.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import click
from onnx import TensorProto, helper

import tvm_rammer


def two_operators() -> object:
    """``relu(x)`` and ``-x`` of 16 numbers: next to nothing to compute."""
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16]) for n in ("x", "a", "b")]
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    graph = helper.make_graph(nodes, "two_operators", types[:1], types[1:])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def seconds(work: Callable[[], None], number: int = 1000) -> float:
    """Mean of ``number`` calls."""
    started = time.perf_counter()
    for _ in range(number):
        work()
    return (time.perf_counter() - started) / number


@click.command()
@click.option("--repeat", default=30, show_default=True, help="Turns that the two take.")
def main(repeat: int) -> None:
    """Print the fastest of both, in microseconds."""
    for num_veus in (1, None):
        module = tvm_rammer.build(two_operators(), num_veus=num_veus).create()
        kernel = partial(module._kernel, *module._arguments)
        pairs = [(seconds(module.run), seconds(kernel)) for _ in range(repeat)]
        run, call = (min(times) * 1e6 for times in zip(*pairs, strict=True))
        click.echo(
            f"{module.num_veus} vEUs: run() {run:.2f} us, the kernel's call {call:.2f} us, "
            f"difference {run - call:.2f} us"
        )


if __name__ == "__main__":
    main()
