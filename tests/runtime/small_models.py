"""Small models, and Python in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_rammer.machine import OversubscriptionWarning
from tvm_rammer.runtime.library import Library

ROOT = Path(__file__).parents[2]


@I.ir_module
class Sorting:
    """Two regions with an operator between them that no plan takes: it sorts long rows."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((600, 8), "float32")):
        with R.dataflow():
            a = R.nn.softmax(x)
            b = R.matmul(a, R.permute_dims(y))
            c = R.sort(b, axis=1)
            d = R.nn.softmax(c)
            e = R.matmul(d, y)
            result = (e, (a, y))
            R.output(result)
        return result


def sorting(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """What :class:`Sorting` computes."""
    a = softmax(x)
    return [softmax(np.sort(a @ y.T, axis=1)) @ y, a, y]


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@I.ir_module
class Branches:
    """One region: two branches and what joins them."""

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.nn.softmax(x)
            b = R.matmul(a, R.permute_dims(x))
            c = R.nn.softmax(y)
            d = R.matmul(c, R.permute_dims(y))
            e = R.matmul(b, d)
            R.output(e)
        return e


def branches(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What :class:`Branches` computes."""
    return (softmax(x) @ x.T) @ (softmax(y) @ y.T)


@I.ir_module
class Pair:
    """An input that is a tuple."""

    @R.function
    def main(pair: R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32"))):
        with R.dataflow():
            a = R.add(pair[0], pair[1])
            R.output(a)
        return a


@I.ir_module
class Dynamic:
    """A symbolic number of rows, beside operators whose shapes are known."""

    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        n = T.int64()
        with R.dataflow():
            a = R.nn.softmax(w)
            b = R.matmul(w, a)
            c = R.matmul(x, b)
            d = R.reshape(c, (n * 8,))
            R.output(d)
        return d


def dynamic(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What :class:`Dynamic` computes."""
    return (x @ (w @ softmax(w))).reshape(-1)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def replan(library: Library, **options: Any) -> Library:
    """Plan anew, for more vEUs than there are CPUs if need be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OversubscriptionWarning)
        return library.replan(oversubscribe=True, **options)


#: First lines of a program that cannot import this package.
BLOCKED = """
import sys
import warnings

sys.modules["tvm_rammer"] = None
warnings.filterwarnings("ignore", message=".*tvm_rammer.*")
"""


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process where nobody has asked for a number of workers."""
    inherited = {key: value for key, value in os.environ.items() if key != "TVM_NUM_THREADS"}
    folders = [str(ROOT / each) for each in ("", "tests/helpers", "tests/runtime")]
    path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    return {**inherited, "PYTHONPATH": path, **changes}


def python(code: str, *arguments: Any, **changes: str) -> str:
    """What a program prints in a process of its own."""
    child = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout
