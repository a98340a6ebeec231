"""A table of texts as the scripts print it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def console_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """The first column is of names, all others are of numbers."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
