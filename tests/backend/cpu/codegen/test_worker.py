"""Generated code for CPUs: one result, however it is planned and whoever runs it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import tvm_ffi
from stress.compiled_regions import (
    Source,
    aligned_copy,
    in_new_thread,
    same_bits,
    source_of,
    tiny_model,
)
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_rammer.backend import resolve_target
from tvm_rammer.backend.cpu.codegen.llvm_text import support_functions
from tvm_rammer.backend.cpu.codegen.shards import dispatcher, lower_shard, shards_of
from tvm_rammer.backend.cpu.host import host_cpu
from tvm_rammer.backend.cpu.host.cpu_target import target_features
from tvm_rammer.errors import DeviceError
from tvm_rammer.region.compiler import signature_of
from tvm_rammer.rprogram import ALIGNMENT
from tvm_rammer.testing.reference import relative_error

VEUS = (1, 2, 3, 4)
WORKERS = tuple(w for w in (1, 2, 3) if w <= 4 * host_cpu().threads)


@pytest.fixture(scope="module", params=["recommender", "lstm_8x8x256", "resnext29_16x64d"])
def model(request):
    return source_of(request.param)


@pytest.fixture(scope="module")
def lstm():
    return source_of("lstm_8x8x256")


@pytest.fixture(scope="module")
def want(model):
    """What one vEU and one worker compute."""
    alone = model.compile(model.plan("sequential", 1))
    return in_new_thread(lambda: alone.run(model.inputs()), workers=1)


@pytest.mark.parametrize("workers", WORKERS)
def test_one_result_for_any_plan_and_any_workers(model, want, workers):
    """Bit for bit, for 1 to 4 vEUs, in one launch or one per wave; fewer workers never hang."""
    inputs = model.inputs()
    compiled = [
        model.compile(model.plan(policy, veus), by_wave)
        for policy in ("sequential", "wavefront")
        for veus in VEUS
        for by_wave in (False, True)
    ]
    compiled += [model.compile(model.plan(f"random{seed}", veus)) for seed, veus in _seeds()]

    def run():
        return [same_bits(kernel.run(inputs), want) for kernel in compiled]

    assert all(np.isfinite(array).all() for array in want)
    assert in_new_thread(run, workers) == [True] * len(compiled)


def _seeds():
    return enumerate((2, 3, 4, 5, 7))


def test_plans_wait(lstm):
    """The plans of these tests synchronise, or they would show nothing."""
    for policy in ("wavefront", "random3"):
        waits = [wait for _, _, task in lstm.plan(policy, 3).tasks() for wait in task.waits]
        assert len(waits) > 10, policy


@pytest.mark.parametrize(
    ("policy", "veus", "workers", "runs"),
    [
        ("wavefront", 2, 2, 1000),
        ("random3", 2, 2, 1000),
        ("random4", 4, 2, 300),
        ("random4", 4, 3, 100),
    ],
)
def test_many_runs(lstm, policy, veus, workers, runs):
    """Counters start anew in every run: a stale one would let a task start too early."""
    if workers not in WORKERS:
        pytest.skip("this machine has too few cores")
    compiled = lstm.compile(lstm.plan(policy, veus))
    inputs, outputs = lstm.inputs(), compiled.outputs()
    other = lstm.inputs(seed=1)
    first = compiled.run(inputs)
    run = compiled.bind(inputs, outputs)

    def repeat():
        for number in range(runs):
            if number % 10 == 0:
                assert not same_bits(compiled.run(other), first)
            for output in outputs:
                output.fill(np.nan)
            run()
            assert same_bits(outputs, first), f"run {number}"

    in_new_thread(repeat, workers)


def test_two_threads_run_one_kernel_at_once(lstm):
    """Instances share code, constants and table, and nothing else."""
    plan = lstm.plan("wavefront", 2)
    wanted = [lstm.compile(plan).run(lstm.inputs(seed)) for seed in (0, 1)]
    meet = threading.Barrier(2)

    def work(seed):
        compiled = lstm.compile(plan)
        inputs = lstm.inputs(seed)
        meet.wait()
        return [same_bits(compiled.run(inputs), wanted[seed]) for _ in range(200)]

    with ThreadPoolExecutor(2) as threads:
        results = threads.map(lambda seed: in_new_thread(lambda: work(seed), workers=2), (0, 1))
    assert all(map(all, results))


@pytest.mark.parametrize("misaligned_by", [4, 16, 60])
def test_tensors_at_any_address(lstm, misaligned_by):
    """A caller's tensors need the alignment of their elements only."""
    compiled = lstm.compile(lstm.plan("wavefront", 2))
    want = compiled.run(lstm.inputs())
    inputs = [aligned_copy(array, misaligned_by) for array in lstm.inputs()]
    outputs = [aligned_copy(array, misaligned_by) for array in compiled.outputs()]
    compiled.bind(inputs, outputs)()
    assert same_bits(outputs, want)


