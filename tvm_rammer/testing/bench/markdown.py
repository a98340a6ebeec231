"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; all but the first ``left`` columns hold numbers."""
    rule = ["---"] * left + ["--:"] * (len(columns) - left)
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in (columns, rule, *rows))


def _cell(text: str) -> str:
    """A bar would end the cell, a line break the row."""
    return " ".join(text.split()).replace("|", "\\|")
