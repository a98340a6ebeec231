"""Pools, rows and points list their tiles, offer smaller ones to large devices, and agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernel_runs import HOST, legalized_func, numbers, run_prim_func
from tvm import relax

from tvm_rammer.backend.cpu.templates.elementwise_rule import Elementwise
from tvm_rammer.backend.cpu.templates.pooling_rule import PooledPoints, Pooling
from tvm_rammer.backend.cpu.templates.reduction_rule import Reduction

OP = relax.op
WIDE = replace(HOST, vector_bytes=64, vector_registers=32, num_veus=2)


def pool():
    x = numbers((1, 17, 17, 128))
    return Pooling(), legalized_func(lambda x: OP.nn.max_pool2d(x, 3, 2, layout="NHWC"), x), x


def softmax():
    x = numbers((96, 130))
    return Reduction(), legalized_func(lambda x: OP.nn.softmax(x, -1), x), x


def sums_across():
    x = numbers((1, 9, 700))
    return Reduction(), legalized_func(lambda x: OP.sum(x, [1]), x), x


def gelu():
    x = numbers((40, 1030))
    return Elementwise(), legalized_func(lambda x: OP.nn.gelu(x), x), x


def transposition():
    x = numbers((300, 260))
    return Elementwise(), legalized_func(lambda x: OP.permute_dims(OP.exp(x)), x), x


MADE = [pool, softmax, sums_across, gelu, transposition]


@pytest.mark.parametrize("make", MADE)
def test_every_configuration_gives_the_same_bits(make):
    rule, func, x = make()
    want = run_prim_func(func, [x]).outputs[0]
    choices = list(rule.choices(func, frozenset(), HOST))
    assert len({choice.text for choice in choices}) == len(choices) > 2
    for seed, choice in enumerate(choices[:: max(1, len(choices) // 5)]):
        run = run_prim_func(func, [x], seed=seed, tuned=lambda *_, c=choice: [c])
        np.testing.assert_array_equal(run.outputs[0], want)
        assert run.origin == rule.name


@pytest.mark.parametrize("make", MADE)
def test_options_tell_how_many_tiles_there_are(make):
    rule, func, x = make()
    found = rule.match(func, frozenset(), HOST)
    for configuration, choice in zip(
        rule.space(found), rule.choices(func, frozenset(), HOST), strict=True
    ):
        tiles = run_prim_func(func, [x], tuned=lambda *_, c=choice: [c]).tiles
        assert tiles == [option(found, configuration).num_tiles]


def option(found, configuration):
    """Pools are asked for all sizes of tiles at once."""
    if not isinstance(found, PooledPoints):
        return found.option(configuration)
    of_groups = {each.tiling: each for each in found.options(configuration.groups)}
    return of_groups[configuration]


@pytest.mark.parametrize("make", MADE)
def test_usual_configurations_are_in_the_space_and_have_more_and_more_tiles(make):
    rule, func, _ = make()
    found = rule.match(func, frozenset(), WIDE)
    usual = rule.usual(found)
    assert set(usual) <= set(rule.space(found))
    counts = [option(found, each).num_tiles for each in usual]
    assert counts == sorted(set(counts))


@pytest.mark.parametrize(
    ("make", "tiles"), [(pool, [16, 64]), (softmax, [16, 48]), (gelu, [30, 60])]
)
def test_a_large_device_gets_smaller_tiles(make, tiles):
    rule, func, _ = make()
    found = rule.match(func, frozenset(), WIDE)
    assert [option(found, each).num_tiles for each in rule.usual(found)] == tiles


def test_few_long_rows_stay_in_parts():
    """Parts round in another order: tiles of whole rows cannot stand in for them."""
    rule, x = Reduction(), numbers((2, 1 << 16))
    func = legalized_func(lambda x: OP.sum(x, [1]), x)
    found = rule.match(func, frozenset(), HOST)
    parts, *whole = rule.choices(func, frozenset(), HOST)
    assert [str(each) for each in rule.usual(found)] == ["in parts"]
    assert parts.text == "reduction: in parts"
    assert all(choice.rounding != parts.rounding for choice in whole)
