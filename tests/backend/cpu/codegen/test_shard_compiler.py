"""A shard is compiled once, as soon as it is full, whatever is planned with it."""

from __future__ import annotations

import re
import threading

import pytest
from tvm import relax, tirx

from tvm_rammer.backend import resolve_target, vdevice_for
from tvm_rammer.backend.cpu.codegen import shard_compiler, shards
from tvm_rammer.backend.cpu.codegen.region_modules import build_module
from tvm_rammer.backend.cpu.codegen.shard_compiler import ShardCompiler
from tvm_rammer.backend.signature import RegionSignature, TensorSpec
from tvm_rammer.region.kernel_library import KernelLibrary

TARGET = resolve_target()
SPEC = TensorSpec((4,), "float32")
OPERATORS = (relax.op.nn.relu, relax.op.sqrt, relax.op.negative, relax.op.abs, relax.op.square)


@pytest.fixture(scope="module")
def bodies():
    """Five different bodies."""
    library = KernelLibrary(vdevice_for(TARGET))
    for operator in OPERATORS:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType(SPEC.shape, SPEC.dtype))
        with builder.function("main", [x]):
            builder.emit_func_output(builder.emit(operator(x)))
        with TARGET:
            mod = relax.transform.LegalizeOps()(builder.get())
        (func,) = (f for _, f in mod.functions_items() if isinstance(f, tirx.PrimFunc))
        library.get(func, frozenset())
    assert len(library.bodies) == len(OPERATORS)
    return library.bodies


@pytest.fixture
def compiled(monkeypatch):
    """Which bodies were compiled together, in shards of two."""
    lowered = []

    def lower_shard(number, own, names, support):
        lowered.append((number, names))
        return shards.lower_shard(number, own, names, support)

    monkeypatch.setattr(shards, "SHARD_BODIES", 2)
    monkeypatch.setattr(shard_compiler, "SHARD_BODIES", 2)
    monkeypatch.setattr(shard_compiler, "lower_shard", lower_shard)
    return lowered


def test_only_full_shards_are_started(bodies, compiled):
    names = list(bodies)
    compiler = ShardCompiler(TARGET)
    compiler.start({names[0]: bodies[names[0]]})
    assert compiled == []
    for _ in range(2):
        compiler.start(bodies)
    first = compiler.shards({name: bodies[name] for name in names[:4]})
    assert sorted(compiled) == [(0, names[:2]), (1, names[2:4])]
    assert compiler.shards(bodies)[:2] == first
    assert sorted(compiled)[2:] == [(2, names[4:])]


def test_the_last_shard_is_started_when_all_bodies_are_there(bodies, compiled):
    compiler = ShardCompiler(TARGET)
    compiler.start(bodies, complete=True)
    compiler.start(bodies, complete=True)
    assert len(compiler.shards(bodies)) == len(compiled) == 3


def test_other_regions_share_the_shards(bodies, compiled):
    compiler = ShardCompiler(TARGET)
    for name in ("one", "other"):
        module = build_module(bodies, [RegionSignature(name, (SPEC,), (SPEC,))], compiler)
        assert module.implements_function(name)
    assert len(compiled) == 3


def test_bodies_are_functions_of_their_own(bodies):
    """LLVM would optimise a body again, within its dispatcher, if it were inlined there."""
    (shard,) = ShardCompiler(TARGET).shards(bodies)
    text = shard.module.inspect_source("ll")
    found = re.findall(r"^define internal .*@rtask0_(\d+)_compute\(", text, re.MULTILINE)
    assert sorted(map(int, found)) == list(range(len(bodies)))


def test_no_threads_are_left(bodies):
    """Libraries that are kept for long keep no workers that have nothing to do."""
    before = set(threading.enumerate())
    compiler = ShardCompiler(TARGET)
    compiler.shards(bodies)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()
    assert len(compiler.shards(bodies)) == len(shards.shards_of(list(bodies)))


def test_the_seconds_of_a_shard_are_shared_by_code(bodies, compiled):
    compiler = ShardCompiler(TARGET)
    assert compiler.seconds(bodies) == {}
    taken = sum(shard.seconds for shard in compiler.shards(bodies))
    seconds = compiler.seconds(bodies)
    assert seconds.keys() == bodies.keys()
    assert all(each > 0 for each in seconds.values())
    assert sum(seconds.values()) == pytest.approx(taken)
