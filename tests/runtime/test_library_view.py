"""What a library says of itself on one line, and what a notebook shows of it."""

from __future__ import annotations

import copy
import pickle
import re
from html import unescape

import pytest
from small_models import Sorting

import tvm_rammer
from tvm_rammer.commands.render import report_facts
from tvm_rammer.errors import LibraryError
from tvm_rammer.runtime import report
from tvm_rammer.runtime.library import Library
from tvm_rammer.units import duration


@pytest.fixture(scope="module")
def library() -> Library:
    return tvm_rammer.build(Sorting, policy="sequential", num_veus=2)


def page_of(library: Library) -> str:
    (page,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)">', library._repr_html_() or "")
    return unescape(page)


def test_one_line_says_what_was_planned(library):
    assert repr(library) == (
        "<tvm_rammer.runtime.library.Library: sequential, 4 operators on 2 vEUs>"
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickle.dumps])
def test_what_runs_cannot_be_copied(library, copied):
    with pytest.raises(LibraryError) as whole:
        copied(library)
    assert str(whole.value) == (
        "a Library cannot be pickled or copied; write it with export_library(path), and read that "
        "with tvm_rammer.load(path)"
    )
    with pytest.raises(LibraryError) as instance:
        copied(library.create())
    assert str(instance.value) == (
        "a GraphModule cannot be pickled or copied; make another by lib.create(), and in another "
        "process load what lib.export_library(path) wrote"
    )


def test_a_notebook_shows_the_simulated_timeline_of_every_region(library):
    page = page_of(library)
    assert len(library.programs) == 2
    for name in library.programs:
        assert f"<h2>{name}, sequential, simulated</h2>" in page
    assert "than the first" not in page
    assert str(library._repr_svg_()).startswith("<svg ")


def test_a_plan_too_large_for_a_notebook_is_a_picture(library, monkeypatch):
    monkeypatch.setattr("tvm_rammer.runtime.library._MOST_TASKS", 3)
    assert library._repr_html_() is None
    assert str(library._repr_svg_()).startswith("<svg ")


def test_without_a_plan_there_is_nothing_to_draw():
    library = tvm_rammer.build(Sorting, form="per-op")
    assert repr(library) == "<tvm_rammer.runtime.library.Library: nothing planned>"
    assert library._repr_html_() is None


def test_a_body_that_takes_the_back_end_long_is_named(monkeypatch):
    """By the first operator that uses it, in the report and where the command line shows it."""
    monkeypatch.setattr(report, "SLOW_SECONDS", 0.0)
    built = tvm_rammer.build(Sorting, policy="sequential", num_veus=2)
    slow = built.report.slow_to_compile
    used = {
        program.kernels[op.kernel].name
        for program in built.programs.values()
        for op in program.operators
    }
    assert {body.kernel for body in slow} == used
    assert [body.seconds for body in slow] == sorted((b.seconds for b in slow), reverse=True)
    line = f"{slow[0].operator}: its body {slow[0].kernel} took {duration(slow[0].seconds)}"
    assert f"slow to compile: {line}" in str(built.report)
    assert ("slow to compile", line) in report_facts(built.report)


def test_what_compiles_fast_is_not_named(library):
    assert library.report.slow_to_compile == ()
