"""Makes the notebooks in ``tutorials/``, executed, from the Markdown files beside them.

``python python/make_tutorials.py`` writes all; a name or two after it, those. Cells run in this
process one after the other, as in a notebook. Of what a library or a profile shows only the picture
is kept: it needs no script, and it is small.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "tutorials"

_CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Cell:
    """A cell of a notebook; ``kind`` is ``"code"`` or ``"markdown"``."""

    kind: str
    source: str


def read_cells(text: str) -> list[Cell]:
    """The cells of a Markdown file: its blocks of Python, and what stands between them."""
    parts = _CODE.split(text)
    kinds = ("markdown", "code")
    cells = [Cell(kinds[number % 2], part.strip()) for number, part in enumerate(parts)]
    return [cell for cell in cells if cell.source]


def execute(cells: Sequence[Cell]) -> Iterator[list[dict[str, Any]]]:
    """Run the code of a notebook; the outputs of each cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for count, cell in enumerate(cells, 1):
        yield _run(cell.source, names, count) if cell.kind == "code" else []


def notebook(cells: Sequence[Cell], outputs: Sequence[list[dict[str, Any]]]) -> dict[str, Any]:
    """The notebook as Jupyter's format, version 4.5, has it."""
    made = []
    for number, (cell, shown) in enumerate(zip(cells, outputs, strict=True), 1):
        lines = cell.source.splitlines(keepends=True)
        entry = {"cell_type": cell.kind, "id": f"cell{number}", "metadata": {}, "source": lines}
        if cell.kind == "code":
            entry |= {"execution_count": number, "outputs": shown}
        made.append(entry)
    return {"cells": made, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, and the value of the expression that it ends in."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        code = compile(ast.Expression(last.value), "<cell>", "eval") if last is not None else None
        value = eval(code, names) if code is not None else None
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        outputs.append(
            {
                "data": _shown(value),
                "execution_count": count,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return outputs


def _shown(value: Any) -> dict[str, list[str]]:
    shown = {"text/plain": repr(value).splitlines(keepends=True)}
    if (picture := getattr(value, "_repr_svg_", lambda: None)()) is not None:
        return {"image/svg+xml": picture.splitlines(keepends=True), **shown}
    return shown


def main() -> None:
    """Write the notebooks that are named on the command line, or all."""
    names = sys.argv[1:] or sorted(path.stem for path in TUTORIALS.glob("*.md"))
    for name in names:
        cells = read_cells((TUTORIALS / f"{name}.md").read_text())
        made = notebook(cells, list(execute(cells)))
        path = TUTORIALS / f"{name}.ipynb"
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