def test_nothing_else_is_written(lstm):
    """Inputs, constants, table and the bytes around all tensors stay what they were."""
    compiled = lstm.compile(lstm.plan("random2", 3))
    arrays = [
        *lstm.inputs(),
        lstm.graph.constants,
        compiled.table,
        *compiled.outputs(),
        compiled.arena,
    ]
    guarded = [np.full(array.nbytes + 4 * ALIGNMENT, 0xA5, np.uint8) for array in arrays]
    views = []
    for memory, array in zip(guarded, arrays, strict=True):
        start = ALIGNMENT + -memory.ctypes.data % ALIGNMENT
        view = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        view[...] = array
        views.append(view)
    compiled.kernel(*map(tvm_ffi.from_dlpack, views))
    readable = len(lstm.inputs()) + 2
    assert same_bits(views[:readable], arrays[:readable])
    for memory, view in zip(guarded, views, strict=True):
        start = view.ctypes.data - memory.ctypes.data
        assert (memory[:start] == 0xA5).all()
        assert (memory[start + view.nbytes :] == 0xA5).all()


def test_tensors_that_do_not_fit_are_refused(lstm):
    """Another shape, another dtype, another layout: an error, and the next run is clean."""
    compiled = lstm.compile(lstm.plan("wavefront", 2))
    first, *others = lstm.inputs()
    want = compiled.run([first, *others])
    wide = np.zeros((*first.shape[:-1], 2 * first.shape[-1]), first.dtype)
    for wrong in (first[..., :-1].copy(), first.astype("float64"), wide[..., ::2]):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            compiled.bind([wrong, *others], compiled.outputs())()
    assert same_bits(compiled.run([first, *others]), want)


@I.ir_module(s_tir=True)
class Strict:
    """Two branches and a sum; one branch fails on negative numbers."""

    @T.prim_func(private=True, s_tir=True)
    def root(x: T.Buffer((16, 64), "float32"), out: T.Buffer((16, 64), "float32")):
        for i, j in T.grid(16, 64):
            with T.sblock("root"):
                vi, vj = T.axis.remap("SS", [i, j])
                assert x[vi, vj] >= T.float32(0), "negative"
                out[vi, vj] = T.sqrt(x[vi, vj])

    @R.function
    def main(x: R.Tensor((16, 64), "float32")) -> R.Tensor((16, 64), "float32"):
        cls = Strict
        with R.dataflow():
            left = R.call_tir(cls.root, (x,), out_ty=R.Tensor((16, 64), "float32"))
            right = R.tanh(x)
            both = R.matmul(left, R.permute_dims(right))
            out = R.matmul(both, left)
            R.output(out)
        return out


