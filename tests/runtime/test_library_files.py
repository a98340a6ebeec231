"""Libraries are written whole or not at all, and what is no library of ours is said."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from close import assert_outputs_close
from small_graphs import tensors
from small_models import Dynamic, Sorting, dynamic, floats, sorting
from tvm import relax
from tvm.support import cc

import tvm_rammer
from tvm_rammer.errors import DeviceError, InputError, LibraryError
from tvm_rammer.runtime import link
from tvm_rammer.runtime.library import Library
from tvm_rammer.runtime.onnx_reference import run_onnxruntime
from tvm_rammer.testing import models
from tvm_rammer.testing.reference import random_inputs
from tvm_rammer.transform import attach_description

LSTM = models.lstm(2, 2, 16)
INPUTS = random_inputs(LSTM)
WANTED = run_onnxruntime(LSTM, INPUTS)
MACHINE = platform.machine()

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to link")
needs_rights = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


@pytest.fixture(scope="module")
def library() -> Library:
    return tvm_rammer.build(LSTM)


@pytest.fixture(scope="module")
def exported(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library.export_library(tmp_path_factory.mktemp("exported") / "lstm.so")


def load_error(path: Path, checksum: bool = True) -> str:
    with pytest.raises(LibraryError) as refused:
        tvm_rammer.load(path, checksum=checksum)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def export_error(library: Library, path: Path) -> str:
    with pytest.raises(LibraryError) as refused:
        library.export_library(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# Round trips


@needs_compiler
def test_a_loaded_library_runs_and_knows_what_the_built_one_knew(library, exported):
    loaded = tvm_rammer.load(exported)
    assert loaded.programs == library.programs
    assert loaded.report.left_out == library.report.left_out
    assert loaded.description.content == library.description.content
    outputs = loaded.create()(*INPUTS.values())
    assert_outputs_close([t.numpy() for t in outputs], WANTED)


@needs_compiler
def test_a_loaded_library_runs_under_the_vm(exported):
    machine = relax.VirtualMachine(tvm_rammer.load(exported).executable, tvm.cpu())
    machine.set_input("main", *map(tvm.runtime.tensor, INPUTS.values()))
    machine.invoke_stateful("main")
    assert_outputs_close(tensors([machine.get_outputs("main")]), WANTED)


@needs_compiler
def test_a_model_with_operators_in_no_plan_survives_the_round_trip(tmp_path):
    path = tvm_rammer.build(Sorting).export_library(tmp_path / "sorting.so")
    x, y = floats(4, 8), floats(600, 8, seed=1)
    outputs = tvm_rammer.load(path).create()(x, y)
    assert_outputs_close([t.numpy() for t in outputs], sorting(x, y))


@needs_compiler
def test_a_dynamic_model_survives_the_round_trip(tmp_path):
    built = tvm_rammer.build(Dynamic)
    loaded = tvm_rammer.load(built.export_library(tmp_path / "dynamic.so"))
    for executable in (built.executable, loaded.executable):
        machine = relax.VirtualMachine(executable, tvm.cpu())
        for rows in (1, 5):
            x, w = floats(rows, 8), floats(8, 8, seed=1)
            result = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w))
            assert_outputs_close(tensors(result), [dynamic(x, w)])


@needs_compiler
@pytest.mark.parametrize("form", ["wavefront", "per-op"])
def test_every_form_survives_the_round_trip(tmp_path, form):
    path = tvm_rammer.build(LSTM, form=form).export_library(tmp_path / "lstm.so")
    outputs = tvm_rammer.load(path).create()(*INPUTS.values())
    assert_outputs_close([t.numpy() for t in outputs], WANTED)


@needs_compiler
def test_exporting_replaces_an_older_file_and_leaves_nothing_else(library, tmp_path):
    path = tmp_path / "lstm.so"
    path.write_text("older")
    assert library.export_library(str(path)) == path
    assert os.listdir(tmp_path) == ["lstm.so"]
    tvm_rammer.load(path)


# Exporting fails


def test_the_name_must_end_in_so(library, tmp_path):
    path = tmp_path / "lstm.tar"
    assert export_error(library, path) == f"{path}: a library's name ends in .so"


def test_a_folder_that_is_not_there(library, tmp_path):
    path = tmp_path / "nowhere" / "lstm.so"
    assert export_error(library, path) == (
        f"{path}: cannot be written: No such file or directory; choose another path"
    )


@needs_rights
def test_a_folder_that_cannot_be_written(library, tmp_path):
    path = tmp_path / "lstm.so"
    tmp_path.chmod(0o500)
    assert export_error(library, path) == (
        f"{path}: cannot be written: Permission denied; choose another path"
    )


@needs_compiler
def test_a_path_that_is_a_folder(library, tmp_path):
    path = tmp_path / "lstm.so"
    path.mkdir()
    assert export_error(library, path) == (
        f"{path}: cannot be written: Is a directory; choose another path"
    )
    assert os.listdir(tmp_path) == ["lstm.so"]


def test_without_a_compiler(library, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    path = tmp_path / "lstm.so"
    assert export_error(library, path) == (
        f"{path}: no C++ compiler is found; install g++, or set CXX to one"
    )
    assert os.listdir(tmp_path) == []


def test_a_compiler_that_is_not_there(library, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    path = tmp_path / "lstm.so"
    assert export_error(library, path) == (
        f"{path}: CXX is 'no-such-compiler' (No such file or directory); set it to a C++ compiler"
    )
    assert os.listdir(tmp_path) == []


COMPLAINTS = {
    "ld: final link failed: No space left on device": (
        "cannot be written: No space left on device; make room on the disk, or choose another path"
    ),
    "note: be careful\nc++: fatal error: no input files\nmore": (
        "cannot be linked (c++: fatal error: no input files); correct that, or set CXX to another "
        "compiler"
    ),
    "": "cannot be linked (RuntimeError); correct that, or set CXX to another compiler",
}


@pytest.mark.parametrize("said", COMPLAINTS)
def test_what_a_compiler_complains_about(library, tmp_path, monkeypatch, said):
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    path = tmp_path / "lstm.so"
    assert export_error(library, path) == f"{path}: {COMPLAINTS[said]}"
    assert os.listdir(tmp_path) == ["compiler"]


@needs_compiler
def test_a_compiler_for_another_processor(tmp_path, monkeypatch):
    other = "aarch64" if MACHINE == "x86_64" else "x86_64"
    monkeypatch.setenv("CXX", "g++")
    target = {"kind": "llvm", "mtriple": f"{other}-linux-gnu", "num-cores": 2}
    library = tvm_rammer.build(models.lstm(1, 1, hidden=16), target=target, policy="sequential")
    path = tmp_path / "other.so"
    assert export_error(library, path) == (
        f"{path}: cannot be linked (g++ does not link for {other}); "
        f"set CXX to a compiler that does, e.g. CXX={other}-linux-gnu-g++"
    )
    assert os.listdir(tmp_path) == []


def test_a_file_never_appears_half_written(library, tmp_path, monkeypatch):
    path = tmp_path / "lstm.so"
    path.write_text("older")

    def fail(name: str, objects: list[str]) -> None:
        assert {Path(each).parent.parent for each in [name, objects[-1]]} == {tmp_path}
        Path(name).write_text("half of a libr")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cc, "create_shared", fail)
    assert export_error(library, path) == (
        f"{path}: cannot be written: No space left on device; "
        "make room on the disk, or choose another path"
    )
    assert os.listdir(tmp_path) == ["lstm.so"]
    assert path.read_text() == "older"


#: Writes no file of more than 300 KiB, of which the weights of the model are more.
FULL = """
import resource, sys, tvm_rammer
from tvm_rammer.testing.models import get_model
library = tvm_rammer.build(get_model("lstm_8x8x256").build())
resource.setrlimit(resource.RLIMIT_FSIZE, (300 << 10, 300 << 10))
try:
    library.export_library(sys.argv[1])
