from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.choices import (
    CHOICES,
    AlikeOperators,
    Choices,
    by_model,
    by_rule,
    choices,
    choices_page,
    on_front,
)
from bench.findings import Findings, FindingsSetting
from fuzzing.random_graphs import random_graph
from hypothesis import given
from hypothesis import strategies as st

from tvm_rammer.rprogram import RKernel

FOUND = {
    "mlp": Choices((AlikeOperators("matmul", 2, 1, 3), AlikeOperators("matmul", 3, 2, 5))),
    "vgg19": Choices((AlikeOperators("matmul", 1, 1, 1), AlikeOperators("pooling", 1, 1, 1))),
}

MACHINE = {
    "cpu": "Some CPU",
    "cpus": 2,
    "system": "Linux 6",
    "date": "2026-11-21T17:00:00+00:00",
    "python": "3.11.7",
    "versions": {"apache-tvm": "0.27.0"},
}


def kernel(num_tiles: int, tile_time: float) -> RKernel:
    return RKernel("rtask", num_tiles, ("read", "write"), tile_time, "matmul")


def test_what_is_as_fast_and_smaller_leaves_no_choice() -> None:
    """Sixteen quarters of four tiles that take no longer together are better on every device."""
    assert on_front([kernel(4, 4e-6), kernel(16, 1e-6)], 16) == 1
    assert on_front([kernel(4, 4e-6), kernel(16, 1.1e-6)], 16) == 2


def test_a_tiling_must_have_something_for_it_on_the_device() -> None:
    """Halves gain nothing on two vEUs, and something on four."""
    halves = [kernel(2, 2e-6), kernel(4, 1.1e-6)]
    assert on_front(halves, 2) == 1
    assert on_front(halves, 4) == 2


@given(
    st.lists(st.tuples(st.integers(1, 64), st.floats(1e-7, 1e-5)), min_size=1, max_size=5),
    st.integers(1, 64),
)
def test_what_is_least_in_one_respect_is_on_the_front(
    kernels: list[tuple[int, float]], num_veus: int
) -> None:
    candidates = [kernel(*each) for each in kernels]
    assert 1 <= on_front(candidates, num_veus) <= len(set(kernels))
    assert on_front([*candidates, candidates[0]], num_veus) == on_front(candidates, num_veus)


def test_operators_that_take_no_time_are_not_counted() -> None:
    graph = random_graph(1, "wide", 1)
    (operator,) = graph.operators
    for tile_time, counted in ((1e-9, 0), (1e-6, 1)):
        tilings = (kernel(8, tile_time), kernel(16, 0.7 * tile_time))
        timed = replace(graph, operators=(replace(operator, candidates=tilings),))
        found = choices([timed], (2, 16))
        assert found.alike == (AlikeOperators("matmul", 2, 2, 1),)[:counted]


def test_rows_are_added_up() -> None:
    assert by_model(FOUND) == [
        ("mlp", "8", "8", "100", "5", "62", "3"),
        ("vgg19", "2", "0", "0", "0", "0", "0"),
        ("all", "10", "8", "80", "5", "50", "3"),
    ]
    assert by_rule(FOUND) == [
        ("matmul", "9", "8", "89", "5", "56", "3"),
        ("pooling", "1", "0", "0", "0", "0", "0"),
        ("all", "10", "8", "80", "5", "50", "3"),
    ]


def test_choices_survive_saving_and_have_a_page(tmp_path: Path) -> None:
    setting = FindingsSetting(False, (2, 16))
    found = Findings(setting, MACHINE, FOUND, {"alexnet": "its process ended"})
    found.save(tmp_path / "c.json")
    assert CHOICES.load(tmp_path / "c.json") == found
    text = choices_page(found)
    assert "on a device of 2, 16 vEUs" in text
    assert "| all | 10 | 8 | 80 | 5 | 50 | 3 |" in text
    assert "- alexnet: its process ended" in text
