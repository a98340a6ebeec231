"""The command line does not import PyTorch for what is none of it; a broken one is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import tvm_rammer
from tvm_rammer._autoload import registers_at_import_of_tvm

LOADS = "from tvm_rammer.cli import main\nimport sys\nmain(sys.argv[1:])"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder with a PyTorch that says something and fails."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(
        "print('loud')\nraise RuntimeError('no driver\\nat all')\n"
    )
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "m.pt2").write_bytes(b"x")
    return tmp_path


def run(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess:
    paths = [str(folder), str(Path(tvm_rammer.__file__).parent.parent)]
    start = f"import sys; sys.path[:0] = {paths!r}\n"
    return subprocess.run(
        [sys.executable, "-c", start + code, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.skipif(
    not registers_at_import_of_tvm(),
    reason="without an installed package TVM is imported with tvm_rammer",
)
def test_the_command_line_never_meets_it(broken):
    result = run(broken, LOADS, "compile", "m.onnx", "-o", "m.so", "--policy", "sequential")
    assert (result.returncode, result.stderr) == (0, "")
    assert "loud" not in result.stdout


def test_a_program_of_pytorch_s_says_what_is_wrong(broken):
    result = run(broken, LOADS, "compile", "m.pt2", "-o", "m.so")
    assert result.returncode == 1
    assert "PyTorch cannot be imported" in result.stderr
    assert "(RuntimeError: no driver at all)" in result.stderr


def test_the_package_says_so_too(broken):
    result = run(broken, "import tvm_rammer\ntvm_rammer.build")
    assert result.stderr.splitlines()[-1] == (
        "ImportError: tvm_rammer: PyTorch cannot be imported, and TVM imports it wherever it is "
        "installed (RuntimeError: no driver at all); install PyTorch again, or uninstall it"
    )


def test_it_is_hidden_only_meanwhile(broken):
    code = """
from tvm_rammer._without_torch import import_tvm_without_torch
import_tvm_without_torch()
import tvm
assert not any(type(each).__module__ == "tvm_rammer._without_torch" for each in sys.meta_path)
assert "torch" not in sys.modules
assert tvm.__spec__.loader is tvm.__loader__
assert type(tvm.__loader__).__module__ != "tvm_rammer._without_torch"
try:
    import torch
except RuntimeError as error:
    print(str(error).split()[0])
"""
    result = run(broken, code)
    assert (result.stdout.split(), result.stderr) == (["loud", "no"], "")


def test_a_half_upgraded_tvm_ffi(tmp_path):
    package = tmp_path / "tvm_ffi"
    package.mkdir()
    (package / "__init__.py").write_text("from . import core\n")
    line = run(tmp_path, "import tvm_rammer\ntvm_rammer.build").stderr.splitlines()[-1]
    cause = "TVM cannot be imported (ImportError: cannot import name 'core'"
    advice = (
        'install it again: pip install --force-reinstall "apache-tvm==0.27.*" '
        '"apache-tvm-ffi>=0.1.14.post0,<0.1.15"'
    )
    assert line.startswith(f"ImportError: tvm_rammer: {cause}")
    assert line.endswith(advice)
    result = run(tmp_path, LOADS, "doctor", "--json")
    assert result.returncode == 1
    (finding,) = (f for f in json.loads(result.stdout)["findings"] if f["level"] == "bad")
    assert finding["topic"] == "TVM"
    assert finding["advice"].startswith(cause)
    assert finding["advice"].endswith(advice)
