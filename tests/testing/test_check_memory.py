"""Compiled code under valgrind: networks are clean, and what reads beyond a tensor is found."""

from __future__ import annotations

import platform
import shutil

import check_memory
import pytest
from check_memory import compiled, faults

from tvm_rammer.errors import RammerError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("valgrind") is None or platform.machine() != "x86_64", reason="needs valgrind"
    ),
]


SHORTER = """
import numpy as np

def shorter(array):
    one = array.ravel()[:1].copy()
    return np.lib.stride_tricks.as_strided(one, array.shape, array.strides)
"""


def test_networks_touch_nothing_else(tmp_path):
    names = ("lstm_8x8x256", "inception_v1")
    assert faults([compiled(name, "wavefront", 2, tmp_path) for name in names]) == []


def test_a_tensor_that_is_smaller_than_it_says_is_found(tmp_path):
    run = check_memory._RUN.replace("saved[name])", "shorter(saved[name]))")
    run = f"{SHORTER}\n{run}"
    found = faults([compiled("mlp", "sequential", 1, tmp_path)], run)
    assert {fault.model for fault in found} == {"mlp"}
    assert any(fault.what.startswith("Invalid read of size") for fault in found)


def test_an_output_that_nobody_writes_is_found(tmp_path):
    run = check_memory._RUN.replace("np.from_dlpack(output))", "np.empty(4096))")
    found = faults([compiled("mlp", "sequential", 1, tmp_path)], run)
    assert [fault.model for fault in found] == ["an output"]


def test_a_program_that_fails_is_told():
    with pytest.raises(RammerError) as error:
        faults([], "raise SystemExit('no such thing')")
    assert str(error.value) == "the libraries do not run under valgrind: no such thing"