except tvm_rammer.errors.LibraryError as error:
    print(error)
"""


@needs_compiler
def test_a_disk_that_is_full_ends_no_process(tmp_path):
    path = tmp_path / "lstm.so"
    run = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith(f"{path}: cannot be written: File too large; ")
    assert os.listdir(tmp_path) == []


@needs_compiler
def test_weights_beyond_the_reach_of_code_are_read(library, tmp_path, monkeypatch):
    monkeypatch.setattr(link, "_FAR_BYTES", 0)
    path = library.export_library(tmp_path / "far.so")
    assert b".lrodata" in path.read_bytes() or platform.machine() != "x86_64"
    outputs = tvm_rammer.load(path).create()(*INPUTS.values())
    assert_outputs_close([t.numpy() for t in outputs], WANTED)


@needs_compiler
def test_a_folder_may_have_any_name(library, tmp_path):
    folder = tmp_path / 'a "b" \\ c%é'
    folder.mkdir()
    outputs = tvm_rammer.load(library.export_library(folder / "lstm.so")).create()(*INPUTS.values())
    assert_outputs_close([t.numpy() for t in outputs], WANTED)


@needs_compiler
def test_a_loaded_library_is_not_exported_again(exported, tmp_path):
    path = tmp_path / "again.so"
    assert export_error(tvm_rammer.load(exported), path) == (
        f"{path}: a loaded library is a file already; copy that"
    )


# Loading fails


def test_a_file_that_is_not_there(tmp_path):
    path = tmp_path / "missing.so"
    assert load_error(path) == f"{path}: no such file; export a library there first"
    assert load_error(tmp_path) == f"{tmp_path}: is a folder; give the file of a library"


@pytest.mark.parametrize("content", [b"", b"not a library" * 10, b"\x7fELF" + bytes(60)])
def test_a_file_that_is_no_library(tmp_path, content):
    path = tmp_path / "garbage.so"
    path.write_bytes(content)
    assert load_error(path) == f"{path}: no shared object; compile the model again"


@needs_compiler
@pytest.mark.parametrize("part", [0.01, 0.5, 0.9])
def test_a_library_that_is_cut_short(exported, tmp_path, part):
    path = tmp_path / "part.so"
    content = exported.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    assert load_error(path) == f"{path}: cut short; compile the model again"


@needs_compiler
@pytest.mark.parametrize("field", [range(32, 40), range(40, 48)])
def test_a_header_that_leads_out_of_the_file(exported, tmp_path, field):
    """Where the tables of segments and of sections are said to be."""
    path = tmp_path / "wild.so"
    content = bytearray(exported.read_bytes())
    for place in field:
        content[place] = 0xFF
    path.write_bytes(content)
    assert load_error(path) == f"{path}: cut short; compile the model again"


@needs_compiler
def test_a_library_for_another_processor(exported, tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert load_error(exported) == (
        f"{exported}: compiled for {MACHINE}, this machine is riscv64; compile the model again"
    )


@needs_compiler
def test_a_shared_object_that_is_no_library(tmp_path):
    path, source = tmp_path / "other.so", tmp_path / "other.c"
    source.write_text("extern int missing(void); int other(void) { return missing(); }")
    subprocess.run(["g++", "-shared", "-Wl,-z,now", "-o", path, source], check=True)
    message = load_error(path, checksum=False)
    assert message.startswith(f"{path}: TVM cannot load it (")
    assert message.endswith("); compile the model again")


@needs_compiler
def test_a_library_of_plain_tvm(tmp_path):
    path = tmp_path / "plain.so"
    relax.build(Sorting, "llvm").export_library(str(path))
    assert load_error(path, checksum=False) == (
        f"{path}: not a library of tvm_rammer (no tvm_rammer_describe); "
        "compile the model with tvm_rammer.build or `tvm-rammer compile`"
    )


@needs_compiler
def test_a_library_of_tvm_without_a_vm(tmp_path):
    path = tmp_path / "kernels.so"
    a = tvm.te.placeholder((4,), name="a")
    b = tvm.te.compute((4,), lambda i: a[i] + 1, name="b")
    kernel = tvm.te.create_prim_func([a, b])
    tvm.compile(kernel, target="llvm").export_library(str(path))
    message = load_error(path, checksum=False)
    assert message == f"{path}: not a library of tvm_rammer; compile the model"


@needs_compiler
def test_a_library_of_another_format(tmp_path, monkeypatch):
    path = tmp_path / "future.so"
    library = tvm_rammer.build(LSTM)
    with monkeypatch.context() as patched:
        patched.setattr(attach_description, "FORMAT_VERSION", 99)
        library.replan(policy="sequential").export_library(path)
    assert load_error(path) == (
        f"{path}: library format 99, this version reads {attach_description.FORMAT_VERSION}; "
        "compile the model again"
    )


@needs_compiler
def test_a_library_of_another_tvm(exported, monkeypatch):
    compiled = tvm.__version__.split("+")[0]
    monkeypatch.setattr(tvm, "__version__", "0.28.0")
    assert load_error(exported) == (
        f"{exported}: compiled with TVM {compiled}, this is TVM 0.28.0; compile the model again"
    )


# Planning anew


def test_a_library_that_was_built_is_planned_anew(library):
    planned = library.replan(policy="sequential", num_veus=1)
    assert library.description.policy == "auto"
    assert (planned.description.policy, planned.description.num_veus) == ("sequential", 1)


@needs_compiler
def test_a_library_that_was_loaded_is_not(exported):
    with pytest.raises(LibraryError) as refused:
        tvm_rammer.load(exported).replan(num_veus=1)
    assert str(refused.value) == (
        "a library that was loaded cannot be planned anew: build the model"
    )


def test_other_kernels_need_a_build_of_their_own(library):
    with pytest.raises(InputError, match=r"^another winograd_tolerance needs a build of its own$"):
        library.replan(winograd_tolerance=0)
    with pytest.raises(InputError, match=r"^another round_data needs a build of its own$"):
        library.replan(round_data=True)
    with pytest.raises(InputError, match=r'^form="per-op" needs a build of its own$'):
        library.replan(form="per-op")
    with pytest.raises(InputError, match=r"^there is no option 'plolicy'; choose of policy, num_v"):
        library.replan(plolicy="auto")


def test_numbers_of_veus_that_cannot_be(library):
    for plan in (library.replan, lambda **options: tvm_rammer.build(LSTM, **options)):
        with pytest.raises(InputError) as none:
            plan(num_veus=0)
        assert str(none.value) == "num_veus is 0: it must be a whole number of at least 1"
        with pytest.raises(DeviceError, match=r"^num_veus is 999, but .*: ask for at most \d+, or"):
            plan(num_veus=999)


# Building


def test_parameters_of_a_relax_model_are_bound():
    x, y = floats(4, 8), floats(600, 8, seed=1)
    module = tvm_rammer.build(Sorting, params={"y": y}).create()
    assert module.get_num_inputs() == 1
    assert_outputs_close([t.numpy() for t in module(x)], sorting(x, y))


def test_parameters_that_are_not_there():
    with pytest.raises(InputError) as refused:
        tvm_rammer.build(Sorting, params={"w": floats(4, 8)})
    assert str(refused.value) == "params: there is no parameter 'w'; main has 'x', 'y'"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            floats(4, 8),
            "params: input 'y' is (600, 8) in the model; the constant's shape (4, 8) does not fit",
        ),
        (
            tvm.runtime.empty((4, 8), "float32"),
            "params: 'y' is float32 of shape (600, 8); got float32 of shape (4, 8)",
        ),
        ("text", "params: the constant 'y' is <U4, not numbers; input 'y' takes float32"),
    ],
)
def test_parameters_that_do_not_fit(value, message):
    with pytest.raises(InputError) as refused:
        tvm_rammer.build(Sorting, params={"y": value})
    assert str(refused.value) == message


def test_the_report_tells_the_plan_and_what_is_left_out():
    text = str(tvm_rammer.build(Sorting).report)
    assert "rammer_region0: " in text
    assert "left out: c: operator without a PrimFunc (relax.sort)" in text


def test_a_function_of_the_library_by_its_name(library):
    assert library["tvm_rammer_num_veus"]() == library.description.num_veus


def test_zero_operators():
    g = models.GraphBuilder("identity")
    g.output("y", g.op("Identity", g.input("x", (2, 3))))
    (output,) = tvm_rammer.build(g.build()).create()(floats(2, 3))
    np.testing.assert_array_equal(output.numpy(), floats(2, 3))
