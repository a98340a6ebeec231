"""Writes what libraries compute on one thread, for others to be compared with bit for bit.

TVM_NUM_THREADS=1 python -m serving.reference '[["library.so", "inputs.npz", "outputs.npz"]]'
"""

from __future__ import annotations

import json
import sys

import numpy as np

from serving.served import read
from tvm_rammer.runtime.loading import load


def main(work: list[tuple[str, str, str]]) -> None:
    """Run every library on its inputs, alone."""
    for library, inputs, outputs in work:
        module = load(library).create()
        found = [output.numpy() for output in module(**read(inputs))]
        if module.num_workers != 1:
            raise SystemExit("more than one thread computes; set TVM_NUM_THREADS=1")
        np.savez(outputs, *found)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
