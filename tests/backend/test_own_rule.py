"""A rule from outside of the package competes with our own; what is wrong with one is named."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
import tvm_ffi
from kernel_runs import legalized_func, numbers
from tvm import relax, te, tirx
from tvm.script import tirx as T

import tvm_rammer
from tvm_rammer.backend import backend_named, rules
from tvm_rammer.backend.cpu.templates.outer_product_rules import Convolution, Depthwise, Matmul
from tvm_rammer.backend.cpu.templates.winograd.rule import Winograd
from tvm_rammer.errors import InputError
from tvm_rammer.kernel.scheduled import Scheduled, Template
from tvm_rammer.machine import VDevice

SHAPE = (64, 128)
DEVICE = VDevice("test", num_veus=2)


class PrefixSums(Template):
    """Computes ``y[i, j] = sum(x[i, k] for k <= j)`` in one pass over each row."""

    name = "prefix sums"

    def match(self, func, constants, vdevice):
        found = []
        tvm_ffi.structural_walk(func.body, (tirx.LE, found.append))
        return tuple(map(int, func.params[0].shape)) if len(found) == 1 else None

    def space(self, found):
        return [number for number in (4, 1, 2, 8) if found[0] % number == 0]

    def emit(self, found, configuration):
        (rows, length), tile = found, configuration

        @T.prim_func(private=True)
        def sums(x: T.Buffer((rows, length), "float32"), y: T.Buffer((rows, length), "float32")):
            for t in T.parallel(rows // tile):
                for r in range(tile):
                    total = T.alloc_buffer((1,), "float32", scope="local")
                    total[0] = T.float32(0)
                    for k in range(length):
                        total[0] = total[0] + x[t * tile + r, k]
                        y[t * tile + r, k] = total[0]

        return Scheduled(sums, self.name, f"{tile} rows")


class ColumnAfterColumn(PrefixSums):
    """The same in a single tile, by as many sums as there are elements in a row."""

    name = "column after column"

    def space(self, found):
        return [found[0]]

    def emit(self, found, configuration):
        rows, length = found

        @T.prim_func(private=True)
        def sums(x: T.Buffer((rows, length), "float32"), y: T.Buffer((rows, length), "float32")):
            for r in range(rows):
                for j in range(length):
                    y[r, j] = T.float32(0)
                    for k in range(length):
                        y[r, j] = y[r, j] + T.Select(k <= j, x[r, k], T.float32(0))

        return Scheduled(sums, self.name, "all rows")


def prefix_sums(x):
    k = te.reduce_axis((0, SHAPE[1]), "k")
    return te.compute(x.shape, lambda i, j: te.sum(tirx.Select(k <= j, x[i, k], 0.0), axis=k))


def model():
    """The prefix sums of two tensors, added up."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in "xy"]
    with builder.function("main", inputs):
        with builder.dataflow():
            left, right = [builder.emit_te(prefix_sums, each) for each in inputs]
            result = builder.emit_output(relax.op.add(left, right))
        builder.emit_func_output(result)
    return builder.get()


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch):
    monkeypatch.setattr(rules, "_registered", dict(rules._registered))
    rules.find_rules.cache_clear()
    yield
    rules.find_rules.cache_clear()


def origins(library):
    (program,) = library.programs.values()
    return {kernel.origin for kernel in program.kernels}


def operator():
    """The operator of the model that has no element-wise definition."""
    return next(f for v, f in model().functions_items() if v.name_hint == "prefix_sums")


def schedule():
    """That operator as processors compute it."""
    return backend_named("cpu").schedule(operator(), frozenset(), DEVICE, 0.0)


def refused(rule):
    tvm_rammer.register_rule(rule)
    with pytest.raises(InputError) as error:
        schedule()
    return str(error.value)


def test_what_takes_less_is_compiled_and_right():
    tvm_rammer.register_rule(PrefixSums())
    library = tvm_rammer.build(model(), num_veus=2, oversubscribe=True, policy="wavefront")
    assert origins(library) == {"prefix sums", "elementwise"}
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(SHAPE).astype("float32") for _ in range(2))
    (got,) = library.create()(x, y)
    np.testing.assert_allclose(got.numpy(), np.cumsum(x, 1) + np.cumsum(y, 1), rtol=1e-4, atol=1e-4)


def test_what_takes_longer_loses():
    usual = schedule()
    tvm_rammer.register_rule(ColumnAfterColumn())
    assert schedule().origin == usual.origin == "reduction"


def test_the_tuner_searches_its_space():
    """Behind what it searched without the rule."""

    def texts() -> list[str]:
        choices = backend_named("cpu").tuner.choices(operator(), frozenset(), DEVICE, 0.0)
        return [choice.text for choice in choices]

    without = texts()
    tvm_rammer.register_rule(PrefixSums())
    assert texts() == [*without, *(f"prefix sums: {rows}" for rows in (4, 1, 2, 8))]


def test_finer_configurations_become_candidates():
    class InTwoSizes(PrefixSums):
        def usual(self, found):
            return [8, 1]

        def rounding(self, configuration):
            return ("in order",)

    tvm_rammer.register_rule(InTwoSizes())
    assert [each.tiling for each in schedule().variants()] == ["8 rows", "1 rows"]


