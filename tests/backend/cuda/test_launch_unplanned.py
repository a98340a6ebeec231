"""What only the run tells the sizes of is launched on the GPU, and so never read by the host.

On the emulated driver, whose memory ends the process that touches it from the host.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from emulated_cuda.driver import driver_environment, driver_obstacle, emulated_machine_code
from run_time_graphs import CONSUMERS, PRODUCERS, Graph

import tvm_rammer

ROOT = Path(__file__).parents[3]
TARGET = {"kind": "cuda", "arch": "sm_90"}
#: The emulation has no header for bfloat16.
LEFT_OUT = ("rounded",)
#: Runs a library on pickled inputs.
RUN = """
import pickle
import sys
from pathlib import Path
import tvm
import tvm_rammer

library, feeds, found = map(Path, sys.argv[1:])
module = tvm_rammer.load(library).create(tvm.cuda(0))
results = []
for feed in pickle.loads(feeds.read_bytes()):
    module.set_input(**feed)
    module.run()
    results.append([module.get_output(k).numpy() for k in range(module.get_num_outputs())])
found.write_bytes(pickle.dumps(results))
"""


@pytest.mark.skipif(bool(driver_obstacle()), reason=driver_obstacle())
@pytest.mark.parametrize("producer", ["boxes", "slice"])
def test_what_follows_a_size_of_run_time(producer, tmp_path):
    graph = Graph()
    value = PRODUCERS[producer](graph)
    followers = [follow for name, follow in CONSUMERS.items() if name not in LEFT_OUT]
    outputs = [value[0], *(follow(graph, *value)[0] for follow in followers)]
    model = graph.model(outputs)
    paths = [tmp_path / name for name in ("library.so", "feeds", "found")]
    with emulated_machine_code():
        library = tvm_rammer.build(model, TARGET, policy="sequential", num_veus=4)
        library.export_library(paths[0])
    paths[1].write_bytes(pickle.dumps(graph.feeds))
    given = {**driver_environment(), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, *map(os.fspath, paths)]
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for feed, found in zip(graph.feeds, pickle.loads(paths[2].read_bytes()), strict=True):
        for name, got, want in zip(outputs, found, session.run(None, feed), strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype), name
            np.testing.assert_allclose(got, want, 1e-5, 1e-5, err_msg=name)
