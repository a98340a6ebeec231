"""Vectors that a schedule promises are found in the code, and their absence is noticed."""

from __future__ import annotations

from functools import reduce

import pytest
import tvm
from kernel_runs import VDEVICES, constant, legalized_func, numbers
from tvm import relax, tirx

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.timing.kernel_timing import Job, Step, compile_jobs
from tvm_rammer.kernel.constraints import Constraint, Vectors, constraint_of, vectors_in
from tvm_rammer.kernel.operands import Operand
from tvm_rammer.region.kernel_library import KernelLibrary

OP = relax.op


def x86(mcpu):
    return {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": mcpu, "num-cores": 64}


AVX512, AVX2, SSE = x86("znver4"), x86("core-avx2"), x86("x86-64")
NEON = {
    "kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1", "num-cores": 64,
}  # fmt: skip


def convolution():
    weight = constant(numbers((32, 3, 3, 16)))

    def build(x):
        layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
        return OP.nn.relu(OP.nn.conv2d(x, weight, padding=1, **layouts))

    return legalized_func(build, numbers((1, 14, 14, 16))), frozenset([1])


def matmul():
    weight = constant(numbers((64, 96)))
    return legalized_func(lambda x: OP.matmul(x, weight), numbers((24, 64))), frozenset([1])


def compiled(func, constants, target):
    """The bodies of a PrimFunc for a target, one after the other, and their code."""
    resolved = resolve_target(target)
    library = KernelLibrary(vdevice_for(resolved), 0.0)
    with resolved:
        kernel = library.get(func, constants)
    return [body_code(library.bodies[s.kernel.name], resolved) for s in kernel.stages]


def body_code(body, target):
    """A body and the module of a job that runs it."""
    pointers = len(body.params) - 2
    job = Job((Step("body", 1, tuple(range(pointers))),), (Operand((64,), "uint8"),) * pointers)
    return body, compile_jobs((job,), {"body": body}, target).module


def vectors(module):
    functions = vectors_in(module.inspect_source("ll"))
    ours = [found for name, found in functions.items() if "job_0" in name]
    return reduce(Vectors.__or__, ours, Vectors())


@pytest.mark.parametrize("make", [convolution, matmul])
@pytest.mark.parametrize(
    ("target", "width"), [(AVX512, 64), (AVX2, 32), (SSE, 16), (NEON, 16)], ids=str
)
def test_templates_keep_their_promise_on_every_target(make, target, width):
    """The widest vectors of the target, in the schedule and in the code."""
    for body, module in compiled(*make(), target):
        promised, found = constraint_of(body), vectors(module)
        assert promised.vectors.multiply_add == width
        assert promised.vectors.store == width
        assert promised.axes
        assert promised.missed(found) is None


@pytest.mark.parametrize("make", [convolution, matmul])
@pytest.mark.parametrize(
    ("target", "instruction", "register"),
    [
        (AVX512, "vfmadd", "%zmm"),
        (AVX2, "vfmadd", "%ymm"),
        (NEON, "fmla\tv", ".4s"),
    ],
    ids=str,
)
def test_the_assembly_has_multiply_adds_of_vectors(make, target, instruction, register):
    """And most of them: a scalar one here and there would be no inner loop."""
    lines = []
    for _, module in compiled(*make(), target):
        lines += [line for line in module.inspect_source("asm").splitlines() if instruction in line]
    assert sum(register in line for line in lines) > max(8, 0.9 * len(lines))


def scaled(lanes_loop, width=16, factor=None):
    """``p1[i] = p0[i] * p0[i] + 1`` for some numbers in a loop of some kind."""
    types = tvm.ir.PointerType(tvm.ir.PrimType("float32"))
    pointers = [tirx.Var(f"p{k}", types) for k in range(2)]
    views = [tirx.decl_buffer((64,), "float32", name=f"view{k}") for k in range(2)]
    start, stop, tile, lane = (tirx.Var(n, "int32") for n in ("start", "stop", "tile", "lane"))
    index = tile * width + lane
    loaded = views[0][index]
    one = tirx.const(1.0, "float32")
    store = tirx.BufferStore(
        views[1], loaded * (loaded if factor is None else factor) + one, [index]
    )
    lanes = tirx.For(lane, 0, width, lanes_loop, store)
    loop = tirx.For(tile, start, stop - start, tirx.ForKind.SERIAL, lanes)
    declared = [tirx.DeclBuffer(v, data=p) for v, p in zip(views, pointers, strict=True)]
    body = tirx.SeqStmt([*declared, loop, tirx.Return(tirx.const(0, "int32"))])
    func = tirx.PrimFunc([start, stop, *pointers], body, ret_type=tvm.ir.PrimType("int32"))
    attributes = {"tirx.noalias": True, "tirx.is_scheduled": True, "s_tir": True}
    return func.with_attrs(attributes)


def test_the_promise_is_the_innermost_loop():
    promised = constraint_of(scaled(tirx.ForKind.VECTORIZED))
    assert promised == Constraint(("lane",), Vectors(multiply_add=64, load=64, store=64))
    assert constraint_of(scaled(tirx.ForKind.SERIAL)) == Constraint((), Vectors())


def test_a_product_with_a_constant_promises_nothing():
    """LLVM makes an addition of twice a number."""
    body = scaled(tirx.ForKind.VECTORIZED, factor=tirx.const(2.0, "float32"))
    assert constraint_of(body).vectors == Vectors(multiply_add=0, load=64, store=64)


def test_scalar_code_is_noticed():
    """The same body, its lanes run one by one."""
    promised = constraint_of(scaled(tirx.ForKind.VECTORIZED))
    plain = resolve_target({**AVX512, "opt-level": 0})
    _, module = body_code(scaled(tirx.ForKind.SERIAL), plain)
    assert vectors(module) == Vectors()
    assert promised.missed(vectors(module)) == "scalar code"


def test_vectors_that_are_too_narrow_are_noticed():
    promised = constraint_of(scaled(tirx.ForKind.VECTORIZED))
    plain = resolve_target({**AVX512, "opt-level": 0})
    _, module = body_code(scaled(tirx.ForKind.VECTORIZED, 4), plain)
    assert promised.missed(vectors(module)) == (
        "multiply-adds of 16 bytes instead of 64, loads of 16 bytes instead of 64, "
        "stores of 16 bytes instead of 64"
    )
    assert promised.missed(Vectors(0, 64, 64)) == "scalar multiply-adds"


def test_calls_for_one_number_at_a_time_are_noticed():
    """LLVM takes a sine of vectors and calls the C library for every lane."""
    func = legalized_func(OP.sin, numbers((64,)))
    ((body, module),) = compiled(func, frozenset(), AVX512)
    assert constraint_of(body).missed(vectors(module)) == "calls of sin"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("  %3 = load <8 x float>, ptr %2, align 4", Vectors(load=32)),
        ("  store <4 x double> %1, ptr %2, align 8", Vectors(store=32)),
        (
            "  %5 = tail call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %1, ...)",
            Vectors(multiply_add=64),
        ),
        ("  %5 = fmul fast <4 x float> %1, %2", Vectors(multiply_add=16)),
        ("  %5 = fmul float %1, %2", Vectors()),
        ("  call void @llvm.memcpy.p0.p0.i64(ptr %1, ptr %2, i64 4, i1 false)", Vectors(0, 64, 64)),
        ("  %2 = tail call float @expf(float %1)", Vectors(calls=frozenset(["expf"]))),
        ("  %2 = call <4 x float> @llvm.pow.v4f32(", Vectors(calls=frozenset(["pow"]))),
        ("  %2 = call float @llvm.sqrt.f32(float %1)", Vectors()),
        ("  %2 = call float @expose(float %1)", Vectors()),
    ],
)
def test_instructions(line, found):
    text = f"define internal i32 @f(ptr %p) #0 {{\n{line}\n}}\n  store <64 x float> outside"
    assert vectors_in(text) == {"f": found}


def test_widths_are_those_of_the_device():
    """One PrimFunc, three devices: the promise follows the vector registers."""
    func, constants = matmul()
    widths = []
    for vdevice in VDEVICES:
        library = KernelLibrary(vdevice)
        with resolve_target():
            (stage,) = library.get(func, constants).stages
        widths.append(constraint_of(library.bodies[stage.kernel.name]).vectors.multiply_add)
    assert widths == [vdevice.vector_bytes for vdevice in VDEVICES]
