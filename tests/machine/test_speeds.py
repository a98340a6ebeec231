"""One record has the numbers of a machine; models of time read it, and have none of their own."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tvm import tirx

import tvm_rammer
from tvm_rammer.backend.cpu.templates.estimate import tile_seconds
from tvm_rammer.backend.cpu.templates.register_tile import RegisterTile, cycles_of_step
from tvm_rammer.backend.cpu.templates.winograd.channels import Channels
from tvm_rammer.backend.cpu.templates.winograd.cycles import direct_cycles
from tvm_rammer.machine import VDevice
from tvm_rammer.machine.speeds import DEFAULT_SPEEDS, CoreCycles, Speeds
from tvm_rammer.schedule import CostModel

ROOT = Path(tvm_rammer.__file__).parent
#: Where plans and kernels are chosen by what they take.
PRICING = ("schedule", "kernel", "region", "transform", "backend/cpu/templates")
ROUNDING = "sums of floats are not exact"
#: Numbers that say nothing of a machine, and what they are instead.
OTHERS = {
    "backend/cpu/templates/finer.py": ({0.9}, "a gain that is worth a body more"),
    "backend/cpu/templates/winograd/choice.py": (
        {0.9, 7.0, 4.0, 2.0},
        "a gain that is worth its errors; operations of the transforms, which are counted",
    ),
    "backend/cpu/templates/attention_kernel.py": ({1e30}, "a score that hides"),
    "backend/cpu/templates/winograd/line_choice.py": ({0.8, 5.0, 3.0}, "as of choice.py"),
    "schedule/agree.py": ({1e-9}, ROUNDING),
    "schedule/auto.py": (
        {0.01, 0.02, 0.03, 0.003, 1.5},
        "gains that are worth measuring, worth a doubt, and worth hoping for; none at all; so "
        "little by twice the vEUs that half are measured",
    ),
    "schedule/cut_alike.py": ({0.995}, "a gain that is worth more rTasks"),
    "schedule/estf.py": ({0.98, 1e-9}, f"a gain that is worth a second look; {ROUNDING}"),
    "schedule/explanation.py": ({0.9}, "what is close, in words"),
    "schedule/fewer_candidates.py": ({0.995}, "a gain that is worth fewer candidates"),
    "schedule/list_schedule.py": ({1e-9}, ROUNDING),
    "schedule/locality.py": ({1_500_000.0}, "how long planning may take"),
    "schedule/median_interval.py": ({0.95}, "a confidence"),
    "schedule/traffic.py": (
        {0.75, 0.5},
        "of a cache the share of weights, and of an operator the share that a near weight saves: "
        "the simulator's, of any machine",
    ),
    "schedule/wavefront.py": ({1e-9, 1.002}, f"{ROUNDING}; what a smaller arena is worth"),
    "transform/fold_affine.py": ({256.0}, "a bound of values"),
    "transform/merge_products.py": ({0.98}, "a gain that is worth a longer path"),
    "transform/scaled_bytes.py": ({3e-7}, "a rounding"),
    "transform/affine_blocks.py": ({0.02}, "a part of a step of a quantiser"),
    "transform/widen_convolutions.py": (
        {0.8, 0.6, 1.2},
        "a gain that is worth a rewriting; instructions of half a vector and of two that overlap",
    ),
}


def numbers(path: Path) -> set[float]:
    """The literals of a module that could be a machine's: fractions, rates and large counts."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            value = node.value
            if value not in (0, 1) and (isinstance(value, float) or value >= 1_000_000):
                found.add(float(value))
    return found


@pytest.mark.parametrize("folder", PRICING)
def test_models_of_time_have_no_numbers_of_their_own(folder):
    files = {p.relative_to(ROOT).as_posix(): p for p in sorted((ROOT / folder).rglob("*.py"))}
    own = {name: numbers(path) - OTHERS.get(name, (set(),))[0] for name, path in files.items()}
    assert {name: found for name, found in own.items() if found} == {}


@pytest.mark.parametrize("name", OTHERS)
def test_no_exception_outlives_its_number(name):
    assert OTHERS[name][0] <= numbers(ROOT / name)


@pytest.mark.parametrize("record", [Speeds, CoreCycles])
def test_every_number_of_the_record_is_read(record):
    """By its name, somewhere in the package."""
    text = "".join(path.read_text() for path in ROOT.rglob("*.py") if path.name != "speeds.py")
    assert [field.name for field in fields(record) if f".{field.name}" not in text] == []


def device(**cycles: float) -> VDevice:
    """Vectors of 16 bytes, and some numbers of its own."""
    changed = replace(DEFAULT_SPEEDS, cycles=replace(DEFAULT_SPEEDS.cycles, **cycles))
    return VDevice("test", speeds=changed)


def test_a_slower_core_is_priced_slower():
    usual, slow = device(), device(narrow_product=6.0, direct_overhead=10.0)
    tile = RegisterTile(4, 2, 4)
    assert cycles_of_step(tile, 4, slow) > 5 * cycles_of_step(tile, 4, usual)
    channels = Channels(64, 64, 1)
    assert direct_cycles(100, 9, channels, slow) > 5 * direct_cycles(100, 9, channels, usual)


def test_seconds_are_those_of_the_device():
    x = tirx.decl_buffer((1 << 20,), "float32")
    index = tirx.Var("i", "int32")
    store = tirx.BufferStore(x, tirx.exp(x[index]), [index])
    nest = tirx.For(index, 0, 1 << 20, tirx.ForKind.SERIAL, store)
    usual = tile_seconds(DEFAULT_SPEEDS, nest, 1, 0)
    twice = tile_seconds(replace(DEFAULT_SPEEDS, clock=2 * DEFAULT_SPEEDS.clock), nest, 1, 0)
    assert usual == pytest.approx(2 * twice)
    near = replace(DEFAULT_SPEEDS, cache_bandwidth=1.0)
    assert tile_seconds(near, nest, 1, 1000) == pytest.approx(1000)


def test_a_cost_model_is_that_of_its_device():
    speeds = replace(DEFAULT_SPEEDS, shared_bandwidth=1e9, far_byte=1e-9)
    costs = CostModel.of(VDevice("test", speeds=speeds))
    assert (costs.bandwidth, costs.far_byte) == (1e9, 1e-9)
