"""Every file of LLVM IR is LLVM IR, for every architecture, with the values that it is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tvm
from tvm import tirx

from tvm_rammer.backend.cpu import llvm
from tvm_rammer.backend.cpu.codegen.argument_text import argument_functions, check_function
from tvm_rammer.backend.cpu.codegen.guard import ARM_FEATURES, X86_FEATURES
from tvm_rammer.backend.cpu.codegen.guard_text import guard_functions
from tvm_rammer.backend.cpu.codegen.llvm_text import support_functions
from tvm_rammer.backend.cpu.codegen.wait_text import report_function
from tvm_rammer.backend.cpu.host.measure_machine import signal_and_wait
from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.backend.signature import ANY, TensorSpec
from tvm_rammer.kernel.bodies import exported

FILES = sorted(path.stem for path in Path(llvm.__file__).parent.glob("*.ll"))
FEATURES = {"x86_64": X86_FEATURES, "aarch64": ARM_FEATURES}
SPECS = [TensorSpec((2, 3), "float32"), TensorSpec((ANY,), "uint8")]


def texts(architecture: str) -> dict[str, str]:
    """What is linked into modules, by what it is for."""
    rows = [tuple(feature) for feature in FEATURES[architecture].values()]
    arguments = argument_functions() + check_function("region", SPECS)
    kernels = support_functions(architecture) + arguments + report_function("region")
    return {
        "kernels": kernels,
        "guard": guard_functions(architecture, rows, "note"),
        "measuring": signal_and_wait(architecture),
    }


def parsed(text: str, architecture: str) -> str:
    """The module that LLVM makes of a text and one more function."""
    call = tirx.Evaluate(tirx.call_extern("int32", "abs", 1))
    func = exported("main", [], tirx.AttrStmt(0, "pragma_import_llvm", text, call))
    target = {"kind": "llvm", "mtriple": f"{architecture}-linux-gnu"}
    built = tvm.tirx.build(tvm.IRModule({"main": func}), tvm.target.Target(target, host=target))
    return built.inspect_source("ll")


@pytest.mark.parametrize("architecture", FEATURES)
@pytest.mark.parametrize("purpose", ["kernels", "guard", "measuring"])
def test_llvm_parses_it(purpose, architecture):
    text = texts(architecture)[purpose]
    assert re.findall(r"^define [^@]*@(\w+)\(", text, re.MULTILINE)
    assert f'target triple = "{architecture}' in parsed(text, architecture)


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_linked_somewhere(name):
    """A file that no text has would be parsed by nobody."""
    lines = llvm._template(name).template.splitlines()
    plain = [line for line in lines if line.startswith("  ") and "$" not in line]
    everything = "".join(text for each in FEATURES for text in texts(each).values())
    assert plain and all(line in everything for line in plain)


def test_what_is_no_llvm_ir_is_refused():
    with pytest.raises(Exception, match="expected"):
        parsed("define void @broken( {", "x86_64")


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(KeyError, match="failed"):
        llvm_ir("support", ticks="", flushing=0)
