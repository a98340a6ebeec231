"""The page on architecture is true: what it names is there, and what is there it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fuzzing.random_graphs import random_graph

import tvm_rammer
from tvm_rammer.backend import Backend, registry, rules
from tvm_rammer.rprogram import verify
from tvm_rammer.schedule import CostModel, synchronise
from tvm_rammer.schedule.policies import GROUP as POLICY_GROUP
from tvm_rammer.schedule.policies import finish
from tvm_rammer.schedule.policy import CheckedPlace

PACKAGE = Path(tvm_rammer.__file__).parent
DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "architecture.md").read_text()


def test_its_files_and_folders_exist():
    named = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert len(named) > 40
    missing = [name for name in named if not (PACKAGE / name).exists()]
    assert not missing


def test_it_names_every_room():
    rooms = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE)) == rooms


def test_it_lists_the_whole_protocol_of_a_back_end():
    table = PAGE[PAGE.index("| it says |") : PAGE.index("**Rule**")]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    listed = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    members = {name for name in vars(Backend) if not name.startswith("_")}
    assert listed == members


def test_its_figure_and_its_entry_point_are_there():
    for picture in re.findall(r"\]\((\w+\.svg)\)", PAGE):
        assert (DOCS / picture).exists()
    for group in (POLICY_GROUP, rules.GROUP, registry.GROUP):
        assert f'[project.entry-points."{group}"]' in PAGE


def test_its_policy_plans_a_model():
    """As it stands on the page."""
    page: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], page)
    made = page["make_policy"]()
    graph = random_graph(0, "mixed", 50)
    checked = CheckedPlace(made)(graph, 4, CostModel(1e-7, 1e-7, 1e-6))
    assert verify(finish(synchronise(graph, checked))) is None
