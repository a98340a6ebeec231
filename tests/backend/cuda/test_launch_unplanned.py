"""What only the run tells the sizes of is launched on the GPU, and so never read by the host.

On the emulated driver, whose memory ends the process that touches it from the host.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from emulated_cuda.driver import driver_environment, driver_obstacle, emulated_machine_code
from onnx import TensorProto, helper, numpy_helper
from run_time_graphs import CONSUMERS, PRODUCERS, Graph
from tvm import relax, tirx

import tvm_rammer

ROOT = Path(__file__).parents[3]
TARGET = {"kind": "cuda", "arch": "sm_90"}
#: The emulation has no header for bfloat16.
LEFT_OUT = ("rounded",)
pytestmark = pytest.mark.skipif(bool(driver_obstacle()), reason=driver_obstacle())
#: Runs the function of a library on pickled arguments, again and again.
RUN = """
import pickle
import sys
from pathlib import Path
import tvm
import tvm_rammer
from tvm import relax

library, calls, found = map(Path, sys.argv[1:])
gpu = tvm.cuda(0)
machine = relax.VirtualMachine(tvm_rammer.load(library).executable, gpu)
results = []
for arguments in pickle.loads(calls.read_bytes()):
    given = [tvm.runtime.tensor(each, gpu) for each in arguments]
    outputs = machine["main"](*given)
    several = outputs if not hasattr(outputs, "numpy") else [outputs]
    results.append([output.numpy() for output in several])
found.write_bytes(pickle.dumps(results))
"""


def run(model: Any, calls: Sequence[Sequence[np.ndarray]], folder: Path) -> list[list[np.ndarray]]:
    """What a model gives in a process of its own, from a file."""
    paths = [folder / name for name in ("library.so", "calls", "found")]
    with emulated_machine_code():
        library = tvm_rammer.build(model, TARGET, policy="sequential", num_veus=4)
        library.export_library(paths[0])
    paths[1].write_bytes(pickle.dumps(calls))
    given = {**driver_environment(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, *map(os.fspath, paths)]
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[list[np.ndarray]] = pickle.loads(paths[2].read_bytes())
    return found


def check(graph: Graph, outputs: list[str], folder: Path) -> None:
    """The results of both runs are ONNX Runtime's."""
    model = graph.model(outputs)
    results = run(model, [list(feed.values()) for feed in graph.feeds], folder)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for feed, found in zip(graph.feeds, results, strict=True):
        for name, got, want in zip(outputs, found, session.run(None, feed), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), name
            np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=name)


@pytest.mark.parametrize("producer", ["boxes", "slice"])
def test_what_follows_a_size_of_run_time(producer, tmp_path):
    graph = Graph()
    value = PRODUCERS[producer](graph)
    followers = [follow for name, follow in CONSUMERS.items() if name not in LEFT_OUT]
    check(graph, [value[0], *(follow(graph, *value)[0] for follow in followers)], tmp_path)


def test_what_has_threads_for_a_part_of_its_work(tmp_path):
    """TVM writes scatters and sorting for GPUs, but not all that goes with them."""
    graph = Graph()
    rows, new = graph.floats(6, 4), graph.floats(3, 4)
    places = graph.input(np.array([[5], [0], [-2]]), np.array([[1], [-1], [2]]))
    outputs = [graph.op("ScatterND", graph.op("Exp", rows), places, graph.op("Neg", new))]
    outputs.append(graph.op("ScatterND", rows, places, new, reduction="add"))
    outputs.append(
        graph.op(
            "ScatterElements",
            rows,
            places,
            graph.op("Slice", new, *map(graph.constant, ([0], [1], [1]))),
            axis=0,
        )
    )
    outputs.append(graph.op("TopK", graph.op("Sin", rows), graph.constant([2]), results=2))
    outputs.append(graph.op("CumSum", graph.op("Exp", rows), graph.constant(1)))
    check(graph, outputs, tmp_path)


def test_rows_of_which_there_may_be_none(tmp_path):
    """Rules that share sums among threads, whose launches are of as many blocks as rows."""
    rng = np.random.default_rng(0)
    weights, more = (rng.standard_normal(shape).astype("float32") for shape in ((64, 96), (96, 7)))
    x = relax.Var("x", relax.TensorType((tirx.Var("rows", "int64"), 64), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.tanh(relax.op.matmul(x, relax.const(weights))))
            result = relax.op.nn.softmax(relax.op.matmul(hidden, relax.const(more)))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    rows = [rng.standard_normal((count, 64)).astype("float32") for count in (1, 33, 0, 5)]
    for given, (found,) in zip(
        rows, run(builder.get(), [[x] for x in rows], tmp_path), strict=True
    ):
        powers = np.exp(np.tanh(given @ weights) @ more)
        np.testing.assert_allclose(found, powers / powers.sum(1, keepdims=True), 1e-4, 1e-6)


def test_loops_whose_steps_only_the_run_counts(tmp_path):
    """Their conditions come to the host, and all that they compute stays on the GPU."""
    node = helper.make_node
    state, steps = TensorProto.FLOAT, TensorProto.INT64
    tensor = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("MatMul", ["state", "w"], ["product"]),
            node("Tanh", ["product"], ["after"]),
            node("Identity", ["going"], ["more"]),
        ],
        "body",
        [
            tensor("number", steps, []),
            tensor("going", TensorProto.BOOL, []),
            tensor("state", state, [3, 4]),
        ],
        [
            tensor("more", TensorProto.BOOL, []),
            tensor("after", state, [3, 4]),
            tensor("after", state, [3, 4]),
        ],
    )
    w = np.random.default_rng(0).standard_normal((4, 4)).astype("float32")
    graph = helper.make_graph(
        [node("Loop", ["steps", "", "x"], ["y", "all"], body=body)],
        "graph",
        [tensor("x", state, [3, 4]), tensor("steps", steps, [])],
        [tensor("y", state, [3, 4]), tensor("all", state, [None, 3, 4])],
        [numpy_helper.from_array(w, "w")],
    )
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    feeds = [{"x": np.eye(3, 4, dtype="float32"), "steps": np.array(n)} for n in (5, 0)]
    results = run(model, [list(feed.values()) for feed in feeds], tmp_path)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for feed, found in zip(feeds, results, strict=True):
        for got, want in zip(found, session.run(None, feed), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)