@pytest.fixture(scope="module")
def strict():
    return Source.of_module(Strict)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize(
    ("policy", "by_wave"),
    [("sequential", False), ("wavefront", False), ("wavefront", True), ("random5", False)],
)
def test_a_task_that_fails(strict, policy, by_wave, workers):
    """The run raises, all vEUs come home, and the next run is clean."""
    good = [aligned_copy(np.abs(strict.inputs()[0]))]
    bad = [good[0].copy()]
    bad[0][11, 3] = -1

    def alternate(compiled):
        want = compiled.run(good)
        left, right = np.sqrt(good[0]), np.tanh(good[0])
        assert relative_error(want[0], left @ right.T @ left) < 1e-5
        for _ in range(20):
            with pytest.raises(RuntimeError, match="rammer_region0: an rTask failed"):
                compiled.run(bad)
            assert same_bits(compiled.run(good), want)

    for veus in VEUS:
        compiled = strict.compile(strict.plan(policy, veus), by_wave)
        in_new_thread(lambda kernel=compiled: alternate(kernel), workers)


def test_an_empty_program(lstm):
    """A plan without rTasks runs and touches no output."""
    program = lstm.plan("wavefront", 2)
    compiled = lstm.compile(replace(program, veus=((), ())))
    assert same_bits(compiled.run(lstm.inputs()), compiled.outputs())


def test_a_kernel_symbol_for_each_wave(lstm):
    """Program form exports the region, wavefront form also a kernel for every wave."""
    program = lstm.plan("wavefront", 2)
    whole, waves = lstm.compile(program), lstm.compile(program, by_wave=True)
    assert whole.signature.launches() == (whole.signature.name,)
    assert len(waves.signature.launches()) == program.num_waves > 5
    module = lstm.compiler.module((waves.signature,))
    for symbol in (waves.signature.name, *waves.signature.launches()):
        assert module.implements_function(symbol)


def test_distinct_bodies_are_generated_once(lstm):
    """Many operators, few bodies: the rest is in the table."""
    bodies = lstm.compiler.kernels.bodies
    shards = shards_of(list(bodies))
    assert [name for shard in shards for name in shard] == list(bodies)
    for number, names in enumerate(shards):
        module = lower_shard(number, bodies, names, "")
        symbols = {symbol.name_hint for symbol in module.get_global_vars()}
        tasks = {f"rtask{number}_{k}" for k in range(len(names))}
        own = dispatcher(number)
        assert symbols == {*tasks, own, f"tvm_rammer_{own}"}
    assert len(bodies) <= len(lstm.graph.graph.operators) / 4


X86 = resolve_target(None).attrs["mtriple"].startswith("x86_64")


@pytest.mark.skipif(
    not (X86 and "avx2" in target_features(resolve_target(None))), reason="needs AVX2"
)
@pytest.mark.parametrize("name", ["lstm_8x8x256", "resnext29_16x64d"])
def test_code_for_avx2(name):
    """Half as wide vectors, half as many registers: another tile, the same result."""
    source = Source.of_module(tiny_model(name), {"kind": "llvm", "mcpu": "core-avx2"})
    host = source_of(name)
    compiled = source.compile(source.plan("wavefront", 2))
    got = in_new_thread(lambda: compiled.run(source.inputs()), workers=2)
    want = host.compile(host.plan("wavefront", 2)).run(host.inputs())
    for left, right in zip(got, want, strict=True):
        assert relative_error(left, right) < 1e-5
    text = assembly(source.compiler.module((compiled.signature,)))
    assert "%ymm" in text and "%zmm" not in text


def assembly(module):
    """Of the entries and of all shards."""
    return "".join(part.inspect_source("asm") for part in (module, *module.imports))


def test_code_for_aarch64(tmp_path):
    """It cross-compiles to an object file with acquire loads, release stores and the hint."""
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}
    source = Source.of_module(tiny_model("lstm_8x8x256"), target)
    module = source.compiler.module((signature_of(source.graph.graph),))
    path = tmp_path / "kernel.o"
    module.write_to_file(str(path), "o")
    header = path.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == 183, "EM_AARCH64"
    text = assembly(module)
    assert all(f"\t{mnemonic}\t" in text for mnemonic in ("stlr", "ldapr", "fmla"))
    assert "yield" in text


def test_architectures_without_text():
    with pytest.raises(DeviceError) as caught:
        support_functions("riscv64")
    assert str(caught.value) == (
        "no CPU code generation for architecture 'riscv64'; known: aarch64, x86_64"
    )