def test_other_packages_offer_theirs_by_entry_points(monkeypatch):
    entry = SimpleNamespace(name="mine", value="package:PrefixSums", load=lambda: PrefixSums)
    groups = {"tvm_rammer.rules": [entry]}
    monkeypatch.setattr(metadata, "entry_points", lambda group: groups.get(group, []))
    assert schedule().origin == "prefix sums"


@pytest.mark.parametrize("step", ["match", "space", "usual"])
def test_a_rule_that_raises_is_named(step):
    class Broken(PrefixSums):
        pass

    def broken(*arguments):
        raise ValueError("no idea")

    setattr(Broken, step, broken)
    assert refused(Broken()) == (
        f"the rule 'prefix sums' ({__name__}.{Broken.__qualname__}) raised ValueError in {step}: "
        "no idea; mend or uninstall its package"
    )


def test_a_rule_that_raises_while_it_emits_is_named():
    class Broken(PrefixSums):
        def emit(self, found, configuration):
            raise ValueError("no idea")

    assert refused(Broken()) == (
        f"the rule 'prefix sums' ({__name__}.{Broken.__qualname__}) raised ValueError emitting "
        "'4': no idea; mend or uninstall its package"
    )


def test_a_rule_that_raises_ends_a_build_with_its_name():
    class Broken(PrefixSums):
        def space(self, found):
            return 3

    tvm_rammer.register_rule(Broken())
    with pytest.raises(InputError) as error:
        tvm_rammer.build(model(), num_veus=1)
    assert str(error.value) == (
        f"the rule 'prefix sums' ({__name__}.{Broken.__qualname__}) raised TypeError in space: "
        "'int' is no sequence of configurations; mend or uninstall its package"
    )


def test_a_configuration_outside_of_its_space_is_refused():
    class Outside(PrefixSums):
        def usual(self, found):
            return [16]

    assert refused(Outside()) == (
        f"the rule 'prefix sums' ({__name__}.{Outside.__qualname__}) takes '16', which is not "
        "among the 4 configurations of its space; mend its package"
    )


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (None, "'NoneType' and no Scheduled"),
        (
            lambda: Scheduled(tirx.PrimFunc([], tirx.Evaluate(0)), "x", ""),
            "0 parameters instead of 2",
        ),
        (
            lambda: PrefixSums().emit((SHAPE[0], 2 * SHAPE[1]), 4),
            "another shape or type of parameter 0",
        ),
    ],
)
def test_what_cannot_stand_in_for_the_operator_is_refused(made, problem):
    class Wrong(PrefixSums):
        def emit(self, found, configuration):
            return made and made()

    assert refused(Wrong()) == (
        f"the rule 'prefix sums' ({__name__}.{Wrong.__qualname__}) emitted {problem} for '4'; "
        "mend its package"
    )


def test_a_name_that_is_taken_is_refused():
    class Matmul(PrefixSums):
        name = "matmul"

    with pytest.raises(InputError) as error:
        tvm_rammer.register_rule(Matmul())
    assert str(error.value) == (
        "there is a rule 'matmul' already, the back end's own: "
        f"give {__name__}.{Matmul.__qualname__} another name"
    )
    tvm_rammer.register_rule(PrefixSums())
    with pytest.raises(InputError) as error:
        tvm_rammer.register_rule(PrefixSums())
    assert str(error.value) == (
        f"there is a rule 'prefix sums' already, {__name__}.PrefixSums: "
        f"give {__name__}.PrefixSums another name"
    )


def test_what_is_no_rule_is_refused():
    with pytest.raises(InputError) as error:
        tvm_rammer.register_rule("matmul")
    assert str(error.value) == (
        "builtins.str is no rule: give register_rule a tvm_rammer.kernel.scheduled.Template"
    )


def test_a_back_end_without_rules_takes_none():
    with pytest.raises(InputError) as error:
        tvm_rammer.register_rule(PrefixSums(), backend="interpret")
    assert str(error.value) == (
        "the back end 'interpret' asks no rules, "
        f"such as the rule 'prefix sums' ({__name__}.PrefixSums)"
    )


NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI", "padding": 1}


@pytest.mark.parametrize(
    ("template", "build", "shapes"),
    [
        (Matmul(), relax.op.matmul, ((7, 96), (96, 80))),
        (
            Convolution(),
            lambda x, w: relax.op.nn.conv2d(x, w, **NHWC),
            ((1, 14, 14, 32), (64, 3, 3, 32)),
        ),
        (
            Winograd(),
            lambda x, w: relax.op.nn.conv2d(x, w, **NHWC),
            ((1, 14, 14, 64), (64, 3, 3, 64)),
        ),
        (
            Depthwise(),
            lambda x, w: relax.op.nn.conv2d(x, w, groups=32, **NHWC),
            ((1, 14, 14, 32), (32, 3, 3, 1)),
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_our_own_too_take_configurations_of_their_space(template, build, shapes):
    func = legalized_func(build, *map(numbers, shapes))
    found = template.match(func, frozenset({1}), DEVICE)
    chosen, space = template.usual(found), template.space(found)
    assert chosen
    assert set(chosen) <= set(space)
