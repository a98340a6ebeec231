"""Imports run one way: the core does not know what kind of device it plans for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tvm_rammer

ROOT = Path(tvm_rammer.__file__).parent
#: They look at this machine's processors, and at nothing else.
MEASURE_PROCESSORS = {
    "testing/bench/study.py",
    "testing/compiled_regions.py",
    "testing/kernel_bench.py",
    "testing/machine_state.py",
    "testing/own_cores.py",
    "testing/soak.py",
}
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
BACKENDS = sorted(path.parent.name for path in (ROOT / "backend").glob("*/__init__.py"))


def imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return {name for name in found if name.startswith("tvm_rammer.")}


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
    assert users == (MEASURE_PROCESSORS if backend == "cpu" else set())


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
