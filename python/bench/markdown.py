"""Markdown tables, and pages."""

from __future__ import annotations

from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; all but the first ``left`` columns hold numbers."""
    rule = ["---"] * left + ["--:"] * (len(columns) - left)
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in (columns, rule, *rows))


def whole_page(parts: Sequence[str]) -> str:
    """A page of the parts that have a text."""
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    """A bar would end the cell, a line break the row."""
    return " ".join(text.split()).replace("|", "\\|")
