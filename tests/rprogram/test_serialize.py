"""A plan as JSON loads back equal; an edited one is refused and the field is named."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import random_program, two_branches

from tvm_rammer.errors import PlanError
from tvm_rammer.rprogram import Wait, from_json, to_json

PLAN = two_branches()


@given(st.integers(0, 10**6), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_loads_back_equal(seed, veus):
    program = random_program(seed, veus=veus)
    assert from_json(to_json(program)) == program


@given(st.text(), st.floats(0, 1e9))
@settings(max_examples=50, deadline=None)
def test_any_name_and_time_loads_back(name, time):
    kernel = replace(PLAN.kernels[0], tile_time=time, tiling=name)
    program = replace(PLAN, name=name, kernels=(kernel, *PLAN.kernels[1:]))
    assert from_json(to_json(program)) == program


def test_text_has_an_entry_a_line():
    lines = to_json(PLAN).splitlines()
    assert lines[:3] == ["{", '"format_version": 6,', '"name": "two_branches",']
    assert '{"operator": 0, "start": 0, "stop": 4, "waits": 0, "wave": 0},' in lines


def test_what_tasks_wait_for_alike_is_written_and_read_once():
    """Many vEUs that wait for many would make a text of hundreds of megabytes."""
    veus = [(first, replace(second, waits=(Wait(0, 1), Wait(1, 1)))) for first, second in PLAN.veus]
    text = to_json(replace(PLAN, veus=tuple(veus)))
    assert json.loads(text)["waits"] == [[], [[0, 1], [1, 1]]]
    first, second = (tasks[1] for tasks in from_json(text).veus)
    assert first.waits is second.waits


def test_number_that_is_not_finite():
    kernel = replace(PLAN.kernels[0], tile_time=float("inf"))
    with pytest.raises(PlanError) as caught:
        to_json(replace(PLAN, kernels=(kernel, *PLAN.kernels[1:])))
    assert str(caught.value) == (
        "rProgram 'two_branches' has a number that is not finite; correct its kernels"
    )


def set_at(data, path, value):
    *parents, last = path
    for key in parents:
        data = data[key]
    data[last] = value


EDITS = [
    (
        ("format_version",),
        1,
        "the plan has format_version 1, this is 6; make the plan anew",
    ),
    (("name",), None, "name is null; it must be a string"),
    (("buffers",), {}, "buffers is {}; it must be a list"),
    (("buffers", 0), 7, "buffers[0] is 7; it must be an object"),
    (
        ("buffers", 2, "space"),
        "heap",
        'buffers[2].space is "heap"; '
        "it must be one of 'arena', 'constant', 'input', 'output', 'part'",
    ),
    (("buffers", 2, "shape", 1), 8.0, "buffers[2].shape[1] is 8.0; it must be an integer"),
    (
        ("kernels", 1, "modes", 2),
        ["write"],
        "kernels[1].modes[2] is [\"write\"]; it must be one of 'read', 'write'",
    ),
    (("kernels", 1, "tile_time"), "2 us", 'kernels[1].tile_time is "2 us"; it must be a number'),
    (
        ("operators", 0, "speed"),
        1,
        "operators[0] has the unknown key 'speed'; the keys are name, kernel, arguments",
    ),
    (
        ("waits", 1, 0, 1),
        True,
        "waits[1][0][1] is true; it must be an integer",
    ),
    (
        ("veus", 0, 1, "waits"),
        9,
        "veus[0][1].waits is 9, but there are 3 lists of waits; correct the number",
    ),
    (
        ("arena_bytes",),
        2**64,
        "arena_bytes is 18446744073709551616; it must be an integer of 64 bits",
    ),
    (
        ("policy",),
        [1] * 99,
        "policy is [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ...; it must be a string",
    ),
    (
        ("comment",),
        "hello",
        "the plan has the unknown key 'comment'; the keys are name, policy, buffers, kernels, "
        "operators, veus, waits, arena_bytes, constant_bytes, launches",
    ),
]


@pytest.mark.parametrize(("path", "value", "message"), EDITS)
def test_edited_field_is_named(path, value, message):
    data = json.loads(to_json(PLAN))
    set_at(data, path, value)
    with pytest.raises(PlanError) as caught:
        from_json(json.dumps(data))
    assert str(caught.value) == message


def test_missing_keys_are_named():
    data = json.loads(to_json(PLAN))
    del data["veus"][1][0]["stop"]
    with pytest.raises(PlanError) as caught:
        from_json(json.dumps(data))
    assert str(caught.value) == "veus[1][0] lacks the key 'stop'; add it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the plan is not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[1, 2", "the plan is not JSON: Expecting ',' delimiter: line 1 column 6 (char 5)"),
        ("NaN", "the plan is not JSON: NaN is not a number"),
        ('{"name": 1, "name": 2}', "the plan is not JSON: the key 'name' is there twice"),
        ("[" * 100_000, "the plan is not JSON: "),
        ("9" * 10_000, "the plan is not JSON: "),
        ("[]", "the plan is not a JSON object"),
        ("{}", "the plan has format_version None, this is 6"),
    ],
)
def test_malformed_text(text, message):
    with pytest.raises(PlanError) as caught:
        from_json(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_unsafe_plan_is_refused():
    data = json.loads(to_json(PLAN))
    data["veus"][0][1]["waits"] = 0
    with pytest.raises(PlanError, match="in no fixed order"):
        from_json(json.dumps(data))


def everywhere(data, path=()):
    """The path of everything in a JSON value."""
    entries = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from everywhere(value, (*path, key))


PLACES = list(everywhere(json.loads(to_json(PLAN))))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


@given(st.sampled_from(PLACES), JSON_VALUES)
@settings(max_examples=300, deadline=None)
def test_any_edit_is_a_plan_or_a_plan_error(path, value):
    data = json.loads(to_json(PLAN))
    set_at(data, path, value)
    try:
        program = from_json(json.dumps(data))
    except PlanError as error:
        assert "\n" not in str(error)
    else:
        assert from_json(to_json(program)) == program
