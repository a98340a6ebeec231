"""Write docs/operators.md: what becomes of each ONNX operator.

Each operator's first node tests (for com.microsoft's, the models of our own tests) go through the
front end and the passes before planning: python python/make_operators_page.py docs/operators.md
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import onnx
import tvm
from onnx import defs
from onnx.backend.test.loader import load_model_tests
from tvm import relax

from tvm_rammer import RammerError, load_model
from tvm_rammer.frontend.onnx.operators.table import FUNCTIONS, RULES
from tvm_rammer.frontend.onnx.random_nodes import DRAWING
from tvm_rammer.region.eligibility import NO_OPERATOR, reason_to_leave_out
from tvm_rammer.transform.prepare import Prepare

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "frontend" / "operators"))

import contributed
import node_tests

#: So many examples of an operator are tried; the first that compiles counts.
_EXAMPLES = 3

HEAD = """# ONNX operators

Made by `python python/make_operators_page.py docs/operators.md`; do not edit.

*planned*: part of a co-scheduled region. *outside*: compiled as ordinary Relax, outside of regions.
*computed*: nothing is left of it when the model runs. *refused*: by name, with this reason.
*untried*:
ONNX has no test of it with tensors.

Shape operands (axes, sizes, repeats, depths) are constants, or computed from constants and the
shapes of the inputs. What comes from ours is rewritten by `tvm_rammer/frontend/onnx/operators`, and
what draws random numbers by `random_nodes` beside them.
"""


def rows(names: list[tuple[str, str]]) -> Iterator[str]:
    """A line of the table for each operator."""
    for domain, name in names:
        ours = (domain, name) in RULES or (domain, name) in FUNCTIONS or name in DRAWING
        yield f"| {name} | {_fate(domain, name)} | {'ours' if ours else ''} |"


def onnx_operators() -> list[tuple[str, str]]:
    """Those of ONNX's own domain."""
    schemas = defs.get_all_schemas()
    return sorted(("", s.name) for s in schemas if not s.domain and not s.deprecated)


def contributed_operators() -> list[tuple[str, str]]:
    """Those of com.microsoft that are rewritten, and TVM's own."""
    own = {"BiasGelu", "FastGelu", "Gelu"}
    names = own | {name for domain, name in RULES if domain}
    return sorted((contributed.MICROSOFT, name) for name in names)


def _fate(domain: str, name: str) -> str:
    fates = [_of_model(model) for model in _examples(domain, name)]
    good = [fate for fate in fates if not fate.startswith("refused")]
    return next(iter(good + fates), "untried")


def _examples(domain: str, name: str) -> Iterator[onnx.ModelProto]:
    if domain:
        cases = contributed.CASES | contributed.OF_GPUS
        makers = (maker for key, maker in cases.items() if key.split(",")[0] == name)
        yield from (maker().model for maker in makers)
        return
    for case in _tests().get(name, [])[:_EXAMPLES]:
        try:
            yield node_tests.bound(case)[0]
        except (TypeError, ValueError):
            continue


@cache
def _tests() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for case in load_model_tests(kind="node"):
        nodes = case.model.graph.node
        if len(nodes) == 1 and "expanded" not in case.name:
            found.setdefault(nodes[0].op_type, []).append(case)
    return found


def _of_model(model: onnx.ModelProto) -> str:
    try:
        loaded = load_model(model)
    except RammerError as error:
        return "refused: " + str(error).removeprefix("the model: ").replace("|", "\\|")
    try:
        with tvm.target.Target("llvm"):
            module = Prepare()(loaded.module)
    except Exception as error:
        return f"outside: not prepared ({type(error).__name__})"
    reasons = {reason_to_leave_out(value, module) for value in _values(module)} - {NO_OPERATOR}
    left = sorted(reason for reason in reasons if reason)
    if left:
        return "outside: " + ", ".join(left)
    return "planned" if reasons else "computed"


def _values(module: tvm.IRModule) -> Iterator[Any]:
    body = module["main"].body
    for block in body.blocks if isinstance(body, relax.SeqExpr) else []:
        yield from (binding.value for binding in block.bindings)


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def main(path: Path) -> None:
    """Write the page into PATH."""
    warnings.simplefilter("ignore")
    table = "| operator | what becomes of it | converter |\n|---|---|---|\n"
    parts = [
        HEAD,
        "## ONNX\n\n" + table + "\n".join(rows(onnx_operators())) + "\n",
        "## com.microsoft\n\n" + table + "\n".join(rows(contributed_operators())) + "\n",
    ]
    path.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
