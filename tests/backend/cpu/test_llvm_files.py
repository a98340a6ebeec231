"""Every file of LLVM IR is LLVM IR, for every architecture, with the values that it is given."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
import tvm
from tvm import tirx

from tvm_rammer.backend.cpu import llvm
from tvm_rammer.backend.cpu.codegen.argument_text import argument_functions, check_function
from tvm_rammer.backend.cpu.codegen.guard import ARM_FEATURES, X86_FEATURES
from tvm_rammer.backend.cpu.codegen.guard_text import guard_functions
from tvm_rammer.backend.cpu.codegen.llvm_text import report_function, support_functions
from tvm_rammer.backend.cpu.codegen.neighbour_products import float_pairs
from tvm_rammer.backend.cpu.codegen.shards import dispatcher, link_function
from tvm_rammer.backend.cpu.codegen.vector_math import sin
from tvm_rammer.backend.cpu.codegen.vector_math_text import function_text
from tvm_rammer.backend.cpu.host.measure_machine import signal_and_wait
from tvm_rammer.backend.cpu.llvm import llvm_ir
from tvm_rammer.backend.signature import ANY, TensorSpec
from tvm_rammer.kernel import lowering
from tvm_rammer.kernel.bodies import exported
from tvm_rammer.kernel.loops import ROLLED, buffer, loop
from tvm_rammer.kernel.lowering.keep_nan import KeepNaN
from tvm_rammer.kernel.lowering.llvm_file import template

PACKAGES = (llvm.__name__, lowering.__name__)
FILES = [(package, path) for package in PACKAGES for path in sorted(files(package).glob("*.ll"))]
FEATURES = {"x86_64": X86_FEATURES, "aarch64": ARM_FEATURES}
PURPOSES = [
    "kernels",
    "guard",
    "measuring",
    "shard",
    "entries",
    "elementary",
    "extremum",
    "pairs",
    "copies",
]
SPECS = [TensorSpec((2, 3), "float32"), TensorSpec((ANY,), "uint8")]


def texts(architecture: str) -> dict[str, str]:
    """What is linked into modules, by what it is for."""
    rows = [tuple(feature) for feature in FEATURES[architecture].values()]
    arguments = argument_functions() + check_function("region", SPECS)
    kernels = support_functions(architecture) + arguments + report_function("region")
    sine, called = function_text("sine", sin, 1, 8)
    return {
        "kernels": kernels,
        "guard": guard_functions(architecture, rows, "note"),
        "measuring": signal_and_wait(architecture) + llvm_ir("timing_fence"),
        "shard": llvm_ir("shard", dispatcher=dispatcher(0)),
        "entries": imported(link_function(2)),
        "elementary": "\n".join([*called, sine]) + llvm_ir("rolled", rolled=ROLLED),
        "extremum": imported(KeepNaN()(largest())["main"]),
        "pairs": "".join(map(float_pairs, (4, 8, 16))),
        "copies": llvm_ir("apart", apart="rammer_apart"),
    }


def imported(func: tirx.PrimFunc) -> str:
    """The text that a function imports."""
    assert func.body.attr_key == "pragma_import_llvm"
    return func.body.value.value


def largest() -> tvm.IRModule:
    """The larger of two vectors of float32."""
    left, right, result = (buffer(name, (4,)) for name in ("a", "b", "c"))

    def store(lane):
        return tirx.BufferStore(result, tirx.max(left[lane], right[lane]), [lane])

    return tvm.IRModule({"main": tirx.PrimFunc([left, right, result], loop("k", 4, store))})


def parsed(text: str, architecture: str) -> str:
    """The module that LLVM makes of a text and one more function."""
    call = tirx.Evaluate(tirx.call_extern("int32", "abs", 1))
    func = exported("main", [], tirx.AttrStmt(0, "pragma_import_llvm", text, call))
    target = {"kind": "llvm", "mtriple": f"{architecture}-linux-gnu"}
    built = tvm.tirx.build(tvm.IRModule({"main": func}), tvm.target.Target(target, host=target))
    return built.inspect_source("ll")


@pytest.mark.parametrize("architecture", FEATURES)
@pytest.mark.parametrize("purpose", PURPOSES)
def test_llvm_parses_it(purpose, architecture):
    text = texts(architecture)[purpose]
    assert re.findall(r"^define [^@]*@(\w+)\(", text, re.MULTILINE)
    assert f'target triple = "{architecture}' in parsed(text, architecture)


@pytest.mark.parametrize(("package", "path"), FILES, ids=lambda each: getattr(each, "stem", ""))
def test_every_file_is_linked_somewhere(package, path):
    """A file that no text has would be parsed by nobody."""
    lines = template(package, path.stem).template.splitlines()
    plain = [line for line in lines if line and "$" not in line]
    everything = "".join(text for each in FEATURES for text in texts(each).values())
    assert plain[0][0] == ";" and all(line in everything for line in plain)


def test_what_is_no_llvm_ir_is_refused():
    with pytest.raises(Exception, match="expected"):
        parsed("define void @broken( {", "x86_64")


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(KeyError, match="failed"):
        llvm_ir("support", ticks="", flushing=0)
