"""Imports run one way, and the core does not know what kind of device it plans for."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import tvm_rammer

ROOT = Path(tvm_rammer.__file__).parent
#: Each imports of those before it, and of no other.
ROOMS = (
    *("rprogram", "machine", "schedule", "kernel", "backend", "region", "transform"),
    *("frontend", "view", "runtime", "tuning", "testing", "commands"),
)
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
MODULES = {
    f"tvm_rammer.{name.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__"): path
    for name, path in FILES.items()
}
BACKENDS = sorted(path.parent.name for path in (ROOT / "backend").glob("*/__init__.py"))


@cache
def imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{each.name}" for each in node.names}
            found |= {name if name in MODULES else node.module for name in full}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found & MODULES.keys()


def room_of(module: str) -> str | None:
    """The room of a module; None of one that stands in none."""
    _, _, inside = module.partition(".")
    room = inside.partition(".")[0]
    return room if room and (ROOT / room / "__init__.py").exists() else None


def test_every_room_has_its_place():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_run_down(room):
    later = ROOMS[ROOMS.index(room) + 1 :]
    up = {
        (name, module)
        for name, path in FILES.items()
        if name.startswith(f"{room}/")
        for module in imports(path)
        if room_of(module) in later
    }
    assert not up


def test_no_modules_import_each_other():
    """Not even the long way round, or inside of functions: a CycleError lists who does."""
    TopologicalSorter({name: imports(path) for name, path in MODULES.items()}).prepare()


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_a_back_end_itself_imports_it(backend):
    room = f"tvm_rammer.backend.{backend}"
    inside = f"backend/{backend}/"
    users = {
        name
        for name, path in FILES.items()
        if not name.startswith(inside)
        and any(each == room or each.startswith(f"{room}.") for each in imports(path))
    }
    assert not users


def test_nothing_asks_for_the_kind_of_a_device():
    """What depends on it is a method of the back end."""
    asking = [
        f"{name}:{node.lineno}"
        for name, path in FILES.items()
        if not name.startswith("backend/")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        and any(
            isinstance(side, ast.Constant) and side.value in (*BACKENDS, "cuda", "llvm")
            for side in (node.left, *node.comparators)
        )
    ]
    assert not asking
