"""A newcomer finds every module by walking the packages: their first lines name it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import tvm_rammer

ROOT = Path(tvm_rammer.__file__).parent
#: Packages of files that are all of one kind, and say so.
OF_ONE_KIND = ("commands", "testing/models", "testing/outside", "view")
PACKAGES = [
    path.parent.relative_to(ROOT).as_posix()
    for path in sorted(ROOT.rglob("__init__.py"))
    if path.parent != ROOT
]


#: A command's file has its name, whatever else has it.
COMMANDS = ROOT / "commands"


def modules_of(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("package", ["", *PACKAGES])
def test_neighbours_share_no_name(package):
    """Of the modules of folders that stand side by side, each name is one module's."""
    folders = [path.parent for path in sorted((ROOT / package).glob("*/__init__.py"))]
    homes: dict[str, list[str]] = {}
    for folder in folders:
        for name in modules_of(folder) if folder != COMMANDS else ():
            homes.setdefault(name, []).append(folder.name)
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert not shared


def test_a_class_has_a_name_of_its_own():
    homes: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert not shared


def test_a_file_of_tests_has_a_name_of_its_own():
    """pytest imports them all as modules without a package."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert not {name for name in names if names.count(name) > 1}


@pytest.mark.parametrize("package", [p for p in PACKAGES if p not in OF_ONE_KIND])
def test_a_package_names_its_modules(package):
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    named = re.findall(r"``(\w+\*?)``", text)
    files = {p.stem for p in (ROOT / package).glob("*.py")} - {"__init__"}
    folders = {p.parent.name for p in (ROOT / package).glob("*/__init__.py")}
    starts = tuple(name[:-1] for name in named if name.endswith("*"))
    left_out = {
        m for m in files | folders if m not in named and not (starts and m.startswith(starts))
    }
    assert not left_out, f"{package}/__init__.py does not name {', '.join(sorted(left_out))}"


@pytest.mark.parametrize(
    "package", ["schedule", "rprogram", "machine", "region", "runtime", "transform"]
)
def test_what_is_named_is_there(package):
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    missing = [
        n for n in re.findall(r"``(\w+)``", text) if not (ROOT / package / f"{n}.py").exists()
    ]
    assert not missing, f"{package} has no {', '.join(missing)}"
